"""What a recommender asks of a cluster, over both transports against the stand-in."""

from __future__ import annotations

from dataclasses import replace

import pytest

from infscale.errors import UsageError
from infscale.kube.cluster import RestCluster
from infscale.kube.errors import Conflict, KubeError, NotFound, TimedOut
from infscale.kube.objects import Container, Owner, Role
from infscale.kube.rest import Rest
from tests.kube import objects


def test_deployment(server, cluster):
    """A Deployment comes with its counts, selector, generations and what its containers ask for."""
    containers = [objects.container(cpu="1500m"), objects.container("logger", cpu=None)]
    inits = [objects.container("infscale", "50m", restartPolicy="Always"), objects.container("download", "4")]
    spec: objects.Json = {"template": {"metadata": {}, "spec": {"containers": containers, "initContainers": inits}}}
    server.add(objects.deployment(replicas=3, **spec))
    status = {"replicas": 3, "readyReplicas": 2, "observedGeneration": 1}
    stored = server.change("deployments", "vllm", lambda d: d.update(status=status))

    workload = cluster.workload("deployment", "ml", "vllm")

    assert (workload.kind, str(workload)) == ("Deployment", "deployment ml/vllm")
    assert (workload.spec_replicas, workload.status_replicas, workload.ready_replicas) == (3, 3, 2)
    assert (workload.generation, workload.observed_generation, workload.selector) == (1, 1, "app=vllm")
    assert (workload.uid, workload.resource_version) == (
        stored["metadata"]["uid"],
        stored["metadata"]["resourceVersion"],
    )
    assert workload.containers == (
        Container("vllm", Role.APP, 1500, image="example/x:1"),
        Container("logger", Role.APP, None, image="example/x:1"),
        Container("infscale", Role.SIDECAR, 50, image="example/x:1"),
        Container("download", Role.INIT, 4000, image="example/x:1"),
    )


def test_stateful_set_at_zero(server, cluster):
    """A StatefulSet with no replicas has counts of 0, whatever its status leaves out."""
    server.add(objects.stateful_set(replicas=0))

    workload = cluster.workload("sts", "ml", "vllm")

    assert (workload.spec_replicas, workload.status_replicas, workload.ready_replicas) == (0, 0, 0)
    assert cluster.scale(workload).spec_replicas == 0


@pytest.mark.parametrize("kind", ["lws", "leaderworkerset.x-k8s.io/v1/leaderworkersets"])
def test_anything_with_a_scale(server, cluster, kind):
    """Of other kinds the scale tells counts and selector, wherever the kind keeps its own."""
    server.add(objects.leader_worker_set(replicas=2))

    workload = cluster.workload(kind, "ml", "vllm")
    cluster.set_replicas(workload, 3, expected_resource_version=workload.resource_version)

    assert (workload.kind, workload.spec_replicas) == ("LeaderWorkerSet", 2)
    assert workload.selector == "leaderworkerset.sigs.k8s.io/name=vllm,leaderworkerset.sigs.k8s.io/worker-index=0"
    assert server.get("leaderworkersets", "vllm")["spec"]["replicas"] == 3


def test_set_replicas(server, cluster):
    """The scale is set through the scale subresource, nothing else of the object changes; down to 0 too."""
    before = server.add(objects.deployment(replicas=3))
    workload = cluster.workload("deployment", "ml", "vllm")

    scale = cluster.set_replicas(workload, 5, expected_resource_version=cluster.scale(workload).resource_version)
    after = server.get("deployments", "vllm")
    cluster.set_replicas(workload, 0, expected_resource_version=scale.resource_version)

    assert (scale.spec_replicas, scale.resource_version) == (5, after["metadata"]["resourceVersion"])
    assert after["spec"] == {**before["spec"], "replicas": 5}
    assert server.get("deployments", "vllm")["spec"]["replicas"] == 0
    assert {call.path for call in server.calls("PUT")} == {"/apis/apps/v1/namespaces/ml/deployments/vllm/scale"}


def test_another_wrote_in_between(server, cluster):
    """A write on an old version is a conflict that changes nothing; after reading again it goes."""
    server.add(objects.deployment(replicas=3))
    workload = cluster.workload("deployment", "ml", "vllm")
    server.change("deployments", "vllm", lambda d: d["spec"].update(replicas=4))

    with pytest.raises(Conflict, match=r"PUT deployments/scale vllm in namespace ml: it has changed .* read it again"):
        cluster.set_replicas(workload, 2, expected_resource_version=workload.resource_version)

    assert server.get("deployments", "vllm")["spec"]["replicas"] == 4
    cluster.set_replicas(workload, 2, expected_resource_version=cluster.scale(workload).resource_version)
    assert server.get("deployments", "vllm")["spec"]["replicas"] == 2


def test_what_is_never_sent(server, in_cluster):
    """A count that is none, a write without a version, an empty selector, an unknown kind: refused before any call."""
    server.add(objects.deployment())
    cluster = RestCluster(Rest(in_cluster))
    workload = cluster.workload("deployment", "ml", "vllm")
    server.requests.clear()

    with pytest.raises(UsageError, match="-1 replicas: expected 0 to 2147483647"):
        cluster.set_replicas(workload, -1, expected_resource_version="1")
    with pytest.raises(UsageError, match="without a resource version"):
        cluster.set_replicas(workload, 1, expected_resource_version="")
    with pytest.raises(UsageError, match="empty selector"):
        cluster.pods("ml", "")
    with pytest.raises(UsageError, match="kind 'cronjob': expected deployment, statefulset"):
        cluster.workload("cronjob", "ml", "vllm")
    with pytest.raises(UsageError, match="expected a namespace and a name"):
        cluster.workload("deployment", "", "vllm")

    assert server.calls() == []


def test_no_such_workload(cluster):
    """A workload that is not there is named, with its namespace."""
    with pytest.raises(NotFound, match=r'deployments vllm in namespace ml: there is none \(.*"vllm" not found'):
        cluster.workload("deployment", "ml", "vllm")


def test_pods(server, cluster):
    """Pods come with times, readiness, labels, annotations and requests; what a Pod does not have yet is None."""
    server.clock = lambda: 1_700_000_000.0
    since = "2023-11-14T22:13:30Z"
    server.add(
        objects.pod("a", startTime="2023-11-14T22:13:21Z", podIP="10.0.0.7", conditions=[objects.ready("True", since)])
    )
    server.add(objects.pod("b", phase="Pending"))
    server.add(objects.pod("c", app="other"))
    annotations = {"controller.kubernetes.io/pod-deletion-cost": "-7"}
    server.change("pods", "a", lambda p: p["metadata"].update(annotations=annotations, deletionTimestamp=since))

    a, b = cluster.pods("ml", "app in (vllm),!old")

    assert (a.name, a.phase, a.ip, a.labels) == ("a", "Running", "10.0.0.7", {"app": "vllm"})
    assert (a.creation_s, a.start_s, a.ready, a.ready_since_s) == (1.7e9, 1.7e9 + 1, "True", 1.7e9 + 10)
    assert (a.deleting, a.deletion_s, a.deletion_cost, a.cpu_request_milli) == (True, 1.7e9 + 10, -7, 8000)
    assert a.uid == server.get("pods", "a")["metadata"]["uid"]
    assert (b.phase, b.start_s, b.ready, b.ready_since_s, b.ip) == ("Pending", None, None, None, "")
    assert (b.deleting, b.deletion_cost) == (False, 0)


def test_pods_in_pages(server, rest):
    """More Pods than a page holds are read page by page, each once; more than the bound is an error."""
    for number in range(1203):
        server.add(objects.pod(f"p{number:04d}"))

    pods = RestCluster(rest()).pods("ml", "app=vllm")

    assert [pod.name for pod in pods] == [f"p{number:04d}" for number in range(1203)]
    assert len(server.calls()) == 3
    with pytest.raises(KubeError, match="more than 1000 objects match 'app=vllm'"):
        RestCluster(rest(max_items=1000)).pods("ml", "app=vllm")


def test_pages_end(server, in_cluster):
    """An API server that always names a next page costs the time of one call."""
    for number in range(501):
        server.add(objects.pod(f"p{number:04d}"))
    server.hook = lambda: server.requests[-1].query.update({"continue": f"{server.pages}:0"})
    times = iter(range(0, 1000, 2))  # the last call has 2 s

    with pytest.raises(TimedOut, match=r"^GET pods in namespace ml: no answer within 10 s$"):
        RestCluster(Rest(in_cluster, max_items=10**9, clock=lambda: next(times))).pods("ml", "app=vllm")


def test_mark_of_the_next_page_is_too_old(server, rest):
    """When the API server has forgotten where the next page begins, the list is read once more from the start."""
    for number in range(501):
        server.add(objects.pod(f"p{number:04d}"))
    hooks = iter([lambda: setattr(server, "pages", 2)])
    server.hook = lambda: next(hooks, lambda: None)() if "continue" in server.requests[-1].query else None

    assert len(RestCluster(rest()).pods("ml", "app=vllm")) == 501
    assert len(server.calls()) == 4


DISABLED = {"scaleDown": {"selectPolicy": "Disabled"}}


def test_autoscalers(server, cluster):
    """HPAs and ScaledObjects of the workload are found, with their bounds and whether they may scale down."""
    server.add(objects.deployment())
    server.add(objects.hpa("older", api_version="apps/v1beta2", minReplicas=2))
    server.add(objects.hpa("keda-hpa-vllm", behavior=DISABLED))
    server.add(objects.hpa("other", target="other"))
    server.add(objects.hpa("same-name", kind="StatefulSet"))
    server.add(objects.hpa("other-group", api_version="example.com/v1"))
    server.add(objects.scaled_object("plain"))
    advanced = {"horizontalPodAutoscalerConfig": {"behavior": DISABLED}}
    server.add(objects.scaled_object("up", minReplicaCount=1, maxReplicaCount=5, advanced=advanced))
    server.add(objects.scaled_object("sts", reference={"kind": "StatefulSet", "name": "vllm", "apiVersion": "apps/v1"}))

    owners = cluster.autoscalers("ml", cluster.workload("deployment", "ml", "vllm"))

    assert owners == (
        Owner("HorizontalPodAutoscaler", "keda-hpa-vllm", 1, 8, scale_down_disabled=True),
        Owner("HorizontalPodAutoscaler", "older", 2, 8, scale_down_disabled=False),
        Owner("ScaledObject", "plain", 0, 100, scale_down_disabled=False),
        Owner("ScaledObject", "up", 1, 5, scale_down_disabled=True),
    )


def test_without_keda(server, cluster):
    """A cluster without KEDA has no ScaledObjects; that is no error."""
    server.without.add("keda.sh")
    server.add(objects.deployment())
    workload = cluster.workload("deployment", "ml", "vllm")

    server.add(objects.hpa())

    assert [owner.name for owner in cluster.autoscalers("ml", workload)] == ["vllm"]


def test_reference_without_a_group_counts(server, in_cluster):
    """An autoscaler that leaves out the group matches by kind and name: one writer too many is the worse fault."""
    cluster = RestCluster(Rest(in_cluster))
    server.add(objects.deployment())
    server.add(objects.hpa(api_version=""))
    workload = cluster.workload("deployment", "ml", "vllm")

    assert len(cluster.autoscalers("ml", workload)) == 1
    assert cluster.autoscalers("ml", replace(workload, kind="ReplicaSet")) == ()
