"""What KEDA, the HPA and KServe are told makes them follow the decision core (docs/kubernetes.md, forms a to c)."""

from __future__ import annotations

import json
from typing import Any

import promql_parser
import pytest

from infscale.core.grammar import parse_policy
from infscale.core.scaling import ScalePolicy
from tests.k8s.manifests import (
    BUILDS,
    COMPOSED,
    K8S,
    Object,
    build,
    containers,
    flags,
    load,
    name_of,
    of_kind,
    pods,
    settings,
    walk,
)
from tests.k8s.schemas import has_tolerance

LEADER_WORKER_SET = "leaderworkerset.x-k8s.io/v1"
DEMAND, REPLICAS = "infscale_workload_demand_requests", "infscale_recommended_replicas"
UP = {
    "stabilizationWindowSeconds": 0,
    "selectPolicy": "Max",
    "policies": [
        {"type": "Pods", "value": 4, "periodSeconds": 15},
        {"type": "Percent", "value": 100, "periodSeconds": 15},
    ],
}
DOWN = {
    "stabilizationWindowSeconds": 300,
    "selectPolicy": "Max",
    "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}],
}
OPEN = {"stabilizationWindowSeconds": 0, "tolerance": "0", "selectPolicy": "Max"}


def scaled(name: str) -> list[Object]:
    """The ScaledObjects of a build."""
    return of_kind(build(name), "ScaledObject")


def behavior(obj: Object) -> Object:
    """The behaviour of an HPA, or of the one that KEDA makes."""
    spec = obj["spec"]
    if obj["kind"] == "HorizontalPodAutoscaler":
        return dict(spec["behavior"])
    return dict(spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"])


def queries(obj: Object) -> list[str]:
    """The PromQL of an object."""
    return [node for path, node in walk(obj) if path and path[-1] == "query"]


def selected(query: str) -> dict[str, list[dict[str, str]]]:
    """The series that a query reads: name to the labels of each selector."""
    found: dict[str, list[dict[str, str]]] = {}

    def look(node: Any) -> None:
        if isinstance(node, promql_parser.VectorSelector):
            labels = {one.name: one.value for one in node.matchers.matchers if one.op == promql_parser.MatchOp.Equal}
            found.setdefault(str(node.name), []).append(labels)
        for key in ("expr", "lhs", "rhs", "args", "vs"):
            child = getattr(node, key, None)
            for one in child if isinstance(child, list) else [child]:
                if one is not None:
                    look(one)

    look(promql_parser.parse(query))
    return found


def recommender(name: str) -> list[str]:
    """The recommender's arguments in a build; empty where there is none."""
    for whose, _, spec in pods(build(name)):
        if whose == "Deployment/infscale-recommender":
            return list(spec["containers"][0]["args"])
    return []


def policy_of(name: str) -> ScalePolicy | None:
    """The recommender's policy in a build."""
    told = flags(recommender(name), "--policy")
    return parse_policy(told[0]) if told else None


@pytest.mark.parametrize("name", BUILDS)
def test_every_trigger_fails_visibly(name: str) -> None:
    """AverageValue everywhere; an outage is an error and not zero: no null that counts as 0, no fallback, no `or`."""
    for obj in scaled(name):
        text = json.dumps(obj)
        assert "fallback" not in text, name_of(obj)
        assert "vector(" not in text, name_of(obj)
        for trigger in obj["spec"]["triggers"]:
            assert trigger["metricType"] == "AverageValue", name_of(obj)
            if trigger["type"] == "prometheus":
                assert trigger["metadata"]["ignoreNullValues"] == "false", name_of(obj)


@pytest.mark.parametrize("name", BUILDS)
def test_queries_select_their_own_workload(name: str) -> None:
    """Each query parses, and every selector in it is of the namespace and the workload that is scaled."""
    for obj in of_kind(build(name), "ScaledObject", "InferenceService"):
        target = (
            obj["spec"]["scaleTargetRef"]["name"]
            if obj["kind"] == "ScaledObject"
            else f"{obj['metadata']['name']}-predictor"
        )
        space = obj["metadata"].get("namespace", "inference")
        for query in queries(obj):
            for series, selectors in selected(query).items():
                assert series.startswith("infscale_"), query
                for labels in selectors:
                    assert labels == {"workload_namespace": space, "workload": target}, query


@pytest.mark.parametrize("name", BUILDS)
def test_scalers_find_their_target(name: str) -> None:
    """What is scaled is in the build, or stays what a user has; one scaler to a workload."""
    objects = build(name)
    scalers = of_kind(objects, "ScaledObject", "HorizontalPodAutoscaler")
    targets = [obj["spec"]["scaleTargetRef"]["name"] for obj in scalers]
    assert len(targets) == len(set(targets))
    made = {
        (obj["apiVersion"], obj["kind"], obj["metadata"]["name"])
        for obj in of_kind(objects, "Deployment", "LeaderWorkerSet")
    }
    made |= {
        ("apps/v1", "Deployment", f"{obj['metadata']['name']}-predictor")
        for obj in of_kind(objects, "InferenceService")
    }
    engines = {whose for whose, meta, _ in pods(objects) if "infscale.dev/workload" in meta.get("labels", {})}
    for target in (obj["spec"]["scaleTargetRef"] for obj in scalers):
        assert (target["apiVersion"], target["kind"], target["name"]) in made or not engines
        group = LEADER_WORKER_SET if target["kind"] == "LeaderWorkerSet" else "apps/v1"
        assert target["apiVersion"] == group
        if told := flags(recommender(name), "--fleet.source"):
            space = scalers[0]["metadata"]["namespace"]
            assert told == [f"kubernetes:{target['kind'].lower()}/{space}/{target['name']}"]


def thresholds(obj: Object) -> list[str]:
    """What each metric of a scaler is held against."""
    if obj["kind"] == "HorizontalPodAutoscaler":
        return [metric["external"]["target"]["averageValue"] for metric in obj["spec"]["metrics"]]
    if obj["kind"] == "InferenceService":
        metrics = obj["spec"]["predictor"].get("autoScaling", {}).get("metrics", [])
        return [metric["external"]["target"]["averageValue"] for metric in metrics]
    told = (trigger["metadata"] for trigger in obj["spec"]["triggers"])
    return [metadata.get("threshold") or metadata["targetValue"] for metadata in told]


def is_follower(obj: Object) -> bool:
    """Whether it follows the recommended replicas: form (b)."""
    return REPLICAS in json.dumps(obj)


def bounds(obj: Object) -> tuple[int, int]:
    """The least and the most replicas of a scaler."""
    spec = obj["spec"]["predictor"] if obj["kind"] == "InferenceService" else obj["spec"]
    if obj["kind"] == "ScaledObject":
        return spec["minReplicaCount"], spec["maxReplicaCount"]
    return spec["minReplicas"], spec["maxReplicas"]


@pytest.mark.parametrize("name", [name for name in BUILDS if name not in COMPOSED])
def test_thresholds_are_the_policys_target(name: str) -> None:
    """Threshold, minimum and maximum of the scaler, the settings and the recommender's policy are the same numbers."""
    policy = policy_of(name) or parse_policy(settings(name).get("policy", "queue:1"))
    for obj in of_kind(build(name), "ScaledObject", "HorizontalPodAutoscaler", "InferenceService"):
        target = settings_for(name, obj)["target"]
        if not is_follower(obj):
            assert set(thresholds(obj)) <= {target}, name_of(obj)
        if recommender(name):
            (goal,) = policy.goals
            assert goal.target == float(target)
            assert bounds(obj) == (policy.min_replicas, policy.max_replicas), name_of(obj)


def settings_for(name: str, obj: Object) -> dict[str, str]:
    """The settings behind an object: an example of several workloads has a folder for each."""
    target = obj["spec"].get("scaleTargetRef", {}).get("name", "")
    for part in (K8S / name).glob("*/kustomization.yaml"):
        told = settings(part.parent.relative_to(K8S).as_posix())
        if told.get("workload") == target:
            return dict(told)
    return dict(settings(name))


def scalers(form: str) -> list[tuple[str, Object]]:
    """All scalers of one form: (a) demand, (b) followers, (c) with the way down closed."""
    found = []
    for name in BUILDS:
        for obj in of_kind(build(name), "ScaledObject", "HorizontalPodAutoscaler"):
            closed = behavior(obj)["scaleDown"]["selectPolicy"] == "Disabled"
            if form == ("b" if is_follower(obj) else "c" if closed else "a"):
                found.append((name, obj))
    return found


def test_form_a_spells_the_behaviour_out() -> None:
    """Up the HPA's own defaults, down a window of 300 s and one Pod a minute; the tolerance is the HPA's own."""
    found = scalers("a")
    assert {obj["kind"] for _, obj in found} == {"ScaledObject", "HorizontalPodAutoscaler"}
    for name, obj in found:
        assert behavior(obj) == {"scaleUp": UP, "scaleDown": DOWN}, name
        if obj["kind"] == "ScaledObject":
            assert {series for query in queries(obj) for series in selected(query)} == {DEMAND}, name


def test_form_b_only_follows() -> None:
    """One replica for each that is recommended: no window, no tolerance beside the policies, policies wide open."""
    found = scalers("b")
    assert {obj["kind"] for _, obj in found} == {"ScaledObject", "HorizontalPodAutoscaler"}
    for name, obj in found:
        assert recommender(name), f"{name}: nobody recommends"
        assert thresholds(obj) == ["1"], name
        for rules in behavior(obj).values():
            assert {key: value for key, value in rules.items() if key != "policies"} == OPEN, name
            assert {"type": "Percent", "value": 100, "periodSeconds": 15} in rules["policies"], name
        if obj["kind"] == "ScaledObject":
            assert obj["spec"]["cooldownPeriod"] == 0, name
            (query,) = queries(obj)
            assert selected(query).keys() == {REPLICAS, "infscale_evaluation_timestamp_seconds"}, name
            assert query.startswith("max("), name
            assert "and on (workload_namespace, workload)" in query, name
            assert query.endswith("< 60)"), name


def test_form_c_leaves_the_way_down_to_retirement() -> None:
    """Its way down is closed, its minimum is not 0, and one recommender in the same build retires."""
    found = scalers("c")
    assert found
    for name, obj in found:
        assert behavior(obj)["scaleUp"] == UP, name
        assert obj["spec"]["minReplicaCount"] >= 1, "KEDA goes to 0 past the closed way"
        told = recommender(name)
        assert {"--apply=down", "--retire"} <= set(told), name
        assert flags(told, "--withdraw.token-file"), name


@pytest.mark.parametrize("name", BUILDS)
def test_tolerance_is_form_bs_alone(name: str) -> None:
    """It stands beside `policies`, in both directions, and nowhere else: older clusters would refuse the manifest."""
    for obj in build(name):
        places = [path[:-1] for path, _ in walk(obj) if path and path[-1] == "tolerance"]
        assert bool(places) is has_tolerance(obj)
        if places:
            assert is_follower(obj), name_of(obj)
            assert [place[-1] for place in places] == ["scaleDown", "scaleUp"], name_of(obj)
            for place in places:
                node: Any = obj
                for step in place:
                    node = node[step]
                assert "policies" in node, name_of(obj)


def test_one_writer() -> None:
    """Where a scaler is in a build the recommender does not apply, but for the way down of form (c)."""
    for name in BUILDS:
        told = [word for word in recommender(name) if word.startswith("--apply")]
        others = of_kind(build(name), "ScaledObject", "HorizontalPodAutoscaler")
        closed = bool(others) and behavior(others[0])["scaleDown"]["selectPolicy"] == "Disabled"
        assert told == (["--apply=down"] if closed else told if not others else []), name


def test_to_zero_and_back() -> None:
    """Both triggers outlive the Pods, any request wakes, and KEDA is the one writer."""
    zero = [(name, obj) for name in BUILDS for obj in scaled(name) if obj["spec"]["minReplicaCount"] == 0]
    assert zero
    for name, obj in zero:
        spec = obj["spec"]
        assert spec["pollingInterval"] == 5, name
        assert spec["cooldownPeriod"] >= 300, name
        prometheus, api = spec["triggers"]
        assert prometheus["metadata"]["activationThreshold"] == api["metadata"]["activationTargetValue"] == "0", name
        assert selected(prometheus["metadata"]["query"]).keys() == {DEMAND}, name
        assert api["type"] == "metrics-api", name
        assert api["metadata"]["url"].endswith(".svc:10047/api/v1/load"), name
        assert api["metadata"]["url"].split(".")[1] == obj["metadata"]["namespace"], name
        activators = [spec for whose, _, spec in pods(build(name)) if whose == "Deployment/infscale-activator"]
        assert activators, name
        assert flags(activators[0]["containers"][0]["args"], "--scale") == ["none"], name
        assert flags(recommender(name), "--activator-url"), name
        policy = policy_of(name)
        assert policy, name
        assert policy.min_replicas == 0, name


def test_metrics_api_reads_what_the_recommender_answers() -> None:
    """The trigger's `valueLocation` is a key of `/api/v1/load`."""
    from inspect import getsource

    from infscale import recommender_answers

    locations = {
        node
        for name in BUILDS
        for obj in scaled(name)
        for path, node in walk(obj)
        if path and path[-1] == "valueLocation"
    }
    assert locations == {"demand"}
    assert 'return {"inflight": inflight, "demand": demand}' in getsource(recommender_answers)


def test_kserve_sums() -> None:
    """KServe's own autoscaling: Standard mode with KEDA, `sum(...)`, never `Value`, a down window of 300 s."""
    services = [(name, obj) for name in BUILDS for obj in of_kind(build(name), "InferenceService")]
    scaling = [(name, obj) for name, obj in services if "autoScaling" in obj["spec"]["predictor"]]
    assert scaling
    for name, obj in services:
        assert obj["metadata"]["annotations"]["serving.kserve.io/deploymentMode"] == "Standard", name
        own = obj["metadata"]["annotations"]["serving.kserve.io/autoscalerClass"] == "keda"
        assert own is ((name, obj) in scaling), name
        assert own is not bool(scaled(name)), f"{name}: two scalers, or none"
    for name, obj in scaling:
        (metric,) = obj["spec"]["predictor"]["autoScaling"]["metrics"]
        assert metric["external"]["metric"]["query"].startswith("sum("), name
        assert metric["external"]["target"]["type"] == "AverageValue", name
        windows = obj["spec"]["predictor"]["autoScaling"]["behavior"]
        assert {key: rules["stabilizationWindowSeconds"] for key, rules in windows.items()} == {
            "scaleUp": 0,
            "scaleDown": 300,
        }


def test_adapter_serves_what_the_hpas_ask_for() -> None:
    """Each external metric of an HPA is one of the values for prometheus-adapter, whose queries parse."""
    (values,) = load((K8S / "components/hpa-external/adapter-values.yaml").read_text())
    served = {rule["name"]["as"]: rule for rule in values["rules"]["external"]}
    for name in BUILDS:
        for obj in of_kind(build(name), "HorizontalPodAutoscaler"):
            for metric in obj["spec"]["metrics"]:
                assert metric["external"]["metric"]["name"] in served, name
                assert metric["external"]["target"]["type"] == "AverageValue", name
                assert metric["external"]["metric"]["selector"]["matchLabels"] == {
                    "workload": obj["spec"]["scaleTargetRef"]["name"]
                }
    for metric_name, rule in served.items():
        matchers = 'workload_namespace="inference",workload="vllm"'
        query = rule["metricsQuery"].replace("<<.Series>>", metric_name).replace("<<.LabelMatchers>>", matchers)
        assert metric_name in selected(query)
        assert rule["resources"]["overrides"] == {"workload_namespace": {"resource": "namespace"}}


def test_every_one_of_our_deployments_was_looked_at() -> None:
    """The builds hold every role: else the tests above would pass for want of objects."""
    roles = {
        one["args"][0]
        for name in BUILDS
        for _, _, spec in pods(build(name))
        for one in containers(spec)
        if one["image"].startswith("infscale:")
    }
    assert roles == {"sidecar", "install-hook", "recommender", "activator", "sim-engine", "load"}
