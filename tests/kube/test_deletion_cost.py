"""Deletion costs over both transports against the stand-in, and what is decided before any call."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infscale.kube.deletion_cost import (
    BUDGET_S,
    OURS,
    UNKNOWN_COST,
    DeletionCosts,
    annotations_of,
    candidates,
    cost_of,
    is_foreign,
)
from infscale.kube.errors import KubeError, NotAllowed
from infscale.kube.objects import DELETION_COST, Pod
from tests.kube import objects
from tests.kube.controller import follow_replicas
from tests.kube.victims import in_order

NAMES = ("vllm-00001", "vllm-00002", "vllm-00003")


class Clock:
    """A clock that sleeping moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        """Monotonic seconds."""
        return self.now_s

    def sleep(self, seconds: float) -> None:
        """Time passes."""
        self.now_s += seconds


@pytest.fixture
def costs(server, cluster):
    """The costs of a Deployment of three Pods, all ready."""
    server.add(objects.deployment(replicas=3))
    follow_replicas(server, "deployments", "vllm")
    clock = Clock()
    return DeletionCosts(cluster, sleep=clock.sleep, clock=clock)


def written(server) -> dict[str, str | None]:
    """Each Pod's deletion cost as it stands."""
    return {
        pod["metadata"]["name"]: pod["metadata"].get("annotations", {}).get(DELETION_COST)
        for pod in server.list("pods")
    }


def patches(server) -> list[str]:
    """The Pods that were written to, in order."""
    return [call.path.rsplit("/", 1)[1] for call in server.calls("PATCH")]


def pod(name: str, *, phase: str = "Running", ready: str | None = "True", **more: Any) -> Pod:
    """A Pod as it is read."""
    plain = Pod(name, f"uid-{name}", phase, 0.0, None, None, ready, None, "", {}, {}, ())
    return replace(plain, **more)


def test_bands():
    """0 idle, 100 and the band of what is in flight; a part of a request is busy; what is not known costs most."""
    given_ = [0, 1e-7, 1, 2, 3, 4, 5, 8, 10, 16, 1000, 1e18, None]
    assert [cost_of(value) for value in given_] == [0, 100, 100, 104, 106, 108, 109, 112, 113, 116, 139, 198, 199]


@given(st.floats(0, 1e9), st.floats(0, 1e9))
def test_more_in_flight_never_costs_less(one, other):
    """Whatever the loads; and loads that differ by more than a band are told apart."""
    low, high = sorted((one, other))
    assert cost_of(low) <= cost_of(high) < UNKNOWN_COST
    if low >= 1 and high > 1.26 * low and high < 1e7:
        assert cost_of(low) < cost_of(high)


STARTING = [pod("pending", phase="Pending", ready=None), pod("unready", ready="False")]
READY = [pod(name) for name in NAMES]


@pytest.mark.parametrize(
    ("pods", "leaving", "names"),
    [
        (READY, 1, NAMES),
        (READY, 2, NAMES),
        (READY, 3, ()),
        (READY, 4, ()),
        (READY, 0, ()),
        ([*STARTING, *READY], 1, ()),
        ([*STARTING, *READY], 2, ()),
        ([*STARTING, *READY], 3, NAMES),
        ([pod("a", ready="False"), pod("b", ready=None), *READY], 1, ("a", "b")),
        ([pod("a", ready="False"), pod("b", ready="Unknown"), *READY], 3, NAMES),
        ([*READY, pod("gone", deletion_s=1.0), pod("failed", phase="Failed")], 2, NAMES),
        ([], 1, ()),
    ],
)
def test_candidates(pods, leaving, names):
    """Only those among which the ReplicaSet's choice falls: never the ones that leave in any case, or stay in any."""
    assert tuple(found.name for found in candidates(pods, leaving)) == names


def test_the_one_with_the_least_leaves(server, costs):
    """Costs are written once, with infscale's own mark beside each, and the ReplicaSet's order follows them."""
    assert costs.steer("ml", "app=vllm", 1, {NAMES[0]: 2.0, NAMES[1]: 0.0, NAMES[2]: 30.0}) == ""
    assert written(server) == {NAMES[0]: "104", NAMES[1]: "0", NAMES[2]: "119"}
    for found in server.list("pods"):
        annotations = found["metadata"]["annotations"]
        assert annotations[OURS] == annotations[DELETION_COST]
    assert sorted(patches(server)) == list(NAMES)
    leaves_first = [found["metadata"]["name"] for found in in_order(server.list("pods"), server.clock())]
    assert leaves_first == [NAMES[1], NAMES[0], NAMES[2]]
    server.change("deployments", "vllm", lambda one: one["spec"].update(replicas=2))
    server.hook()
    leaving = [p["metadata"]["name"] for p in server.list("pods") if "deletionTimestamp" in p["metadata"]]
    assert (leaving or sorted(set(NAMES) - set(written(server)))) == [NAMES[1]]


def test_loads_within_their_bands_write_nothing(server, costs):
    """The next decision finds them written; only what changed its band is written anew."""
    costs.steer("ml", "app=vllm", 1, {NAMES[0]: 20.0, NAMES[1]: 40.0, NAMES[2]: 0.0})
    server.requests.clear()
    costs.steer("ml", "app=vllm", 1, {NAMES[0]: 21.0, NAMES[1]: 44.0, NAMES[2]: 0.0})
    assert patches(server) == []
    costs.steer("ml", "app=vllm", 1, {NAMES[0]: 21.0, NAMES[1]: 44.0, NAMES[2]: 3.0})
    assert patches(server) == [NAMES[2]]


def test_no_choice_no_write(server, costs):
    """All three leave: there is nothing to choose."""
    assert costs.steer("ml", "app=vllm", 3, {}) == ""
    assert patches(server) == []


def test_what_is_not_known_stays_longest(server, costs):
    """A replica that gives no value is never taken for idle."""
    costs.steer("ml", "app=vllm", 1, {NAMES[0]: None, NAMES[2]: 500.0})
    assert written(server) == {NAMES[0]: "199", NAMES[1]: "199", NAMES[2]: "135"}


@pytest.mark.parametrize("ours", [{}, {OURS: "104"}], ids=["never ours", "ours once"])
def test_another_writer_is_left_alone(server, costs, ours, caplog):
    """Its value stands, the others are written, and the answer counts and names it."""
    annotations = {DELETION_COST: "-7", **ours}
    server.change("pods", NAMES[1], lambda one: one["metadata"].update(annotations=dict(annotations)))
    said = costs.steer("ml", "app=vllm", 1, {NAMES[0]: 1.0, NAMES[1]: 9.0, NAMES[2]: 0.0})
    assert said == "1 of 3 Pods keep the deletion cost that another wrote: vllm-00002"
    assert written(server) == {NAMES[0]: "100", NAMES[1]: "-7", NAMES[2]: "0"}
    assert server.get("pods", NAMES[1])["metadata"]["annotations"] == annotations
    assert [record.levelname for record in caplog.records if "another writer" in record.message] == ["WARNING"]


def test_foreign_or_ours():
    """A value is ours while our own mark says the same; a Pod without a value is nobody's."""
    assert not is_foreign(pod("a"))
    assert not is_foreign(pod("a", annotations=annotations_of(104)))
    assert not is_foreign(pod("a", annotations={OURS: "104"}))
    assert is_foreign(pod("a", annotations={DELETION_COST: "0"}))
    assert is_foreign(pod("a", annotations={DELETION_COST: "5", OURS: "104"}))


def test_a_pod_that_changes_meanwhile_is_read_again(server, costs):
    """A write on an old version is a conflict; the second look has the new one, and other annotations stay."""
    once = [True]

    def rival() -> None:
        if server.requests[-1].method == "PATCH" and once:
            once.clear()
            server.change("pods", NAMES[0], lambda one: one["metadata"].update(annotations={"mine": "yes"}))

    server.before_write = rival
    assert costs.steer("ml", "app=vllm", 1, dict.fromkeys(NAMES, 1.0)) == ""
    assert written(server) == dict.fromkeys(NAMES, "100")
    assert server.get("pods", NAMES[0])["metadata"]["annotations"]["mine"] == "yes"


def test_a_pod_that_is_gone_meanwhile(server, costs):
    """Of two that are left one still leaves."""
    once = [True]

    def rival() -> None:
        if server.requests[-1].method == "PATCH" and once:
            once.clear()
            server.hook = lambda: None
            server.remove("pods", NAMES[0])

    server.before_write = rival
    assert costs.steer("ml", "app=vllm", 1, dict.fromkeys(NAMES, 0.0)) == ""
    assert written(server) == {NAMES[1]: "0", NAMES[2]: "0"}


def test_without_an_echo_it_gives_up(server, costs):
    """Somebody takes the costs away as fast as they are written: after its budget it says so, and the caller waits."""
    before = server.hook

    def forget() -> None:
        before()
        for name in NAMES:
            server.change("pods", name, lambda one: one["metadata"].pop("annotations", None))

    server.hook = forget
    with pytest.raises(KubeError, match=rf"deletion costs of vllm-00001, .* do not show after {BUDGET_S:g} s"):
        costs.steer("ml", "app=vllm", 1, {})
    assert len(patches(server)) < 40


def test_not_allowed(server, costs):
    """It names what a Role lacks."""
    server.role = [objects.role_rule("", "pods", "list")]
    with pytest.raises(NotAllowed, match=r"not allowed to patch pods .*resources: \[pods\], verbs: \[list, patch\]"):
        costs.steer("ml", "app=vllm", 1, {})
