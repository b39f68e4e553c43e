"""Which Pods count: the order of the rules and every boundary, at exact ages."""

from __future__ import annotations

import pytest

from infscale.core.decision import Invalid
from infscale.core.numbers import LONG_AGO_S
from infscale.core.observation import Observation, Pod, PodSample
from infscale.core.pods import group_pods, pod_requests, ready_count, sample_values
from infscale.core.policy import Controller

NOW_S = 1_800_000_000.0


def kind_of(pod: Pod, *, sampled_ago_s: float | None = 0.0, window_s: float = 60.0, resource: str = "cpu") -> str:
    """Which group a single Pod falls into (sampled_ago_s None: it has no sample)."""
    samples = {}
    if sampled_ago_s is not None:
        samples[pod.name] = PodSample(pod.name, (("main", 1),), NOW_S - sampled_ago_s, window_s)
    groups = group_pods([pod], samples, resource, NOW_S, Controller())
    return "ready" if groups.ready else next(k for k in ("unready", "missing", "ignored") if getattr(groups, k))


def aged(start_ago_s: float, transition_ago_s: float, ready: str = "True") -> Pod:
    """A running Pod of that age whose readiness last changed that long ago."""
    return Pod("p", ready=ready, start_time_s=NOW_S - start_ago_s, transition_time_s=NOW_S - transition_ago_s)


def test_the_first_rule_that_matches_counts():
    """Leaving or finished before pending, pending before missing, missing before cpu."""
    assert kind_of(Pod("p", phase="Pending", deleting=True), sampled_ago_s=None) == "ignored"
    assert kind_of(Pod("p", phase="Failed")) == "ignored"
    assert kind_of(Pod("p", phase="Succeeded")) == "ignored"
    assert kind_of(Pod("p", phase="Pending"), sampled_ago_s=None) == "unready"
    assert kind_of(Pod("p", ready=None), sampled_ago_s=None) == "missing"
    assert kind_of(Pod("p", ready=None)) == "unready"
    assert kind_of(Pod("p", start_time_s=None)) == "unready"
    assert kind_of(Pod("p", phase="Unknown")) == "ready"


@pytest.mark.parametrize("pod", [Pod("p", ready=None), Pod("p", ready="False"), Pod("p", start_time_s=None)])
def test_readiness_matters_for_cpu_only(pod):
    """Of another resource, or of none, any running Pod with a sample counts."""
    assert kind_of(pod, resource="memory") == "ready"
    assert kind_of(pod, resource="") == "ready"


@pytest.mark.parametrize(
    ("pod", "sampled_ago_s", "kind"),
    [
        (aged(299, 100), 40, "ready"),  # sampled one window after the change: 40 <= 100 - 60
        (aged(299, 100), 41, "unready"),  # a second too early
        (aged(299, 100, "False"), 0, "unready"),
        (aged(299, 100, "Unknown"), 0, "ready"),
        (aged(300, 100), 300, "ready"),  # at exactly the initialisation period the sample's age matters no more
        (aged(300, 271, "False"), 0, "unready"),  # changed 29 s after the start: it never was ready
        (aged(300, 270, "False"), 0, "ready"),  # changed 30 s after the start: it was
        (aged(300, 271, "Unknown"), 0, "ready"),
    ],
)
def test_cpu_of_a_starting_pod(pod, sampled_ago_s, kind):
    """The initialisation period, the window and the readiness delay are strict."""
    assert kind_of(pod, sampled_ago_s=sampled_ago_s) == kind


def test_times_that_were_never_set_are_one_instant():
    """Long ago is finite: a window after it is later, and a delay after it too."""
    assert kind_of(Pod("p", ready="False")) == "unready"
    young = Pod("p", start_time_s=NOW_S - 10, transition_time_s=LONG_AGO_S)
    assert kind_of(young, sampled_ago_s=0.0) == "ready"
    never_sampled = {"p": PodSample("p", (("main", 1),), LONG_AGO_S, 60.0)}
    assert group_pods([young], never_sampled, "cpu", NOW_S, Controller()).unready == ("p",)


def test_values_of_containers():
    """A Pod's value is the sum of its containers, or the one asked for; a hole in the sum is no sample."""
    full = PodSample("full", (("a", 1), ("b", 2)))
    hole = PodSample("hole", (("a", 1), ("b", None)))
    bare = PodSample("bare", ())
    assert sample_values([full, hole, bare], "") == {"full": 3}
    assert sample_values([full], "b") == {"full": 2}
    assert isinstance(sample_values([full, hole], "b"), Invalid)


def test_requests_of_containers():
    """The sum, or the one asked for, of which the others may be silent."""
    pod = Pod("p", requests_milli=(("a", 100), ("b", None)))
    assert pod_requests([pod], "cpu", "a") == {"p": 100}
    assert isinstance(pod_requests([pod], "cpu", ""), Invalid)
    assert isinstance(pod_requests([pod], "cpu", "c"), Invalid)


def test_ready_pods_are_running_and_ready_even_while_leaving():
    """What Value targets are multiplied with."""
    pods = (Pod("a"), Pod("b", deleting=True), Pod("c", ready="Unknown"), Pod("d", phase="Pending"))
    assert ready_count(Observation(NOW_S, 1, 1, (), pods)) == 2
    assert isinstance(ready_count(Observation(NOW_S, 1, 1, ())), Invalid)
