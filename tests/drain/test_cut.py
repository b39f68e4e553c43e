"""Who was cut off: aborted when the engine ended, and not merely in flight when the drain's time was up."""

from __future__ import annotations

from infscale.drain.connections import Clients
from infscale.drain.cut import Watched, requests_cut
from infscale.reading import ModelReading, ReadFailure, Reading

REFUSED = ReadFailure("unreachable", "refused", "nothing listens")
TIMEOUT = ReadFailure("saturated", "timeout", "busy")
RESET = ReadFailure("unreachable", "reset", "connection reset")


def busy(inflight: float, finished: float | None = None, aborted: float = 0, tokens: float = 10) -> Reading:
    """A reading with requests in flight; `finished` where the engine counts them."""
    outcomes = () if finished is None else (("stop", finished), ("abort", aborted))
    model = ModelReading("m", inflight, 0.0, inflight, finished=outcomes)
    return Reading("vllm", "ok", (model,), counters=(("generation_tokens_total", tokens),))


def cut(
    inflight: float,
    *looks: Reading | ReadFailure | int,
    before: Reading | None = None,
    killed_s: float = 0.0,
) -> float:
    """The requests cut, when the engine is looked at so, half a second apart.

    Args:
        inflight: at the end of the drain.
        looks: what a read gives; a number: the port is closed, and so many clients are connected.
        before: the last read of the drain.
        killed_s: when the grace period is over.
    """
    now, found, clients = [0.0], list(looks), [0]

    def read(timeout_s: float) -> Reading | ReadFailure:
        assert timeout_s == 0.5
        look = found.pop(0) if found else TIMEOUT
        clients[0] = look if isinstance(look, int) else 0
        return REFUSED if isinstance(look, int) else look

    def sleep(seconds: float) -> None:
        now[0] += seconds

    return requests_cut(Watched(read, lambda: Clients(clients[0]), lambda: now[0], sleep), inflight, killed_s, before)


def test_an_engine_that_aborts_at_once() -> None:
    """As vLLM without a shutdown time-out does: the port is closed at the first look."""
    assert cut(7, REFUSED) == 7


def test_an_engine_that_goes_on_until_it_is_killed() -> None:
    """SGLang: requests still finish after SIGTERM, and only those of the last read are cut."""
    assert cut(9, busy(9), busy(4), busy(2), REFUSED) == 2


def test_an_engine_that_finishes_in_its_reserve() -> None:
    """Nothing in flight any more: nobody was cut, whatever was in flight when the drain ended."""
    assert cut(9, busy(9), busy(3), busy(0)) == 0


def test_an_engine_that_nobody_ended() -> None:
    """A drain that a stranger asked for: the engine goes on, nobody is cut."""
    assert cut(9, *[busy(9)] * 20) == 0


def test_an_engine_that_ends_long_after_its_grace_period() -> None:
    """The kill and the closing of the port take a moment, and no more than 5 s: later it was somebody else's doing."""
    assert cut(9, *[busy(9)] * 9, REFUSED) == 9
    assert cut(9, *[busy(9)] * 10, REFUSED) == 0


def test_an_engine_that_aborts_after_it_went_on() -> None:
    """The page was there until the end, long before the kill: what it showed last was cut."""
    assert cut(9, busy(9), REFUSED, killed_s=5.0) == 9
    assert cut(20, busy(20), 3, REFUSED, killed_s=5.0) == 20
    assert cut(9, 9, 9, busy(9), REFUSED, killed_s=5.0) == 9


def test_a_restart_is_an_end() -> None:
    """Another process answers: what the old one had is cut."""
    assert cut(5, busy(5, tokens=900), busy(0, tokens=3)) == 5
    assert cut(5, busy(1, tokens=3), before=busy(5, tokens=900)) == 5


def test_a_read_that_fails_says_nothing() -> None:
    """Time-outs and resets on the way: the last known number holds until the port is closed."""
    assert cut(6, busy(6), TIMEOUT, RESET, TIMEOUT, REFUSED) == 6
    assert cut(6, *[TIMEOUT] * 20) == 0


def test_gauges_that_fall_because_requests_are_aborted() -> None:
    """The gauge is at 0 for a moment before the port is closed, and nothing finished meanwhile: they were cut."""
    before = busy(9, finished=100)
    assert cut(9, busy(0, finished=100, aborted=9), REFUSED, before=before) == 9
    assert cut(9, busy(4, finished=103, aborted=2), busy(0, finished=107, aborted=2), REFUSED, before=before) == 2
    assert cut(9, busy(0, finished=109), REFUSED, before=before) == 0


def test_an_engine_that_counts_no_finished_requests_now_and_then() -> None:
    """On one of the two pages only they tell nothing: the gauge is gone by."""
    assert cut(9, busy(0), REFUSED, before=busy(9, finished=100)) == 0
    assert cut(9, busy(0, finished=100), REFUSED, before=busy(9)) == 0


def test_clients_that_left_an_engine_that_goes_on() -> None:
    """Requests that vanish although nobody ended the engine were given up by their clients."""
    assert cut(9, busy(0, finished=100, aborted=9), *[busy(0, finished=100, aborted=9)] * 9, before=busy(9, 100)) == 0


def test_an_engine_that_closes_its_port_and_goes_on() -> None:
    """As vLLM with a shutdown time-out: who is connected is served, and who is left at the kill is cut."""
    assert cut(10, 10, 10, 10, 6, 6, 6, REFUSED, killed_s=3.0) == 6


def test_an_engine_that_closes_its_port_and_finishes() -> None:
    """It ended long before the kill, by itself: everybody was served."""
    assert cut(10, 10, 10, 4, 4, REFUSED, killed_s=5.0) == 0
    assert cut(10, 10, 10, 4, 4, REFUSED, killed_s=3.0) == 4, "a second before it is the kill"


def test_a_look_in_the_middle_of_an_abort() -> None:
    """Some connections are closed already and some are not: all were cut, and not only the rest."""
    assert cut(20, 3, REFUSED, killed_s=5.0) == 20
    assert cut(20, 20, 20, 20, 2, REFUSED, killed_s=2.0) == 20


def test_more_connections_than_requests() -> None:
    """Idle keep-alive connections are no requests."""
    assert cut(2, 40, 40, 40, REFUSED, killed_s=1.5) == 2


def test_where_connections_cannot_be_seen() -> None:
    """The closed port alone is the engine's end."""
    watched = Watched(lambda timeout_s: REFUSED, lambda: None, lambda: 0.0, lambda seconds: None)
    assert requests_cut(watched, 7, 5.0) == 7


def test_an_engine_that_hangs_up_on_nobody_for_a_moment() -> None:
    """All are connected when the port is found closed, and none half a second later: an abort, seen as it began."""
    assert cut(8, 8, REFUSED, killed_s=5.0) == 8
