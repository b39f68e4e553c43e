"""`/drain` and `/drain/report` of the kubelet listener: the sidecar drains the engines beside it for whoever asks.

Kubelet calls the first as an HTTP preStop hook (`preStop.httpGet`), ignores the status, never cancels, and brings no
credentials; so the answer comes when the engines are idle or the sidecar's own grace period leaves no more time. To ask
is harmless: nothing is ended and nothing is marked. The exec form of the hook posts to the second when it starts and
when it has ended, so that both forms show in the same metrics. `infscale.cli.sidecar` wires it.
"""

from __future__ import annotations

import ipaddress
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from infscale.drain.ledger import Beside, Ledger, Left
from infscale.drain.mark import TerminationMark
from infscale.drain.report import MAX_NOTE_CHARACTERS, MAX_REPORT_BYTES, DrainReport
from infscale.drain.run import ReadNote, drain
from infscale.drain.timeline import INTERVAL_S, READ_S
from infscale.drain.together import combined, drain_together
from infscale.drain.waiting import MAX_CALLERS, TOGETHER_S, TooManyError, WaitingRoom
from infscale.engines.profile import Profile
from infscale.errors import ConfigError
from infscale.metrics.drains import DrainCounters
from infscale.reading import ReadFailure, Reading
from infscale.web.message import Request, Response, text_response
from infscale.web.routes import Router

HTTP_GET, EXEC = "httpGet", "exec"
LEFT, TIME_IS_UP = "engine left", "time is up"

_RESTART = "no Pod-termination mark: a restart of the container, the Pod stays"


class DrainEndpoint:
    """The drains of one Pod.

    Args:
        engines: at least one; their options are checked and have one grace period.
        mark: the Pod-termination mark.
        counters: what adds up over the drains.
        clock: monotonic seconds.
        sleep: waits for so many seconds, where the sidecar's own hook waits.
    """

    def __init__(
        self,
        engines: Sequence[Beside],
        mark: TerminationMark,
        counters: DrainCounters,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._engines = tuple(engines)
        self._mark, self._clock, self._sleep = mark, clock, sleep
        self._schedule = engines[0].options.schedule
        self._ledger = Ledger(counters, clock)
        self._room = WaitingRoom(self._drain, self._schedule, clock)
        self._exec_until_s = -math.inf  # an exec hook is at work until then, unless it says earlier that it is not

    def look_for(self, profiles: tuple[Profile, ...]) -> None:
        """Look for these engines in the drains that begin from now on (a reload)."""
        self._engines = tuple(replace(engine, profiles=profiles) for engine in self._engines)

    def add_routes(self, router: Router) -> None:
        """Add both paths to the kubelet listener's router."""
        router.add("/drain", self._answer)
        router.add("/drain/report", self._take_report, methods=("POST",))

    def wait_until_left(self) -> str:
        """Block until nothing listens on the engines' ports and no drain is under way; why it came back.

        For the sidecar's own preStop where it would be ended beside its engine: at most until the instant at which a
        drain that began with the mark would return.
        """
        if self._mark.age_s() < TOGETHER_S:
            self._sleep(TOGETHER_S)  # the engine's hook may be a little later
        refused = 0
        while (left_s := self._schedule.return_s - self._mark.age_s()) > 0:
            at_work = self._room.running or self._clock() < self._exec_until_s
            refused = 0 if at_work or not self._all_refuse() else refused + 1
            if refused == 2:  # one refusal never ends a wait
                return LEFT
            self._sleep(min(INTERVAL_S, left_s))
        return TIME_IS_UP

    def _all_refuse(self) -> bool:
        found = [engine.read(READ_S) for engine in self._engines]
        return all(isinstance(each, ReadFailure) and each.reason == "refused" for each in found)

    def _answer(self, request: Request) -> Response:
        """`GET /drain`."""
        self._ledger.began(HTTP_GET, request.client)
        try:
            report = self._room.wait(request.client)
        except TooManyError:
            self._ledger.turned_away(request.client)
            return text_response(503, f"{MAX_CALLERS} callers wait for the drain already", {"Retry-After": "1"})
        if report is None:
            return text_response(500, "the drain failed; the log of this process says more")
        # Anybody may ask: whoever is not in this Pod learns how it ended, and no more. Kubelet reads none of it.
        told = report.to_json() if _is_loopback(request.client) else json.dumps({"outcome": report.outcome})
        return Response(body=f"{told}\n".encode(), content_type="application/json")

    def _drain(self, start_s: float) -> DrainReport:
        """One drain of all engines, that began at `start_s`."""
        readings: dict[int, Reading] = {}
        drains = [self._one(index, start_s, readings) for index in range(len(self._engines))]
        reports = drain_together(drains, self._clock)
        report = combined(reports)
        if self._mark.settable and not self._mark.is_set():
            # The sidecar's own preStop runs at the same time as the engine's or, in a restart, not at all.
            report = replace(report, note="; ".join(filter(None, (_RESTART, report.note)))[:MAX_NOTE_CHARACTERS])
        left = [
            Left(engine, each.inflight or 0.0, readings.get(index))
            for index, (engine, each) in enumerate(zip(self._engines, reports, strict=True))
        ]
        self._ledger.ended(report, HTTP_GET, left)
        return report

    def _one(self, index: int, start_s: float, readings: dict[int, Reading]) -> Callable[[], DrainReport]:
        """The drain of one engine, which leaves its last reading in `readings`."""
        engine = self._engines[index]

        def remember(note: ReadNote) -> None:
            """Keep the last reading: whoever is cut in the end was in it."""
            if note.verdict.reading is not None:
                readings[index] = note.verdict.reading

        return lambda: drain(
            engine.options,
            profile=engine.profile(),
            profiles=engine.profiles,
            clock=_from(start_s, self._clock),
            on_read=remember,
        )

    def _take_report(self, request: Request) -> Response:
        """`POST /drain/report`: from a hook in this Pod, and from nobody else."""
        if not _is_loopback(request.client):
            return text_response(403, "reports are taken from this Pod alone: post to 127.0.0.1")
        if len(request.body) > MAX_REPORT_BYTES:
            return text_response(413, f"a report of {len(request.body)} bytes: expected at most {MAX_REPORT_BYTES}")
        if _says_started(request.body):
            self._exec_until_s = self._clock() + self._schedule.return_s
            self._ledger.began(EXEC, request.client)
            return text_response(200, "taken")
        try:
            report = DrainReport.from_json(request.body, source="/drain/report")
        except ConfigError as error:
            return text_response(400, str(error))
        self._exec_until_s = -math.inf
        # Of several engines the report is about one, and does not say which: each is looked at.
        inflight = report.inflight or 0.0 if len(self._engines) == 1 else 0.0
        self._ledger.ended(report, EXEC, [Left(engine, inflight) for engine in self._engines])
        return text_response(200, "taken")


def _from(start_s: float, clock: Callable[[], float]) -> Callable[[], float]:
    """A clock whose first reading is `start_s`: that of a drain which began before."""
    first = [start_s]
    return lambda: first.pop() if first else clock()


def _is_loopback(client: str) -> bool:
    try:
        return ipaddress.ip_address(client).is_loopback
    except ValueError:
        return False


def _says_started(body: bytes) -> bool:
    """Whether a hook says that it has started, or else the report follows."""
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        return False
    return isinstance(told, dict) and told.get("event") == "started"
