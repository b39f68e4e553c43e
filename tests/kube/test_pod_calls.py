"""Pods, their annotations, endpoints and pages, over both forms of access against the stand-in."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from infscale.errors import UsageError
from infscale.kube.cluster import RestCluster
from infscale.kube.errors import (
    BrokenAnswer,
    Conflict,
    KubeError,
    NotAllowed,
    NotFound,
    PodUnreachable,
    TimedOut,
    Unreachable,
)
from infscale.kube.kubectl import Kubectl
from infscale.kube.objects import Endpoint, ExecAnswer, OwnerReference, Port
from infscale.kube.rest import Rest
from tests.kube import objects
from tests.kube.conftest import TOKEN
from tests.kube.controller import follow_replicas, restart
from tests.kube.slices import follow_endpoints
from tests.raw_server import Call, RawServer

LIMITS: dict[str, Any] = {"timeout_s": 20.0, "max_bytes": 100_000}


def say_back(call: Call) -> None:
    """Answer with what was asked; a path /status/N with that status."""
    line, *headers = call.request.decode().rstrip("\r\n").split("\r\n")
    method, path, _ = line.split(" ")
    told = {"method": method, "path": path, "headers": [header.lower() for header in headers]}
    status = path.rpartition("/")[2] if "/status/" in path else "200"
    call.page(json.dumps(told).encode() if status != "204" else b"", status=f"{status} So")


@pytest.fixture
def echo(server):
    """A Pod `a` with an address whose port 8000 says back what it was asked."""
    spec = {"containers": [objects.container(ports=[{"name": "http", "containerPort": 8000}])]}
    server.add(objects.pod("a", spec=spec, podIP="10.0.0.1"))
    with RawServer(say_back) as listener:
        server.route("a", 8000, listener.port)
        yield listener


@pytest.mark.usefixtures("echo")
def test_headers_and_methods_reach_the_pod(server, cluster):
    """Method, path, query and headers arrive; the API server's token does not."""
    answer = cluster.pod_proxy(
        "ml", "a", 8000, "/withdraw?lease=60", method="POST", headers={"X-Infscale-Token": "t"}, **LIMITS
    )
    told = json.loads(answer.body)

    assert (answer.status, told["method"], told["path"]) == (200, "POST", "/withdraw?lease=60")
    assert "x-infscale-token: t" in told["headers"]
    assert not [header for header in told["headers"] if header.startswith("authorization")]
    assert TOKEN not in answer.body.decode()
    assert server.calls("POST")[-1].authorization == f"Bearer {TOKEN}"


@pytest.mark.usefixtures("echo")
@pytest.mark.parametrize("status", [204, 301, 401, 403, 404, 409, 500, 503])
def test_the_pods_own_status(cluster, status):
    """Whatever the Pod answers is its answer, and not an error of the API server's."""
    assert cluster.pod_proxy("ml", "a", 8000, f"/status/{status}", **LIMITS).status == status


@pytest.mark.usefixtures("echo")
def test_a_port_by_its_name(cluster):
    """A named port is looked up in the Pod; a name that no container gives says what to do."""
    assert cluster.pod_proxy("ml", "a", "http", "/metrics", **LIMITS).status == 200
    with pytest.raises(PodUnreachable, match=r"names a port 'infscale' \(named are: http\): add infscale's sidecar"):
        cluster.pod_proxy("ml", "a", "infscale", "/metrics", **LIMITS)


@pytest.mark.parametrize(
    ("role", "verb"),
    [([], "get"), ([objects.role_rule("", "pods/proxy", "get")], "create")],
)
@pytest.mark.usefixtures("echo")
def test_the_verb_that_is_missing(server, cluster, role, verb):
    """A refusal of the API server names the verb for pods/proxy."""
    server.role = role
    method = "GET" if verb == "get" else "POST"

    with pytest.raises(
        NotAllowed, match=rf"not allowed to {verb} pods/proxy a .*\[pods/proxy\], verbs: \[get.*{verb}?"
    ):
        cluster.pod_proxy("ml", "a", 8000, "/", method=method, **LIMITS)


def test_no_pod_and_no_listener(server, cluster):
    """A Pod that is not there, and one that nothing listens in, are told apart."""
    server.add(objects.pod("b", podIP="10.0.0.2"))

    with pytest.raises(NotFound, match=r'"a" not found'):
        cluster.pod_proxy("ml", "a", 8000, "/", **LIMITS)
    with pytest.raises(PodUnreachable, match=r"pod ml/b: nothing answers the API server on port 8000: .*refused"):
        cluster.pod_proxy("ml", "b", 8000, "/", **LIMITS)
    server.token = "another"
    with pytest.raises(NotAllowed, match="log in again"):
        cluster.pod_proxy("ml", "b", 8000, "/", **LIMITS)


def test_nobody_is_there(server, cluster):
    """An API server that is down is not the Pod's fault."""
    server.close()

    with pytest.raises(Unreachable, match=r"cannot be reached: .*refused"):
        cluster.pod_proxy("ml", "a", 8000, "/", **LIMITS)


BIG = b"x" * 200_000
STREAM = b"HTTP/1.1 200 OK\r\n\r\n"


@pytest.mark.parametrize(
    ("play", "error", "text"),
    [
        (lambda call: call.page(BIG), BrokenAnswer, "larger than 100000 bytes"),
        (lambda call: call.send(STREAM, BIG), BrokenAnswer, "larger than 100000 bytes"),
        (lambda call: call.hang(), TimedOut, "within 1 s|after 1 s"),
        (lambda call: call.drip(STREAM * 100, 0.05), TimedOut, "within 1 s|after 1 s"),
        (lambda call: None, PodUnreachable, "nothing answers .*: EOF"),
    ],
    ids=["long", "endless", "hangs", "drips", "closes"],
)
def test_a_pod_that_misbehaves(server, cluster, play, error, text):
    """Bodies are bounded, so is the time; a Pod that closes without an answer is its own fault."""
    server.add(objects.pod("a", podIP="10.0.0.1"))
    with RawServer(play) as raw:
        server.route("a", 8000, raw.port)
        limits = {**LIMITS, "timeout_s": 1.0} if error is TimedOut else LIMITS
        began = time.monotonic()
        with pytest.raises(error, match=text):
            cluster.pod_proxy("ml", "a", 8000, "/", **limits)
        assert time.monotonic() - began < 15


def test_https_without_looking_at_the_certificate(server, cluster, kube_certs):
    """A Pod that serves https is read with any certificate, as the API server does it."""
    server.add(objects.pod("a", podIP="10.0.0.1"))
    with RawServer(say_back, tls=kube_certs.self_signed.server_context()) as listener:
        server.route("a", 8443, listener.port)

        assert cluster.pod_proxy("ml", "a", 8443, "/metrics", scheme="https", **LIMITS).status == 200
        with pytest.raises(PodUnreachable):
            cluster.pod_proxy("ml", "a", 8443, "/metrics", **LIMITS)


@pytest.mark.usefixtures("echo")
def test_what_is_never_asked(server, in_cluster):
    """A path or a header that would be another request, and a scheme that is none, are refused before any call."""
    cluster = RestCluster(Rest(in_cluster))

    for options in ({"path": "/a b"}, {"path": "/a\r\nX: y"}, {"headers": {"X": "a\r\nb"}}, {"scheme": "ftp"}):
        with pytest.raises(UsageError):
            cluster.pod_proxy("ml", "a", 8000, **{"path": "/", **options, **LIMITS})
    assert server.requests == []


@pytest.mark.usefixtures("echo")
def test_many_at_once_share_one_kubectl(server, kubeconfig, tmp_path, monkeypatch):
    """Calls at the same time go through one `kubectl proxy`, whose socket is gone with the last of them."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    cluster = RestCluster(Rest(Kubectl(kubeconfig=str(kubeconfig))))
    gate = threading.Barrier(8)

    def read(_: int) -> int:
        gate.wait(20)
        return cluster.pod_proxy("ml", "a", 8000, "/", **LIMITS).status

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(read, range(8))) == {200}
    assert not list(tmp_path.glob("infscale-*"))


def test_a_pod(server, cluster):
    """A Pod comes with its owner, its version, and what its containers are and have been through."""
    port, env = {"name": "http", "containerPort": 8000}, [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {}}]
    engine = objects.container(ports=[port], env=env, command=["vllm"], args=["serve", "m"])
    spec = {"containers": [engine], "initContainers": [objects.container("infscale", restartPolicy="Always")]}
    server.add(objects.deployment(template={"metadata": {"labels": {"app": "vllm"}}, "spec": spec}))
    follow_replicas(server, "deployments", "vllm")
    restart(server, "vllm-00001", "vllm")

    pod = cluster.pod("ml", "vllm-00001")
    stored = server.get("pods", "vllm-00001")
    owner = server.get("replicasets", "vllm-6d8c5f7b9")["metadata"]

    assert (pod.namespace, pod.resource_version) == ("ml", stored["metadata"]["resourceVersion"])
    assert pod.owner == OwnerReference("ReplicaSet", "vllm-6d8c5f7b9", owner["uid"])
    vllm, sidecar = pod.container("vllm"), pod.container("infscale")
    assert (vllm.image, vllm.command, vllm.args) == ("example/x:1", ("vllm",), ("serve", "m"))
    assert (vllm.ports, vllm.env) == ((Port("http", 8000),), {"A": "1"})
    assert (vllm.restart_count, vllm.running) == (1, True)
    assert vllm.container_id == stored["status"]["containerStatuses"][0]["containerID"]
    assert (sidecar.restart_count, sidecar.running) == (0, True)
    assert (pod.port("http"), pod.port("infscale"), pod.container("other")) == (8000, None, None)
    with pytest.raises(NotFound, match='"b" not found'):
        cluster.pod("ml", "b")


def test_annotate_a_pod(server, cluster):
    """Annotations are set and taken away; a Pod that changed, or is another by now, is left as it is."""
    server.add(objects.pod("a"))
    first = cluster.pod("ml", "a")

    second = cluster.annotate_pod(first, {"x": "1", "y": "2"})
    third = cluster.annotate_pod(second, {"x": None})

    assert (second.annotations, third.annotations) == ({"x": "1", "y": "2"}, {"y": "2"})
    with pytest.raises(Conflict, match="it has changed since it was read"):
        cluster.annotate_pod(first, {"x": "3"})
    server.remove("pods", "a")
    server.add(objects.pod("a"))
    with pytest.raises(Conflict, match="UID in precondition"):
        cluster.annotate_pod(third, {"x": "3"})
    assert "annotations" not in server.get("pods", "a")["metadata"]


@pytest.mark.parametrize("kind", ["deployment", "lws"])
def test_annotate_a_workload(server, cluster, kind):
    """A workload's annotations are written likewise, and come with it, as those of its Pods and its pause do."""
    template = {"metadata": {"labels": {"app": "vllm"}, "annotations": {"prometheus.io/port": "8000"}}, "spec": {}}
    server.add(objects.deployment(paused=True, template=template))
    server.add(objects.leader_worker_set())
    before = cluster.workload(kind, "ml", "vllm")

    after = cluster.annotate(before, {"infscale.dev/x": "1"})

    assert (before.annotations, after.annotations) == ({}, {"infscale.dev/x": "1"})
    assert (after.spec_replicas, after.selector) == (before.spec_replicas, before.selector)
    with pytest.raises(Conflict):
        cluster.annotate(before, {"infscale.dev/x": "2"})
    if kind == "deployment":
        assert (after.pod_annotations, after.paused) == ({"prometheus.io/port": "8000"}, True)


def test_delete_a_pod(server, cluster):
    """Only the very Pod is deleted, gracefully; another of its name is a conflict, one that is gone says so."""
    server.add(objects.pod("a"))
    uid = cluster.pod("ml", "a").uid

    with pytest.raises(Conflict, match="UID in the precondition"):
        cluster.delete_pod("ml", "a", uid="another")
    assert not cluster.pod("ml", "a").deleting
    cluster.delete_pod("ml", "a", uid=uid)

    assert cluster.pod("ml", "a").deleting
    with pytest.raises(NotFound):
        cluster.delete_pod("ml", "b", uid=uid)


def test_endpoints(server, cluster):
    """Endpoints of a Pod are found by UID or address, in every slice; what a condition leaves out is as documented."""
    server.add(objects.pod("a", podIP="10.0.0.1"))
    pod = cluster.pod("ml", "a")
    same = {"name": "a", "namespace": "ml", "uid": pod.uid}
    first = [objects.endpoint("10.0.0.1", pod=same), objects.endpoint("10.0.0.2", ready=True)]
    server.add(objects.endpoint_slice("one", "ml", *first))
    by_address = objects.endpoint("10.0.0.1", ready=False, serving=True, terminating=True)
    server.add(objects.endpoint_slice("two", "ml", by_address, service="other"))

    assert cluster.endpoints("ml", pod) == (
        Endpoint("one", "vllm", "10.0.0.1", ready=True, serving=True, terminating=False),
        Endpoint("two", "other", "10.0.0.1", ready=False, serving=True, terminating=True),
    )


def test_endpoints_follow_readiness(server, in_cluster):
    """The stand-in's slice follows probes and deletions."""
    cluster = RestCluster(Rest(in_cluster))
    withdrawn: set[str] = set()
    server.add(objects.deployment(replicas=2))
    follow_replicas(server, "deployments", "vllm", probe=lambda pod: pod not in withdrawn, gone_after_s=1e9)
    follow_endpoints(server, "vllm", "app=vllm")

    def seen(name: str) -> list[tuple[bool, bool, bool]]:
        found = cluster.endpoints("ml", cluster.pod("ml", name))
        return [(endpoint.ready, endpoint.serving, endpoint.terminating) for endpoint in found]

    assert seen("vllm-00001") == seen("vllm-00002") == [(True, True, False)]
    withdrawn.add("vllm-00001")
    assert seen("vllm-00001") == [(False, False, False)]
    withdrawn.clear()
    cluster.delete_pod("ml", "vllm-00001", uid=cluster.pod("ml", "vllm-00001").uid)
    assert seen("vllm-00001") == [(False, True, True)]


def test_exec_from_a_pod(in_cluster):
    """Access from a Pod has no exec, and says what has."""
    with pytest.raises(KubeError, match=r"exec in pod ml/a: .* it needs kubectl's access"):
        RestCluster(Rest(in_cluster)).exec("ml", "a", "vllm", ["true"], **LIMITS)


def test_exec_is_refused(server, kubeconfig):
    """A refusal of the API server's, by its Role or by its kubelet, is an error and no exit code."""
    server.add(objects.pod("a"))
    cluster = RestCluster(Rest(Kubectl(kubeconfig=str(kubeconfig))))
    with pytest.raises(KubeError, match="no kubelet is here"):
        cluster.exec("ml", "a", "vllm", ["true"], **LIMITS)
    server.role = [objects.role_rule("", "pods", "get")]
    with pytest.raises(NotAllowed, match=r"not allowed to create pods/exec a .*verbs: \[create, get\]"):
        cluster.exec("ml", "a", "vllm", ["true"], **LIMITS)


@pytest.mark.parametrize(
    ("script", "answer"),
    [
        ("echo page; echo word >&2", ExecAnswer(0, b"page\n", "word\n")),
        (
            "echo half; echo lost >&2; echo command terminated with exit code 7 >&2; exit 7",
            ExecAnswer(7, b"half\n", "lost"),
        ),
        ("echo command terminated with exit code 137 >&2; exit 137", ExecAnswer(137, b"", "")),
    ],
)
def test_what_a_command_came_to(tmp_path, script, answer):
    """The command's own exit code and output are told apart from kubectl's faults; its arguments arrive as they are."""
    program = tmp_path / "kubectl"
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/arguments\n{script}\n')
    program.chmod(0o755)
    cluster = RestCluster(Rest(Kubectl(program=str(program))))

    assert cluster.exec("ml", "a", "vllm", ["cat", "/x"], **LIMITS) == answer
    assert (tmp_path / "arguments").read_text() == "exec --namespace=ml --container=vllm a -- cat /x\n"
