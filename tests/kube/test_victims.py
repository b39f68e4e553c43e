"""Which Pods a ReplicaSet gives up first: the order of the real controller, rule by rule, and on the stand-in."""

from __future__ import annotations

import datetime

import pytest

from infscale.kube.cluster import RestCluster
from infscale.kube.rest import Rest
from tests.kube import objects
from tests.kube.controller import follow_replicas, groups
from tests.kube.victims import COST, in_order

NOW_S = 1_800_000_000.0


def at(age_s):
    """A time of the API, so long ago."""
    return datetime.datetime.fromtimestamp(NOW_S - age_s, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def pod(name, *, node="n", phase="Running", ready="True", cost=None, ready_s=1000, age_s=2000, restarts=0, uid="u"):
    """A Pod of one workload."""
    made = objects.pod(name, phase=phase, conditions=[objects.ready(ready, at(ready_s))])
    made["spec"] = {**made["spec"], **({"nodeName": node} if node else {})}
    made["status"]["containerStatuses"] = [{"name": "vllm", "restartCount": restarts}]
    annotations = {} if cost is None else {COST: cost}
    made["metadata"] |= {"annotations": annotations, "creationTimestamp": at(age_s), "uid": uid}
    return made


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (pod("a", node="", cost="9"), pod("b", phase="Pending")),
        (pod("a", phase="Pending", cost="9"), pod("b", ready="False")),
        (pod("a", ready="False", cost="9"), pod("b", cost="-9")),
        (pod("a", cost="-9", restarts=0), pod("b", restarts=9)),
        (pod("a", cost="1"), pod("b", cost="10", ready_s=1)),
        (pod("a", cost="+1"), pod("b", cost="1")),
        (pod("a", ready_s=10, restarts=0), pod("b", ready_s=1000, restarts=9)),
        (pod("a", ready_s=1000, uid="1"), pod("b", ready_s=900, uid="2", restarts=9)),
        (pod("a", restarts=2, age_s=9000), pod("b", restarts=1, age_s=1000)),
        (pod("a", age_s=1000), pod("b", age_s=9000)),
    ],
    ids=["assigned", "phase", "ready", "cost", "numbers", "no int", "ready since", "about as long", "restarts", "age"],
)
def test_the_rules_in_their_order(first, second):
    """Each rule decides before the next, whichever way the Pods are listed."""
    for pods in ([first, second], [second, first]):
        assert in_order(pods, NOW_S)[0] is first


def test_doubled_up():
    """Of Pods that are alike, one of those that share a node leaves first."""
    pods = [pod("a", node="1", ready_s=10), pod("b", node="2"), pod("c", node="2", ready_s=999, uid="c")]

    assert [one["metadata"]["name"] for one in in_order(pods, NOW_S)] == ["c", "b", "a"]


def test_the_cost_chooses(server, in_cluster):
    """On the stand-in the ReplicaSet takes the Pod with the lowest cost, and one that is not ready before it."""
    server.add(objects.deployment(replicas=4))
    sick = {"vllm-00004"}
    follow_replicas(server, "deployments", "vllm", probe=lambda name: name not in sick, gone_after_s=1e9)
    cluster = RestCluster(Rest(in_cluster))
    for name, cost in (("vllm-00001", "100"), ("vllm-00002", "0"), ("vllm-00003", "200"), ("vllm-00004", "300")):
        cluster.annotate_pod(cluster.pod("ml", name), {COST: cost})

    left = []
    for replicas in (3, 2, 1):
        workload = cluster.workload("deployment", "ml", "vllm")
        cluster.set_replicas(workload, replicas, expected_resource_version=workload.resource_version)
        left.append({found.name[-1] for found in cluster.pods("ml", "app=vllm") if found.deleting})

    assert left == [{"4"}, {"4", "2"}, {"4", "2", "1"}]


def test_ordinals_leave_from_the_top(server, in_cluster):
    """A StatefulSet and a LeaderWorkerSet give up the highest ordinal, whatever its cost; groups go whole."""
    server.add(objects.stateful_set("sts", replicas=3))
    server.add(objects.leader_worker_set("lws", replicas=2, size=2))
    follow_replicas(server, "statefulsets", "sts")
    follow_replicas(server, "leaderworkersets", "lws")
    cluster = RestCluster(Rest(in_cluster))
    cluster.annotate_pod(cluster.pod("ml", "sts-0"), {COST: "-9"})
    assert list(groups(server, "lws")) == [(0, ["lws-0", "lws-0-1"]), (1, ["lws-1", "lws-1-1"])]
    assert cluster.workload("lws", "ml", "lws").ready_replicas == 2
    assert [one.name for one in cluster.pods("ml", cluster.workload("lws", "ml", "lws").selector)] == ["lws-0", "lws-1"]

    for kind, name, replicas in (("statefulset", "sts", 2), ("lws", "lws", 1)):
        workload = cluster.workload(kind, "ml", name)
        cluster.set_replicas(workload, replicas, expected_resource_version=workload.resource_version)
        cluster.workload(kind, "ml", name)

    assert [one.name for one in cluster.pods("ml", "app=sts")] == ["sts-0", "sts-1"]
    assert list(groups(server, "lws")) == [(0, ["lws-0", "lws-0-1"])]
    owners = [cluster.pod("ml", name).owner for name in ("sts-0", "lws-0", "lws-0-1")]
    assert [(owner.kind, owner.name) for owner in owners if owner] == [
        ("StatefulSet", "sts"), ("StatefulSet", "lws"), ("StatefulSet", "lws-0")
    ]  # fmt: skip
