"""What a listener may do to a drain, and what has to come of it: one table for every form of the drain.

Each form runs the same rows: in process on a driven clock (tests/drain/test_matrix.py), the built zip application, and
the sidecar's `/drain`. A row serves itself on a real socket, and checks a report.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from infscale.drain.report import DrainReport

from ..certs import Certs
from ..raw_server import Call, raw_server

PAGES = Path(__file__).parent.parent / "data" / "pages"
LIMIT_BYTES = 8 * 2**20
SETTLE_S, INTERVAL_S, READ_S, RESERVE_S, LATEST_S = 5.0, 1.0, 2.0, 5.0, 3.0

Answer = Callable[[Call], object]


def page(running: object = 0, waiting: object = 0, generated: int | None = 500) -> bytes:
    """A vLLM page with these values."""
    lines = [f"vllm:num_requests_running {running}", f"vllm:num_requests_waiting {waiting}"]
    lines += [] if generated is None else [f"vllm:generation_tokens_total {generated}"]
    return "\n".join([*lines, ""]).encode()


IDLE, BUSY = page(), page(running=3)


@dataclass(frozen=True)
class Row:
    """One listener.

    Attributes:
        name: of the row.
        answer: what it does with each connection; None: nothing listens.
        outcome: how the drain has to end.
        reads: how many reads that takes; 0: it is held to its deadline.
        read_s: how long each read takes: READ_S for those that never end by themselves.
        certificate: of `Certs`, for a listener that speaks TLS.
        scheme: of the URL, where it is not the listener's.
        count: the field of the report that says what was wrong with each read; empty for none.
        inflight: what the report has to say of it; -1: anything.
        heavy: megabytes per read: not for hundreds of reads.
        reads_request: the listener waits for a request before it does its thing.
    """

    name: str
    answer: Answer | None
    outcome: str
    reads: int = 0
    read_s: float = 0.0
    certificate: str = ""
    scheme: str = ""
    count: str = ""
    inflight: float | None = -1
    heavy: bool = False
    reads_request: bool = True

    @contextlib.contextmanager
    def serve(self, certs: Certs | None = None) -> Iterator[str]:
        """The row's listener for as long as the block lasts; gives its URL. A row with a certificate needs some."""
        if self.answer is None:
            with socket.socket() as bound:  # bound and not listening: refused, and nobody else can take the port
                bound.bind(("127.0.0.1", 0))
                yield f"http://127.0.0.1:{bound.getsockname()[1]}/metrics"
            return
        tls = getattr(certs, self.certificate).server_context() if self.certificate else None
        with raw_server(self.answer, tls=tls, read_request=self.reads_request) as server:
            scheme, _, rest = server.url().partition("://")
            yield f"{self.scheme or scheme}://{rest}"

    def expected_reads(self, grace_s: float) -> int:
        """How many reads the drain makes when nothing else takes time."""
        if self.reads:
            return self.reads
        at_s, reads = SETTLE_S, 0
        while at_s < grace_s - RESERVE_S:
            reads += 1
            at_s += self.read_s + INTERVAL_S
        return reads

    def expected_s(self, grace_s: float) -> tuple[float, float]:
        """When the drain returns: at the earliest, and at the latest when nothing else takes time."""
        if self.reads:
            at_s = SETTLE_S + (self.reads - 1) * INTERVAL_S
            return at_s, at_s + 0.5
        return grace_s - RESERVE_S, grace_s - LATEST_S

    def check(self, report: DrainReport, grace_s: float, *, wall_clock: bool = False) -> None:
        """Hold a report against the row.

        Args:
            report: what came of the drain.
            grace_s: the grace period that it was told.
            wall_clock: a busy machine may have made fewer reads, and taken longer.
        """
        assert report.outcome == self.outcome, report
        reads, (earliest_s, latest_s) = self.expected_reads(grace_s), self.expected_s(grace_s)
        if wall_clock and not self.reads:
            assert min(2, reads) <= report.reads <= reads, report
        else:
            assert report.reads == reads, report
        if wall_clock and self.reads:
            latest_s = grace_s - LATEST_S
        assert earliest_s - 1e-6 <= report.seconds <= latest_s, report
        assert report.deadline_s == grace_s - RESERVE_S
        for field in ("timeouts", "missing", "unusable"):
            assert getattr(report, field) == (report.reads if field == self.count else 0), report
        if self.inflight != -1:
            assert report.inflight == self.inflight, report


def serving(*bodies: bytes) -> Answer:
    """Answers with the bodies in turn, then with the last again and again."""

    def answer(call: Call) -> None:
        call.page(bodies[min(call.number, len(bodies) - 1)])

    return answer


def in_turn(*answers: Answer) -> Answer:
    """Does one thing after the other, then the last again and again."""
    return lambda call: answers[min(call.number, len(answers) - 1)](call)


def status(line: str, *headers: str) -> Answer:
    """Answers with an HTTP status."""
    return lambda call: call.page(b'{"error": "no"}', *headers, status=line)


def reset(call: Call) -> None:
    """Ends the connection with RST."""
    call.reset()


def hang(call: Call) -> None:
    """Takes the request and says nothing."""
    call.hang()


def _drip(call: Call) -> None:
    call.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(IDLE))
    call.drip(IDLE, 0.5)


def _drip_head(call: Call) -> None:
    call.drip(b"HTTP/1.1 200 OK\r\nX-Slow: " + b"x" * 500, 0.5)


def _endless(call: Call) -> None:
    call.send(b"HTTP/1.1 200 OK\r\n\r\n", IDLE)
    call.forever(b"# an endless page of comments\n" * 2000)


def _reset_in_body(call: Call) -> None:
    call.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", IDLE)
    call.reset()


def _short(call: Call) -> None:
    call.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", IDLE)


def _elsewhere(call: Call) -> None:
    call.page(b"", "Location: http://192.0.2.1:8000/metrics", status="302 Found")


def _moved_here(call: Call) -> None:
    if call.path == "/metrics":
        call.page(b"", "Location: /metrics/", status="307 Temporary Redirect")
    else:
        call.page(IDLE)


def _bad_request(call: Call) -> None:
    call.page(b"", status="400 Bad Request")


def _over_limit(call: Call) -> None:
    """The limit falls between the ranks' label sets: those before it are at 0, one behind it is not."""
    line = 'vllm:num_requests_running{engine="%d"} %d\n'
    head = b"vllm:num_requests_waiting 0\n"
    filling = b"# filling\n" * ((LIMIT_BYTES - len(head) - 200) // 10)
    ranks = "".join(line % (rank, rank == 9) for rank in range(10)).encode()
    call.send(b"HTTP/1.1 200 OK\r\n\r\n", head, filling, ranks)


def _ranks(*running: int) -> bytes:
    lines = [f'vllm:num_requests_running{{engine="{rank}"}} {value}' for rank, value in enumerate(running)]
    return ("\n".join(lines) + "\nvllm:num_requests_waiting 0\n").encode()


_SPELT = (
    '\tvllm:num_requests_running\t{ model_name = "a}b{c d\\"e\\\\" , }\t 0.0 1700000000000 \n'
    ' vllm:num_requests_waiting{model_name="a}b{c d\\"e\\\\"} 0e0\n'
)
_HTML = b"<!doctype html><html><body>vllm:num_requests_running 0</body></html>"
_BY_REASON = IDLE + b'vllm:num_requests_waiting_by_reason{reason="capacity"} 7\n'

ROWS: Sequence[Row] = (
    Row("idle", serving(IDLE), "idle", 2, inflight=0),
    Row("busy then idle", serving(BUSY, BUSY, IDLE), "idle", 4, inflight=0),
    Row("busy, idle, busy, idle, idle", serving(BUSY, IDLE, BUSY, IDLE), "idle", 5, inflight=0),
    Row("never idle", serving(BUSY), "deadline", inflight=3),
    Row("nearly idle", serving(page(running=1e-7)), "deadline", inflight=1e-7),
    Row("a request came and went between", serving(IDLE, page(generated=501)), "idle", 3, inflight=0),
    Row("fresh", serving((PAGES / "vllm-0.33.0-mp-fresh.prom").read_bytes()), "fresh", 2, inflight=0),
    Row("hangs", hang, "deadline", read_s=READ_S, count="timeouts", inflight=None),
    Row("drips", _drip, "deadline", read_s=READ_S, count="timeouts", inflight=None),
    Row("headers that drip", _drip_head, "deadline", read_s=READ_S, count="timeouts", inflight=None),
    Row("endless", _endless, "deadline", inflight=None, heavy=True),
    Row("over the limit in a gauge's label sets", _over_limit, "deadline", inflight=None, heavy=True),
    Row("refuses", None, "refused", 2, inflight=None),
    Row("resets", reset, "deadline", inflight=None),
    Row("resets in the body", _reset_in_body, "deadline", inflight=None),
    Row("short body", _short, "deadline", inflight=None),
    Row("HTTP 401", status("401 Unauthorized"), "http", 2, inflight=None),
    Row("HTTP 404", status("404 Not Found"), "http", 2, inflight=None),
    Row("HTTP 500", status("500 Internal Server Error"), "http", 2, inflight=None),
    Row("HTTP 501", status("501 Not Implemented"), "http", 2, inflight=None),
    Row("HTTP 503", status("503 Service Unavailable"), "http", 2, inflight=None),
    Row("redirects elsewhere", _elsewhere, "http", 2, inflight=None),
    Row("redirects on itself", _moved_here, "idle", 2, inflight=0),
    Row("self-signed TLS", serving(IDLE), "idle", 2, certificate="self_signed", inflight=0),
    Row("expired TLS", serving(IDLE), "idle", 2, certificate="expired", inflight=0),
    Row("TLS for another host", serving(IDLE), "idle", 2, certificate="wrong_host", inflight=0),
    Row("TLS on a plain port", _bad_request, "tls", 2, scheme="https", inflight=None, reads_request=False),
    # The server ends the connection without a word, as uvicorn does: a reset like any other.
    Row("plain HTTP on a TLS port", serving(IDLE), "deadline", certificate="server", scheme="http", inflight=None),
    Row("empty body", serving(b""), "deadline", count="missing", inflight=None),
    Row("HTML with 200", serving(_HTML), "deadline", count="missing", inflight=None),
    Row("no gauges", serving(b"process_cpu_seconds_total 7\n"), "deadline", count="missing", inflight=None),
    Row("one missing", serving(b"vllm:num_requests_running 0\n"), "deadline", count="missing", inflight=None),
    Row("no value", serving(page(waiting="")), "deadline", count="unusable", inflight=None),
    Row("no number", serving(page(waiting="none")), "deadline", count="unusable", inflight=None),
    Row("NaN", serving(page(running="NaN")), "deadline", count="unusable", inflight=None),
    Row("Inf", serving(page(waiting="+Inf")), "deadline", count="unusable", inflight=None),
    Row("-1 beside +1", serving(_ranks(-1, 1)), "deadline", count="unusable", inflight=None),
    Row("not UTF-8", serving(IDLE + b"# \xff\n"), "deadline", count="unusable", inflight=None),
    Row("two ranks, one busy", serving(_ranks(0, 2)), "deadline", inflight=2),
    Row("two ranks, both idle", serving(_ranks(0, 0)), "idle", 2, inflight=0),
    Row("a name with a common prefix", serving(_BY_REASON), "idle", 2, inflight=0),
    Row("unusual spelling", serving(_SPELT.encode()), "idle", 2, inflight=0),
    Row("tabs", serving(IDLE.replace(b" ", b"\t")), "idle", 2, inflight=0),
    Row("CRLF", serving(IDLE.replace(b"\n", b"\r\n")), "idle", 2, inflight=0),
    Row("one 500 between idle reads", in_turn(serving(IDLE), status("500 Oops"), serving(IDLE)), "idle", 4, inflight=0),
    Row("one reset between idle reads", in_turn(serving(IDLE), reset, serving(IDLE)), "idle", 4, inflight=0),
)

BY_NAME = {row.name: row for row in ROWS}

WALL_CLOCK = tuple(BY_NAME[name] for name in ("idle", "hangs", "drips", "headers that drip", "endless", "refuses"))
"""The rows for a form that cannot drive its clock, where not all will do."""
