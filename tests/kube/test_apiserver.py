"""The stand-in itself: the real kubectl works on it, and its controller makes Pods follow the replicas."""

from __future__ import annotations

import json
import subprocess

import pytest

from infscale.kube.cluster import RestCluster
from infscale.kube.rest import Rest
from tests.kube import objects
from tests.kube.controller import follow_replicas


@pytest.fixture
def kubectl(kubeconfig):
    """Runs kubectl against the stand-in."""

    def run(*arguments: str) -> str:
        command = ["kubectl", f"--kubeconfig={kubeconfig}", "-n", "ml", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        return done.stdout

    return run


def test_kubectl_at_work(server, kubectl):
    """A person can get, scale, patch, annotate and delete with kubectl, through discovery."""
    server.add(objects.deployment(replicas=2))
    server.add(objects.scaled_object())
    follow_replicas(server, "deployments", "vllm", gone_after_s=1e9)

    assert kubectl("get", "deploy,so", "-o", "name").split() == ["deployment.apps/vllm", "scaledobject.keda.sh/vllm"]
    assert (
        kubectl("scale", "deployment/vllm", "--replicas=4", "--current-replicas=2") == "deployment.apps/vllm scaled\n"
    )
    assert len(kubectl("get", "pods", "-l", "app in (vllm),!old", "-o", "name").split()) == 4
    kubectl("patch", "deployment", "vllm", "--subresource=scale", "--type=merge", "-p", '{"spec":{"replicas":3}}')
    kubectl("annotate", "pod", "vllm-00001", "a=b")
    kubectl("delete", "pod", "vllm-00002", "--wait=false")

    assert server.get("deployments", "vllm")["spec"]["replicas"] == 3
    assert server.get("pods", "vllm-00001")["metadata"]["annotations"] == {"a": "b"}
    leaving = [p["metadata"]["name"] for p in server.list("pods") if "deletionTimestamp" in p["metadata"]]
    assert leaving == ["vllm-00002", "vllm-00004"]
    assert json.loads(kubectl("get", "deploy", "vllm", "-o", "json"))["status"]["replicas"] == 3


def test_kubectl_at_more_work(server, kubectl):
    """A default patch, a plain scale, removal of an annotation, deletion that waits, and every kind by name."""
    server.add(objects.deployment(replicas=2))
    server.add(objects.endpoint_slice())
    follow_replicas(server, "deployments", "vllm")

    assert kubectl("patch", "deployment", "vllm", "-p", '{"spec":{"paused":true}}') == "deployment.apps/vllm patched\n"
    assert kubectl("scale", "deploy", "vllm", "--replicas=3") == "deployment.apps/vllm scaled\n"
    kubectl("annotate", "deployment", "vllm", "a=b")
    kubectl("annotate", "deployment", "vllm", "a-")
    assert kubectl("get", "rs,endpointslices", "-o", "name").split() == [
        "replicaset.apps/vllm-6d8c5f7b9", "endpointslice.discovery.k8s.io/vllm-x7k2p"
    ]  # fmt: skip
    # Newer ones add the namespace.
    assert kubectl("delete", "pod", "vllm-00001").startswith('pod "vllm-00001" deleted')

    deployment = server.get("deployments", "vllm")
    assert (deployment["spec"]["replicas"], deployment["spec"]["paused"]) == (3, True)
    assert deployment["metadata"]["annotations"] == {}
    names = [pod["metadata"]["name"] for pod in server.list("pods")]
    assert names == ["vllm-00002", "vllm-00003", "vllm-00004"]


def test_kubectl_get_for_a_person(server, kubectl):
    """The tables that kubectl prints by itself hold the names."""
    server.add(objects.deployment(replicas=2))
    follow_replicas(server, "deployments", "vllm")

    assert "vllm-00001" in kubectl("get", "pods")
    assert "vllm" in kubectl("get", "deployment")


def test_pods_follow_on_a_driven_clock(server, in_cluster):
    """New Pods start at once and get ready in time; surplus ones leave, the one that is not ready first."""
    now = [1_700_000_000.0]
    server.clock = lambda: now[0]
    server.add(objects.deployment(replicas=1))
    follow_replicas(server, "deployments", "vllm", ready_after_s=30, gone_after_s=10)
    cluster = RestCluster(Rest(in_cluster))

    def seen() -> tuple[int, int, int, list[tuple[str, str | None, bool]]]:
        workload = cluster.workload("deployment", "ml", "vllm")
        pods = cluster.pods("ml", workload.selector)
        rows = [(pod.name[-1], pod.ready, pod.deleting) for pod in pods]
        return workload.spec_replicas, workload.status_replicas, workload.ready_replicas, rows

    def scale(replicas: int) -> None:
        workload = cluster.workload("deployment", "ml", "vllm")
        cluster.set_replicas(workload, replicas, expected_resource_version=workload.resource_version)

    assert seen() == (1, 1, 0, [("1", "False", False)])
    now[0] += 30
    scale(2)
    assert seen() == (2, 2, 1, [("1", "True", False), ("2", "False", False)])
    scale(1)
    assert seen() == (1, 1, 1, [("1", "True", False), ("2", "False", True)])
    now[0] += 10
    scale(0)
    assert seen() == (0, 0, 0, [("1", "True", True)])
    workload = cluster.workload("deployment", "ml", "vllm")
    assert workload.generation == workload.observed_generation == 4
