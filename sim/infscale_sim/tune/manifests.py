"""A policy as a ScaledObject and as an HPA on the demand, and what neither can say.

Both read one series, `infscale_workload_demand_requests`, with the target per replica; the HPA controller does the
rest, so its `behavior` is spelled out (docs/recommender.md, form (a)).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from infscale.core.policy import DEFAULT_SCALE_DOWN, DEFAULT_SCALE_UP, Behavior, ScalingRules
from infscale.core.scaling import ScalePolicy
from infscale.core.settings import number_text
from infscale_sim.tune.space import DEFAULT_TOLERANCE

SERIES = "infscale_workload_demand_requests"
ADDRESS = "http://prometheus.monitoring.svc:9090"
POLL_S = 5
"""How often KEDA looks whether to wake from 0."""
_DOWN_WINDOW_S = 300
"""The controller's, where a policy says nothing."""


@dataclass(frozen=True, slots=True)
class Workload:
    """What is scaled, and the Prometheus that has its demand."""

    namespace: str = "inference"
    name: str = "vllm"
    prometheus: str = ADDRESS


def scaled_object(policy: ScalePolicy, workload: Workload) -> dict[str, Any]:
    """KEDA's form. `ignoreNullValues: "false"`, so that an outage of Prometheus does not read as no load.

    With a minimum of 0 a second trigger asks the recommender, which knows of held requests where no replica is.
    """
    target = _target(policy)
    query = f'max({SERIES}{{workload_namespace="{workload.namespace}",workload="{workload.name}"}})'
    triggers = [
        {
            "type": "prometheus",
            "metricType": "AverageValue",
            "metadata": {
                "serverAddress": workload.prometheus,
                "query": query,
                "threshold": target,
                "ignoreNullValues": "false",
            },
        }
    ]
    spec: dict[str, Any] = {
        "scaleTargetRef": {"name": workload.name},
        "minReplicaCount": policy.min_replicas,
        "maxReplicaCount": policy.max_replicas,
    }
    if policy.min_replicas == 0:
        spec["pollingInterval"] = POLL_S
        spec["cooldownPeriod"] = round(policy.cooldown_s or 0)
        url = f"http://infscale-recommender.{workload.namespace}.svc:10047/api/v1/load"
        wake = {"url": url, "valueLocation": "demand", "targetValue": target}
        triggers.append({"type": "metrics-api", "metricType": "AverageValue", "metadata": wake})
    spec["advanced"] = {"horizontalPodAutoscalerConfig": {"behavior": behavior(policy)}}
    spec["triggers"] = triggers
    return _object("keda.sh/v1alpha1", "ScaledObject", workload, spec)


def hpa(policy: ScalePolicy, workload: Workload) -> dict[str, Any]:
    """The HPA's form, on an external metric that an adapter serves from Prometheus. Its minimum is at least 1."""
    labels = {"workload_namespace": workload.namespace, "workload": workload.name}
    external = {
        "metric": {"name": SERIES, "selector": {"matchLabels": labels}},
        "target": {"type": "AverageValue", "averageValue": _target(policy)},
    }
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": workload.name},
        "minReplicas": max(1, policy.min_replicas),
        "maxReplicas": policy.max_replicas,
        "metrics": [{"type": "External", "external": external}],
        "behavior": behavior(policy),
    }
    return _object("autoscaling/v2", "HorizontalPodAutoscaler", workload, spec)


def behavior(policy: ScalePolicy) -> dict[str, Any]:
    """The HPA's `behavior`, with its defaults written out; a tolerance only where it is not the default."""
    rules = policy.behavior or Behavior(DEFAULT_SCALE_UP, DEFAULT_SCALE_DOWN)
    return {"scaleUp": _rules(rules.scale_up, 0), "scaleDown": _rules(rules.scale_down, _DOWN_WINDOW_S)}


def missing(policy: ScalePolicy) -> Iterator[str]:
    """What the two manifests leave out, a line each."""
    if policy.lookahead_s:
        yield f"lookahead={policy.lookahead_s:g}: neither KEDA nor the HPA projects demand"
    if policy.guard is not None:
        yield f"guard={policy.guard:g}: neither knows what the replicas left can carry"
    if policy.min_replicas == 0:
        yield (
            "min=0: the HPA stays at 1; KEDA goes to 0 and wakes by its own polling, past the HPA's rates, and needs "
            "infscale's activator to hold requests meanwhile"
        )


def as_manifests(policy: ScalePolicy, text: str) -> str:
    """The policy that the ScaledObject amounts to, for the simulator: without what cannot be said there."""
    dropped = ("lookahead=", "guard=", "knee=", "cooldown=")
    pieces = [piece for piece in text.split(",") if not piece.startswith(dropped)]
    if policy.min_replicas > 0:
        return "hpa:" + ",".join(pieces)
    return "keda:" + ",".join([*pieces, f"poll={POLL_S}", f"cooldown={number_text(policy.cooldown_s or 0)}"])


def _target(policy: ScalePolicy) -> str:
    return number_text(policy.goals[0].target or 0)


def _rules(rules: ScalingRules, window_s: int) -> dict[str, Any]:
    own_s = rules.stabilization_window_s
    written: dict[str, Any] = {
        "stabilizationWindowSeconds": window_s if own_s is None else own_s,
        "selectPolicy": rules.select_policy.value,
        "policies": [{"type": p.type.value, "value": p.value, "periodSeconds": p.period_s} for p in rules.policies],
    }
    if rules.tolerance not in (None, DEFAULT_TOLERANCE):
        written["tolerance"] = str(rules.tolerance)
    return written


def _object(version: str, kind: str, workload: Workload, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": workload.name, "namespace": workload.namespace}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}
