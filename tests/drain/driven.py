"""A drain on a clock that is driven: its reads are real, its waiting is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from infscale import scrape
from infscale.drain.options import DrainOptions
from infscale.drain.report import DrainReport
from infscale.drain.run import drain

SHORTENED_S = 0.05


class Clock:
    """Seconds that pass when they are slept, or when a read times out.

    Attributes:
        now_s: the time.
        slept_s: each sleep.
        reads_at_s: when each read began.
    """

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.slept_s: list[float] = []
        self.reads_at_s: list[float] = []
        self.budgets_s: list[float] = []

    def __call__(self) -> float:
        """The time."""
        return self.now_s

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        assert seconds > 0
        self.slept_s.append(seconds)
        self.now_s += seconds

    def fetch(self, target: scrape.Target, *, timeout_s: float) -> scrape.Page | scrape.ScrapeFailure:
        """A real read; one that times out does so soon, and takes its whole time on this clock."""
        self.reads_at_s.append(self.now_s - 1000.0)
        self.budgets_s.append(timeout_s)
        answer = scrape.fetch(target, timeout_s=timeout_s)
        if isinstance(answer, scrape.ScrapeFailure) and answer.kind == "timeout":
            self.now_s += timeout_s
        return answer

    def fetch_soon(self, target: scrape.Target, *, timeout_s: float) -> scrape.Page | scrape.ScrapeFailure:
        """As `fetch`, for listeners that are known to answer nothing in time."""
        self.reads_at_s.append(self.now_s - 1000.0)
        self.budgets_s.append(timeout_s)
        answer = scrape.fetch(target, timeout_s=SHORTENED_S)
        assert isinstance(answer, scrape.ScrapeFailure)
        assert answer.kind == "timeout"
        self.now_s += timeout_s
        return answer


def run(url: str, *, never_answers: bool = False, clock: Clock | None = None, **given: Any) -> DrainReport:
    """Drain `url` on a driven clock.

    Args:
        url: the engine's page.
        never_answers: the listener lets each read time out.
        clock: the clock, for those who want to look at it.
        given: fields of `DrainOptions`, and further arguments of `drain`; clients are not looked at unless told.
    """
    clock = clock or Clock()
    further: dict[str, Callable[..., Any]] = {
        key: given.pop(key) for key in ("on_read", "connections", "profile", "profiles") if key in given
    }
    options = DrainOptions(url, **given)
    options.check()
    further.setdefault("connections", lambda: None)
    fetch = clock.fetch_soon if never_answers else clock.fetch
    return drain(options, clock=clock, sleep=clock.sleep, fetch=fetch, **further)  # type: ignore[arg-type]
