"""The evaluator on a driven clock: over an API server stand-in, with Pods that follow it and engines in them."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from infscale import logs
from infscale.asked import Asked, settled
from infscale.core.grammar import parse_policy
from infscale.core.memory import ScaleState
from infscale.core.replicas import Fleet, Held
from infscale.core.state import Recommendation, ScaleEvent, State
from infscale.errors import SourceError, StateError
from infscale.evaluator import Evaluator
from infscale.fleet.source import Source, WorkloadName
from infscale.metrics.workload import WorkloadView
from infscale.recommender_answers import load, recommendation, status_of
from infscale.state_file import read_state, write_state
from tests.certs import make_certs
from tests.kube.wire import Fault
from tests.sidecar_process import LONG_S
from tests.town import START_S, Town, address

STEP_S = 15.0
LEASE = "infscale-deployments.apps-vllm"


@pytest.fixture(scope="module")
def certs(tmp_path_factory):
    """Certificates of the API server."""
    return make_certs(tmp_path_factory.mktemp("certs"))


@pytest.fixture
def town(certs, tmp_path) -> Iterator[Town]:
    """A Deployment of three, idle."""
    with Town(tmp_path, certs, 3) as made:
        yield made


def run(town: Town, evaluator: Evaluator, seconds: float) -> list[int | None]:
    """The recommendations of some time, one each 15 s; the clock stands at the last one."""
    found = [evaluator.evaluate().recommended]
    for _ in range(int(seconds // STEP_S)):
        town.now_s += STEP_S
        found.append(evaluator.evaluate().recommended)
    return found


def told(view: WorkloadView, *words: str) -> bool:
    """Whether the message has these words, in one line."""
    return all(word in view.message for word in words) and "\n" not in view.message


def test_burst_hold_fall_window_zero_wake(town):
    """A day of a workload that is scaled: up at once, held for the window, down, to zero and back."""
    held = [0.0]
    policy = "queue:4,min=0,max=8,cooldown=120,downwindow=60"
    evaluator = town.evaluator(policy, applier=town.applier(), held=lambda: Held(held[0]))

    town.load = 32
    assert run(town, evaluator, 15) == [7, 8]  # 3 + 4 within 15 s, then 32 / 4
    assert town.replicas == 8

    town.load = 6
    assert run(town, evaluator, 45) == [8] * 4
    town.now_s += STEP_S
    assert run(town, evaluator, 0) == [2]  # 60 s after the last look that asked for 8
    assert town.replicas == 2

    town.load = 0
    assert run(town, evaluator, 60) == [2, 2, 2, 2, 1]
    assert run(town, evaluator, 60) == [1, 1, 1, 1, 0]  # idle for 120 s
    assert town.replicas == 0
    view = evaluator.evaluate()
    assert (view.inflight, view.demand, view.recommended, view.replicas.spec) == (0, 0, 0, 0)

    held[0] = 9.0
    view = evaluator.evaluate()
    assert (view.recommended, view.reason, view.inflight) == (3, "activate_from_zero", 9)
    assert town.replicas == 3


def test_silent_engines_never_lower_the_count(town):
    """Each number of engines that fall silent, with no window to hide behind: the count stays."""
    town.load = 12
    evaluator = town.evaluator("queue:4,max=8,downwindow=0", applier=town.applier())
    for silent in (0, 1, 2, 3, 1):
        town.quiet = {address(number) for number in range(1, silent + 1)}
        view = evaluator.evaluate()
        town.now_s += STEP_S
        assert (view.recommended, view.replicas.silent) == (3, silent)
        assert view.silent_names == tuple(f"vllm-0000{number}" for number in range(1, silent + 1))
    town.quiet, town.load = set(), 4
    assert evaluator.evaluate().recommended == 1  # what was read does lower it


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (Fault("status", status=503, times=99), "HTTP 503"),
        (Fault("broken", times=99), "not JSON"),
        (Fault("reset", times=99), "cannot be reached"),
        (Fault("status", status=429, times=99), "too busy"),
    ],
    ids=["503", "broken", "reset", "429"],
)
def test_api_that_fails_recommends_nothing_and_says_why(town, fault, says):
    """Without a replica count that was read there is no recommendation, and the answer for KEDA is 503."""
    town.load = 12
    evaluator = town.evaluator("queue:4,max=8", applier=town.applier())
    assert evaluator.evaluate().recommended == 3
    town.now_s += STEP_S
    town.api.faults.append(fault)
    view = evaluator.evaluate()
    assert (view.recommended, view.reason, view.inflight, view.replicas.spec) == (None, "no_samples", None, None)
    assert told(view, says)
    answer = recommendation(view, evaluator.history, town.now_s)
    assert (status_of(answer), answer["desired"], says in answer["error"]) == (503, None, True)
    assert status_of(load(view, town.now_s)) == 503
    fault.times = 0
    town.now_s += STEP_S
    assert evaluator.evaluate().recommended == 3
    assert town.replicas == 3


def test_after_an_outage_the_window_begins_anew(town):
    """The first look after an hour without a count takes nothing away (kubernetes#105187)."""
    town.load = 12
    evaluator = town.evaluator("queue:4,max=8,downwindow=90", applier=town.applier())
    run(town, evaluator, 90)
    town.api.faults.append(Fault("status", status=503, times=9999))
    town.now_s += 3600
    assert evaluator.evaluate().recommended is None
    town.api.faults.clear()
    town.load = 0
    assert run(town, evaluator, 75) == [3] * 6
    town.now_s += STEP_S
    assert evaluator.evaluate().recommended == 1


@pytest.mark.parametrize("gap_s", [60.0, 7200.0])
def test_a_restart_holds_what_the_file_knows(town, tmp_path, gap_s):
    """The state outlives the process; one that is older than the window holds the present count for a window."""
    path = tmp_path / "state.json"
    town.load = 24
    first = town.evaluator("queue:4,max=8", state_path=path)
    assert run(town, first, 30)[-1] == 6
    town.load, town.now_s = 4, town.now_s + gap_s
    second = town.evaluator("queue:4,max=8", state_path=path)
    assert second.evaluate().recommended == (6 if gap_s < 300 else 3)
    assert read_state(path, town.now_s).state.evaluated_s == town.now_s


def test_recommendation_that_is_followed_late_stands(town):
    """What KEDA has not done yet is no change: the count is asked for until it is there, and then counts as one."""
    town.load = 40
    evaluator = town.evaluator("queue:4,max=20,up=2/60")
    assert run(town, evaluator, 45) == [5, 5, 5, 5]
    town.api.change("deployments", "vllm", lambda one: one["spec"].update(replicas=5))
    assert run(town, evaluator, 45) == [5, 5, 5, 5]
    town.now_s += STEP_S
    assert evaluator.evaluate().recommended == 7


def test_change_that_was_refused_is_no_change(town):
    """A conflict costs nothing: the next look decides anew, and the limit of the policy is still whole."""
    town.load = 40
    evaluator = town.evaluator("queue:4,max=20,up=2/60", applier=town.applier())
    town.api.before_write = lambda: town.api.change("deployments", "vllm", lambda one: one.setdefault("x", town.now_s))
    view = evaluator.evaluate()
    assert told(view, "not scaled", "has changed since it was read")
    assert (view.recommended, town.replicas) == (5, 3)
    town.api.before_write = lambda: None
    town.now_s += STEP_S
    assert evaluator.evaluate().message == ""
    assert town.replicas == 5
    town.now_s += STEP_S
    assert evaluator.evaluate().recommended == 5


POLICY = parse_policy("queue:4,max=20,up=2/60,down=1/60")
BEFORE = State((Recommendation(3, 0.0),), (ScaleEvent(1, 0.0),), (ScaleEvent(1, 0.0),), scaled_to_zero=True)


@pytest.mark.parametrize(
    ("desired", "read", "up", "down"),
    [
        (7, 7, (1, 4), (1,)),
        (7, 5, (1, 2), (1,)),
        (7, 3, (1,), (1,)),
        (7, 2, (1,), (1,)),
        (7, 9, (1, 4), (1,)),
        (1, 1, (1,), (1, 2)),
        (1, 2, (1,), (1, 1)),
        (1, 3, (1,), (1,)),
        (1, 5, (1,), (1,)),
    ],
)
def test_as_much_of_a_change_counts_as_was_made(desired, read, up, down):
    """Between nothing and all of it; what went the other way, or further, was another's doing."""
    decided = replace(
        BEFORE,
        scale_up_events=(ScaleEvent(1, 0.0), ScaleEvent(4, 15.0)) if desired > 3 else BEFORE.scale_up_events,
        scale_down_events=(ScaleEvent(1, 0.0), ScaleEvent(2, 15.0)) if desired < 3 else BEFORE.scale_down_events,
    )
    state = settled(POLICY, ScaleState(hpa=decided), Asked(BEFORE, 15.0, 3, desired), read).hpa
    assert tuple(event.change for event in state.scale_up_events) == up
    assert tuple(event.change for event in state.scale_down_events) == down
    assert state.recommendations == BEFORE.recommendations


def test_without_a_gap_the_log_stays(town):
    """An interval longer than the window is no gap: a fall still falls."""
    town.load = 12
    evaluator = town.evaluator("queue:4,max=8,downwindow=10", interval_s=STEP_S)
    assert evaluator.evaluate().recommended == 3
    town.load = 4
    town.now_s += STEP_S
    assert evaluator.evaluate().recommended == 1


def test_plain_policies_are_the_hpas(town):
    """With `hpa:` nothing is added, not even after a gap."""
    town.load = 12
    evaluator = town.evaluator("hpa:queue:4,max=8,downwindow=300")
    evaluator.evaluate()
    town.load = 4
    town.now_s += 3600
    assert evaluator.evaluate().recommended == 1


def test_unknown_held_requests_hold_the_count(town):
    """An activator that does not answer is not 0 requests."""
    town.load = 0
    evaluator = town.evaluator("queue:4,min=0,max=8,cooldown=30,downwindow=0", held=lambda: Held(None))
    assert run(town, evaluator, 60)[-1] == 3
    assert evaluator.view().held is None
    assert evaluator.view().reason == "partial_samples"


class Broken(Source):
    """A source that breaks what `Source` promises; a real one cannot be made to."""

    def __init__(self, source: Source, error: Exception | None) -> None:
        self._source, self.error = source, error

    @property
    def workload(self) -> WorkloadName:
        """The source's."""
        return self._source.workload

    def observe(self, now_s: float) -> Fleet:
        """Look, or raise."""
        if self.error is not None:
            raise self.error
        return self._source.observe(now_s)

    def names(self) -> tuple[str, ...]:
        """None."""
        return ()

    def close(self) -> None:
        """Close the source."""
        self._source.close()


@pytest.mark.parametrize("error", [SourceError("the moon is full"), ZeroDivisionError("division\nby zero")])
def test_failed_evaluation_is_shown_and_its_time_stands_still(town, capsys, error):
    """The last numbers stay with their time, the reason is `error`, the log has one line, and the next one works."""
    logs.setup()
    town.load = 12
    source = Broken(town.source(), None)
    evaluator = Evaluator(source, parse_policy("queue:4,max=8"), wall_clock=town.clock)
    evaluator.turn()
    source.error = error
    capsys.readouterr()
    town.now_s += STEP_S
    evaluator.turn()
    view, out = evaluator.view(), capsys.readouterr()
    assert (view.reason, view.evaluated_at_s, view.recommended) == ("error", START_S, 3)
    assert told(view, "the evaluation failed", str(error).split("\n")[0])
    assert (out.out, out.err.count("\n"), "Traceback" in out.err) == ("", 1, False)
    assert ("at=test_evaluator.py:" in out.err) == isinstance(error, ZeroDivisionError)
    assert status_of(recommendation(view, evaluator.history, town.now_s)) == 200
    town.now_s += 60
    assert status_of(recommendation(view, evaluator.history, town.now_s)) == 503
    source.error = None
    evaluator.turn()
    assert (evaluator.view().reason, evaluator.view().evaluated_at_s) == ("tolerance", town.now_s)
    logging.getLogger().handlers.clear()


def test_first_evaluation_that_fails_says_why(town):
    """Before any evaluation there is nothing to show but the reason."""
    evaluator = Evaluator(Broken(town.source(), SourceError("the moon is full")), parse_policy("queue:4"))
    evaluator.turn()
    answer = recommendation(evaluator.view(), evaluator.history, town.now_s)
    assert (evaluator.view().evaluated_at_s, status_of(answer)) == (None, 503)
    assert "the moon is full" in answer["error"]


def test_what_is_not_its_turn_is_not_evaluated(town):
    """Others evaluate: no read, no number, and who asks is told whom to ask; with the turn comes an evaluation."""
    why = ["others evaluate this workload"]
    evaluator = town.evaluator("queue:4,max=8", why_not=lambda: why[0])
    evaluator.turn()
    view = evaluator.view()
    assert (view.recommended, view.evaluated_at_s, view.reason, town.api.requests) == (None, None, "", [])
    assert recommendation(view, evaluator.history, town.now_s)["error"] == why[0]
    why[0] = ""
    evaluator.turn()
    assert evaluator.view().recommended is not None


def test_state_that_cannot_be_kept(town, tmp_path):
    """At the start that is an error; later it is told, and what was decided is good."""
    with pytest.raises(StateError, match="nowhere"):
        town.evaluator("queue:4", state_path=Path("/nowhere/state.json"))
    folder = tmp_path / "kept"
    folder.mkdir()
    town.load = 12
    evaluator = town.evaluator("queue:4,max=8", state_path=folder / "state.json")
    (folder / "state.json").unlink()
    folder.rmdir()
    view = evaluator.evaluate()
    assert (view.recommended, told(view, "the state is not kept", str(folder))) == (3, True)


def test_damaged_state_is_set_aside_and_counted(town, tmp_path):
    """The evaluation begins anew; the file that was is kept for who wants to know."""
    path = tmp_path / "state.json"
    path.write_text('{"format": "infscale-state", "vers')
    evaluator = town.evaluator("queue:4,max=8,downwindow=60", state_path=path)
    assert evaluator.counters.totals().state_resets == 1
    assert (tmp_path / "state.json.bad").read_text().startswith('{"format"')
    assert run(town, evaluator, 45) == [3] * 4
    assert read_state(path, town.now_s).state.evaluated_s == town.now_s


def test_state_is_kept_before_it_is_applied(town, tmp_path):
    """A process that dies while it scales finds the change in its state: the limits hold after the restart too."""
    path = tmp_path / "state.json"

    class Dies:
        """An applier whose process ends in the middle: only what the file holds is left."""

        def apply(self, decision, now_s: float) -> str:
            """End."""
            raise SystemExit

        def stop(self) -> None:
            """Never called."""

    town.load = 40
    with pytest.raises(SystemExit):
        town.evaluator("queue:4,max=20,up=2/60", applier=Dies(), state_path=path).evaluate()
    town.api.change("deployments", "vllm", lambda one: one["spec"].update(replicas=5))
    town.now_s += STEP_S
    assert town.evaluator("queue:4,max=20,up=2/60", state_path=path).evaluate().recommended == 5


def test_clock_that_goes_backwards_forgets_nothing(town, tmp_path):
    """A window that runs goes on running from the new time."""
    town.load = 24
    evaluator = town.evaluator("queue:4,max=8,downwindow=60", applier=town.applier(), state_path=tmp_path / "s")
    run(town, evaluator, 30)
    assert town.replicas == 6
    town.load = 4
    town.now_s -= 3600
    assert run(town, evaluator, 45) == [6] * 4
    town.now_s += STEP_S
    assert evaluator.evaluate().recommended == 1


def test_foreign_future_is_dropped_from_a_file(town, tmp_path):
    """Entries that lie in the future are told and dropped; the present count is held for a window."""
    path = tmp_path / "state.json"
    write_state(path, ScaleState(hpa=State((Recommendation(8, START_S + 1e6),))))
    evaluator = town.evaluator("queue:4,max=8,downwindow=60", state_path=path)
    assert run(town, evaluator, 45) == [3] * 4


def test_an_evaluation_is_old_after_four_intervals(town):
    """At least a minute; with a long interval four of them, or every answer would be refused between two looks."""
    ages = [town.evaluator("queue:4", interval_s=interval_s).max_age_s for interval_s in (0.5, 15.0, 60.0)]
    assert ages == [60.0, 60.0, 240.0]


def test_log_says_each_decision_once(town, caplog):
    """One line for each that says something new; with a problem it is a warning and has the reason."""
    caplog.set_level(logging.INFO, "infscale.evaluator")
    town.load = 12
    evaluator = town.evaluator("queue:4,max=8")
    run(town, evaluator, 60)
    town.api.faults.append(Fault("broken", times=99))
    run(town, evaluator, 60)
    lines = [record for record in caplog.records if record.name == "infscale.evaluator"]
    assert [(line.levelname, line.getMessage()) for line in lines] == [("INFO", "decision"), ("WARNING", "decision")]
    assert "not JSON" in lines[1].note


def test_numbers_of_a_view_are_numbers(town):
    """Whatever happens, nothing that is published is NaN."""
    town.load = 12
    evaluator = town.evaluator("queue:4,max=8,lookahead=60")
    for quiet in (set(), {address(1)}, {address(1), address(2), address(3)}, set()):
        town.quiet = quiet
        town.now_s += STEP_S
        view = evaluator.evaluate()
        for value in (view.inflight, view.demand, view.coverage, view.lookahead_demand):
            assert value is None or math.isfinite(value)


def ended() -> None:
    """Wait for the threads of an evaluator."""
    for thread in threading.enumerate():
        if thread.name.startswith("evaluator"):
            thread.join(LONG_S)


def eventually(holds: Callable[[], object]) -> None:
    """Wait for it."""
    end = time.monotonic() + LONG_S
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_its_thread_ends_and_then_the_lease_is_given_back(town):
    """Between two evaluations an end takes no time, and another may write at once."""
    evaluator = town.evaluator("queue:4,max=8", applier=town.applier(), interval_s=600.0)
    evaluator.start()
    eventually(lambda: evaluator.view().evaluated_at_s)
    assert evaluator.stop(LONG_S)
    assert town.api.get("leases", LEASE)["spec"]["holderIdentity"] is None


def test_end_in_an_evaluation_that_hangs(town):
    """It is not waited for longer than told; the Lease is not given back, since a write may still be under way."""
    evaluator = town.evaluator("queue:4,max=8", applier=town.applier(), interval_s=0.01)
    evaluator.start()
    eventually(lambda: evaluator.view().evaluated_at_s)
    hanging = Fault("hang", path="/deployments/")
    town.api.faults.append(hanging)
    eventually(lambda: not hanging.times)
    assert not evaluator.stop(0.1)
    assert town.api.get("leases", LEASE)["spec"]["holderIdentity"] == "a"
    town.api.close()
    ended()
