"""What a removal costs: no preStop hook, `sleep 15`, a shell loop that greps the waiting gauge, infscale's hook.

    python bench/drain_side_by_side.py [--removals 1000] [--real 20]

Requests of a long-answer workload are in flight when the Pod is deleted, and some arrive in the 3 s after. Counted are
requests that were cut (aborted by SIGTERM, or sent to an engine that was gone) and seconds that the accelerator was
held. The engine aborts at SIGTERM, as vLLM does unless told otherwise. Three pages: one engine, two data-parallel
engines, and the waiting gauge split by reason on top; the loop compares with the text `0.0` and ends on the first of
them alone. First on a clock that is driven, with the real drain, then with real processes and sockets on the first of
the same removals, which must agree. Takes five minutes when run alone.
"""

from __future__ import annotations

import contextlib
import heapq
import os
import random
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from infscale.drain.bundle import install
from infscale.drain.options import DrainOptions
from infscale.drain.run import drain
from infscale.scrape import Page

sys.path.insert(0, str(Path(__file__).parent.parent))  # for bench.table and tests.drain

from bench.table import Row, Size, alone, show
from tests.drain.engine import EngineProcess, page_of, whole
from tests.drain.kubelet import remove

GRACE_S = 45
REMOVALS, REAL = 1000, 20
SLOTS = 4
CUT_APART, HELD_APART_S = 0.25, 1.5
"""By so much the mean of the real removals may differ from that of the same on the driven clock."""
_starting = threading.Lock()
"""Engines start one at a time: the start of many takes the CPU from those that go by the clock already."""
REAL_IN_TABLE = 3
"""All cases at the same time: 36 engines and their clients, most of them waiting."""
PAGES = {"one engine": (1, False), "two engines": (2, False), "split by reason": (1, True)}
LOOP = (
    """until [ "$(curl -s {url} | grep '^vllm:num_requests_waiting' | awk '{{print $NF}}')" = 0.0 ]; do sleep 1; done"""
)
URL = "http://127.0.0.1:8000/metrics"


@dataclass(frozen=True)
class Removal:
    """What is in flight when a Pod is deleted: (arrival in seconds after that, seconds of work) of each request."""

    requests: tuple[tuple[float, float], ...]


def workload(seed: int) -> Removal:
    """4 to 8 requests in flight, up to 2 on their way: 30 tokens a second, a median of 240 tokens left to generate."""
    rng = random.Random(seed)  # noqa: S311

    def seconds() -> float:
        return round(min(rng.lognormvariate(2.08, 0.7), 40.0), 2)

    begun = [(0.0, seconds()) for _ in range(rng.randint(4, 8))]
    return Removal((*begun, *((rng.uniform(0.5, 3.0), seconds()) for _ in range(rng.randint(0, 2)))))


class DrivenEngine:
    """The stand-in engine on a clock that is driven: each rank has SLOTS, requests queue for them in turn."""

    def __init__(self, removal: Removal, ranks: int, by_reason: bool) -> None:
        self.now_s, self.by_reason, self.ranks = 0.0, by_reason, ranks
        self.spans: list[list[tuple[float, float, float]]] = [[] for _ in range(ranks)]
        free = [[0.0] * SLOTS for _ in range(ranks)]
        for number, (arrival_s, work_s) in enumerate(removal.requests):
            slots = free[number % ranks]
            start_s = max(arrival_s, heapq.heappop(slots))
            heapq.heappush(slots, start_s + work_s)
            self.spans[number % ranks].append((arrival_s, start_s, start_s + work_s))

    def page(self) -> str:
        """The metrics page now."""
        now_s, every = self.now_s, [span for rank in self.spans for span in rank]
        queues = [
            (sum(s <= now_s < e for _, s, e in rank), sum(a <= now_s < s for a, s, _ in rank)) for rank in self.spans
        ]
        return page_of(
            queues,
            finished=sum(end <= now_s for _, _, end in every),
            begun=sum(arrival <= now_s for arrival, _, _ in every),
            tokens=int(sum(30 * (min(now_s, end) - start) for _, start, end in every if start < now_s)),
            by_reason=self.by_reason,
        )

    def cut(self, sigterm_s: float) -> int:
        """Requests that had not ended by then."""
        return sum(end > sigterm_s for rank in self.spans for _, _, end in rank)

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now_s += seconds

    def fetch(self, _target: object, *, timeout_s: float) -> Page:
        """A read."""
        return Page(200, "text/plain", self.page().encode(), min(0.0, timeout_s))


def no_hook(engine: DrivenEngine) -> None:
    """SIGTERM at once."""


def sleep_15(engine: DrivenEngine) -> None:
    """`sleep 15`."""
    engine.sleep(15.0)


def shell_loop(engine: DrivenEngine) -> None:
    """The loop, to the letter, until the grace period is over."""
    while engine.now_s < GRACE_S:
        lines = [line for line in engine.page().splitlines() if line.startswith("vllm:num_requests_waiting")]
        if "\n".join(line.split()[-1] for line in lines) == "0.0":
            return
        engine.sleep(1.0)
    engine.now_s = GRACE_S


def infscale(engine: DrivenEngine) -> None:
    """The hook's own drain."""
    options = DrainOptions(URL, engine="vllm", grace_s=GRACE_S, connections=False)
    drain(options, clock=lambda: engine.now_s, sleep=engine.sleep, fetch=engine.fetch)


HOOKS: dict[str, Callable[[DrivenEngine], None]] = {
    "no hook": no_hook,
    "sleep 15": sleep_15,
    "grep loop": shell_loop,
    "infscale": infscale,
}


def driven(hook: str, page: str, removal: Removal) -> tuple[int, float]:
    """Requests cut and seconds held, of one removal on the driven clock."""
    engine = DrivenEngine(removal, *PAGES[page])
    HOOKS[hook](engine)
    return engine.cut(engine.now_s), engine.now_s


def real(hook: str, page: str, removal: Removal, folder: Path) -> tuple[int, float]:
    """The same with an engine's process, clients, and what the kubelet does."""
    ranks, by_reason = PAGES[page]
    options = ["--ranks", str(ranks), "--slots", str(SLOTS), *(["--by-reason"] if by_reason else [])]
    with contextlib.ExitStack() as engines, contextlib.ExitStack() as stack:
        with _starting:
            engine = engines.enter_context(EngineProcess("abort", *options))
        requests = [
            future for arrival, seconds in removal.requests if not arrival for future in engine.request(seconds)
        ]
        engine.wait_begun(len(requests))
        for arrival_s, seconds in removal.requests:
            if arrival_s:
                timer = threading.Timer(arrival_s, lambda s=seconds: requests.extend(engine.request(s)))
                timer.start()
                stack.callback(timer.join)
        command = {
            "no hook": None,
            "sleep 15": ["sleep", "15"],
            "grep loop": ["sh", "-c", LOOP.format(url=engine.url)],
            "infscale": ["sh", str(folder / "infscale-drain"), "--url", engine.url],
        }[hook]
        removed = remove(engine.popen, command, GRACE_S, os.environ)
        stack.close()
        return len(removal.requests) - whole(requests), removed.hook.seconds if removed.hook else 0.0


@dataclass(frozen=True)
class Result:
    """Means per removal: requests cut, seconds held.

    Attributes:
        cut, held_s: of all removals, on the driven clock.
        same: of the first of them, the same figures as `real`; None where none was real.
        real: of these with real processes.
        reals: how many these are.
    """

    page: str
    hook: str
    cut: float
    held_s: float
    same: tuple[float, float] | None
    real: tuple[float, float] | None
    reals: int

    @property
    def agree(self) -> bool:
        """Whether the driven clock and the real processes say the same; one request in all may end just in time."""
        if self.same is None or self.real is None:
            return True
        cut_apart = max(CUT_APART, 1.001 / self.reals)
        return abs(self.same[0] - self.real[0]) <= cut_apart and abs(self.same[1] - self.real[1]) <= HELD_APART_S


def means(pairs: list[tuple[int, float]]) -> tuple[float, float]:
    """The mean of each side."""
    return sum(cut for cut, _ in pairs) / len(pairs), sum(held_s for _, held_s in pairs) / len(pairs)


def results(removals: int, reals: int, at_once: int) -> Iterator[Result]:
    """Each page and hook; so many of the real removals at the same time."""
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(max(at_once, 1)) as pool:
        folder = Path(name)
        install(folder, ["--grace", str(GRACE_S), "--report-file", "", "--sidecar-url", "", "--no-connections"])
        cases = [(page, hook) for page in PAGES for hook in HOOKS]
        # All of these first: they would take the CPU from the real ones, which go by the clock.
        simulated = [[driven(hook, page, workload(seed)) for seed in range(removals)] for page, hook in cases]
        jobs = [
            [pool.submit(real, hook, page, workload(seed), folder) for seed in range(reals)] for page, hook in cases
        ]
        for (page, hook), of_all, running in zip(cases, simulated, jobs, strict=True):
            found = [job.result() for job in running]
            yield Result(
                page,
                hook,
                *means(of_all),
                means(of_all[:reals]) if found else None,
                means(found) if found else None,
                reals,
            )


def beside(removals: int, reals: int, at_once: int) -> list[Row]:
    """Infscale's hook beside each other one on each page, and whether the real removals agree."""
    found = list(results(removals, reals, at_once))
    by_name = {(one.page, one.hook): one for one in found}
    table = []
    for page in PAGES:
        ours = by_name[page, "infscale"]
        others = [by_name[page, hook] for hook in HOOKS if hook != "infscale"]
        table += [Row(f"requests cut per removal, {page}", "", ours.cut, one.hook, one.cut) for one in others]
        table += [Row(f"seconds held per removal, {page}", "s", ours.held_s, one.hook, one.held_s) for one in others]
    if not reals:
        return table
    agree = sum(one.agree for one in found)
    what = f"cases where {reals} real removals agree with the driven clock"
    return [*table, Row(what, f"of {len(found)}", agree, at_least=len(found), note=apart(found))]


def apart(found: Sequence[Result]) -> str:
    """The cases that do not agree, with cut and seconds of both; empty where all do."""
    cases = []
    for one in found:
        if one.same and one.real and not one.agree:
            (cut, held_s), (real_cut, real_held_s) = one.same, one.real
            figures = f"{cut:.2f} cut and {held_s:.1f} s driven, {real_cut:.2f} and {real_held_s:.1f} s real"
            cases.append(f"{one.page}, {one.hook}: {figures}")
    return "; ".join(cases)


def rows(size: Size = Size.FULL) -> list[Row]:
    """Infscale's hook beside each other one on each page; in a full run some are real."""
    why = f"left out by --{size.value}" if size is not Size.FULL else "" if shutil.which("curl") else "curl is absent"
    reals = 0 if why else REAL_IN_TABLE
    table = beside(size.pick(10, REMOVALS // 2), reals, at_once=reals * len(PAGES) * len(HOOKS))
    return [*table, Row("driven clock against real processes", note=why)] if why else table


def main() -> int:
    """Run alone."""
    parser = alone(__doc__)
    parser.add_argument("--removals", type=int, default=REMOVALS, help="on the driven clock")
    parser.add_argument("--real", type=int, default=REAL, help="how many of these with real processes too")
    options = parser.parse_args()
    if options.real and shutil.which("curl") is None:
        parser.error("the grep loop needs curl: apt-get install it, or --real 0")
    return show(beside(options.removals, options.real, at_once=options.real), check=options.check)


if __name__ == "__main__":
    sys.exit(main())
