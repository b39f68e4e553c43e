"""Many trials: in this process, or in several. Whatever their number, the same results in the same order."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.synchronize import Event
from types import TracebackType
from typing import Self

from infscale.errors import SourceError
from infscale_sim.tune.cases import Case
from infscale_sim.tune.trial import Cost, Limits, try_policy

_cases: Sequence[Case] = ()
_stop: Event | None = None


class Workers:
    """Runs trials on the cases of a search; a context.

    Args:
        cases: what each policy is run on.
        count: how many processes; 1 is this one.
    """

    def __init__(self, cases: Sequence[Case], count: int) -> None:
        self.cases = cases
        self.pool: ProcessPoolExecutor | None = None
        if count > 1:
            context = multiprocessing.get_context("spawn")  # the same on every system
            self.stop = context.Event()
            self.pool = ProcessPoolExecutor(count, context, _begin, (cases, self.stop))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, at: TracebackType | None) -> None:
        if self.pool is not None:
            self.stop.set()  # runs under way give up at their next look
            self.pool.shutdown(wait=True, cancel_futures=True)

    def costs(self, texts: Sequence[str], limits: Limits) -> Iterator[Cost | None]:
        """The cost of each policy in their order, None where it was given up.

        Raises:
            SourceError: a process died, as for want of memory.
        """
        if self.pool is None:
            yield from (try_policy(self.cases, text, limits) for text in texts)
            return
        try:
            yield from self.pool.map(_one, texts, [limits] * len(texts))
        except BrokenProcessPool:
            raise SourceError(
                "a worker process ended before its run did, as for want of memory; try --workers 1"
            ) from None


def _begin(cases: Sequence[Case], stop: Event) -> None:
    """What each process starts with. Ctrl-C is the business of the first one, which then sets the event."""
    global _cases, _stop
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _cases, _stop = cases, stop


def _one(text: str, limits: Limits) -> Cost | None:
    return try_policy(_cases, text, limits, _stop.is_set if _stop is not None else lambda: False)
