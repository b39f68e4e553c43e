"""`/api/v1/reading` about the Pod, completeness and engines; and that a withdrawn replica is no capacity to anybody."""

from __future__ import annotations

import json
from typing import Any

import pytest

from infscale.core.grammar import parse_policy
from infscale.core.layer import decide
from infscale.core.memory import ScaleState
from infscale.core.replicas import Fleet, Phase
from infscale.fleet.members import Members
from infscale.fleet.peer import sighting_of_reading
from infscale.metrics.collectors import Settings
from infscale.scrape import Target
from infscale.sidecar import Engine, EngineSettings, PodAround, Sidecar
from infscale.sidecar_page import sidecar_page
from infscale.sidecar_reading import NOW_S, PodIdentity
from infscale.withdraw import Withdrawal
from tests.raw_server import Call, RawServer

BUSY = b"""vllm:num_requests_running{model_name="m"} 9
vllm:num_requests_waiting{model_name="m"} 0
process_start_time_seconds 1.7e9
"""
ASLEEP = b"""vllm:engine_sleep_state{sleep_state="awake"} 0
vllm:engine_sleep_state{sleep_state="weights_offloaded"} 1
vllm:num_requests_running 0
vllm:num_requests_waiting 0
"""
DECODE = b"""sglang:num_running_reqs{model_name="m",engine_type="decode"} 0
sglang:num_queue_reqs{model_name="m",engine_type="decode"} 0
"""


def reading(*pages: bytes, pod: PodAround | None = None, draining: bool = False) -> dict[str, Any]:
    """What a sidecar beside engines with such pages answers."""

    def page(call: Call) -> None:
        call.page(pages[int(call.path.strip("/"))])

    with RawServer(page) as server:
        engines = [Engine(Target(server.url(f"/{number}")), EngineSettings()) for number in range(len(pages))]
        told = Sidecar(engines, Settings(), pod=pod, draining=lambda: draining).reading()
    loaded: dict[str, Any] = json.loads(json.dumps(told))
    loaded["server port"] = server.port
    return loaded


def withdrawn() -> PodAround:
    """A Pod that is withdrawn."""
    pod = PodAround()
    pod.withdrawal.renew(60.0)
    return pod


def test_engines_and_pod():
    """Port, start and role of each engine; the Pod's names, null where they were not told."""
    told = reading(BUSY, DECODE, pod=PodAround(PodIdentity("ml", "vllm-0", "u-1")))
    assert told["pod"] == {"namespace": "ml", "name": "vllm-0", "uid": "u-1"}
    first, second = told["engines"]
    assert (first["port"], first["started_at"], first["role"]) == (told["server port"], 1.7e9, None)
    assert (second["port"], second["started_at"], second["role"]) == (told["server port"], None, "decode")
    assert (told["complete"], told["withdrawn"], told["withdrawn_until"], told["draining"]) == (
        True,
        False,
        None,
        False,
    )
    bare = reading(BUSY)
    assert bare["pod"] == {"namespace": None, "name": None, "uid": None}
    assert bare["client_connections"] is None


@pytest.mark.parametrize("draining", [False, True])
def test_withdrawn_is_draining(draining):
    """With the lease's end beside it, whether the Pod is terminating too or not."""
    pod = withdrawn()
    told = reading(BUSY, pod=pod, draining=draining)
    assert (told["withdrawn"], told["withdrawn_until"], told["draining"]) == (True, pod.withdrawal.until_s(), True)
    assert told["inflight"] == 9, "what is in flight still shows"


@pytest.mark.parametrize(
    ("pages", "complete"),
    [
        ((BUSY,), True),
        ((BUSY, BUSY), True),
        ((BUSY, b"vllm:num_requests_running 1\n"), False),
        ((b"vllm:num_requests_running NaN\nvllm:num_requests_waiting 0\n",), False),
        ((b"<html></html>",), False),
        ((ASLEEP,), True),
    ],
)
def test_complete(pages, complete):
    """Only when every engine gave every required gauge."""
    assert reading(*pages)["complete"] is complete


def test_values_that_are_held_or_old_are_not_complete():
    """The last values of an engine that hangs, and old ones that are shared for long: neither is a read of now."""
    hang, now_s = [False], [1000.0]

    def answer(call: Call) -> None:
        call.hang() if hang[0] else call.page(BUSY)

    with RawServer(answer) as server:
        settings = EngineSettings(min_interval_s=1e-6)
        engine = Engine(Target(server.url(), timeout_s=0.3), settings, wall_clock=lambda: now_s[0])
        sidecar = Sidecar([engine], Settings(), pod=PodAround(wall_clock=lambda: now_s[0]))
        assert sidecar.reading()["complete"] is True
        hang[0] = True
        held = sidecar.reading()
    assert (held["state"], held["inflight"], held["complete"]) == ("saturated", 9, False)

    with RawServer(lambda call: call.page(BUSY)) as server:
        seldom = Engine(Target(server.url()), EngineSettings(min_interval_s=3600), wall_clock=lambda: now_s[0])
        sidecar = Sidecar([seldom], Settings(), pod=PodAround(wall_clock=lambda: now_s[0]))
        assert sidecar.reading()["complete"] is True
        now_s[0] += NOW_S + 1
        shared = sidecar.reading()
    assert (shared["state"], shared["complete"]) == ("ok", False)


def test_landing_page():
    """A person sees that the replica is withdrawn, until when and what comes then; or that its Pod is terminating."""
    withdrawal = Withdrawal(wall_clock=lambda: 1_800_000_000.0)
    withdrawal.renew(60.0)
    page = sidecar_page(reading(BUSY, pod=PodAround(withdrawal=withdrawal))).decode()
    assert "withdrawn" in page
    assert "not ready on request until 2027-01-15 08:01:00 UTC" in page
    terminating = sidecar_page(reading(BUSY, draining=True)).decode()
    assert "the Pod is terminating" in terminating
    assert "draining" not in sidecar_page(reading(BUSY)).decode()


def test_a_withdrawn_replica_is_neither_capacity_nor_load():
    """Three with 9 each at a target of 9: one is withdrawn, and its 9 are no demand; put back, it counts as before."""
    serving, leaving = reading(BUSY), reading(BUSY, pod=withdrawn())
    policy, state, members = parse_policy("queue:9,min=1,max=10,upwindow=0,downwindow=0"), ScaleState(), Members()
    for now_s, third, phase, demand, desired in (
        (1000.0, serving, Phase.SERVING, 27, 3),
        (1015.0, leaving, Phase.DRAINING, 18, 2),
        (1030.0, leaving, Phase.DRAINING, 18, 2),
        (1045.0, serving, Phase.SERVING, 27, 3),
    ):
        sightings = [sighting_of_reading(f"r{number}", one) for number, one in enumerate((serving, serving, third))]
        replicas = members.take(sightings, now_s)
        assert replicas[2].phase is phase
        decision, state = decide(policy, Fleet(now_s, 3, replicas=replicas), state)
        assert (decision.demand, decision.desired) == (demand, desired)
        assert decision.cold_starts_s == (), "coming back is no cold start"
