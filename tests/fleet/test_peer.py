"""What a peer's reading means, well-formed and not; and readings of pages as replicas."""

from __future__ import annotations

import json
import math

import pytest

from infscale.core.replicas import Buckets, Phase, Replica
from infscale.fleet.from_readings import buckets_of, replica_of
from infscale.fleet.peer import sighting_of, sighting_of_reading, ttft_json
from infscale.reading import Histogram, ModelReading, ReadFailure, Reading
from infscale.scrape import Page, ScrapeFailure
from tests.fleet.peers import reading


def page(body: bytes, status: int = 200) -> Page:
    """An HTTP answer."""
    return Page(status, "application/json", body, 0.01)


def test_reading_of_a_peer_carries_all_that_a_decision_needs():
    """Values, counters, histograms, state."""
    told = reading(cpu_ratio=0.7, state="stale", ttft=[{"le": [0.5, "+Inf"], "counts": [4, 5]}])
    assert sighting_of("a", page(json.dumps(told).encode())).replica == Replica(
        "a",
        Phase.SERVING,
        running=5,
        waiting=2,
        inflight=7,
        kv=0.4,
        cpu_ratio=0.7,
        prompt_tokens=123456,
        generation_tokens=65432,
        ttft=(Buckets((0.5, math.inf), (4, 5)),),
        state="stale",
    )


@pytest.mark.parametrize(
    ("told", "phase", "state", "served_before"),
    [
        ({"state": "fresh", "inflight": 0}, Phase.SERVING, "fresh", True),
        ({"state": "asleep", "inflight": 0}, Phase.SERVING, "asleep", True),
        ({"state": "saturated"}, Phase.SERVING, "saturated", True),
        ({"state": "saturated", "inflight": None}, Phase.SILENT, "saturated", True),
        ({"state": "loading", "inflight": None, "engines": [{"engine": None}]}, Phase.STARTING, "loading", False),
        ({"state": "unreachable", "inflight": None, "engines": []}, Phase.SILENT, "unreachable", False),
        ({"draining": True}, Phase.DRAINING, "ok", True),
        ({"draining": True, "inflight": None}, Phase.DRAINING, "ok", True),
    ],
)
def test_states(told, phase, state, served_before):
    """A state with values serves, one without is silent or starting; draining is draining; the sidecar remembers."""
    seen = sighting_of_reading("a", reading(**told))
    assert (seen.replica.phase, seen.replica.state, seen.served_before) == (phase, state, served_before)


@pytest.mark.parametrize("inflight", [-1, math.nan, math.inf, True, "7", [7], {}, 10**400])
def test_inflight_that_is_no_count(inflight):
    """A value that is no count is no value: the replica is silent, and the message says what was wrong."""
    seen = sighting_of_reading("a", reading(inflight=inflight))
    assert seen.replica.phase is Phase.SILENT
    assert "inflight is" in seen.message


def test_reading_of_another_program():
    """A JSON object without `inflight` is no reading."""
    seen = sighting_of_reading("a", {"status": "ok"})
    assert seen.replica.phase is Phase.SILENT
    assert "inflight is 'missing': expected a number" in seen.message


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (page(b"<html>"), "not JSON but b'<html>'"),
        (page(b"[" * 100_000), "not JSON"),
        (page(b"[1]"), "a JSON list: expected the reading"),
        (page(b"\xff"), "not JSON"),
        (page(b"{}", 401), "HTTP 401: it asks for credentials"),
        (page(b"", 404), "HTTP 404: no sidecar of infscale there"),
        (page(b"", 500), "HTTP 500: expected 200"),
        (ScrapeFailure("refused", "10.0.0.1:10047: connection refused", False, 0.1), "connection refused"),
    ],
)
def test_answers_that_are_no_reading(answer, says):
    """Each is silent, with a reason for a person."""
    seen = sighting_of("a", answer)
    assert (seen.replica.phase, seen.replica.state, seen.served_before) == (Phase.SILENT, "unreachable", False)
    assert says in seen.message


def test_text_of_a_peer_is_for_one_line():
    """A message with line breaks or of a megabyte stays one short line."""
    seen = sighting_of_reading("a", reading(inflight=None, message="x\n\x1b[31m" * 100_000, state="ok\n"))
    assert seen.message.isprintable()
    assert len(seen.message) <= 300
    assert seen.replica.state == "ok "


@pytest.mark.parametrize(
    "ttft",
    [
        "no",
        [1],
        [{}],
        [{"le": [0.5, "+Inf"], "counts": [1]}],
        [{"le": [0.5, 1.0], "counts": [1, 2]}],
        [{"le": ["+Inf", 0.5], "counts": [1, 2]}],
        [{"le": [0.5, "+Inf"], "counts": [2, 1]}],
        [{"le": [0.5, "+Inf"], "counts": [-1, 1]}],
        [{"le": [0.5, "+Inf"], "counts": [1, "nan"]}],
        [{"le": [{}, "+Inf"], "counts": [1, 2]}],
        [{"le": list(range(1000)), "counts": list(range(1000))}],
    ],
)
def test_broken_histogram_is_left_out(ttft):
    """A quantile of it would be wrong; the rest of the reading counts."""
    replica = sighting_of_reading("a", reading(ttft=ttft)).replica
    assert (replica.phase, replica.ttft) == (Phase.SERVING, ())


def test_histograms_of_one_layout_add_up_and_survive_json():
    """Two models with the same buckets are one histogram, another layout is a second; JSON without infinities."""
    fine = ((0.1, 1.0), (math.inf, 2.0))
    histograms = [
        Histogram("time_to_first_token", "m", fine, 1.0),
        Histogram("time_to_first_token", "n", fine, 1.0),
        Histogram("time_to_first_token", "n", ((1.0, 4.0), (math.inf, 5.0)), 1.0),
        Histogram("request_queue", "m", fine, 1.0),
    ]
    found = buckets_of(histograms)
    assert found == (Buckets((0.1, math.inf), (2.0, 4.0)), Buckets((1.0, math.inf), (4.0, 5.0)))
    text = json.dumps(ttft_json(found), allow_nan=False)
    assert sighting_of_reading("a", reading(ttft=json.loads(text))).replica.ttft == found


def test_pages_as_replicas():
    """A page that was read serves with its values; one that loads is starting; any other failure is silent."""
    read = Reading("vllm", "ok", (ModelReading("m", 2.0, 10.0, 12.0, kv=0.5, prompt_tokens=9.0),))
    serving = Replica("a", Phase.SERVING, running=2, waiting=10, inflight=12, kv=0.5, prompt_tokens=9.0)
    assert replica_of("a", read) == serving
    loads, disabled = ReadFailure("loading", "http", "it loads"), ReadFailure("stats_disabled", "missing", "flag")
    assert replica_of("b", loads) == Replica("b", Phase.STARTING, state="loading")
    assert replica_of("c", disabled) == Replica("c", Phase.SILENT, state="stats_disabled")
