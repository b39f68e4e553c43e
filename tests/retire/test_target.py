"""Who is chosen, how it is frozen, and what counts as drift."""

from __future__ import annotations

import pytest

from infscale.kube.objects import OwnerReference
from infscale.retire.command import Claim, claim
from infscale.retire.member import Verdict, held, refused
from infscale.retire.record import Frozen
from infscale.retire.rules import Reason, Rule
from infscale.retire.target import choose, drift, freeze, never_was_ready, ordinal
from tests.retire.pods import SIDECAR, engine, pod


def load(count: float | None) -> Verdict:
    """What a replica has in flight."""
    return held(Rule.SERVING if count else Rule.INCOMPLETE, "x", count)


def rule_of(found: Frozen | Reason | None) -> Rule | None:
    """The rule of a reason."""
    return found.rule if isinstance(found, Reason) else None


def chosen(pods, loads, **options):
    """The choice."""
    return choose(pods, {each.name: claim(each) for each in pods}, loads, **options)


def test_still_starting_first_then_least_in_flight():
    """A replica that never was ready before any other; among the others the one with the least to do."""
    pods = [pod("a"), pod("b"), pod("c")]

    assert chosen(pods, {"a": load(3), "b": load(1), "c": load(2)}).members[0].name == "b"
    assert chosen(pods, {"a": load(0.0), "b": load(1)}).members[0].name == "c"


def test_of_two_alike_the_younger_leaves():
    """It holds the least of a cache."""
    pods = [pod("a", creation_s=1000.0), pod("b", creation_s=2000.0)]

    assert chosen(pods, {"a": load(1), "b": load(1)}).members[0].name == "b"


def test_who_cannot_be_measured_is_not_chosen():
    """It may be the busiest of all."""
    pods = [pod("a"), pod("b")]

    assert chosen(pods, {"a": load(None), "b": load(9)}).members[0].name == "b"
    assert chosen(pods, {"a": load(None), "b": load(None)}).hold.rule is Rule.INCOMPLETE


def test_who_restarted_is_not_chosen():
    """Only a restart count of 0 can be frozen."""
    pods = [pod("a", engine(restart_count=1), SIDECAR), pod("b")]

    assert chosen(pods, {"a": load(0.0), "b": load(9)}).members[0].name == "b"
    assert chosen(pods[:1], {"a": load(0.0)}).hold.rule is Rule.RESTARTED


def test_refused_where_every_replica_is():
    """One that may do later holds, none at all refuses."""
    pods, no = [pod("a"), pod("b")], refused(Rule.ROLE, "decode")

    assert chosen(pods, {"a": no, "b": no}).refusal.rule is Rule.ROLE
    assert chosen(pods, {"a": no, "b": load(None)}).hold.rule is Rule.INCOMPLETE
    assert chosen([], {}).refusal.rule is Rule.NO_TARGET


def test_a_fixed_choice_needs_no_load():
    """The highest ordinal leaves, whatever it has in flight; a role still refuses it."""
    assert chosen([pod("a")], {"a": load(None)}, fixed=True).members[0].name == "a"
    assert chosen([pod("a")], {"a": refused(Rule.ROLE, "x")}, fixed=True).refusal.rule is Rule.ROLE


def test_freezing():
    """UID, container id, owner and address, where the restart count is 0 and somebody owns it."""
    assert freeze(pod(), "engine") == FROZEN
    assert rule_of(freeze(pod(owner=None), "engine")) is Rule.NO_TARGET
    assert rule_of(freeze(pod(), "other")) is Rule.DRIFTED


FROZEN = Frozen("vllm-1", "uid-vllm-1", "engine", "containerd://a", "rs", "10.0.0.1")


@pytest.mark.parametrize(
    ("now", "rule"),
    [
        (pod(), None),
        (pod(uid="another"), Rule.DRIFTED),
        (pod("vllm-1", engine(container_id="containerd://b"), SIDECAR), Rule.RESTARTED),
        (pod("vllm-1", engine(restart_count=1), SIDECAR), Rule.RESTARTED),
        (pod("vllm-1", SIDECAR), Rule.DRIFTED),
        (pod(owner=OwnerReference("ReplicaSet", "other", "rs2")), Rule.DRIFTED),
        (pod(owner=None), Rule.DRIFTED),
        (pod(ip="10.0.0.9"), Rule.DRIFTED),
        (pod(ip=""), Rule.DRIFTED),
    ],
)
def test_drift(now, rule):
    """UID, container id, restart count, owner and Pod IP must be the same."""
    found = drift(FROZEN, now)

    assert rule_of(found) is rule


def test_a_first_start_is_no_drift():
    """A target that was frozen before it had a container or an address gets both."""
    frozen = Frozen("vllm-1", "uid-vllm-1", "engine", "", "rs", "")

    assert drift(frozen, pod()) is None
    assert rule_of(drift(frozen, pod("vllm-1", engine(restart_count=1), SIDECAR))) is Rule.RESTARTED


@pytest.mark.parametrize(
    ("now", "never"),
    [
        (pod(), False),
        (pod(ready="False", ready_since_s=1000.0), True),
        (pod(ready="False", ready_since_s=1001.0), True),
        (pod(ready="False", ready_since_s=1060.0), False),
        (pod(ready="Unknown", ready_since_s=1060.0), False),
        (pod(ready=None, ready_since_s=None, start_s=None, phase="Pending"), True),
        (pod(ready=None, ready_since_s=None, start_s=None, phase="Running"), False),
        (pod("x", engine(restart_count=2), SIDECAR, ready="False", ready_since_s=1000.0), False),
    ],
)
def test_never_was_ready(now, never):
    """Its Ready condition is as it was at its start, and no container had a life before."""
    assert never_was_ready(now) is never


def test_ordinals():
    """A StatefulSet's number."""
    assert [ordinal(pod(name)) for name in ("vllm-0", "vllm-12", "vllm")] == [0, 12, None]


def test_a_claim_that_fails_is_the_reason():
    """A replica whose command nobody can read holds with that."""
    own = pod("a", engine(("/start.sh",)), SIDECAR)

    assert not isinstance(claim(own), Claim)
    assert chosen([own], {}).hold.rule is Rule.UNCLAIMED
