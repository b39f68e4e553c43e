"""One drain, carried out: settle, read, wait, until nothing is in flight or the grace period says so.

    report = drain(DrainOptions("http://127.0.0.1:8000/metrics", grace_s=120))

What to do next is `infscale.drain.timeline`, what a read says `infscale.drain.verdict`; here are the clock, the reads
and the tally. Called by the preStop hook, the sidecar's `/drain` and `infscale drain`.

Runs on Python 3.9 (it travels in the drain bundle).
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Callable, List, Optional, Tuple, Union

from infscale import scrape
from infscale.drain.connections import Clients, Connections
from infscale.drain.options import RETURN, DrainOptions
from infscale.drain.report import MAX_NOTE_CHARACTERS, DrainReport
from infscale.drain.timeline import DEADLINE, Done, Timeline, Wait
from infscale.drain.verdict import BUSY, MISSING, TIMEOUT, UNMEASURED, UNUSABLE, Verdict, judge
from infscale.engines import PROFILES
from infscale.engines.profile import Profile
from infscale.reading import Reading
from infscale.scrape import Page, ScrapeFailure, Target
from infscale.scrape_url import split_url

SLOWEST_PARSE_BYTES_PER_S = 1_000_000
"""What a page may take to be parsed at worst: legal lines of an unusual spelling, read on Python 3.9, take 0.5 s per
megabyte, and a container's CPU limit may double that. A page that may be late is parsed on a thread that is not waited
for."""

Looker = Callable[[], Optional[Clients]]
Answer = Union[Page, ScrapeFailure]


@dataclass(frozen=True)
class ReadNote:
    """One read, for whoever watches a drain.

    Attributes:
        number: of the read, from 1.
        at_s: when it ended, in seconds since the drain's start.
        verdict: what it says.
    """

    number: int
    at_s: float
    verdict: Verdict


def drain(
    options: DrainOptions,
    *,
    profile: Optional[Profile] = None,
    profiles: Optional[Tuple[Profile, ...]] = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
    fetch: Callable[..., Answer] = scrape.fetch,
    connections: Optional[Looker] = None,
    on_read: Optional[Callable[[ReadNote], object]] = None,
) -> DrainReport:
    """Waits until the engine has nothing in flight, at most until the exit reserve begins, and says what came of it.

    Args:
        options: what the drain is told; checked by the caller (`DrainOptions.check`).
        profile: the engine; None: the one that the options name, else found from its page.
        profiles: the engines to look for; None: the built-in ones.
        clock: monotonic seconds; its first value is the drain's start.
        sleep: waits for so many seconds.
        fetch: makes one read (`infscale.scrape.fetch`), all of it in `timeout_s`.
        connections: looks at the engine's clients; None: the kernel's tables, where the options want them.
        on_read: is told of each read.

    Raises:
        UsageError: the engine that the options name is unknown.
    """
    start_s = clock()
    schedule = options.schedule
    timeline = Timeline(
        schedule, http_error_returns=options.on_http_error == RETURN, stale_after_s=options.stale_after_s
    )
    reader = _Reader(options, profile or options.profile(profiles), profiles, fetch, connections or _looker(options))
    tally = _Tally()
    step = timeline.next(clock() - start_s)
    while not isinstance(step, Done):
        if isinstance(step, Wait):
            sleep(step.seconds)
            step = timeline.next(clock() - start_s)
            continue
        verdict = reader.read(step.budget_s)
        now_s = clock() - start_s
        tally.add(verdict)
        if on_read is not None:
            on_read(ReadNote(tally.reads, now_s, verdict))
        step = timeline.next(now_s, verdict)
    engine = reader.profile.name if reader.profile is not None else options.engine
    return _report(options, step.outcome, clock() - start_s, tally, engine)


def _looker(options: DrainOptions) -> Looker:
    """Looks at the connections where that was asked for, and by itself where the engine is beside us."""
    wanted = options.local if options.connections is None else options.connections
    return Connections(split_url(options.page_url).port) if wanted else lambda: None


class _Reader:
    """Makes the reads of one drain, and remembers the engine."""

    def __init__(
        self,
        options: DrainOptions,
        profile: Optional[Profile],
        profiles: Optional[Tuple[Profile, ...]],
        fetch: Callable[..., Answer],
        look: Looker,
    ) -> None:
        # Nothing is told to the engine but a token; without one, or to oneself, any certificate will do.
        unverified = options.local or options.token_file is None
        self._target = Target(options.page_url, token_file=options.token_file, insecure_skip_verify=unverified)
        self._source = split_url(options.page_url).place
        self._profiles = tuple(PROFILES.values()) if profiles is None else profiles
        self._fetch, self._look = fetch, look
        self._reading: Optional[Reading] = None
        self.profile = profile

    def read(self, budget_s: float) -> Verdict:
        """One read, in at most `budget_s` seconds."""
        answer = self._fetch(self._target, timeout_s=budget_s)
        clients = self._look()
        verdict = self._judge(answer, clients, budget_s - answer.duration_s)
        if verdict.reading is not None:
            self._reading = verdict.reading
            engine = verdict.reading.engine
            self.profile = self.profile or next(p for p in self._profiles if p.name == engine)
        return verdict

    def _judge(self, answer: Answer, clients: Optional[Clients], left_s: float) -> Verdict:
        """The verdict, in `left_s` seconds; without one by then the read timed out."""
        found: List[Verdict] = []

        def work() -> None:
            """Judge the page on a thread of its own, which may be left behind."""
            found.append(
                judge(
                    answer,
                    source=self._source,
                    profile=self.profile,
                    profiles=self._profiles,
                    clients=clients,
                    before=self._reading,
                )
            )

        size = len(answer.body) if isinstance(answer, Page) else 0
        if size <= max(0.0, left_s) * SLOWEST_PARSE_BYTES_PER_S:
            work()
        else:
            thread = threading.Thread(target=work, name="parse", daemon=True)
            thread.start()
            thread.join(max(0.0, left_s))
        if found:
            return found[0]
        why = f"{self._source}: a page of {size} bytes, which could not be parsed in time"
        return Verdict(BUSY, why, fault=TIMEOUT, clients=clients, answered=True)


class _Tally:
    """What adds up over the reads; of them only the last is kept, for there may be thousands."""

    def __init__(self) -> None:
        self.reads = 0
        self.busy_reads = 0
        self.faults = {TIMEOUT: 0, MISSING: 0, UNUSABLE: 0}
        self.inflight: Optional[float] = None
        self.restarted = False
        self.last: Optional[Verdict] = None

    def add(self, verdict: Verdict) -> None:
        """Counts one read."""
        self.reads += 1
        self.busy_reads += verdict.kind == BUSY
        if verdict.fault:
            self.faults[verdict.fault] += 1
        if verdict.reading is not None:
            self.inflight = verdict.reading.inflight
        self.restarted = self.restarted or verdict.restarted
        self.last = verdict


def _report(options: DrainOptions, outcome: str, seconds: float, tally: _Tally, engine: str) -> DrainReport:
    clients = None if tally.last is None else tally.last.clients
    return DrainReport(
        outcome=outcome,
        seconds=seconds,
        reads=tally.reads,
        busy_reads=tally.busy_reads,
        timeouts=tally.faults[TIMEOUT],
        missing=tally.faults[MISSING],
        unusable=tally.faults[UNUSABLE],
        inflight=tally.inflight,
        connections=None if clients is None else clients.established,
        grace_s=options.effective_grace_s,
        deadline_s=options.schedule.last_read_s,
        engine=engine,
        restarted=tally.restarted,
        note=_note(options, outcome, tally.last)[:MAX_NOTE_CHARACTERS],
    )


def _note(options: DrainOptions, outcome: str, last: Optional[Verdict]) -> str:
    """What a person should know beyond the numbers."""
    if last is None:
        return f"a grace period of {options.effective_grace_s:g} s leaves no time to read the engine"
    why = last.why
    if outcome in UNMEASURED and last.clients is None:
        return f"{why}; clients' connections cannot be seen, so it returned"
    if outcome == "refused":
        return f"{why}: only the settle time was waited for; was the engine moved by its own --port?"
    if outcome == DEADLINE and not why and last.reading is not None:
        return f"{last.reading.inflight:g} request(s) still in flight"
    return why
