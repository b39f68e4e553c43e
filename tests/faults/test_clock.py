"""The wall clock of a real process jumps, by up to a day either way: what is shown, what is held, and how it heals."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from infscale.state_file import read_state
from tests.faults import driven_clock
from tests.faults.driven_clock import Offset
from tests.faults.rig import ADDRESSES, COUNTED, SLOW_LOOK, Engine, Pair, assert_holds, is_well, published, told, until
from tests.fleet.dns_server import DnsServer
from tests.recommender_process import QUICK, Recommender
from tests.sidecar_process import Process

DAY_S = 86400.0
JUMPS_S = (90.0, -3600.0, DAY_S, -DAY_S)
WINDOW_S = 2.0
EVALUATED = 'infscale_evaluation_timestamp_seconds{workload="vllm",workload_namespace="ml"}'


class Elsewhen(Recommender):
    """A recommender with a clock of its own."""

    def __init__(self, clock: Path, *arguments: str) -> None:
        self.program = (str(driven_clock.__file__), str(clock), "recommender")
        Process.__init__(self, *QUICK, *arguments)


@pytest.fixture
def clock(tmp_path: Path) -> Iterator[Offset]:
    """How far the clock of the process is ahead."""
    found = Offset.new(tmp_path / "clock")
    yield found
    found.close()


def flags(pair: Pair, folder: Path, window_s: float) -> tuple[str, ...]:
    """Of a recommender that keeps its state."""
    policy = f"--policy=queue:4,max=20,lookahead=60,downwindow={window_s:g}"
    return (pair.static, *COUNTED, SLOW_LOOK, policy, f"--state={folder / 'state.json'}")


def asked(recommender: Recommender) -> set[int | None]:
    """Every count that it ever asked for."""
    return {entry["desired"] for entry in recommender.recommendation()["history"]}


def test_recommender(pair, clock, tmp_path):
    """Each evaluation has the clock's own time, two stay asked for also beside a silent one, the state is kept."""
    with Elsewhen(tmp_path / "clock", *flags(pair, tmp_path, 0)) as found:
        found.until(is_well)
        for jump_s in JUMPS_S:
            clock.seconds += jump_s
            found.until(lambda one: abs(one["evaluated_at"] - time.time() - clock.seconds) < 30)
            found.evaluations(2)
            assert_holds(found, silent=0)
            assert read_state(tmp_path / "state.json", time.time() + clock.seconds + 1).dropped == 0
            pair.engines[0].refuse()
            found.until(lambda one: one["replicas"]["silent"] == 1)
            clock.seconds -= jump_s / 2
            found.evaluations(2)
            assert_holds(found, silent=1)
            pair.heal()
            found.until(is_well)
        assert asked(found) == {2}
        paid_s = published(found, "replica_seconds_total", state="serving")
        assert paid_s is not None
        assert paid_s < DAY_S / 2  # of days that were not lived through nothing is paid
        for engine in pair.engines:
            engine.running, engine.waiting = 1, 0
        found.until(lambda one: one["desired"] == 1)  # it still can fall
        assert "Traceback" not in "".join(found.log)


@pytest.mark.parametrize("jump_s", [DAY_S, -DAY_S])
def test_lost_replica(pair, clock, tmp_path, jump_s):
    """A busy replica is listed no more and the clock jumps: it is missed as before, and two stay asked for."""
    names = DnsServer()
    names.zone["peers.test"] = list(ADDRESSES)
    source = (f"--fleet.source=dns:peers.test:{pair.port}", f"--fleet.dns-server={names.address}", "--fleet.timeout=2")
    with Elsewhen(tmp_path / "clock", *source, *flags(pair, tmp_path, 0)[1:]) as found:
        found.until(is_well)
        names.zone["peers.test"] = [ADDRESSES[0]]
        found.until(lambda one: one["replicas"]["silent"] == 1)
        clock.seconds = jump_s
        found.until(lambda one: abs(one["evaluated_at"] - time.time() - jump_s) < 30)
        found.evaluations(2)
        assert_holds(found, silent=1)
        assert asked(found) == {2}
        names.zone["peers.test"] = list(ADDRESSES)
        found.until(is_well)
    names.close()


@pytest.mark.parametrize("jump_s", [DAY_S, -DAY_S])
def test_window(pair, clock, tmp_path, jump_s):
    """A jump is no time that has passed: a fall waits for its whole window after it, and for no longer."""
    with Elsewhen(tmp_path / "clock", *flags(pair, tmp_path, WINDOW_S)) as found:
        found.until(is_well)
        for engine in pair.engines:
            engine.running, engine.waiting = 1, 0
        clock.seconds += jump_s
        jumped_s = time.monotonic()
        found.until(lambda one: one["desired"] == 1)
        assert time.monotonic() - jumped_s >= WINDOW_S


def test_restart(pair, clock, tmp_path):
    """Started anew on a clock that went back by a day: what lies in the future is dropped and told; two stay asked."""
    path = tmp_path / "state.json"
    clock.seconds = DAY_S
    with Elsewhen(tmp_path / "clock", *flags(pair, tmp_path, 300)) as found:
        found.until(is_well)
        found.popen.send_signal(signal.SIGKILL)
        found.ended()
    clock.seconds = 0.0
    for engine in pair.engines:
        engine.running, engine.waiting = 1, 0
    with Elsewhen(tmp_path / "clock", *flags(pair, tmp_path, 300)) as found:
        assert told(found, 0, "level=warn", 'msg="state file"', "lie in the future")
        found.until(lambda one: one["evaluated_at"])
        found.evaluations(3)
        assert asked(found) == {2}
        assert published(found, "recommended_replicas") == 2
        assert abs((read_state(path, time.time()).state.evaluated_s or 0) - time.time()) < 60


@pytest.mark.parametrize("jump_s", [DAY_S, -DAY_S])
def test_sidecar(clock, tmp_path, jump_s):
    """What it holds of a hung engine may run out, but is never 0; the time of what it shows is the clock's."""

    class Beside(Process):
        program = (str(driven_clock.__file__), str(tmp_path / "clock"), "sidecar")

    engine = Engine()
    engine.running = 7
    flags = ("--engine.min-interval=0.001", "--engine.timeout=0.3", "--fleet.source=single", "--workload=ml/vllm")
    decides = ("--spec-replicas=2", "--policy=queue:4,max=20,downwindow=0", "--interval=0.2")
    with Beside("--engine-url", engine.url, *flags, *decides) as found:
        until(lambda: found.state() == "ok")
        engine.answer = lambda call: call.hang()
        until(lambda: found.state() == "saturated")
        clock.seconds = jump_s
        for _ in range(3):
            shown = found.values()
            assert [value for key, value in shown.items() if key.startswith("infscale_inflight")] in ([], [8])
        until(lambda: abs(found.values().get(EVALUATED, 0.0) - time.time() - jump_s) < 30)
        assert published(found, "recommended_replicas") == 2
        engine.heal()
        until(lambda: found.state() == "ok")
        assert abs(found.values()["infscale_reading_timestamp_seconds"] - time.time() - jump_s) < 30
    engine.refuse()
