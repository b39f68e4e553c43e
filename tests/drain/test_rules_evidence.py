"""The drain's rules 17 to 19: counters and connections beside the gauges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from infscale.drain.connections import Clients
from infscale.drain.report import DrainReport

from ..raw_server import raw_server
from .driven import run
from .matrix import hang, page, serving, status

NONE, ONE, QUEUED = Clients(0), Clients(1), Clients(1, queued=1)


def drained(*pages: str | bytes, clients: Sequence[Clients | None] = (None,), **given: Any) -> DrainReport:
    """A drain that reads these pages in turn, beside these clients in turn; the last of each goes on."""
    looks = iter(clients)
    last: list[Clients | None] = []

    def look() -> Clients | None:
        last[:] = [next(looks, last[0] if last else None)]
        return last[0]

    bodies = [body.encode() if isinstance(body, str) else body for body in pages]
    with raw_server(serving(*bodies)) as server:
        return run(server.url(), connections=look, **given)


def sglang(counters: Mapping[str, float], running: int = 0) -> str:
    """An SGLang page."""
    lines = [f"sglang:num_running_reqs {running}", "sglang:num_queue_reqs 0"]
    return "\n".join([*lines, *(f"sglang:{name} {value}" for name, value in counters.items()), ""])


def test_rule_17_second_idle_read_must_show_the_same_counters() -> None:
    """A request which came and went between them restarts the count."""
    report = drained(page(generated=10), page(generated=11), page(generated=12), page(generated=12))
    assert (report.outcome, report.reads) == ("idle", 4)


@pytest.mark.parametrize(
    "counter",
    ["vllm:request_success_total", "vllm:prompt_tokens_total", "vllm:generation_tokens_total"],
)
def test_rule_17_each_counter_is_evidence(counter: str) -> None:
    """Requests finished, prompt and generated tokens: any of them moved is enough."""
    idle = page(generated=None).decode()
    report = drained(f"{idle}{counter} 5\n", f"{idle}{counter} 6\n")
    assert (report.outcome, report.reads) == ("idle", 3)


def test_rule_17_counters_on_neither_page_are_no_evidence() -> None:
    """Counters on neither page are no evidence either way."""
    assert drained(page(generated=None)).reads == 2


@pytest.mark.parametrize("first", [True, False])
def test_rule_17_counters_on_one_page_only_restart_the_count(first: bool) -> None:
    """On one page only, the count restarts."""
    with_counter, without = page(generated=0), page(generated=None)
    pages = (with_counter, without) if first else (without, with_counter)
    assert drained(*pages).reads == 3


HEALTH = {"num_requests_total": 1, "prompt_tokens_total": 1, "generation_tokens_total": 1, "realtime_tokens_total": 2}


def test_rule_17_own_health_check_of_sglang_restarts_nothing() -> None:
    """SGLang's own health check: growth of at most one request and its token does not restart its count."""
    before = dict.fromkeys(HEALTH, 100.0)
    after = {name: 100.0 + by for name, by in HEALTH.items()}
    assert drained(sglang(before), sglang(after)).reads == 2
    assert drained(sglang(before), sglang({**before, "generation_tokens_total": 101})).reads == 2


@pytest.mark.parametrize("counter", HEALTH)
def test_rule_17_more_than_a_health_check_restarts_the_count(counter: str) -> None:
    """Two requests, or one with more tokens, are somebody's."""
    before = dict.fromkeys(HEALTH, 100.0)
    assert drained(sglang(before), sglang({**before, counter: 100.0 + HEALTH[counter] + 1})).reads == 3


def test_rule_17_other_engines_serve_no_request_to_themselves() -> None:
    """One token on a vLLM page is a request of somebody's."""
    assert drained(page(generated=100), page(generated=101)).reads == 3


def test_rule_17_health_check_beside_a_client_may_be_the_clients() -> None:
    """With a client connected the one request may be its own: rule 18 holds, and the count restarts."""
    before = dict.fromkeys(HEALTH, 100.0)
    after = {name: 100.0 + by for name, by in HEALTH.items()}
    assert drained(sglang(before), sglang(after), clients=[ONE]).reads == 3


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("vllm:generation_tokens_total 50\n", "vllm:generation_tokens_total 3\n"),
        ("process_start_time_seconds 1700000000\n", "process_start_time_seconds 1700000400\n"),
    ],
)
def test_rule_17_restart_is_reported(before: str, after: str) -> None:
    """A counter that went down, or another start time, is a restart: it is reported, and the count restarts."""
    idle = page(generated=None).decode()
    report = drained(idle + before, idle + after)
    assert (report.outcome, report.reads, report.restarted) == ("idle", 3, True)
    assert not drained(idle + before).restarted


def test_rule_17_gauges_that_vanish_are_not_a_fresh_engine() -> None:
    """A page like a new engine's, without a restart, is a page without its gauges: busy."""
    fresh = "vllm:cache_config_info 1\n"
    report = drained(page(generated=None), fresh, grace_s=15)
    assert (report.outcome, report.missing, report.busy_reads) == ("deadline", 4, 4)
    assert report.note == "the engine's gauges were there before and are gone, though it did not restart"
    assert drained(fresh).outcome == "fresh"


def test_rule_18_queued_bytes_keep_the_engine_busy() -> None:
    """Established client connections to the engine's port with bytes queued keep the engine busy."""
    report = drained(page(), clients=[QUEUED, QUEUED, ONE])
    assert (report.outcome, report.reads, report.busy_reads, report.connections) == ("idle", 4, 2, 1)


def test_rule_18_queued_bytes_are_said() -> None:
    """A drain that ran into its deadline because of them says so, with what the gauges said."""
    report = drained(page(), clients=[QUEUED], grace_s=15)
    assert (report.outcome, report.inflight, report.engine) == ("deadline", 0, "vllm")
    assert report.note == "the gauges are at 0, but 1 client connection(s) have bytes queued"


@pytest.mark.parametrize("clients", [NONE, QUEUED])
@pytest.mark.parametrize("running", [0, 2])
def test_rule_17_restart_is_reported_whatever_else_is_found(running: int, clients: Clients) -> None:
    """Busy, idle or with bytes queued: another process answers, and the report says it."""
    began = [page(running=running) + b"process_start_time_seconds %d\n" % at for at in (1_700_000_000, 1_700_000_400)]
    assert drained(*began, clients=[clients], grace_s=15).restarted is True
    assert drained(began[0], clients=[clients], grace_s=15).restarted is False


def test_rule_18_idle_keep_alive_does_not() -> None:
    """Idle keep-alive connections alone do not."""
    report = drained(page(), clients=[Clients(7)])
    assert (report.outcome, report.reads, report.connections) == ("idle", 2, 7)


@pytest.mark.parametrize("line", ["401 Unauthorized", "404 Not Found", "500 Oops", "501 Not Implemented"])
def test_rule_18_without_gauges_clients_are_waited_for(line: str) -> None:
    """Nothing can be measured: the drain goes by the client connections until they are gone."""
    looks = iter([ONE, ONE, ONE, ONE, NONE])
    with raw_server(status(line)) as server:
        report = run(server.url(), connections=lambda: next(looks))
    assert (report.outcome, report.reads, report.connections) == ("http", 5, 0)


def test_rule_18_without_gauges_clients_are_waited_for_to_the_deadline() -> None:
    """They are waited for until they are gone or G-5."""
    with raw_server(status("401 Unauthorized")) as server:
        report = run(server.url(), connections=lambda: ONE, grace_s=15)
    assert (report.outcome, report.seconds, report.connections) == ("deadline", 10.0, 1)


def test_rule_18_without_gauges_and_clients_unseen_the_drain_returns() -> None:
    """Where connections cannot be read, or there are none, it returns after the second such answer, and says why."""
    with raw_server(status("401 Unauthorized")) as server:
        blind = run(server.url(), connections=lambda: None)
        alone = run(server.url(), connections=lambda: NONE)
    assert (blind.outcome, blind.reads, alone.outcome, alone.reads) == ("http", 2, "http", 2)
    assert "cannot be seen" in blind.note
    assert "401" in alone.note


def test_rule_18_on_http_error_return_returns_whoever_is_connected() -> None:
    """`--on-http-error return` returns in every case; one transient error still ends nothing."""
    with raw_server(status("401 Unauthorized")) as server:
        report = run(server.url(), connections=lambda: ONE, on_http_error="return")
    assert (report.outcome, report.reads) == ("http", 2)


def live(running: int, tokens: int) -> bytes:
    """A vLLM page with requests in flight and a counter that moves while they are worked on."""
    return page(running=running, generated=tokens)


def test_rule_19_stale_gauge_ends_the_wait() -> None:
    """A gauge above 0 with no client connection and frozen counters for S seconds is stale, and ends the wait."""
    report = drained(live(2, 50), clients=[NONE], stale_after_s=10, grace_s=120)
    assert (report.outcome, report.seconds, report.inflight) == ("stale", 15.0, 2)


def test_rule_19_is_off_by_default() -> None:
    """Off by default: the wait goes on to G-5."""
    assert drained(live(2, 50), clients=[NONE], grace_s=45).outcome == "deadline"


def test_rule_19_movement_begins_the_time_anew() -> None:
    """A counter that moves, or a client that connects, begins the S seconds anew."""
    moving = [live(2, 50 + min(step, 5)) for step in range(8)]
    report = drained(*moving, clients=[NONE], stale_after_s=10, grace_s=120)
    assert (report.outcome, report.seconds) == ("stale", 20.0)
    report = drained(live(2, 50), clients=[NONE, NONE, ONE, NONE], stale_after_s=10, grace_s=120)
    assert (report.outcome, report.seconds) == ("stale", 18.0)


@pytest.mark.parametrize(
    ("clients", "text"),
    [
        (None, live(2, 50).decode()),
        (ONE, live(2, 50).decode()),
        (NONE, page(running=2, generated=None).decode()),
        (NONE, sglang({"num_requests_total": 5}, 2)),
        (NONE, sglang({"realtime_tokens_total": 9}, 2).replace("running_reqs", 'running_reqs{engine_type="decode"}')),
        (NONE, sglang({"realtime_tokens_total": 9}, 2).replace("running_reqs", 'running_reqs{engine_type="prefill"}')),
    ],
    ids=["clients unseen", "a client", "no counter", "no live counter", "decode", "prefill"],
)
def test_rule_19_never_without_evidence(clients: Clients | None, text: str) -> None:
    """Never for prefill or decode roles, with a client, nor where clients or a live counter cannot be seen."""
    assert drained(text, clients=[clients], stale_after_s=5, grace_s=45).outcome == "deadline"


def test_rule_19_ends_the_wait_of_a_unified_sglang() -> None:
    """The same page without such a role is stale."""
    assert drained(sglang({"realtime_tokens_total": 9}, 2), clients=[NONE], stale_after_s=5).outcome == "stale"


def test_rule_19_time_out_is_no_frozen_counter() -> None:
    """An engine that does not answer shows no counter: nothing is stale."""
    with raw_server(hang) as server:
        report = run(server.url(), never_answers=True, connections=lambda: NONE, stale_after_s=5, grace_s=45)
    assert report.outcome == "deadline"
