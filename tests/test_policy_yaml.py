"""A policy as a mapping and as YAML: nested, with the HPA's field names, and each fault with its path."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given

from infscale.core.grammar import parse_policy
from infscale.errors import ConfigError
from infscale.policy_yaml import load_policy, policy_from_mapping, policy_to_mapping, policy_to_yaml
from tests.policies import policies

TEXT = "queue:24,lookahead=90,min=0,max=8,cooldown=120,downpods=1,downwindow=300,up=100%/15+4/15,tolerance=0.1"
YAML = """\
metrics:
  queue: 24
min: 0
max: 8
lookahead: 90
cooldown: 120
behavior:
  scaleUp:
    policies:
    - type: Percent
      value: 100
      periodSeconds: 15
    - type: Pods
      value: 4
      periodSeconds: 15
    tolerance: 0.1
  scaleDown:
    policies:
    - type: Pods
      value: 1
      periodSeconds: 15
    stabilizationWindowSeconds: 300
    tolerance: 0.1
"""


def test_the_same_policy_as_text_and_as_yaml(tmp_path):
    """The example of the grammar is printed as nested YAML, and that reads back as the same policy."""
    path = tmp_path / "policy.yaml"
    path.write_text(YAML)

    assert policy_to_yaml(parse_policy(TEXT)) == YAML
    assert YAML in (Path(__file__).parents[1] / "docs" / "policy.md").read_text(encoding="utf-8")
    assert load_policy(str(path)) == parse_policy(TEXT)


@given(policies())
def test_mapping_and_back_is_the_identity(policy):
    """Whatever the policy, its mapping makes the same policy."""
    assert policy_from_mapping(policy_to_mapping(policy)) == policy


@given(policies())
def test_yaml_and_back_is_the_identity(policy):
    """Whatever the policy, its YAML makes the same policy."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "policy.yaml")
        path.write_text(policy_to_yaml(policy), encoding="utf-8")

        assert load_policy(str(path)) == policy


@pytest.mark.parametrize(
    ("mapping", "text"),
    [
        ({"metrics": {"queue": 24, "work": "learned"}}, "queue:24+work:learned"),
        ({"hpa": True, "metrics": {"cpu": 60}}, "hpa:cpu:60"),
        ({"metrics": {"queue": 24}, "behavior": {}}, "queue:24,upwindow=0"),
        ({"metrics": {"queue": 24}, "behavior": {"scaleUp": None}, "min": None}, "queue:24,upwindow=0"),
        ({"metrics": {"queue": 24}, "lookahead": "auto"}, "queue:24,lookahead=auto"),
        (
            {"metrics": {"queue": 24}, "behavior": {"scaleDown": {"selectPolicy": "disabled", "tolerance": "50m"}}},
            "queue:24,downselect=disabled,downtolerance=0.05",
        ),
    ],
)
def test_what_a_mapping_may_hold(mapping, text):
    """Null is as not given, a tolerance may be a quantity, both spellings of a choice are read."""
    assert policy_from_mapping(mapping) == parse_policy(text)


GOOD = {"metrics": {"queue": 24}}


@pytest.mark.parametrize(
    ("mapping", "said"),
    [
        ([], "p.yaml: policies[0]: expected a mapping, got a list"),
        ({}, "policies[0].metrics: missing: expected a metric with its target, as {queue: 24}"),
        ({"metrics": {}}, "policies[0].metrics: none is given"),
        ({"metrics": {"quue": 24}}, "policies[0].metrics.quue: unknown key, did you mean 'queue'?"),
        (
            {"metrics": {"queue": 0}},
            "policies[0].metrics.queue: expected requests per replica above 0, as 24, got the num",
        ),
        (
            {"metrics": {"queue": True}},
            "policies[0].metrics.queue: expected requests per replica above 0, as 24, got true",
        ),
        ({"metrics": {"kv": "learned"}}, "policies[0].metrics.kv: expected percent of the KV cache"),
        ({**GOOD, "minimum": 1}, "policies[0].minimum: unknown key"),
        ({**GOOD, "min": 3, "max": 2}, "policies[0].max: the maximum 2 is below the minimum 3"),
        ({**GOOD, "min": 10**400}, "policies[0].min: expected a whole number of replicas"),
        ({**GOOD, "hpa": "yes"}, "policies[0].hpa: expected true or false, got 'yes'"),
        ({**GOOD, "hpa": True, "guard": 0.85}, "policies[0].guard: hpa: takes only what the HPA itself has"),
        ({"metrics": {"cpu": 60}, "min": 0}, "policies[0].min: at 0 replicas cpu has no sample"),
        (
            {**GOOD, "tolerance": 0.1},
            "unknown key, in a mapping it is behavior.scaleUp.tolerance and behavior.scaleDown",
        ),
        ({**GOOD, "downwindow": 60}, "unknown key, in a mapping it is behavior.scaleDown.stabilizationWindowSeconds"),
        ({**GOOD, "uppods": 4}, "policies[0].uppods: unknown key, in a mapping it is behavior.scaleUp.policies"),
    ],
)
def test_faults_say_where(mapping, said):
    """Each error begins with the file and the path, and says what was expected and what stood there."""
    with pytest.raises(ConfigError) as caught:
        policy_from_mapping(mapping, "policies[0]", source="p.yaml")

    assert said in str(caught.value)
    assert str(caught.value).startswith("p.yaml: policies[0]")


POLICY = {"type": "Pods", "value": 1, "periodSeconds": 60}


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        (
            {"stabilisationWindowSeconds": 3},
            ".stabilisationWindowSeconds: unknown key, did you mean 'stabilizationWindowS",
        ),
        (
            {"stabilizationWindowSeconds": 3601},
            ".stabilizationWindowSeconds: expected whole seconds from 0 to 3600, got",
        ),
        ({"stabilizationWindowSeconds": -1}, ".stabilizationWindowSeconds: expected whole seconds"),
        ({"selectPolicy": "Most"}, ".selectPolicy: expected one of Max, Min, Disabled, got 'Most'"),
        ({"tolerance": -0.1}, ".tolerance: expected a share from 0 up"),
        ({"tolerance": "5%"}, ".tolerance: expected a share from 0 up, as 0.1 for 10 %, got '5%'"),
        ({"policies": []}, ".policies: expected at least one scaling policy"),
        (
            {"policies": [POLICY, {**POLICY, "value": 0}]},
            ".policies[1].value: expected whole Pods from 1 up, got the number 0",
        ),
        ({"policies": [{**POLICY, "type": "Percentage"}]}, ".policies[0].type: expected one of Pods, Percent"),
        (
            {"policies": [{**POLICY, "periodSeconds": 1801}]},
            ".policies[0].periodSeconds: expected whole seconds from 1 to",
        ),
        ({"policies": [{"type": "Pods", "value": 1}]}, ".policies[0].periodSeconds: missing"),
    ],
)
def test_faults_of_behaviour_have_the_hpas_path(rules, said):
    """Bounds and names of `behavior` are the HPA's API's, and the path is the one of a manifest."""
    with pytest.raises(ConfigError) as caught:
        policy_from_mapping({**GOOD, "behavior": {"scaleDown": rules}})

    assert f"behavior.scaleDown{said}" in str(caught.value)
