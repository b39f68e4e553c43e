"""What goes wrong between us and the API server, over both transports: a line that says what to do, or another try."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from infscale.kube.cluster import RestCluster
from infscale.kube.errors import (
    BrokenAnswer,
    Conflict,
    KubeError,
    NotAllowed,
    Throttled,
    TimedOut,
    Unreachable,
)
from infscale.kube.rest import Rest, refusal
from infscale.kube.transport import MERGE_PATCH, Answer, Target
from tests.kube import objects
from tests.kube.conftest import TOKEN
from tests.kube.wire import Fault

DEPLOYMENT = Target("apps", "v1", "deployments", "ml", "vllm")
POD = Target("", "v1", "pods", "ml", "a")


@pytest.fixture
def deployment(server):
    """A Deployment to ask for."""
    return server.add(objects.deployment(replicas=2))


@pytest.mark.usefixtures("deployment")
@pytest.mark.parametrize(
    "faults",
    [
        [Fault("status", status=status) for status in (429, 500, 503, 504)],
        [Fault("html", status=502), Fault("reset"), Fault("cut")],
    ],
    ids=["answers", "connections"],
)
def test_a_read_is_tried_again(server, rest, faults):
    """A read that meets a busy, restarting or broken API server is tried again, and goes through."""
    server.faults = [replace(fault) for fault in faults]

    workload = RestCluster(rest(sleep=lambda _: None)).workload("deployment", "ml", "vllm")

    assert workload.spec_replicas == 2
    assert len(server.calls()) == len(faults) + 1


@pytest.mark.usefixtures("deployment")
@pytest.mark.parametrize(
    ("fault", "error", "text"),
    [
        (Fault("status", status=429), Throttled, "the API server is too busy"),
        (Fault("status", status=500), KubeError, "HTTP 500: .*as the test wants it"),
        (Fault("status", status=422), KubeError, "HTTP 422: .*as the test wants it"),
        (Fault("reset"), Unreachable, "reached|reset"),
        (Fault("html", status=200), BrokenAnswer, "is not JSON but '<html>.*Sign in to the proxy.*proxy in between"),
        (Fault("broken"), BrokenAnswer, "is not JSON but '{"),
    ],
    ids=lambda value: f"{value.what}-{value.status}" if isinstance(value, Fault) else "",
)
def test_a_write_is_sent_once(server, in_cluster, cluster, fault, error, text):
    """A write that fails in whatever way is never sent again by us, and the error says what came."""
    workload = RestCluster(Rest(in_cluster)).workload("deployment", "ml", "vllm")
    server.faults = [replace(fault, method="PUT")]

    with pytest.raises(error, match=text) as caught:
        cluster.set_replicas(workload, 3, expected_resource_version=workload.resource_version)

    assert len(server.calls("PUT")) == 1
    assert_one_line(caught.value)


@pytest.mark.parametrize("what", ["hang", "drip", "slow"])
def test_a_call_ends_in_time(server, rest, deployment, what):
    """An API server that hangs, drips its headers or is slow costs the time of one call, not more."""
    server.faults = [Fault(what, seconds=10, times=9)]
    began = time.monotonic()

    with pytest.raises(TimedOut, match=r"GET deployments vllm in namespace ml: .* within \d") as caught:
        RestCluster(rest(timeout_s=0.5)).workload("deployment", "ml", "vllm")

    assert time.monotonic() - began < 8
    assert_one_line(caught.value)


def test_tries_end(server, rest, deployment):
    """An API server that stays broken is asked five times, with growing pauses, then the last answer counts."""
    server.faults = [Fault("status", status=500, times=99)]
    pauses: list[float] = []

    with pytest.raises(KubeError, match="HTTP 500"):
        RestCluster(rest(sleep=pauses.append)).workload("deployment", "ml", "vllm")

    assert pauses == [0.1, 0.2, 0.4, 0.8]
    assert len(server.calls()) == 5


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda c, w: c.workload("sts", "ml", "vllm"), r"get statefulsets vllm .* \[apps\], .* verbs: \[get\]"),
        (lambda c, w: c.scale(w), r"\[apps\], resources: \[deployments/scale\], verbs: \[get, update\]"),
        (
            lambda c, w: c.set_replicas(w, 2, expected_resource_version="1"),
            r"update deployments/scale vllm in namespace ml: add to a Role in namespace ml: apiGroups: \[apps\],"
            r" resources: \[deployments/scale\], verbs: \[get, update\]",
        ),
        (lambda c, w: c.pods("ml", "a=b"), r'list pods .* apiGroups: \[""\], resources: \[pods\], verbs: \[list\]'),
        (
            lambda c, w: c.autoscalers("ml", w),
            r"\[autoscaling\], resources: \[horizontalpodautoscalers\], verbs: \[list\]",
        ),
        (lambda c, w: c.acquire("ml", "l", "me", 15, 0.0), r"get leases l .* verbs: \[get, create, update\]"),
    ],
    ids=["get", "scale", "set", "pods", "autoscalers", "lease"],
)
def test_forbidden(server, in_cluster, deployment, call, text):
    """A refusal names the verb, the resource and the namespace, and the line of a Role that is missing."""
    cluster = RestCluster(Rest(in_cluster))
    workload = cluster.workload("deployment", "ml", "vllm")
    server.role = []

    with pytest.raises(NotAllowed, match=text) as caught:
        call(cluster, workload)

    assert caught.value.status == 403
    assert "cannot" in str(caught.value)
    assert_one_line(caught.value)


def test_forbidden_either_way(server, cluster, deployment):
    """Both ways tell a refusal the same, down to the API server's own words."""
    server.role = [objects.role_rule("apps", "deployments", "list")]

    with pytest.raises(NotAllowed, match=r"not allowed to get deployments vllm in .* cannot get resource"):
        cluster.workload("deployment", "ml", "vllm")


def test_unauthorized(server, cluster, deployment):
    """A token that the API server does not know (any more) says to log in again, and is not shown."""
    server.token = "another"

    with pytest.raises(NotAllowed, match=r"does not accept our credentials .* log in again") as caught:
        cluster.workload("deployment", "ml", "vllm")

    assert caught.value.status == 401
    assert_one_line(caught.value)


def test_nobody_listens(server, rest):
    """An API server that is down is named with its address."""
    server.close()

    with pytest.raises(Unreachable, match=f"{server.host}:{server.port}.*refused"):
        RestCluster(rest(sleep=lambda _: None)).workload("deployment", "ml", "vllm")


@pytest.mark.parametrize("method", ["POST", "PATCH", "DELETE"])
def test_other_methods(server, rest, method):
    """Objects can be created, patched (with a precondition) and deleted (a Pod gracefully)."""
    call = rest().call
    if method == "POST":
        made = call("POST", Target("", "v1", "pods", "ml"), body=objects.pod("a"))
        assert made.at("metadata").text("uid") == server.get("pods", "a")["metadata"]["uid"]
        with pytest.raises(Conflict, match="already exists"):
            call("POST", Target("", "v1", "pods", "ml"), body=objects.pod("a"))
        return
    made = server.add(objects.pod("a"))
    if method == "DELETE":
        with pytest.raises(Conflict, match="UID in the precondition"):
            call("DELETE", POD, body={"preconditions": {"uid": "another"}})
        call("DELETE", POD, body={"preconditions": {"uid": made["metadata"]["uid"]}})
        assert "deletionTimestamp" in server.get("pods", "a")["metadata"]
        return
    annotate = {"annotations": {"x": "1"}}
    call("PATCH", POD, body={"metadata": annotate}, content_type=MERGE_PATCH)
    assert server.get("pods", "a")["metadata"]["annotations"] == {"x": "1"}
    old = {"metadata": {"annotations": {"x": "2"}, "resourceVersion": made["metadata"]["resourceVersion"]}}
    with pytest.raises(Conflict, match="the object has been modified"):
        call("PATCH", POD, body=old, content_type=MERGE_PATCH)
    assert server.get("pods", "a")["metadata"]["annotations"] == {"x": "1"}


def test_patch_of_the_scale(server, rest, deployment):
    """The scale subresource takes a patch too."""
    target = Target("apps", "v1", "deployments", "ml", "vllm", "scale")

    answer = rest().call("PATCH", target, body={"spec": {"replicas": 1}}, content_type=MERGE_PATCH)

    assert (answer.text("kind"), server.get("deployments", "vllm")["spec"]["replicas"]) == ("Scale", 1)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda d: d["spec"].update(replicas="2"), "spec.replicas is '2': expected a whole number"),
        (lambda d: d["spec"].update(replicas=-1), "spec.replicas is -1"),
        (lambda d: d.pop("kind"), "kind is absent: expected text"),
        (lambda d: d.update(status=[]), r"status is \[\]: expected an object"),
    ],
    ids=["text", "negative", "absent", "list"],
)
def test_an_object_that_is_not_one(server, in_cluster, deployment, change, text):
    """A field that is not what it should be is named, with its object; nothing is guessed."""
    cluster = RestCluster(Rest(in_cluster))
    server.change("deployments", "vllm", change)

    with pytest.raises(BrokenAnswer, match=f"^deployments vllm in namespace ml: {text}"):
        cluster.workload("deployment", "ml", "vllm")


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"message":' * 100_000, b"\xff\xfe", b"", b"[1]"])
def test_a_refusal_whose_words_cannot_be_read(body):
    """Too deep, no text, nothing: an error with its status and the beginning of what came."""
    error = refusal("GET", POD, Answer(500, body))

    assert str(error).startswith("GET pods a in namespace ml: HTTP 500: ")
    assert_one_line(error)


def assert_one_line(error: Exception) -> None:
    """One line, no token, no traceback."""
    text = str(error)
    assert "\n" not in text
    assert TOKEN not in text
    assert len(text) < 900
