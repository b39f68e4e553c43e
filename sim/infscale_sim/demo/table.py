"""What the demo of the loop prints: its head, a line every now and then, news in between, the closing words."""

from __future__ import annotations

from collections import deque

from infscale.core.replicas import Fleet
from infscale.drain.verdict import IDLE
from infscale.metrics.workload import WorkloadView
from infscale_sim.demo.pace import MAX_REPLICAS, SLOTS, TARGET, Pace
from infscale_sim.demo.replicas import Replicas, State
from infscale_sim.demo.screen import BAR_WIDTH, CYAN, GREEN, RED, YELLOW, Screen, clock, count
from infscale_sim.load_record import Record
from infscale_sim.load_run import Runner

FULL_BAR = MAX_REPLICAS * SLOTS
"""Requests in flight."""

_RUNNING = 8
"""Characters for `2 +1 -1`."""
_CUT = ("cut", "closed", "reset")
"""The errors of a request whose engine went away under it."""


class Table:
    """The lines of one demo."""

    def __init__(self, screen: Screen, pace: Pace) -> None:
        self._screen, self._pace = screen, pace
        self._news: deque[str] = deque()

    def head(self, page_port: int, balancer_port: int) -> None:
        """What is seen here, and where to look further."""
        self._screen.say(
            f"Stand-in engines of {SLOTS} slots, a sidecar beside each, and the recommender with the policy "
            f"{self._pace.policy}.\n{self._pace.words()} It takes {self._pace.seconds:.0f} s; Ctrl-C ends it.\n"
            f"The recommender's page: http://127.0.0.1:{page_port}/  "
            f"Load of your own: infscale load http://127.0.0.1:{balancer_port} --concurrency {2 * TARGET}\n"
            "Running: replicas that serve, +N that start, -N that are drained.\n"
        )
        self._screen.say(
            f"{'time':>5}  req/s  {'in flight':<{BAR_WIDTH + 5}}  waiting  recommended  {'running':<{_RUNNING}}  reason"
        )

    def tell(self, text: str) -> None:
        """Note a line of news; it is printed with the next look."""
        self._news.append(text)

    def news(self, elapsed_s: float) -> None:
        """Print the news."""
        while self._news:
            self._screen.say(f"{clock(elapsed_s)}  {self._screen.paint(CYAN, '> ' + self._news.popleft())}")

    def line(
        self, elapsed_s: float, runner: Runner, replicas: Replicas, seen: Fleet | None, view: WorkloadView
    ) -> None:
        """One line: the load as sent, the rest as the recommender saw it last and as the replicas are."""
        waiting = None if seen is None else sum(replica.waiting or 0 for replica in seen.replicas)
        failed = runner.record.errors.total()
        reason = "; ".join(filter(None, (view.reason, view.message)))
        self._screen.say(
            f"{clock(elapsed_s)}  {self._pace.rate_at(elapsed_s):>5.1f}  {self._screen.bar(view.inflight)}"
            f"  {self._painted(waiting)}  {count(view.recommended):>11}  {_running(replicas):<{_RUNNING}}  {reason}"
            + (f"  {self._screen.paint(RED, f'{failed} failed')}" if failed else "")
        )

    def summary(self, elapsed_s: float, record: Record, replicas: Replicas) -> None:
        """The closing words."""
        self.news(elapsed_s)
        failed, cut = record.errors.total(), sum(record.errors[kind] for kind in _CUT)
        asked = f"{record.completed} of {record.sent} requests answered, {failed} failed ({cut} of them cut)"
        if record.unfinished:
            asked += f", {record.unfinished} were under way"
        ttft = (f"p{100 * q:.0f} {_seconds(record.ttft_s.quantile(q))}" for q in (0.5, 0.95, 0.99))
        self._screen.say(f"\n{self._screen.paint(RED if failed else GREEN, asked)}.")
        self._screen.say(f"Time to first token: {', '.join(ttft)}.")
        self._screen.say(
            f"{replicas.replica_s / 60:.1f} replica-minutes; the {replicas.peak} of the peak "
            f"all the time would have been {replicas.always_s / 60:.1f}."
        )
        if reports := replicas.reports:
            idle = sum(report.outcome == IDLE for report in reports)
            longest_s = max(report.seconds for report in reports)
            self._screen.say(
                f"{len(reports)} replicas were drained before SIGTERM, {idle} of them had nothing in flight then; "
                f"the longest drain took {longest_s:.1f} s."
            )

    def _painted(self, waiting: float | None) -> str:
        text = f"{count(waiting):>7}"
        return self._screen.paint(YELLOW, text) if waiting else text


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"


def _running(replicas: Replicas) -> str:
    """`2 +1 -1`: those that serve, that start and that are drained."""
    starting, draining = replicas.count(State.STARTING), replicas.count(State.DRAINING)
    more = (f"+{starting}" if starting else "", f"-{draining}" if draining else "")
    return " ".join(filter(None, (str(replicas.count(State.SERVING)), *more)))
