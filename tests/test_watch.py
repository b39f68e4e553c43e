"""Reads over time: hold, stale, restart, and what each state shows. A driven clock, no waiting."""

from dataclasses import replace

import pytest

from infscale.reading import ModelReading, ReadFailure, Reading
from infscale.watch import HOLD_S, STALE_AFTER_S, Watch, restarted

T0 = 1_800_000_000.0
TIMEOUT = ReadFailure("saturated", "timeout", "no answer within 2 s")
REFUSED = ReadFailure("unreachable", "refused", "connection refused")
RESET = ReadFailure("unreachable", "reset", "connection reset")


def reading(inflight: float, tokens: float = 0.0, *, state: str = "ok", live: bool = True, **more: float) -> Reading:
    """A reading of one model with one counter."""
    model = ModelReading("m", inflight, 0.0, inflight)
    counters = (("generation_tokens_total", tokens),) if state != "fresh" else ()
    return Reading("vllm", state, (model,), counters=counters, live=live, **more)  # type: ignore[arg-type]


def test_good_reading_is_shown_as_read() -> None:
    """`ok` shows the values with the time they were read, and says nothing."""
    view = Watch().step(reading(5), T0, duration_s=0.004)
    assert (view.state, view.message, view.read_at_s, view.scrape_duration_s) == ("ok", "", T0, 0.004)
    assert view.reading is not None
    assert view.reading.inflight == 5


def test_refused_before_the_first_good_read_is_loading() -> None:
    """An engine that was never there is loading; one that was there is unreachable."""
    watch = Watch()
    assert watch.step(REFUSED, T0).state == "loading"
    watch.step(reading(0), T0 + 1)
    later = watch.step(REFUSED, T0 + 2)
    assert (later.state, later.reading) == ("unreachable", None)


def test_saturated_holds_the_last_values_while_there_were_some() -> None:
    """A time-out on an open port shows the last values, with their own time, up to 15 minutes."""
    watch = Watch()
    watch.step(reading(7), T0)
    held = watch.step(TIMEOUT, T0 + HOLD_S)
    assert (held.state, held.read_at_s) == ("saturated", T0)
    assert held.reading is not None
    assert held.reading.inflight == 7
    over = watch.step(TIMEOUT, T0 + HOLD_S + 1)
    assert (over.state, over.reading, over.read_at_s) == ("saturated", None, None)


def test_saturated_holds_no_zero() -> None:
    """An idle engine that stops answering is silent: a queue may be what stops it."""
    watch = Watch()
    watch.step(reading(0), T0)
    view = watch.step(TIMEOUT, T0 + 1)
    assert (view.state, view.reading) == ("saturated", None)


def test_hold_is_shorter_once_terminating() -> None:
    """After SIGTERM an engine that hangs must not look busy for long (llama.cpp may hang for ever)."""
    watch = Watch()
    watch.step(reading(7), T0)
    assert watch.step(TIMEOUT, T0 + 30, hold_s=30).reading is not None
    assert watch.step(TIMEOUT, T0 + 31, hold_s=30).reading is None


def test_refusal_ends_the_hold() -> None:
    """What an engine showed before it went away says nothing about the one that hangs now."""
    watch = Watch()
    watch.step(reading(7), T0)
    watch.step(REFUSED, T0 + 1)
    assert watch.step(TIMEOUT, T0 + 2).reading is None


@pytest.mark.parametrize("failure", [REFUSED, RESET, ReadFailure("misconfigured", "http", "401")])
def test_failures_show_no_values_but_keep_what_is_known(failure: ReadFailure) -> None:
    """No state but a held one shows the values of before; the engine's name and model stay known."""
    watch = Watch()
    watch.step(reading(7), T0)
    view = watch.step(failure, T0 + 1)
    assert view.reading is None
    assert view.read_at_s is None
    assert view.known is not None
    assert view.known.models[0].model == "m"


def test_frozen_counters_are_stale_after_two_minutes() -> None:
    """In flight above 0 and no counter moved for 120 s: stale, shown as read."""
    watch = Watch()
    watch.step(reading(3, 100), T0)
    assert watch.step(reading(3, 100), T0 + STALE_AFTER_S - 1).state == "ok"
    view = watch.step(reading(3, 100), T0 + STALE_AFTER_S)
    assert view.state == "stale"
    assert view.reading is not None
    assert view.reading.inflight == 3
    assert "120 s" in view.message
    assert watch.step(reading(3, 101), T0 + STALE_AFTER_S + 1).state == "ok"


def test_idle_time_is_not_stale_time() -> None:
    """The clock of `stale` starts with the first request, not with the last token before it."""
    watch = Watch()
    watch.step(reading(0, 100), T0)
    assert watch.step(reading(1, 100), T0 + 500).state == "ok"
    assert watch.step(reading(1, 100), T0 + 500 + STALE_AFTER_S).state == "stale"


def test_without_a_live_counter_nothing_is_stale() -> None:
    """Counters that move at a request's end say nothing about a long answer."""
    watch = Watch()
    for minute in range(60):
        assert watch.step(reading(3, 100, live=False), T0 + 60 * minute).state == "ok"


def test_gauges_that_vanish_are_not_fresh() -> None:
    """A page without its gauges after one that had them, with no restart between, is misconfigured."""
    watch = Watch()
    watch.step(reading(0, 0), T0)
    assert watch.step(reading(0, state="fresh"), T0 + 1).state == "misconfigured"


def test_fresh_after_a_restart() -> None:
    """A refusal between, or counters that were above 0 before, are a restart: fresh again."""
    watch = Watch()
    watch.step(reading(2, 0), T0)
    watch.step(REFUSED, T0 + 1)
    assert watch.step(reading(0, state="fresh"), T0 + 2).state == "fresh"
    watch.step(reading(1, 50), T0 + 3)
    assert watch.step(reading(0, state="fresh"), T0 + 4).state == "fresh"


def test_restart_shows_by_start_time_or_a_fall() -> None:
    """Another start time, or a counter that went down; a wobble of the clock is none."""
    before = reading(1, 100, start_time_s=5000.0)
    assert not restarted(before, reading(1, 100, start_time_s=5000.4))
    assert restarted(before, reading(1, 100, start_time_s=5010.0))
    assert restarted(before, reading(1, 99))
    assert not restarted(before, reading(1, 100))


def test_clock_that_goes_back() -> None:
    """A hold ends and a hung engine is stale as long after as ever, though the clock was set back by a day."""
    day_s = 86_400.0
    held, still = Watch(), Watch()
    for watch in (held, still):
        watch.step(reading(7, 100), T0)
        watch.step(reading(7, 100), T0 + 10)
    assert held.step(TIMEOUT, T0 + 20 - day_s).read_at_s == T0 + 20 - day_s
    view = held.step(TIMEOUT, T0 + 20 - day_s + HOLD_S)
    assert (view.state, view.reading is None) == ("saturated", False)
    assert held.step(TIMEOUT, T0 + 21 - day_s + HOLD_S).reading is None
    assert still.step(reading(7, 100), T0 - day_s).state == "ok"
    assert still.step(reading(7, 100), T0 - day_s + STALE_AFTER_S - 11).state == "ok"
    assert still.step(reading(7, 100), T0 - day_s + STALE_AFTER_S - 10).state == "stale"


def test_cpu_ratio_needs_two_reads_and_a_request() -> None:
    """CPU seconds per second over the request; absent after a restart and without a request."""
    watch = Watch(cpu_request=4.0)
    assert watch.step(reading(1, cpu_s=10.0), T0).cpu_ratio is None
    assert watch.step(reading(1, cpu_s=30.0), T0 + 10).cpu_ratio == pytest.approx(0.5)
    assert watch.step(reading(1, cpu_s=1.0), T0 + 20).cpu_ratio is None
    assert Watch().step(reading(1, cpu_s=10.0), T0).cpu_ratio is None


def test_views_are_values() -> None:
    """A view is unchanged by later reads."""
    watch = Watch()
    first = watch.step(reading(5), T0)
    copy = replace(first)
    watch.step(REFUSED, T0 + 1)
    assert first == copy
