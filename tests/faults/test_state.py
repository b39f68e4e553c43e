"""What a recommender remembers: a disk that is full or read-only, a clock that jumps, signals at any point."""

from __future__ import annotations

import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from infscale.core.grammar import parse_policy
from infscale.core.replicas import Fleet, Phase, Replica
from infscale.evaluator import Evaluator
from infscale.fleet.source import WorkloadName
from infscale.state_file import read_state
from tests.faults.rig import COUNTED, POLICY, SLOW_LOOK, asked_since, assert_holds, is_well, told
from tests.faults.signals import recommenders, strike
from tests.recommender_process import QUICK, Recommender
from tests.sidecar_process import LONG_S, Process

UNPRIVILEGED = Path(__file__).parent / "unprivileged.py"


class Ordinary(Recommender):
    """A recommender that no file mode lets through, whoever runs the tests."""

    def __init__(self, *arguments: str) -> None:
        self.program = (str(UNPRIVILEGED), "infscale", "recommender")
        Process.__init__(self, *QUICK, *arguments)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where the state is kept."""
    path = tmp_path / "state"
    path.mkdir()
    yield path
    path.chmod(0o755)


@pytest.fixture
def keeping(pair, folder) -> Iterator[Recommender]:
    """A recommender that keeps its state."""
    with Ordinary(pair.static, *COUNTED, POLICY, SLOW_LOOK, f"--state={folder / 'state.json'}") as found:
        yield found


def full(recommender: Recommender, folder: Path) -> None:
    """No byte more may be written by the process."""
    _, hard = resource.prlimit(recommender.popen.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(recommender.popen.pid, resource.RLIMIT_FSIZE, (1, hard))


def read_only(recommender: Recommender, folder: Path) -> None:
    """No file may be made in the folder."""
    folder.chmod(0o555)


def well(recommender: Recommender, folder: Path) -> None:
    """There is room, and it may be used."""
    _, hard = resource.prlimit(recommender.popen.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(recommender.popen.pid, resource.RLIMIT_FSIZE, (hard, hard))
    folder.chmod(0o755)


@pytest.mark.parametrize(
    ("begin", "said"),
    [(full, "cannot be written: File too large"), (read_only, "cannot be written: Permission denied")],
    ids=["full", "read-only"],
)
def test_disk(keeping, folder, begin, said):
    """The old state stays whole, the message says why it is not kept, decisions go on, and it is kept again."""
    path = folder / "state.json"
    keeping.until(is_well)
    began_s, lines = time.time(), len(keeping.log)
    begin(keeping, folder)
    found = keeping.until(lambda one: said in one["message"])
    assert found["message"].startswith(f"the state is not kept: {path}: ")
    assert told(keeping, lines, "level=warn msg=decision", "desired=2", "the state is not kept")
    kept = path.read_bytes()
    keeping.evaluations(2)
    assert_holds(keeping, silent=0)
    assert path.read_bytes() == kept
    assert read_state(path, time.time()).state.evaluated_s is not None
    well(keeping, folder)
    found = keeping.until(lambda one: not one["message"])
    assert (read_state(path, time.time()).state.evaluated_s or 0.0) >= found["evaluated_at"] > began_s
    assert os.listdir(folder) == ["state.json"]
    assert asked_since(keeping, began_s) == {2}


def test_disk_that_is_read_only_at_the_start(pair, folder):
    """Told at once, in one line and with exit code 2: a state that is never kept would be missed at a restart only."""
    flags = (pair.static, *COUNTED, POLICY, f"--state={folder / 'state.json'}")
    folder.chmod(0o555)
    command = [sys.executable, str(UNPRIVILEGED), "infscale", "recommender", *flags]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONG_S, env=environment, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith(f"infscale: {folder / 'state.json'}: cannot be written: Permission")
    folder.chmod(0o755)
    with Ordinary(*flags) as found:
        found.until(is_well)


class Two:
    """Two replicas with 4 requests each, of which one may be silent."""

    workload = WorkloadName("ml", "vllm")

    def __init__(self) -> None:
        self.silent = False

    def observe(self, now_s: float) -> Fleet:
        """Look."""
        one = Replica("a", Phase.SERVING, running=4.0, waiting=0.0, inflight=4.0, state="ok")
        gone = replace(one, name="b", phase=Phase.SILENT, running=None, waiting=None, inflight=None)
        return Fleet(now_s, 2, replicas=(one, gone if self.silent else replace(one, name="b")))

    def names(self) -> tuple[str, ...]:
        """Nobody else."""
        return ()

    def close(self) -> None:
        """Nothing."""


@pytest.mark.parametrize("seed", range(5))
def test_clock_that_jumps(tmp_path, seed):
    """By up to a day either way, also across a restart: no evaluation asks for fewer, and the state stays readable."""
    rng, now_s = random.Random(seed), [1_800_000_000.0]
    policy, path, source = parse_policy("queue:4,max=20,downwindow=0"), tmp_path / "state.json", Two()

    def started() -> Evaluator:
        return Evaluator(source, policy, state_path=path, wall_clock=lambda: now_s[0])

    evaluator = started()
    for _ in range(60):
        now_s[0] += rng.choice([15.0, 15.0, 15.0, rng.uniform(-86400, 86400)])
        source.silent = rng.random() < 0.4
        if rng.random() < 0.1:
            evaluator = started()
        view = evaluator.evaluate()
        assert (view.recommended, view.message) == (2, "")
        assert view.evaluated_at_s == now_s[0]
        assert read_state(path, now_s[0]).dropped == 0


def test_signals_at_random_points(pair, tmp_path):
    """50 times SIGTERM, SIGKILL or SIGHUP: the state is always readable, never older than what was published.

    Two stay asked for all the time. What SIGHUP reads is wrong at times: that is told, the former policy goes on.
    """
    with recommenders(tmp_path, pair.static) as found:
        counted = strike(found, 50, seed=random.Random(os.urandom(8)).randrange(10**6))
        log = "".join(found.log)
    assert counted.total() == 50
    assert "Traceback" not in log
    assert "moved to" not in log
    assert "evaluation failed" not in log
    assert counted["HUP"] < 5 or "configuration" in log
    left = {path.name for path in tmp_path.iterdir()} - {"state.json", "infscale.yaml", "infscale.new"}
    assert len(left) <= 1, left  # what a kill in the middle of the last write left; the next start takes it away


def test_leftovers_of_a_kill_are_taken_away(pair, folder):
    """A write that was killed half way leaves a temporary file, which would add up over a crash loop."""
    left = folder / ".state.json.abc123.tmp"
    left.write_text("{")
    other = folder / ".other.json.abc123.tmp"
    other.write_text("{")
    with Recommender(pair.static, *COUNTED, POLICY, SLOW_LOOK, f"--state={folder / 'state.json'}") as found:
        found.until(is_well)
        assert sorted(os.listdir(folder)) == [other.name, "state.json"]
