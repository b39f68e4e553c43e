"""`infscale simulate`: the table, the timeline, JSON, and what is refused."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from infscale.cli import added_commands, run
from infscale_sim.cli import COMMANDS
from infscale_sim.cli.simulate import command
from infscale_sim.scenario import SCENARIOS

ROOT = Path(__file__).parents[2]

SMALL = """
rate: [[0, 4], [60, 4]]
horizon_s: 90
policies: ["queue:4", "static:1"]
"""

KEYS = [
    *("policy", "requests", "slo_misses", "slo_miss_percent", "ttft_p50_s", "ttft_p95_s", "replica_minutes"),
    *("oracle_ratio", "bound_replica_minutes", "peak_replicas", "scale_events", "seed"),
]


@pytest.fixture
def small(tmp_path) -> str:
    """A scenario of a minute."""
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return str(path)


def invoke(*arguments: str) -> Result:
    """The command in this process."""
    return CliRunner().invoke(command, arguments, catch_exceptions=False)


def test_table_has_its_columns(small):
    """A line on what is run, the headings, a line for each policy, and one on the oracle."""
    lines = invoke("--scenario", small).output.splitlines()

    assert "240 requests in 90 s on h100-8b (cold start 91 s), SLO 2 s to the first token" in lines[0]
    headings = ["policy", "SLO miss", "miss %", "TTFT p50", "p95", "replica-min", "x oracle", "peak", "scale events"]
    assert " ".join(headings) == " ".join(lines[1].split())
    assert [line.split()[0] for line in lines[2:-1]] == ["queue:4", "static:1"]
    assert re.fullmatch(
        r"oracle: .* replica-min without a miss \(bound .*\), .* within 1 % of misses \(bound .*\)", lines[-1]
    )


def test_json_is_a_list_of_rows_and_nothing_else(small):
    """The keys in their order; no seed where nothing is random."""
    rows = json.loads(invoke("--scenario", small, "--json", "--policy", "static:2", "--policy", "queue:9").output)

    assert [list(row) for row in rows] == [KEYS, KEYS]
    assert [row["policy"] for row in rows] == ["static:2", "queue:9"]
    assert (rows[0]["requests"], rows[0]["slo_misses"], rows[0]["replica_minutes"]) == (240, 0, 3.0)
    assert rows[0]["seed"] is None


def test_built_in_file_gives_the_same_bytes(tmp_path):
    """The built-in scenario by its path, and a copy with a key less that has its default, print what no flag prints."""
    built_in = SCENARIOS / "default.yaml"
    copy = tmp_path / "copy.yaml"
    copy.write_text(built_in.read_text().replace(", scrape_age_s: 0", "") + "cpu: {}\n")
    expected = invoke("--policy", "queue:24").output

    assert expected.startswith("scenario default: 15,555 requests")
    for path in (built_in, copy):
        assert invoke("--policy", "queue:24", "--scenario", str(path)).output == expected


def test_seed_is_said_and_counts(tmp_path):
    """Random arrivals: the seed stands in the headline and the rows, and another one gives other numbers."""
    path = tmp_path / "random.yaml"
    path.write_text(SMALL + "arrivals: {process: gamma, cv: 2, seed: 4}\n")
    four, five = (json.loads(invoke("--scenario", str(path), "--json", *seed).output) for seed in ((), ("--seed", "5")))

    assert [row["seed"] for row in (*four, *five)] == [4, 4, 5, 5]
    assert four[0]["requests"] != five[0]["requests"]
    assert "seed 4" in invoke("--scenario", str(path)).output


def test_timeline_shows_each_decision(small):
    """Below the table: when, from and to what, and why in words with numbers; none is left out."""
    text = invoke("--scenario", small, "--timeline").output

    assert "queue:4:" in text
    assert "1 -> " in text
    assert "over 4 per replica at a count of 1" in text
    for policy in ("queue:4", "static:1"):
        lines = text.partition(f"\n{policy}:\n")[2].partition("\n\n")[0].splitlines()[1:]
        times = [re.search(r"(\d+) times$", line) for line in lines]
        assert sum(int(found[1]) if found else 1 for found in times) == 90 / 15


def test_page_and_picture_are_written_beside_the_table(small, tmp_path, capsys):
    """`--html` and `--svg` draw every policy; a file that cannot be written is one line and 2."""
    page, picture = tmp_path / "page.html", tmp_path / "picture.svg"

    result = invoke("--scenario", small, "--html", str(page), "--svg", str(picture))

    assert result.exit_code == 0
    for drawn in (page.read_text(), picture.read_text()):
        assert "queue:4" in drawn
        assert "static:1" in drawn
    assert run(["simulate", "--scenario", small, "--html", str(tmp_path / "none" / "page.html")]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_flags_replace_the_scenarios(small):
    """A stricter SLO and another replica change the result."""
    strict = json.loads(invoke("--scenario", small, "--json", "--slo-ttft", "0.001").output)
    slow = json.loads(invoke("--scenario", small, "--json", "--profile", "l4-8b", "--slo-itl", "0.03").output)

    assert {row["slo_misses"] for row in strict} == {240}
    assert all(row["slo_misses"] > 0 for row in slow)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rate: [[0, 1], [5]]", "rate[1]: expected [seconds, requests per second], got 1 values"),
        ("rate: [[9, 1], [5, 1]]", "rate[1]: expected a time from 9 s on, got 5"),
        ("rate: [[0, 1]]", "rate: expected at least two points"),
        ("rates: []", "rates: unknown key, did you mean 'rate'"),
        ("cluster: {strat: 3}", "cluster.strat: unknown key, did you mean 'start'"),
        ("cluster: {balance: random}", "cluster.balance: no such choice 'random', did you mean 'random2'"),
        ("cluster: {max: 0}", "cluster.max: expected at least 1 and the minimum 1, at most 10,000, got 0"),
        ("cluster: {queue: lifo}", "cluster.queue: expected fifo, got 'lifo'"),
        ("hpa: {up: 4}", "hpa: policy"),
        ("hpa: {stepup: 4}", "hpa.stepup: unknown key"),
        ("sync: {period_s: 0}", "sync.period_s: expected a number from 0.001"),
        ("replica: {slotz: 3}", "replica.slotz: unknown key, did you mean 'slots'"),
        ("replica: h1-8b", "no such profile 'h1-8b'"),
        ("policies: [queue]", "policy 'queue': 'queue' at character 1: expected a target"),
        ("cpu: {window: 3}", "cpu: it has no settings of its own"),
        ("horizon_s: -1", "horizon_s: expected a number from 0"),
    ],
)
def test_bad_scenario_is_one_line(tmp_path, capsys, text, message):
    """Exit status 2, and one line that says where, what was expected and what stood there."""
    path = tmp_path / "bad.yaml"
    path.write_text(text + "\n")

    assert run(["simulate", "--scenario", str(path)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert message in said.err


def test_a_scenario_that_no_file_can_be_named_is_one_line(capsys):
    """A name too long for a file is told as any other that is none."""
    assert run(["simulate", "--scenario", "a" * 5000]) == 2
    assert "no such file, and no built-in scenario; those are default, prompts" in capsys.readouterr().err


def test_timeline_and_json_exclude_each_other(capsys):
    """The timeline is for people; with --json it is refused and not left out silently."""
    assert run(["simulate", "--timeline", "--json"]) == 2
    assert "exclude each other" in capsys.readouterr().err


def test_scale_without_a_trace_is_refused(capsys):
    """The scenario's own traffic has no scale, and is not run as if it had been scaled."""
    for flags in (("--scale", "2"), ("--limit", "5")):
        assert run(["simulate", *flags]) == 2
        assert "--scale and --limit are of a trace" in capsys.readouterr().err


def test_commands_join_the_root():
    """The entry point names the table, so `infscale --help` lists the commands without importing them."""
    found = added_commands()

    assert {name: found[name] for name in COMMANDS} == dict(COMMANDS)
    code = "import sys, infscale_sim.cli; print([m for m in sys.modules if m.startswith('infscale_sim.')])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT, timeout=30
    )
    assert done.stdout.strip() == "['infscale_sim.cli']"
