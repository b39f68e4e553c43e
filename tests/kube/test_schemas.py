"""What the stand-in answers is what the API publishes: every object validates strictly, every refusal is a Status."""

from __future__ import annotations

import http.client
import json
import ssl

import jsonschema
import kubernetes_validate  # type: ignore[import-untyped]
import pytest
from kubernetes_validate.utils import schema_contents  # type: ignore[import-untyped]

from tests.kube import objects
from tests.kube.conftest import TOKEN
from tests.kube.controller import follow_replicas
from tests.kube.slices import follow_endpoints

VERSIONS = ("1.29", "1.37")
APPS = "/apis/apps/v1/namespaces/ml"
CORE = "/api/v1/namespaces/ml"


@pytest.fixture
def ask(server, kube_certs):
    """Asks the stand-in as any client would; gives status and object."""

    def call(method, path, body=None, *, token=TOKEN, content_type="application/json"):
        context = ssl.create_default_context(cafile=str(kube_certs.ca))
        connection = http.client.HTTPSConnection(server.host, server.port, context=context, timeout=20)
        try:
            headers = {"Authorization": f"Bearer {token}", "Content-Type": content_type}
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    return call


@pytest.fixture
def cluster_of_all(server):
    """Every kind that the API publishes a schema of, with Pods made by the controllers."""
    sidecar = objects.container(
        "infscale", restartPolicy="Always", ports=[{"name": "infscale", "containerPort": 10047}]
    )
    spec = {"containers": [objects.container()], "initContainers": [sidecar]}
    server.add(objects.deployment(replicas=2, template={"metadata": {"labels": {"app": "vllm"}}, "spec": spec}))
    server.add(objects.stateful_set("sts"))
    server.add(objects.leader_worker_set("lws"))
    server.add(objects.hpa())
    server.add(objects.lease(holderIdentity="a", leaseDurationSeconds=15))
    follow_replicas(server, "deployments", "vllm", gone_after_s=1e9)
    follow_replicas(server, "statefulsets", "sts")
    follow_replicas(server, "leaderworkersets", "lws")
    follow_endpoints(server, "vllm", "app=vllm")


@pytest.mark.usefixtures("cluster_of_all")
@pytest.mark.parametrize(
    "path",
    [
        f"{CORE}/pods", f"{APPS}/deployments", f"{APPS}/replicasets", f"{APPS}/statefulsets",
        "/apis/discovery.k8s.io/v1/namespaces/ml/endpointslices",
        "/apis/coordination.k8s.io/v1/namespaces/ml/leases",
        "/apis/autoscaling/v2/namespaces/ml/horizontalpodautoscalers",
    ],
)  # fmt: skip
def test_objects_are_as_published(server, ask, path):
    """Lists and the objects in them hold nothing but what the schemas know, in the oldest and the newest version."""
    ask("DELETE", f"{CORE}/pods/vllm-00001")
    status, answer = ask("GET", path)

    assert (status, bool(answer["items"])) == (200, True)
    for version in VERSIONS:
        kubernetes_validate.validate(answer, version, strict=True)
        for item in answer["items"]:
            kubernetes_validate.validate(item, version, strict=True)
    if not path.endswith("/pods"):
        return
    assert any("deletionTimestamp" in item["metadata"] for item in answer["items"])


@pytest.mark.usefixtures("cluster_of_all")
def test_a_scale_is_as_published(ask):
    """The scale of every kind that has one."""
    for plural, name in (("deployments", "vllm"), ("replicasets", "vllm-6d8c5f7b9"), ("statefulsets", "sts")):
        kubernetes_validate.validate(ask("GET", f"{APPS}/{plural}/{name}/scale")[1], "1.37", strict=True)


def test_a_typo_is_caught(ask, server):
    """The check itself bites: a field that does not exist is refused."""
    made = server.add(objects.deployment())
    made["spec"]["replicsa"] = 1

    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(made, "1.37", strict=True)


@pytest.mark.usefixtures("cluster_of_all")
@pytest.mark.parametrize(
    ("method", "path", "options", "code", "reason"),
    [
        ("GET", f"{APPS}/deployments/vllm", {"token": "old"}, 401, "Unauthorized"),
        ("GET", f"{CORE}/pods/none", {}, 404, "NotFound"),
        ("GET", "/apis/example.com/v1/namespaces/ml/things", {}, 404, "NotFound"),
        ("GET", f"{CORE}/pods/none/proxy/metrics", {}, 404, "NotFound"),
        ("GET", f"{CORE}/pods/vllm-00001:8000/proxy/metrics", {}, 503, "ServiceUnavailable"),
        ("GET", f"{CORE}/pods/vllm-00001:infscale/proxy/metrics", {}, 503, "ServiceUnavailable"),
        ("POST", f"{CORE}/pods/vllm-00001/exec", {}, 500, "InternalError"),
        ("POST", f"{APPS}/deployments", {"body": json.dumps(objects.deployment())}, 409, "AlreadyExists"),
        ("POST", f"{APPS}/deployments", {"body": "{"}, 400, "BadRequest"),
        ("DELETE", f"{CORE}/pods/vllm-00001", {"body": '{"preconditions":{"uid":"x"}}'}, 409, "Conflict"),
        ("PATCH", f"{CORE}/pods/vllm-00001", {"body": "[]", "content_type": "application/json-patch+json"}, 415,
         "UnsupportedMediaType"),
        ("PATCH", f"{CORE}/pods/vllm-00001",
         {"body": '{"metadata":{"uid":"x"}}', "content_type": "application/merge-patch+json"}, 409, "Conflict"),
    ],
)  # fmt: skip
def test_refusals_are_status_objects(ask, method, path, options, code, reason):
    """Every refusal is a Status with its code and reason."""
    status, answer = ask(method, path, **options)

    assert (status, answer["kind"], answer["code"], answer["reason"]) == (code, "Status", code, reason)
    assert answer["status"] == "Failure"
    assert_published_status(answer)


def test_forbidden_is_a_status_object(server, ask):
    """A Role that lacks a verb is a Status too, for the Pods' proxy and for exec with their own names."""
    server.add(objects.pod("a"))
    server.role = [objects.role_rule("", "pods", "get")]

    for path, resource in ((f"{CORE}/pods/a:80/proxy/", "pods/proxy"), (f"{CORE}/pods/a/exec", "pods/exec")):
        status, answer = ask("GET", path)
        assert (status, answer["reason"]) == (403, "Forbidden")
        assert f'cannot get resource "{resource}"' in answer["message"]


def assert_published_status(answer):
    """A Status validates; `validate` looks for it under a name that its schema does not have."""
    definitions = schema_contents("kubernetes-json-schema/v1.37.0-local-strict/_definitions.json", "1.37")
    schema = {**definitions, "$ref": "#/$defs/io.k8s.apimachinery.pkg.apis.meta.v1.Status"}
    registered = json.loads(json.dumps(schema).replace("/api/_definitions.json#", "#"))
    jsonschema.Draft202012Validator(registered).validate(answer)
