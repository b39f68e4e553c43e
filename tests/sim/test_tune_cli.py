"""`infscale tune`: text, JSON, manifests, traces, Ctrl-C; and traces in `infscale simulate`."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from infscale.cli import run
from infscale.core.grammar import parse_policy
from infscale.manifest import load_manifest
from infscale_sim.cli.simulate import command as simulate
from infscale_sim.cli.tune import command as tune
from infscale_sim.policies import Core, scaler_of
from infscale_sim.scenario import load_scenario
from infscale_sim.tune.manifests import Workload, as_manifests, behavior, hpa, missing, scaled_object
from infscale_sim.tune.plot import Point, picture

ROOT = Path(__file__).parents[2]

SMALL = """
rate: [[0, 1], [60, 1], [90, 5], [150, 5], [150, 1], [200, 1]]
horizon_s: 210
cluster: {max: 3, cold_start_s: 20}
replica: {slots: 16}
"""
FEW = ("--runs", "30", "--workers", "1", "--seeds", "2")
POLICY = "queue:24,min=0,max=8,cooldown=120,lookahead=90,guard=0.85,down=1/60,downwindow=120,up=4/15+100%/15"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A scenario of four minutes."""
    path = tmp_path_factory.mktemp("tune") / "small.yaml"
    path.write_text(SMALL)
    return str(path)


@pytest.fixture
def trace(tmp_path) -> str:
    """A trace of two requests a second for a minute."""
    path = tmp_path / "trace.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n" + "".join(f"{n / 2},100,300\n" for n in range(120)))
    return str(path)


def output(command, *arguments: str) -> str:
    """What a command prints, in this process."""
    return CliRunner().invoke(command, arguments, catch_exceptions=False).stdout


def core_policy(text: str):
    """The policy with what the default scenario adds."""
    scaler = scaler_of(text, load_scenario("default").defaults)
    assert isinstance(scaler, Core)
    return scaler.policy


def test_json_tells_all(small):
    """The policy, its cost, the frontier, the checks and both manifests, and nothing else on standard output."""
    found = json.loads(output(tune, "--scenario", small, *FEW, "--json"))

    assert found["within_budget"]
    assert found["slo_miss_percent"] <= 1
    assert found["policy"] in [row["policy"] for row in found["frontier"]]
    assert [run["seed"] for run in found["held_out"]["runs"]] == [2, 3]
    assert "resampled" in found["held_out"]["how"]
    assert (found["scaled_object"]["kind"], found["hpa"]["kind"]) == ("ScaledObject", "HorizontalPodAutoscaler")
    assert found["policies_run"] + found["policies_given_up"] == 30


def test_policy_costs_in_simulate_what_tune_says(small):
    """The policy that is printed gives the printed misses and replica-minutes in `infscale simulate`."""
    found = json.loads(output(tune, "--scenario", small, *FEW, "--json"))
    (row,) = json.loads(output(simulate, "--scenario", small, "--policy", found["policy"], "--json"))

    assert row["slo_misses"] == found["slo_misses"]
    assert row["replica_minutes"] == pytest.approx(found["replica_minutes"], abs=1e-5)


def test_text_has_frontier_picture_confidence_and_manifests(small):
    """For people: what was run, the table with the chosen row, the picture, how sure, and two documents."""
    text = output(tune, "--scenario", small, *FEW)

    assert "SLO 2 s to the first token" in text.splitlines()[0]
    assert "replica-min  policy" in text
    assert "* chosen  o frontier  . tried" in text
    assert "best within 1 % misses: queue:" in text
    assert "checked on arrivals resampled with seeds 2 to 3: within the budget on" in text
    documents = list(yaml.safe_load_all(text[text.index("# KEDA") :].partition("\n\n")[0]))
    assert [document["kind"] for document in documents] == ["ScaledObject", "HorizontalPodAutoscaler"]


def test_same_arguments_give_the_same_bytes(small):
    """Nothing in it depends on a clock."""
    arguments = ("--scenario", small, "--runs", "12", "--workers", "1", "--seeds", "1")

    assert output(tune, *arguments) == output(tune, *arguments)


def test_flags_replace_the_scenarios(small):
    """--max, --min, --knee, --cold-start and --slo-ttft reach the search."""
    arguments = ("--max", "2", "--min", "1", "--knee", "8", "--cold-start", "12", "--slo-ttft", "3")
    text = output(tune, "--scenario", small, *FEW, *arguments)

    assert "(cold start 12 s), SLO 3 s" in text
    assert "maxReplicaCount: 2" in text
    assert "minReplicaCount: 1" in text
    chosen = next(line for line in text.splitlines() if "% misses: queue:" in line or "fewest has: queue:" in line)
    target = parse_policy(chosen.rpartition(" ")[2]).goals[0].target
    assert target is not None
    assert target <= 10


def test_traces_are_cases_of_their_own(trace):
    """Two traces, both searched on, both checked on resampled arrivals."""
    text = output(tune, "--trace", trace, "--trace", trace, "--runs", "6", "--workers", "1", "--seeds", "1")

    assert text.count("120 requests in 62 s") == 2
    assert "checked on arrivals resampled with seed 1: within the budget on 2 of 2" in text


def test_manifests_say_the_policy(tmp_path):
    """Both are read back as the target, bounds and behaviour that were searched."""
    policy = core_policy(POLICY.replace("min=0,", ""))
    for make in (scaled_object, hpa):
        path = tmp_path / "object.yaml"
        path.write_text(yaml.safe_dump(make(policy, Workload("ml", "llama"))))
        read = load_manifest(str(path)).policy
        assert read.goals == policy.goals
        assert (read.min_replicas, read.max_replicas) == (1, 8)
        assert read.behavior is not None
        assert read.behavior.scale_down.stabilization_window_s == 120
        assert behavior(read) == behavior(policy)


def test_scaled_object_is_form_a():
    """One recorded series, AverageValue, and an outage that is an error and not 0; at 0 a second trigger wakes it."""
    spec = scaled_object(core_policy(POLICY), Workload("ml", "llama", "http://prometheus:9090"))["spec"]
    first, wake = spec["triggers"]

    assert first["metricType"] == "AverageValue"
    assert first["metadata"] == {
        "serverAddress": "http://prometheus:9090",
        "query": 'max(infscale_workload_demand_requests{workload_namespace="ml",workload="llama"})',
        "threshold": "24",
        "ignoreNullValues": "false",
    }
    assert (spec["minReplicaCount"], spec["pollingInterval"], spec["cooldownPeriod"]) == (0, 5, 120)
    assert wake["metadata"]["url"].endswith("/api/v1/load")


def test_what_manifests_leave_out_is_said():
    """Lookahead, guard and zero each have a line; what is left is the HPA's or KEDA's own form for the simulator."""
    lines = list(missing(core_policy(POLICY)))

    assert [line.partition(":")[0] for line in lines] == ["lookahead=90", "guard=0.85", "min=0"]
    assert list(missing(core_policy("queue:24"))) == []
    zero, one = POLICY, POLICY.replace("min=0,", "min=1,")
    kept = "queue:24,min={},max=8,down=1/60,downwindow=120,up=4/15+100%/15"
    assert as_manifests(core_policy(zero), zero) == f"keda:{kept.format(0)},poll=5,cooldown=120"
    assert as_manifests(core_policy(one), one) == f"hpa:{kept.format(1)}"


def test_picture_shows_the_budget_and_the_points():
    """No miss at all is the lowest line; the budget is a line between; the chosen point covers others."""
    cheap, dear = Point(10, 20.0, 200, "a"), Point(30, 0.0, 0, "b")
    lines = picture([cheap, dear, Point(20, 2.0, 20, "c")], [cheap, dear], dear, 1.0)

    assert sum(line.startswith("    1 % |-----") for line in lines) == 1
    lowest = next(line for line in lines if line.startswith("    0 % |"))
    assert lowest.endswith("*")
    assert sum("o" in line.partition("|")[2] for line in lines) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--trace", "a.csv", "--prometheus", "http://localhost:1"], "expected one of them"),
        (["--trace", "/nowhere.csv"], "/nowhere.csv"),
        (["--miss-budget", "101"], "miss-budget"),
        (["--scenario", "nothing"], "no such file, and no built-in scenario"),
        (["--profile", "h1-8b"], "no such profile 'h1-8b'"),
    ],
)
def test_bad_flags_are_one_line(capsys, arguments, message):
    """Exit status 2 or 1, one line, no traceback."""
    assert run(["tune", *arguments]) in (1, 2)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert message in said.err


@pytest.mark.parametrize(
    ("flags", "seen"),
    [
        (("--workers", "1", "--runs", "100000"), b"queue:"),  # the bar has a best policy
        (("--workers", "2", "--runs", "100000"), b"queue:"),
        (("--workers", "1", "--runs", "20", "--seeds", "100"), b"checks"),  # the bar of the runs after the search
    ],
)
def test_ctrl_c_prints_the_best_so_far(small, flags, seen):
    """SIGINT to the whole group, as a terminal sends it: exit status 130, the best so far, no traceback."""
    leader, follower = os.openpty()
    arguments = [sys.executable, "-m", "infscale", "tune", "--scenario", small]
    path = os.pathsep.join((str(ROOT / "exporter"), str(ROOT / "sim")))
    process = subprocess.Popen(
        [*arguments, *flags],
        stdout=subprocess.PIPE,
        stderr=follower,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
    )
    os.close(follower)
    shown = b""
    while seen not in shown:
        shown += os.read(leader, 4096)
    os.killpg(process.pid, signal.SIGINT)
    text, _ = process.communicate(timeout=40)
    os.set_blocking(leader, False)
    with open(leader, "rb") as rest, contextlib.suppress(OSError):  # Linux, of a terminal that nobody has open
        shown += rest.read() or b""

    assert process.returncode == 130
    assert b"Traceback" not in shown
    assert "interrupted: the best so far" in text
    assert "best within 1 % misses: queue:" in text
    assert "not checked on other traffic" in text


def test_simulate_replays_a_trace(trace):
    """Its requests, its name, and an end at which the last request has had its time."""
    text = output(simulate, "--trace", trace, "--policy", "static:1")

    assert f"{trace}: 120 requests in 62 s" in text.splitlines()[0]
    (row,) = json.loads(output(simulate, "--trace", trace, "--policy", "static:1", "--json", "--limit", "50"))
    assert (row["requests"], row["slo_misses"], row["seed"]) == (50, 0, None)


def test_simulate_says_the_seed_of_a_random_trace(tmp_path):
    """Rates become random arrivals: the seed is said, and another gives other requests."""
    path = tmp_path / "rates.csv"
    head = "start_s,seconds,requests_per_second,mean_prompt_tokens,mean_output_tokens"
    path.write_text(f"{head}\n0,60,4,100,100\n60,60,2,100,100\n")
    arguments = ("--trace", str(path), "--policy", "static:1", "--json")
    rows = [json.loads(output(simulate, *arguments, *seed))[0] for seed in ((), ("--seed", "0"), ("--seed", "9"))]

    assert [row["seed"] for row in rows] == [0, 0, 9]
    assert rows[0] == rows[1]
    assert rows[0]["requests"] != rows[2]["requests"]
