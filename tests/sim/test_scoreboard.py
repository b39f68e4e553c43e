"""The scoreboard's own logic: targets, troubles, held requests, the goal, the tables and the page."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bench.scoreboard import cases, menu, table, troubles
from bench.scoreboard.__main__ import MARKS, main, tasks
from bench.scoreboard.cases import Case, Trace, all_cases
from bench.scoreboard.judge import judge
from bench.scoreboard.menu import Entry
from bench.scoreboard.play import Foresight, Score, foresee, held_s, play
from bench.scoreboard.table import Played
from bench.table import put
from infscale.core.replicas import Fleet, Phase, Replica
from infscale_sim.hardware import load_profile
from infscale_sim.outcome import Run, Span
from infscale_sim.scenario import load_scenario
from infscale_sim.traffic import Rate, Requests

ROOT = Path(__file__).parent.parent.parent


def score_of(minutes: float, misses: int = 0) -> Score:
    """A score of 1,000 requests."""
    return Score(1000, misses, minutes, 0.1, 0.2, 0.3, 4, 2, None, 0, 0, 0, None, None, None)


def run_of(spans: list[Span], horizon_s: float = 100.0) -> Run:
    """A run with these replicas."""
    return Run(horizon_s, [], [], bytearray(), [], spans, 1, 0)


def short_case() -> Case:
    """Two minutes of the oscillation's traffic, at a rate that two replicas carry."""
    base = replace(cases.scenario("oscillation"), rate=Rate([(0, 5), (120, 5)]), horizon_s=120.0)
    return Case(6, "short", base, None, (Entry("static", "static:2", is_fixed=True),))


def test_target_follows_from_the_knee():
    """Short prompts fill the slots before throughput is near its best; long ones reach it with a few at once."""
    hardware = load_profile("h100-8b")

    short = menu.target_requests(hardware, Requests([0.0], [128], [400]))
    long = menu.target_requests(hardware, Requests([0.0], [12_000], [340]))

    assert 32 <= short <= 48
    assert 4 <= long <= 16


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([Span(0, 0)], []),
        ([Span(0, 20)], [5.0, 20.0]),
        ([Span(0, 0, left_s=10), Span(20, 50)], [10.0, 35.0]),
        ([Span(0, 0, left_s=10)], [20.0, 60.0, 85.0]),
        ([Span(0, 0, left_s=10), Span(5, 90, left_s=12), Span(8, 30)], [15.0]),
    ],
    ids=["always ready", "first start", "between two", "until the end", "given up while it loads"],
)
def test_held_requests_and_their_waits(spans, expected):
    """A request is held while no replica is ready; it waits for the next that is, or for the end."""
    assert held_s([0.0, 15.0, 40.0, 80.0], run_of(spans)) == expected


def test_trouble_hides_replicas():
    """Silence takes the values of one replica or of all; an outage read as 0 takes the requests and leaves the rest."""
    replicas = [Replica(f"r{n}", Phase.SERVING, running=3, waiting=1, inflight=4, kv=0.5) for n in (0, 1)]
    fleet = Fleet(100.0, 3, replicas=(*replicas, Replica("r2", Phase.STARTING)))

    silent, outage, zero = (troubles.troubled(fleet, trouble).replicas for trouble in troubles.TROUBLES)

    assert [r.phase for r in silent] == [Phase.SILENT, Phase.SERVING, Phase.STARTING]
    assert silent[0].inflight is None
    assert [r.phase for r in outage] == [Phase.SILENT, Phase.SILENT, Phase.STARTING]
    assert [(r.inflight, r.kv) for r in zero] == [(0.0, 0.5), (0.0, 0.5), (None, None)]


def test_goal_is_judged_against_oracle_hindsight_and_hpa():
    """The advised policy is held against the oracle, the cheapest within the budget, and the cheapest HPA within it."""
    rows = [
        (Entry("infscale", "queue:24", is_fixed=True), score_of(140)),
        (Entry("static", "static:3"), score_of(100)),
        (Entry("hpa", "hpa:queue:48"), score_of(90, misses=11)),
        (Entry("hpa", "hpa:queue:24"), score_of(150)),
    ]

    parts = judge(rows, Foresight(100.0, 80.0, 0.5))

    assert [part.is_met for part in parts] == [True, True, False, True]
    assert parts[1].words == "1.40 of the oracle (100.0)"
    assert "static:3" in parts[2].words
    assert "hpa:queue:24" in parts[3].words


def test_goal_without_anything_to_compare_with():
    """Where nothing keeps within the budget there is no ratio, and the misses are told."""
    rows = [(Entry("infscale", "queue:24", is_fixed=True), score_of(140, misses=20))]

    parts = judge(rows, Foresight(None, 80.0, 15.0))

    assert [part.is_met for part in parts] == [False, None, None, None]
    assert "2.00 %" in parts[0].words


def test_absent_trace_is_a_row_that_says_so():
    """Without the folder the rows with traces run nothing and say what is missing; the others are as ever."""
    found = list(all_cases(None))

    absent = [case for case in found if not case.is_there]

    assert sorted({case.row for case in found}) == [1, 2, 3, 4, 5, 6]
    assert {case.row for case in absent} == {2, 3, 4, 5}
    assert all(case.entries == () for case in absent)
    assert all("is absent" in table.headline(Played(case, (), None)) for case in absent)
    assert {found[case].row for case, _ in tasks(found)} == {1, 6}


def test_a_case_is_played_and_shown(tmp_path):
    """A short case gives a score, an oracle and a table with the trace's sha256."""
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n1,100,50\n2,100,50\n")
    case = replace(short_case(), trace=Trace("trace.csv", trace), has_oracle=True, is_judged=True)

    score, foresight = play(case, case.entries[0]), foresee(case)
    one = Played(case, ((case.entries[0], score),), foresight)
    page = "\n".join(table.markdown([one], "make scoreboard", "2026-01-31"))

    assert (score.requests, score.misses, score.replica_minutes) == (2, 0, 4.0)
    assert foresight.replica_minutes is not None
    assert foresight.replica_minutes < 4.0
    assert case.trace is not None
    assert case.trace.sha256() in page
    assert "| `static:2` * | 0.00 | 4.0 |" in page
    assert "2026-01-31" in page
    assert table.as_json([one])[0]["policies"][0]["replica_minutes"] == 4.0
    assert len(list(table.text([one]))) == 5 + 4


def test_trouble_reaches_the_policy():
    """A scaler that is told 0 for all of a run gives up the replicas that the traffic needs."""
    case = replace(
        short_case(),
        scenario=replace(cases.scenario("faults"), horizon_s=900.0),
        entries=(Entry("hpa", "hpa:queue:42,downwindow=0"),),
        trouble_s=(300.0, 900.0),
    )

    calm = play(case, case.entries[0])
    blind = play(case, replace(case.entries[0], trouble=troubles.ZERO))

    assert calm.misses == 0
    assert blind.misses > 0


def test_page_keeps_what_is_around_the_tables(tmp_path):
    """Tables go between the marks of a page, and a page that is not there yet gets a heading."""
    page, (begin, end) = tmp_path / "page.md", MARKS
    page.write_text(f"# Title\n\nbefore\n{begin}\nold\n{end}\nafter\n")

    put(page, ["new"], "Scoreboard", MARKS)
    put(tmp_path / "other.md", ["new"], "Scoreboard", MARKS)

    assert page.read_text() == f"# Title\n\nbefore\n{begin}\nnew\n{end}\nafter\n"
    assert (tmp_path / "other.md").read_text() == f"# Scoreboard\n\n{begin}\nnew\n{end}\n"


def test_command_without_traces():
    """The command runs and says that the trace is absent; JSON alone on standard output."""
    command = [sys.executable, "-m", "bench.scoreboard", "--rows", "4", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=50)

    (case,) = json.loads(done.stdout)

    assert (case["row"], case["sha256"], case["policies"]) == (4, None, [])
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--rows", "1,7"], "--rows 1,7: expected some of 1,2,3,4,5,6"),
        (["--rows", "1", "--markdown", "page.md"], "--markdown is for all rows"),
        (["--jobs", "0"], "--jobs 0: expected 1 or more"),
        (["--traces", "/nowhere"], "--traces /nowhere: no such folder"),
    ],
)
def test_what_cannot_be_run_is_refused(arguments, says, capsys):
    """A usage error, exit code 2, before anything is simulated."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


def test_scenarios_load():
    """Each scenario file of the scoreboard is used, and describes a scenario."""
    names = {path.stem for path in cases.SCENARIOS.glob("*.yaml")}

    assert {case.scenario.name for case in all_cases(None)} == names | {"default"}
    assert all(load_scenario(str(cases.SCENARIOS / f"{name}.yaml")) for name in names)
