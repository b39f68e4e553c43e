"""The wake, over the API server stand-in and both ways to it: from 0 to 1, and nothing else."""

from __future__ import annotations

import logging

import pytest

from infscale.activator import wake
from infscale.activator.wake import LOOK_AGAIN_S, TRIES, Waker
from infscale.errors import UsageError
from infscale.kube.cluster import RestCluster
from infscale.kube.rest import Rest
from tests.activator.rig import until
from tests.kube import objects
from tests.kube.apiserver import ApiServer
from tests.kube.objects import role_rule
from tests.kube.wire import Fault


@pytest.fixture
def pod(in_cluster) -> RestCluster:
    """The API server as a Pod reaches it; where both ways matter a test takes `cluster`."""
    return RestCluster(Rest(in_cluster, timeout_s=20.0, jitter=lambda: 0.0))


def waker(cluster, *, kind: str = "deployment", wanted=lambda: True) -> Waker:
    """One for the workload ml/vllm."""
    return Waker(cluster, kind, "ml", "vllm", wanted)


def asked_for(server: ApiServer, plural: str = "deployments") -> int:
    """How many replicas the workload asks for."""
    replicas: int = server.get(plural, "vllm")["spec"]["replicas"]
    return replicas


def writes(server: ApiServer) -> list[int]:
    """The counts that were written."""
    return [request.body["spec"]["replicas"] for request in server.calls("PUT")]


@pytest.mark.parametrize(
    ("kind", "plural", "made"),
    [
        ("deployment", "deployments", objects.deployment),
        ("statefulset", "statefulsets", objects.stateful_set),
        ("lws", "leaderworkersets", objects.leader_worker_set),
    ],
)
def test_from_0_to_1(server, cluster, kind, plural, made):
    """A workload at 0 is asked to have one replica."""
    server.add(made(replicas=0))
    found = waker(cluster, kind=kind)
    assert found.look() == LOOK_AGAIN_S
    assert asked_for(server, plural) == 1
    assert found.last.endswith("ml/vllm: from 0 to 1 replicas")


@pytest.mark.parametrize("replicas", [1, 3])
def test_never_from_1_up_nor_down(server, pod, replicas):
    """Replicas that are asked for already are another's business, ready or not."""
    server.add(objects.deployment(replicas=replicas))
    found = waker(pod)
    found.look()
    assert writes(server) == []
    assert found.last == f"deployment ml/vllm asks for {replicas} replicas"


def test_a_conflict_is_read_again(server, pod):
    """A write that is overtaken by a change of the status is tried again, on what is there now."""
    server.add(objects.deployment(replicas=0))
    rival = [lambda: server.change("deployments", "vllm", lambda one: one.update(status={"observedGeneration": 1}))]
    server.before_write = lambda: rival.pop()() if rival else None
    waker(pod).look()
    assert asked_for(server) == 1
    assert writes(server) == [1, 1]


def test_another_was_first(server, pod):
    """Of two activators one wakes the workload; a rival's larger count stays as it is."""
    server.add(objects.deployment(replicas=0))
    rival = [lambda: server.change("deployments", "vllm", lambda one: one["spec"].update(replicas=4))]
    server.before_write = lambda: rival.pop()() if rival else None
    found = waker(pod)
    found.look()
    assert asked_for(server) == 4
    assert found.last == "deployment ml/vllm asks for 4 replicas"


def test_conflicts_without_end(server, pod):
    """They are bounded, and tried again later."""
    server.add(objects.deployment(replicas=0))
    server.before_write = lambda: server.change("deployments", "vllm", lambda one: one.setdefault("status", {}))
    found = waker(pod)
    assert found.look() < LOOK_AGAIN_S
    assert len(writes(server)) == TRIES
    assert asked_for(server) == 0
    assert found.last.startswith("not woken: ")


@pytest.mark.parametrize(
    ("role", "says"),
    [
        ([], "deployments"),
        ([role_rule("apps", "deployments", "get")], "deployments/scale"),
    ],
)
def test_what_is_not_allowed_is_named(server, cluster, role, says):
    """The missing right stands in the log, and the next try comes later and later."""
    server.add(objects.deployment(replicas=0))
    server.role = role
    found = waker(cluster)
    pauses = [found.look() for _ in range(6)]
    assert pauses == [1.0, 2.0, 4.0, 8.0, 15.0, 15.0]
    assert says in found.last
    assert asked_for(server) == 0


def test_no_such_workload(server, pod):
    """It is said; when it is there it is woken."""
    found = waker(pod)
    found.look()
    assert "vllm" in found.last
    server.add(objects.deployment(replicas=0))
    assert found.look() == LOOK_AGAIN_S
    assert asked_for(server) == 1


def test_the_api_server_asks_to_wait(server, in_cluster):
    """A 429 with its time is honoured."""
    server.add(objects.deployment(replicas=0))
    server.faults = [Fault("status", status=429, retry_after=7, times=99)]
    assert waker(RestCluster(Rest(in_cluster, timeout_s=1.0))).look() == 7.0


def test_the_same_is_said_once(server, pod, caplog):
    """The log has a line for each change."""
    caplog.set_level(logging.INFO, "infscale.activator.wake")
    server.add(objects.deployment(replicas=0))
    found = waker(pod)
    for _ in range(3):
        found.look()
    assert [record.result for record in caplog.records] == [
        "deployment ml/vllm: from 0 to 1 replicas",
        "deployment ml/vllm asks for 1 replicas",
    ]


def test_keda_wakes_it_itself(server, pod):
    """Beside a ScaledObject there would be two writers: refused at the start, with what to do."""
    server.add(objects.deployment(replicas=0))
    server.add(objects.scaled_object(minReplicaCount=0))
    with pytest.raises(UsageError, match=r"ScaledObject ml/vllm scales deployment ml/vllm.*--scale none"):
        waker(pod).check()


def test_an_hpa_does_nothing_at_0(server, pod):
    """An HPA leaves a workload at 0 alone, so it may stand beside."""
    server.add(objects.deployment(replicas=0))
    server.add(objects.hpa())
    waker(pod).check()


def test_what_cannot_be_looked_at_is_no_reason_to_stay_down(server, pod, caplog):
    """Without the right to list autoscalers it is said, and the workload is woken all the same."""
    server.add(objects.deployment(replicas=0))
    server.role = [role_rule("apps", "deployments", "get"), role_rule("apps", "deployments/scale", "update")]
    found = waker(pod)
    found.check()
    found.look()
    assert "not known whether another wakes the workload" in caplog.messages
    assert asked_for(server) == 1


def test_a_kind_that_cannot_be_named():
    """It is refused at once."""
    with pytest.raises(UsageError, match="workload kind 'pods'"):
        waker(None, kind="pods")


def test_the_ready_replica_goes_while_others_wait(server, pod, monkeypatch):
    """Those who are in line already do not ask again: the thread sees by itself that nothing is ready any more."""
    monkeypatch.setattr(wake, "LOOK_AGAIN_S", 0.02)
    server.add(objects.deployment(replicas=0))
    ready = [True]
    found = waker(pod, wanted=lambda: not ready[0])
    found.start()
    found.ask()
    until(lambda: not found._asked.is_set())
    assert server.calls() == []
    ready[0] = False
    until(lambda: asked_for(server) == 1)
    found.stop()
    found._thread.join(30)


def test_it_looks_only_while_somebody_waits(server, pod):
    """Asked, the thread looks; asked for nothing, it asks the API server nothing."""
    server.add(objects.deployment(replicas=0))
    waits = [False]
    found = waker(pod, wanted=lambda: waits[0])
    found.start()
    found.ask()
    until(lambda: not found._asked.is_set())
    assert server.calls() == []
    waits[0] = True
    found.ask()
    until(lambda: asked_for(server) == 1)
    found.stop()
    found._thread.join(30)
    assert not found._thread.is_alive()
