"""Autoscalers that exist already, read as policies: HPAs, ScaledObjects, and what stands around them in a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from infscale.core.grammar import policy_text
from infscale.errors import ConfigError
from infscale.manifest import load_manifest, manifest_policy
from infscale.manifest_metrics import metric_in
from infscale.yaml_file import MANIFESTS

DATA = Path(__file__).parent / "data" / "manifests"


def edited(name: str, *edits: tuple[str, Any]) -> str:
    """A manifest of the tests' data with values put at paths such as `spec.metrics.0.type`; ... takes one away."""
    manifest = yaml.safe_load((DATA / name).read_text())
    for path, value in edits:
        *way, last = path.split(".")
        at = manifest
        for key in way:
            at = at[int(key)] if isinstance(at, list) else at.setdefault(key, {})
        where = int(last) if isinstance(at, list) else last
        if value is ...:
            del at[where]
        else:
            at[where] = value
    return yaml.safe_dump(manifest)


def fault(text: str) -> str:
    """What is said of manifests that are no policy."""
    with pytest.raises(ConfigError) as caught:
        manifest_policy(text, "m.yaml")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_an_hpa_with_behaviour():
    """Metrics by their names, bounds, windows, policies and tolerances of an HPA come out as a policy."""
    read = load_manifest(str(DATA / "hpa-queue.yaml"))

    assert policy_text(read.policy) == (
        "queue:24+kv:80,min=2,max=12,downtolerance=0.05,upwindow=30,up=100%/15+4/15,down=1/60,downselect=min"
    )
    assert (read.name, read.workload) == ("HorizontalPodAutoscaler shop/llama-8b", "Deployment shop/llama-8b")
    assert read.warnings == ()


def test_an_hpa_out_of_the_cluster():
    """What `kubectl get -o yaml` prints is a List; memory has no equivalent and is told."""
    read = load_manifest(str(DATA / "hpa-cpu.yaml"))

    assert policy_text(read.policy) == "cpu:60,max=6"
    assert read.workload == "StatefulSet default/embedder"
    assert read.warnings == (
        "items[0].spec.metrics[1].resource: no equivalent for memory with a target of type AverageValue, "
        "only for cpu with Utilization",
    )


def test_a_scaled_object_to_zero():
    """Queries over an engine's own metrics, and zero with KEDA's cooldown; what infscale has not is told."""
    read = load_manifest(str(DATA / "scaledobject-zero.yaml"))

    assert policy_text(read.policy) == (
        "queue:12+ttft:1.5,min=0,max=8,cooldown=600,downwindow=300,down=1/60,quantile=0.9"
    )
    assert (read.name, read.workload) == ("ScaledObject ml/llama-70b", "Deployment ml/llama-70b")
    assert [warning.split(":")[0] for warning in read.warnings] == [
        "spec.pollingInterval",
        "spec.fallback",
        "spec.triggers[0].metadata.activationThreshold",
        "spec.triggers[2]",
        "metadata.annotations",
    ]


def test_the_trigger_that_cannot_be_read_is_why_nothing_would_wake():
    """Where only metrics without a sample at zero are left, the error says what was left out too."""
    said = fault(edited("scaledobject-zero.yaml", ("spec.triggers.0", {"type": "redis"})))

    assert "spec.minReplicaCount: at 0 replicas ttft has no sample" in said
    assert "(spec.triggers[0]: no equivalent for a trigger of type redis; spec.triggers[2]: no equivalent" in said


def test_kustomize_output():
    """The one autoscaler among other documents is found; `idleReplicaCount: 0` is a minimum of 0."""
    read = load_manifest(str(DATA / "kustomize.yaml"))

    assert policy_text(read.policy) == "waiting:2+queue:16+cpu:70,min=0,max=4,cooldown=300"


def test_json_is_read_too():
    """`kubectl get -o json` gives the same policy."""
    manifest = yaml.safe_load((DATA / "hpa-queue.yaml").read_text())

    assert (
        manifest_policy(json.dumps(manifest, indent=2), "m").policy
        == load_manifest(str(DATA / "hpa-queue.yaml")).policy
    )


@pytest.mark.parametrize(
    ("edits", "text"),
    [
        ([("spec.metrics", ...), ("spec.behavior", ...)], "cpu:80,min=2,max=12"),
        ([("spec.minReplicas", ...), ("spec.behavior", None)], "queue:24+kv:80,max=12"),
        (
            [("spec.behavior", {"scaleDown": {"selectPolicy": "Disabled"}})],
            "queue:24+kv:80,min=2,max=12,downselect=disabled",
        ),
        ([("spec.metrics.0.external.target.averageValue", "2500m")], None),
    ],
)
def test_what_an_hpa_leaves_out_is_its_default(edits, text):
    """No metrics is cpu at 80 percent, no minimum is 1; quantities are read with their suffix."""
    policy = manifest_policy(edited("hpa-queue.yaml", *edits), "m").policy

    if text is None:
        assert policy.goals[0].target == 2.5
    else:
        assert policy_text(policy) == text


def test_what_a_scaled_object_leaves_out_is_kedas_default():
    """From 0 to 100 replicas with a cooldown of 300 s."""
    edits = [(f"spec.{key}", ...) for key in ("minReplicaCount", "maxReplicaCount", "cooldownPeriod", "advanced")]

    read = manifest_policy(edited("scaledobject-zero.yaml", *edits), "m")

    assert policy_text(read.policy) == "queue:12+ttft:1.5,min=0,max=100,cooldown=300,quantile=0.9"


def test_two_targets_of_one_metric():
    """The smaller target asks for more replicas, as the HPA takes it; the other is told."""
    trigger = {"type": "prometheus", "metadata": {"query": "sum(infscale_inflight_requests)", "threshold": "6"}}

    read = manifest_policy(edited("scaledobject-zero.yaml", ("spec.triggers.1", trigger)), "m")

    assert [(goal.metric, goal.target) for goal in read.policy.goals] == [("queue", 6)]
    assert "spec.triggers[1].metadata: queue has two targets, the smaller one counts" in read.warnings


@pytest.mark.parametrize(
    ("words", "metric"),
    [
        ("sum(vllm:num_requests_waiting)", "waiting"),
        ("vllm_num_requests_running", "running"),
        ("num_requests_waiting", "waiting"),
        ("sum(ray_vllm_num_requests_running + ray_vllm_num_requests_waiting)", "queue"),
        ("sum(sglang:num_running_reqs) + sum(sglang:num_queue_reqs)", "queue"),
        ("sum(llamacpp:requests_deferred)", "waiting"),
        ("sum(dynamo_frontend_inflight_requests)", "queue"),
        ("max_over_time(infscale_workload_demand_requests[1m])", "queue"),
        ("avg(sglang:token_usage)", "kv"),
        ("queue_size", None),
        ("sum(rate(http_requests_total[1m]))", None),
        ("sum(vllm:num_requests_waiting) / avg(vllm:kv_cache_usage_perc)", None),
        ("sum(rate(vllm:generation_tokens_total[1m]))", None),
    ],
)
def test_metrics_are_known_by_their_names(words, metric):
    """The names of the engines and of infscale are recognised; two of different kinds and foreign ones are not."""
    assert metric_in(words) == metric


EXTERNAL = "spec.metrics.0.external"


@pytest.mark.parametrize(
    ("edits", "said"),
    [
        (
            [("apiVersion", "autoscaling/v2beta2")],
            "m.yaml: apiVersion: expected autoscaling/v2, got 'autoscaling/v2beta2'; kub",
        ),
        ([("spec", ...)], "spec: expected a mapping, got nothing"),
        ([("spec.minReplica", 2)], "spec.minReplica: unknown key, did you mean 'minReplicas'?"),
        ([("spec.maxReplicas", ...)], "spec.maxReplicas: missing"),
        ([("spec.maxReplicas", 1)], "spec.maxReplicas: the maximum 1 is below the minimum 2"),
        ([("spec.maxReplicas", "12x")], "spec.maxReplicas: expected a whole number of replicas from 1 up, got '12x'"),
        ([("spec.metrics.0.type", "Extern")], "spec.metrics[0].type: no such type of metric, 'Extern'"),
        ([(EXTERNAL, ...)], "spec.metrics[0].external: expected a mapping, got nothing"),
        (
            [(f"{EXTERNAL}.target.type", "Average")],
            "spec.metrics[0].external.target.type: expected one of AverageValue",
        ),
        (
            [(f"{EXTERNAL}.target.type", "Value")],
            "spec.metrics[0].external.target.value: missing: a target of type Value",
        ),
        ([(f"{EXTERNAL}.target.averageValue", "0")], "target.averageValue: expected a number above 0, got '0'"),
        ([(f"{EXTERNAL}.metric.name", "infscale_recommended_replicas")], "asks infscale for its recommendation"),
        ([("spec.metrics", [])], "spec.minReplicas: at 0 replicas cpu has no sample"),
        (
            [("spec.behavior.scaleUp.stabilizationWindowSeconds", 3601)],
            "spec.behavior.scaleUp.stabilizationWindowSeconds: e",
        ),
        (
            [("spec.behavior.scaleDown.policies.0.periodSeconds", 0)],
            "spec.behavior.scaleDown.policies[0].periodSeconds: exp",
        ),
        ([("spec.scaleTargetRef", ...)], "spec.scaleTargetRef: expected a mapping, got nothing"),
    ],
)
def test_faults_of_an_hpa_have_their_path(edits, said):
    """What cannot be read is refused with the file, the path in the manifest and what was expected."""
    more = [("spec.minReplicas", 0)] if edits == [("spec.metrics", [])] else []

    assert said in fault(edited("hpa-queue.yaml", *edits, *more))


TRIGGER = "spec.triggers.0"


@pytest.mark.parametrize(
    ("edits", "said"),
    [
        ([("apiVersion", "keda.sh/v2")], "apiVersion: expected keda.sh/v1alpha1, got 'keda.sh/v2'"),
        ([("spec.maxReplicas", 3)], "spec.maxReplicas: unknown key, did you mean 'maxReplicaCount'?"),
        ([("spec.minReplicaCount", 9)], "spec.maxReplicaCount: the maximum 8 is below the minimum 9"),
        ([("spec.idleReplicaCount", 1)], "spec.idleReplicaCount: expected 0, the only count that KEDA takes"),
        ([("spec.triggers", ...)], "spec.triggers: expected a list, got nothing"),
        ([(f"{TRIGGER}.type", ...)], "spec.triggers[0].type: expected text, got nothing"),
        (
            [(f"{TRIGGER}.metricType", "Average")],
            "spec.triggers[0].metricType: expected one of AverageValue, Value, Utiliz",
        ),
        ([(f"{TRIGGER}.metadata.query", ...)], "spec.triggers[0].metadata.query: expected text, got nothing"),
        ([(f"{TRIGGER}.metadata.threshold", 12)], "threshold: expected text, got the number 12 (put it in quotes)"),
        ([(f"{TRIGGER}.metadata.threshold", "-1")], "threshold: expected a number above 0, got '-1'"),
        (
            [("spec.advanced.scalingModifiers.formula", "a+b")],
            "spec.advanced.scalingModifiers: a formula over the triggers",
        ),
        (
            [("spec.triggers", [{"type": "cron"}])],
            "spec.triggers: nothing that infscale can scale on (spec.triggers[0]: no",
        ),
        (
            [("spec.triggers", [{"type": "cpu", "metricType": "Utilization", "metadata": {"value": "60"}}])],
            "spec.minReplicaCount: at 0 replicas cpu has no sample",
        ),
    ],
)
def test_faults_of_a_scaled_object_have_their_path(edits, said):
    """What cannot be read is refused with the file, the path in the manifest and what was expected."""
    assert said in fault(edited("scaledobject-zero.yaml", *edits))


@pytest.mark.parametrize(
    ("edits", "said"),
    [
        (
            [(f"{TRIGGER}.metricType", "Value"), ("spec.minReplicaCount", 1)],
            "spec.triggers[0].metadata: no equivalent for a target of type Value on queue",
        ),
        ([("spec.triggers.1.metricType", "AverageValue")], "AverageValue divides the quantile by the replicas"),
        (
            [("spec.triggers.1.metadata.query", "sum(vllm:time_to_first_token_seconds_sum)")],
            "no histogram_quantile(...)",
        ),
        ([("spec.idleReplicaCount", 0), ("spec.minReplicaCount", 2)], "spec.idleReplicaCount: read as a minimum of 0"),
        ([("spec.initialCooldownPeriod", 60)], "spec.initialCooldownPeriod: no equivalent"),
    ],
)
def test_what_has_no_equivalent_is_told(edits, said):
    """The rest of the manifest is read; what is left out of the policy is a warning with its path."""
    assert said in "\n".join(manifest_policy(edited("scaledobject-zero.yaml", *edits), "m").warnings)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "m.yaml: no HorizontalPodAutoscaler or ScaledObject in it, only nothing"),
        ("---\n---\n", "only nothing"),
        ("kind: Service\n---\nkind: Deployment\n", "in it, only Deployment, Service"),
        ("a: [1", "m.yaml: line 2, column 1: not YAML: did not find expected ',' or ']'"),
        ("just text", "m.yaml: expected an object with apiVersion and kind, on line 1"),
        ("kind: HorizontalPodAutoscaler\n---\n- 1\n", "m.yaml, document 2: expected an object"),
        ("a: &x 1\nb: *x\n", "line 2, column 4: aliases are not supported"),
        ("[" * 200 + "]" * 200, "nested too deep"),
        ("kind: ScaledObject\nkind: ScaledObject\n", "kind: given twice, on line 1 and on line 2"),
        (
            "kind: ScaledObject\nspec: !!python/name:os.system\n",
            "spec: not a value: ",
        ),
    ],
)
def test_files_that_hold_no_policy(text, said):
    """Empty, damaged and foreign files are told apart, each with the place."""
    assert said in fault(text)


def test_several_autoscalers_are_named():
    """Which of two is meant cannot be known."""
    both = "\n---\n".join((DATA / name).read_text() for name in ("hpa-queue.yaml", "scaledobject-zero.yaml"))

    assert (
        "2 autoscalers in it (HorizontalPodAutoscaler shop/llama-8b, ScaledObject ml/llama-70b): expected one"
        in fault(both)
    )


def test_an_hpa_that_keda_made():
    """Its metrics have KEDA's names: the ScaledObject says what they are."""
    assert "KEDA made this HPA; read the ScaledObject" in fault((DATA / "hpa-by-keda.yaml").read_text())


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (None, "cannot be read: No such file"),
        (b"\xff\xfe\x00", "a binary file"),
        (b"#" * (MANIFESTS.bytes + 1), "larger than 4 MiB"),
    ],
)
def test_files_that_cannot_be_read(data, said, tmp_path):
    """A missing, binary or huge file is one line."""
    path = tmp_path / "m.yaml"
    if data is not None:
        path.write_bytes(data)

    with pytest.raises(ConfigError, match=said):
        load_manifest(str(path))
