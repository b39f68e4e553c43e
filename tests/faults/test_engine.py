"""An engine that goes wrong: what its sidecar shows, that nothing scales down on it, that it heals by itself."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.rig import POLICY, Engine, asked_since, assert_holds, is_well, published, told, until
from tests.raw_server import Call
from tests.sidecar_process import LONG_S, Process

INFLIGHT = "infscale_inflight_requests"
RECOMMENDED = 'infscale_recommended_replicas{workload="vllm",workload_namespace="ml"}'
ENGINE = Path(__file__).parent / "engine.py"


def answering(make: Callable[[Engine], bytes], status: str = "200 OK") -> Callable[[Engine], None]:
    """A fault: it answers with this page."""

    def begin(engine: Engine) -> None:
        engine.answer = lambda call: call.page(make(engine), status=status)

    return begin


def doing(does: Callable[[Engine, Call], object]) -> Callable[[Engine], None]:
    """A fault: it does this with a connection."""

    def begin(engine: Engine) -> None:
        engine.answer = lambda call: does(engine, call)

    return begin


def half(engine: Engine, call: Call) -> None:
    """The page breaks off."""
    page = engine.page()
    call.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(page), page[: len(page) // 2])


def drip(_: Engine, call: Call) -> None:
    """A header that takes for ever."""
    call.drip(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 1000, 0.05)


def renamed(engine: Engine) -> bytes:
    """Its next version calls the gauges otherwise."""
    return engine.page().replace(b"num_requests_running", b"requests_active").replace(b"num_requests_waiting", b"queue")


def without(name: bytes) -> Callable[[Engine], bytes]:
    """A page that lacks a series."""
    return lambda engine: b"".join(line for line in engine.page().splitlines(keepends=True) if name not in line)


def instead(old: bytes, new: bytes) -> Callable[[Engine], bytes]:
    """A page with another number on it."""
    return lambda engine: engine.page().replace(old, new)


RUNNING, WAITING = b'running{model_name="m"} 3', b'waiting{model_name="m"} 1'
FAULTS: dict[str, tuple[Callable[[Engine], None], str, str, str]] = {
    "refuses": (Engine.refuse, "unreachable", "refused", "nothing listens"),
    "resets": (doing(lambda _, call: call.reset()), "unreachable", "reset", "reset"),
    "hangs": (doing(lambda _, call: call.hang()), "saturated", "timeout", "0.6 s"),
    "drips": (doing(drip), "saturated", "timeout", "0.6 s"),
    "breaks off": (doing(half), "unreachable", "reset", "closed"),
    "floods": (
        doing(lambda _, call: call.forever(b"HTTP/1.1 200 OK\r\n\r\n" + b"a 1\n" * 100_000)),
        "unreachable",
        "too_large",
        "larger",
    ),
    "fails": (answering(lambda _: b"oops", "500 Internal Server Error"), "unreachable", "http", "500"),
    "says NaN": (answering(instead(WAITING, WAITING[:-1] + b"NaN")), "unreachable", "unusable", "nan"),
    "says less than nothing": (answering(instead(RUNNING, RUNNING[:-1] + b"-3")), "unreachable", "unusable", "-3"),
    "shows one gauge alone": (answering(without(b"waiting")), "misconfigured", "missing", "num_requests_waiting"),
    "counts and has no gauges": (
        answering(without(b"num_requests")),
        "misconfigured",
        "missing",
        "generation_tokens_total",
    ),
    "changes its names": (answering(renamed), "misconfigured", "missing", "renamed"),
    "is another program": (answering(lambda _: b"<html>hello</html>"), "not_an_engine", "not_metrics", "HTML"),
    "is empty": (answering(lambda _: b""), "not_an_engine", "not_metrics", "empty"),
}
"""What goes wrong; the state, the reason of `infscale_scrape_failures_total` and a word of the message that show it."""


@pytest.mark.parametrize("name", FAULTS)
def test_engine(pair, watching, name):
    """Its state and message say what is wrong, no number is made up, two replicas stay asked for, and it heals."""
    begin, state, reason, word = FAULTS[name]
    engine, sidecar = pair.engines[0], pair.sidecars[0]
    watching.until(is_well)
    failures = f'infscale_scrape_failures_total{{reason="{reason}"}}'
    began_s, before, lines, seen = time.time(), sidecar.values()[failures], len(sidecar.log), len(watching.log)

    begin(engine)
    until(lambda: sidecar.state() == state)
    shown, message = sidecar.values(), sidecar.get("/api/v1/reading").json()["message"]
    silent = state != "saturated"  # a port that accepts is a full engine: its last numbers are held
    watching.until(lambda one: one["replicas"]["silent"] == silent)
    watching.evaluations(2)
    assert_holds(watching, silent=silent)
    engine.heal()

    until(lambda: sidecar.state() == "ok")
    watching.until(is_well)
    assert word in message
    assert any(word in line for line in told(sidecar, lines, 'level=warn msg="engine state"', f"state={state} "))
    assert told(sidecar, lines, 'level=info msg="engine state"', "state=ok ")
    assert not silent or told(watching, seen, 'level=warn msg="replicas silent"', "count=1")
    assert shown[failures] > before
    assert shown["infscale_up"] == 0
    # Of the others there is no number, and no 0.
    assert [value for key, value in shown.items() if key.startswith(INFLIGHT)] == ([] if silent else [4])
    assert asked_since(watching, began_s) == {2}


@pytest.mark.parametrize(
    ("page", "inflight"),
    [
        (lambda engine: engine.page() + b'vllm:num_requests_running{model_name="m"} 0\n', 4),
        (lambda engine: engine.page() + b'sglang:num_running_reqs{model_name="m"} 0\nsglang:num_queue_reqs 0\n', 4),
        (instead(WAITING, WAITING[:-1] + b"1e15"), 1e15),
    ],
    ids=["one series twice", "two engines' names", "a number beyond belief"],
)
def test_engine_that_contradicts_itself(pair, watching, page, inflight):
    """The larger of two numbers counts, and one beyond belief asks for no more than the policy lets it."""
    began_s = time.time()
    answering(page)(pair.engines[0])
    until(lambda: pair.sidecars[0].get("/api/v1/reading").json()["inflight"] >= inflight)
    found = watching.evaluations(2)
    assert found["desired"] == 2 if inflight == 4 else 2 < found["desired"] <= 20
    pair.heal()
    watching.until(is_well)
    assert asked_since(watching, began_s) <= set(range(2, 21))


def test_engine_whose_numbers_stand_still(pair, watching):
    """Requests in flight and no counter that moves: stale, as read, and no scale-down on it; it heals as they move."""
    began_s, engine, lines = time.time(), pair.engines[0], len(pair.sidecars[0].log)
    still = engine.page()
    engine.answer = lambda call: call.page(still)
    until(lambda: pair.sidecars[0].state() == "stale")
    assert pair.sidecars[0].get("/api/v1/reading").json()["inflight"] == 4
    assert told(pair.sidecars[0], lines, "level=warn", "state=stale", "no counter moved")
    watching.evaluations(2)
    assert_holds(watching, silent=0)
    engine.heal()
    until(lambda: pair.sidecars[0].state() == "ok")
    assert asked_since(watching, began_s) == {2}


def test_engine_that_restarts(pair, watching):
    """Refused, then loading, then counters that begin anew: never a 0 before it answers, and its counters go down."""
    watching.until(is_well)
    began_s, engine, sidecar = time.time(), pair.engines[0], pair.sidecars[0]
    lines = len(sidecar.log)
    tokens = 'infscale_generation_tokens_total{model_name="m"}'
    before = sidecar.values()[tokens]
    engine.refuse()
    watching.until(lambda one: one["replicas"]["silent"] == 1)
    loading = answering(lambda _: b'{"error":{"message":"Loading model"}}', "503 Service Unavailable")
    engine.heal()
    loading(engine)
    until(lambda: sidecar.state() == "loading")
    assert told(sidecar, lines, "level=info", "state=loading was=unreachable")
    watching.evaluations(2)
    assert_holds(watching, silent=1)
    assert asked_since(watching, began_s) == {2}
    engine.restart()
    watching.until(is_well)
    assert sidecar.values()[tokens] < before
    assert asked_since(watching, began_s) == {2}


class EngineProcess:
    """An engine that is a process of its own, and can be killed while it answers."""

    def __init__(self, port: int = 0) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, "-S", str(ENGINE), str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"PATH": os.environ["PATH"]},
        )
        self.port = int(self.line())

    def line(self) -> str:
        """What it says next."""
        assert self.popen.stdout is not None
        return self.popen.stdout.readline().strip()

    def stop_half_way(self) -> None:
        """The next answer ends in the middle, and nothing comes any more."""
        assert self.popen.stdin is not None
        self.popen.stdin.write("half\n")
        self.popen.stdin.flush()
        assert self.line() == "half"

    def kill(self) -> None:
        """SIGKILL."""
        self.popen.kill()
        self.popen.wait(LONG_S)
        for pipe in (self.popen.stdin, self.popen.stdout):
            assert pipe is not None
            pipe.close()


@pytest.fixture
def engine() -> Iterator[list[EngineProcess]]:
    """An engine's process; a test may put another in its place."""
    place = [EngineProcess()]
    yield place
    for one in place:
        one.kill()


def test_engine_killed_mid_read(engine):
    """Half a page is none: no number, silent, and the count is held; its successor on the port is read at once."""
    url = f"http://127.0.0.1:{engine[0].port}/metrics"
    fleet = ("--fleet.source=single", "--workload=ml/vllm", "--spec-replicas=2", "--interval=0.2", POLICY)
    with Process("--engine-url", url, "--engine.min-interval=0.001", "--engine.timeout=30", *fleet) as sidecar:
        until(lambda: sidecar.values().get(RECOMMENDED) == 2)
        engine[0].stop_half_way()
        reading = threading.Thread(target=sidecar.values)
        reading.start()
        assert engine[0].line() == "sent half"
        engine[0].kill()
        reading.join(LONG_S)
        found = sidecar.get("/api/v1/reading").json()
        assert (found["state"], found["inflight"]) == ("unreachable", None)
        assert told(sidecar, 0, 'level=warn msg="engine state"', "state=unreachable was=ok")
        until(lambda: published(sidecar, "replicas", state="silent") == 1)
        assert sidecar.values()[RECOMMENDED] == 2
        engine[0] = EngineProcess(engine[0].port)
        until(lambda: sidecar.state() == "ok")
        until(lambda: sidecar.get("/api/v1/recommendation").json()["replicas"]["serving"] == 1)
        history = sidecar.get("/api/v1/recommendation").json()["history"]
        assert {entry["desired"] for entry in history} == {2}
