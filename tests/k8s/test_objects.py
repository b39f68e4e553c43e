"""How the objects of a build go together: names, namespaces, selectors, images, rights."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.k8s.manifests import (
    BUILDS,
    COMPOSED,
    K8S,
    Object,
    build,
    compose,
    containers,
    is_ours,
    name_of,
    of_kind,
    pods,
    settings,
)

CLUSTER_WIDE = {"Namespace", "ClusterRole", "ClusterRoleBinding"}
VERBS = {"get", "list", "watch", "create", "update", "patch", "delete"}
OPT_IN = {"pods/exec", "pods/proxy"}


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a LabelSelector takes an object with these labels."""
    for wanted in selector.get("matchExpressions", ()):
        value = labels.get(wanted["key"])
        if wanted["operator"] == "Exists" and value is None:
            return False
        if wanted["operator"] == "In" and value not in wanted["values"]:
            return False
        assert wanted["operator"] in {"Exists", "In"}
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())


def labels_of(metadata: Object) -> dict[str, str]:
    """The labels of a Pod; KServe adds some of its own."""
    return dict(metadata.get("labels", {}))


@pytest.mark.parametrize("name", BUILDS)
def test_no_object_twice(name: str) -> None:
    """Each object once, each in its namespace; the settings never reach a cluster."""
    told = [(obj["kind"], obj["metadata"].get("namespace"), obj["metadata"]["name"]) for obj in build(name)]
    assert len(told) == len(set(told))
    spaces = {space for kind, space, _ in told if kind not in CLUSTER_WIDE}
    assert len(spaces) == 1
    assert None not in spaces or name.startswith("examples/sglang-pd/"), "parts of a whole get theirs there"
    assert "infscale-settings" not in {which for _, _, which in told}


@pytest.mark.parametrize("name", [name for name in BUILDS if name not in COMPOSED])
def test_namespace_is_that_of_the_settings(name: str) -> None:
    """Queries select by the namespace of the settings: objects are in that very one."""
    spaces = {obj["metadata"].get("namespace") for obj in build(name)} - {None}
    if name in {"examples/monitoring", "examples/sim-load"}:
        return  # they have no query
    assert spaces <= {settings(name)["namespace"]}


@pytest.mark.parametrize("name", BUILDS)
def test_images_have_a_tag_and_no_registry(name: str) -> None:
    """No registry's host is in a reference, so that any mirror will do; every image has a tag, none is latest."""
    for whose, _, spec in pods(build(name)):
        for container in containers(spec):
            image = container["image"]
            first, slash, _ = image.partition("/")
            assert not slash or not re.search(r"[.:]|^localhost$", first), f"{whose}: {image}"
            assert re.search(r":(?!latest$)[\w.-]+$", image), f"{whose}: {image}"


def test_no_registry_is_named() -> None:
    """Nor anywhere else in k8s/."""
    hosts = re.compile(r"\b(docker\.io|quay\.io|ghcr\.io|gcr\.io|nvcr\.io|registry\.k8s\.io|public\.ecr\.aws)\b")
    assert [path for path in K8S.rglob("*") if path.is_file() and hosts.search(path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("name", BUILDS)
def test_labels(name: str) -> None:
    """Our objects say whose they are; selectors, which cannot be changed later, hold nothing that a user may add."""
    for obj in build(name):
        labels = obj["metadata"].get("labels", {})
        if obj["kind"] not in CLUSTER_WIDE and name not in COMPOSED and not name.startswith("examples/sglang-pd/"):
            assert labels.get("app.kubernetes.io/part-of") == "infscale", name_of(obj)
        if obj["kind"] == "Deployment":
            selector = obj["spec"]["selector"]["matchLabels"]
            assert selector.keys() <= {f"app.kubernetes.io/{word}" for word in ("name", "instance", "component")}
            assert selects(obj["spec"]["selector"], obj["spec"]["template"]["metadata"]["labels"]), name_of(obj)


@pytest.mark.parametrize("name", BUILDS)
def test_services_reach_their_pods(name: str) -> None:
    """Each Service of a build selects a Pod of it, at a port that the Pod has."""
    objects = build(name)
    for service in of_kind(objects, "Service"):
        chosen = [
            spec
            for _, meta, spec in pods(objects)
            if selects({"matchLabels": service["spec"]["selector"]}, labels_of(meta))
        ]
        assert chosen, name_of(service)
        for port in service["spec"]["ports"]:
            for spec in chosen:
                own = [one for container in containers(spec) for one in container.get("ports", ())]
                assert port["targetPort"] in {value for one in own for value in (one["name"], one["containerPort"])}, (
                    name_of(service)
                )


@pytest.mark.parametrize("name", BUILDS)
def test_monitors_and_budgets_find_their_pods(name: str) -> None:
    """A PodMonitor and a disruption budget select a Pod of the build where it has any of the kind."""
    objects = build(name)
    found = list(pods(objects))
    engines = [meta for _, meta, _ in found if "infscale.dev/workload" in labels_of(meta)]
    if not engines:
        return
    for monitor in of_kind(objects, "PodMonitor"):
        chosen = [spec for _, meta, spec in found if selects(monitor["spec"]["selector"], labels_of(meta))]
        assert chosen or monitor["metadata"]["name"] == "infscale-roles", name_of(monitor)
        assert monitor["metadata"]["labels"]["release"], name_of(monitor)
        for endpoint in monitor["spec"]["podMetricsEndpoints"]:
            for spec in chosen:
                assert endpoint["port"] in {port["name"] for one in containers(spec) for port in one.get("ports", ())}
            assert (endpoint["interval"], endpoint["scrapeTimeout"]) == ("15s", "10s"), "what the rules are written for"
    for budget in of_kind(objects, "PodDisruptionBudget"):
        assert any(selects(budget["spec"]["selector"], labels_of(meta)) for meta in engines), name_of(budget)


def test_sidecars_series_get_their_workload() -> None:
    """The PodMonitor makes the target label `workload` of the Pods' label."""
    monitor = next(
        obj for obj in of_kind(build("examples/vllm"), "PodMonitor") if obj["metadata"]["name"] == "infscale-sidecars"
    )
    (relabelling,) = monitor["spec"]["podMetricsEndpoints"][0]["relabelings"]
    assert relabelling == {
        "sourceLabels": ["__meta_kubernetes_pod_label_infscale_dev_workload"],
        "targetLabel": "workload",
        "action": "replace",
    }


def test_release_is_set_in_one_place() -> None:
    """One setting is the label that kube-prometheus-stack selects monitors and rules by."""
    objects = compose("vllm", ("podmonitor", "release"), settings={"release": "watch"})
    assert {obj["metadata"]["labels"]["release"] for obj in of_kind(objects, "PodMonitor")} == {"watch"}


@pytest.mark.parametrize("name", BUILDS)
def test_kubelets_port_is_open_to_nobody_else(name: str) -> None:
    """No network policy opens 10048: kubelet needs no rule, and nobody else may hold a drain's place."""
    for policy in of_kind(build(name), "NetworkPolicy"):
        ports = {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]}
        assert ports <= {"http", 10047}, name_of(policy)
        assert all(
            "from" in rule for rule in policy["spec"]["ingress"] for port in rule["ports"] if port["port"] == 10047
        )


def opened(objects: Sequence[Object], labels: dict[str, str], port: int | str, peer: Object) -> bool:
    """Whether the policies of a build let a peer (labels of its Pod and of its namespace) reach a port of a Pod."""
    policies = [one["spec"] for one in of_kind(objects, "NetworkPolicy") if selects(one["spec"]["podSelector"], labels)]
    rules = [
        rule for policy in policies for rule in policy["ingress"] if port in [one["port"] for one in rule["ports"]]
    ]
    return not policies or any(
        "from" not in rule
        or any(
            selects(source.get("podSelector", {}), peer["pod"])
            and (selects(source["namespaceSelector"], peer["space"]) if "namespaceSelector" in source else peer["here"])
            for source in rule["from"]
        )
        for rule in rules
    )


@pytest.mark.parametrize("name", BUILDS)
def test_policies_leave_open_what_is_needed(name: str) -> None:
    """Prometheus, the recommender, KEDA's metrics-api trigger and clients get where they must; so does Pod proxy."""
    objects = build(name)
    space = {"kubernetes.io/metadata.name": "monitoring"}
    prometheus = {"pod": {"app.kubernetes.io/name": "prometheus"}, "space": space, "here": False}
    keda = {"pod": {}, "space": {"kubernetes.io/metadata.name": "keda"}, "here": False}
    client: Object = {"pod": {}, "space": {}, "here": False}
    all_pods = {whose: metadata.get("labels", {}) for whose, metadata, _ in pods(objects)}
    recommender = {"pod": all_pods.get("Deployment/infscale-recommender", {}), "space": {}, "here": True}
    for whose, _, spec in pods(objects):
        for port in (port for one in containers(spec) for port in one.get("ports", ())):
            labels = all_pods[whose]
            if port["name"] == "infscale":
                assert opened(objects, labels, port["containerPort"], prometheus), whose
                assert opened(objects, labels, port["containerPort"], recommender) or not recommender["pod"], whose
            if port["name"] == "http":
                assert opened(objects, labels, "http", client), whose
    if "metrics-api" in [one["type"] for obj in of_kind(objects, "ScaledObject") for one in obj["spec"]["triggers"]]:
        assert opened(objects, recommender["pod"], 10047, keda)
    if any("pods/proxy" in rights(role) for role in of_kind(objects, "Role")):
        assert not of_kind(objects, "NetworkPolicy"), "Pod proxy comes from the API server, which no policy can name"


def rights(role: Object) -> dict[str, set[str]]:
    """The verbs of a Role by resource."""
    found: dict[str, set[str]] = {}
    for rule in role["rules"]:
        for resource in rule["resources"]:
            found.setdefault(resource, set()).update(rule["verbs"])
    return found


@pytest.mark.parametrize("name", BUILDS)
def test_rights_are_named_and_namespaced(name: str) -> None:
    """Roles name their verbs, resources and groups; nothing is cluster-wide; exec and proxy are Roles of their own."""
    objects = build(name)
    assert of_kind(objects, "ClusterRole", "ClusterRoleBinding") == []
    for role in of_kind(objects, "Role"):
        for rule in role["rules"]:
            assert rule.keys() == {"apiGroups", "resources", "verbs"}, name_of(role)
            assert "*" not in {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}, name_of(role)
            assert set(rule["verbs"]) <= VERBS, name_of(role)
        resources = rights(role).keys()
        assert not resources & OPT_IN or len(resources) == 1, f"{name_of(role)}: {sorted(resources)}"
        assert "secrets" not in resources, name_of(role)


@pytest.mark.parametrize("name", BUILDS)
def test_bindings_lead_somewhere(name: str) -> None:
    """Each binding joins a Role and an account of the same build; an engine's account has none, and no token."""
    objects = build(name)
    roles = {obj["metadata"]["name"] for obj in of_kind(objects, "Role")}
    accounts = {obj["metadata"]["name"]: obj for obj in of_kind(objects, "ServiceAccount")}
    bound = set()
    for binding in of_kind(objects, "RoleBinding"):
        assert binding["roleRef"]["kind"] == "Role"
        assert binding["roleRef"]["name"] in roles, name_of(binding)
        for subject in binding["subjects"]:
            assert subject["kind"] == "ServiceAccount"
            assert subject["name"] in accounts, name_of(binding)
            bound.add(subject["name"])
    assert bound <= {"infscale-recommender"}
    assert all(account["automountServiceAccountToken"] is False for account in accounts.values())
    for whose, _, spec in pods(objects):
        if any(is_ours(one) and one["args"][0] == "sidecar" for one in containers(spec)):
            assert spec["serviceAccountName"] not in bound, whose


def test_recommender_reads_and_no_more_unless_asked() -> None:
    """By itself it may look; to scale, to retire, to reach into Pods are components of their own."""
    reading = {role["metadata"]["name"]: rights(role) for role in of_kind(build("examples/vllm-zero"), "Role")}
    assert reading == {"infscale-recommender": {"deployments": {"get"}, "pods": {"list"}}}
    retiring = {role["metadata"]["name"] for role in of_kind(build("examples/vllm-retire"), "Role")}
    assert retiring == {
        "infscale-recommender",
        "infscale-recommender-apply",
        "infscale-recommender-retire",
        "infscale-pods-proxy",
    }


@pytest.mark.parametrize("name", BUILDS)
def test_rollout_lets_the_old_gpu_go_first(name: str) -> None:
    """Engines with a GPU roll out without a surge; no Deployment of an engine sets the scaler's `replicas`."""
    for obj in of_kind(build(name), "Deployment"):
        spec = obj["spec"]["template"]["spec"]
        if any("nvidia.com/gpu" in one.get("resources", {}).get("limits", {}) for one in containers(spec)):
            assert obj["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}, name_of(obj)
        if "infscale.dev/workload" in obj["spec"]["template"]["metadata"]["labels"]:
            assert "replicas" not in obj["spec"], name_of(obj)
    for obj in of_kind(build(name), "LeaderWorkerSet"):  # its own default is no surge and one group at a time
        assert not {"replicas", "rolloutStrategy"} & obj["spec"].keys(), name_of(obj)
