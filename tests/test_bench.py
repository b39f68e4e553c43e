"""`python -m bench`: one command, one table; its form, and that every benchmark has a row."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench import __main__ as bench
from bench import table
from bench.table import Row, Size

ROOT = Path(__file__).parents[1]
NO_BENCHMARKS = {"__main__", "table"}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command, as people run it."""
    command = [sys.executable, "-m", "bench", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100)


def test_every_file_is_a_benchmark_of_the_table():
    """Each file of bench/ is named once, so that its figures cannot be left out."""
    files = {path.stem for path in (ROOT / "bench").glob("*.py")}
    assert sorted(files - NO_BENCHMARKS) == sorted(bench.NAMES)


@pytest.mark.parametrize("name", bench.NAMES)
def test_every_benchmark_gives_rows_and_runs_alone(name):
    """It has `rows` for the table and a `main` of its own, says what it is for, and how to run it."""
    source = (ROOT / "bench" / f"{name}.py").read_text(encoding="utf-8")
    assert "\ndef rows(size: Size = Size.FULL) -> list[Row]:\n" in source
    assert "\ndef main(" in source
    assert '\nif __name__ == "__main__":\n' in source
    assert f"    python bench/{name}.py" in source
    assert len(bench.summary(name)) > 20


def test_list_names_each_with_a_summary():
    """--list runs nothing."""
    done = run("--list")
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == list(bench.NAMES)


def test_an_unknown_name_is_a_usage_error():
    """Exit code 2, one line that names the nearest, no traceback."""
    done = run("side_car")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].endswith("no benchmark 'side_car': did you mean sidecar?")


def test_two_cheap_ones_as_json():
    """A tiny run of two gives their rows as a list of objects, in order, with the targets judged; nothing else."""
    done = run("decide", "page_to_reading", "--tiny", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    rows = json.loads(done.stdout)
    assert list(dict.fromkeys(row["benchmark"] for row in rows)) == ["decide", "page_to_reading"]
    assert {tuple(row) for row in rows} == {
        ("benchmark", "what", "unit", "ours", "peer_name", "peer", "ratio", "target", "met", "note")
    }
    decide, _, reading, _ = rows
    assert decide["ours"] > 0
    assert (decide["target"], decide["peer"], decide["ratio"]) == ("≤ 1,000 µs", None, None)
    assert decide["met"] is (decide["ours"] <= 1000)
    assert reading["ratio"] == pytest.approx(reading["peer"] / reading["ours"])
    assert reading["ratio"] > 10


def test_the_page_is_written_between_its_marks(tmp_path):
    """--markdown replaces what stands between the marks and nothing else; command and machine are told."""
    page = tmp_path / "performance.md"
    page.write_text(f"# Title\n\n{table.BEGIN}\nold\n{table.END}\n\nAfter.\n", encoding="utf-8")
    done = run("decide", "--tiny", "--markdown", str(page))
    assert done.returncode == 0
    assert done.stdout.splitlines()[0].split()[:3] == ["benchmark", "what", "infscale"]
    written = page.read_text(encoding="utf-8")
    assert written.startswith(f"# Title\n\n{table.BEGIN}\n`python -m bench decide --tiny --markdown` on 20")
    assert written.endswith(f" |\n{table.END}\n\nAfter.\n")
    assert " cores" in written
    assert "\n| decide | CPU of the HPA layer, queue, 1,000 items | " in written
    assert "old" not in written
    table.put(tmp_path / "new.md", ["a"])
    assert (tmp_path / "new.md").read_text() == f"# Performance\n\n{table.BEGIN}\na\n{table.END}\n"


def test_the_committed_page_has_its_marks():
    """The table of docs/performance.md stands between marks, so that the next run replaces it."""
    text = bench.PAGE.read_text(encoding="utf-8")
    assert text.count(table.BEGIN) == text.count(table.END) == 1
    assert text.index(table.BEGIN) < text.index(table.END)


@pytest.mark.parametrize(
    ("row", "ratio", "target", "met"),
    [
        (Row("less", "ms", 2.0, "peer", 10.0, ratio_at_least=5), 5.0, "≥ 5 times", True),
        (Row("less", "ms", 2.0, "peer", 9.0, ratio_at_least=5), 4.5, "≥ 5 times", False),
        (Row("more", "/s", 1200.0, "peer", 400.0, more_is_better=True, at_least=1000), 3.0, "≥ 1,000 /s", True),
        (Row("more", "/s", 900.0, more_is_better=True, at_least=1000), None, "≥ 1,000 /s", False),
        (Row("most", "MB", 45.0, "peer", 30.0, at_most=45), 30 / 45, "≤ 45 MB", True),
        (Row("most", "MB", 45.1, at_most=45), None, "≤ 45 MB", False),
        (Row("no target", "s", 1.0), None, "", None),
        (Row("absent", "s", at_most=1, note="left out"), None, "≤ 1 s", None),
        (Row("nothing cut", "", 0.0, "peer", 3.0), None, "", None),
        (Row("no peer's figure", "s", 1.0, "peer", ratio_at_least=2), None, "≥ 2 times", None),
    ],
)
def test_ratio_and_target(row, ratio, target, met):
    """Above 1 is better, whichever way a figure counts; without a figure nothing is met or missed."""
    assert (row.ratio, row.target, row.met) == (ratio, target, met)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"), (0.0, "0 s"), (0.0123, "0.012 s"), (1.5, "1.50 s"), (12.34, "12.3 s"), (45.0, "45 s"),
        (1234.5, "1,234 s"),
    ],
)  # fmt: skip
def test_figures(value, shown):
    """Three digits, thousands apart, a dash for what is not there."""
    assert table.figure(value, "s") == shown


def test_the_table_as_text_and_as_markdown():
    """A missed target stands out, a figure that is absent says why, columns are under one another."""
    rows = [
        Row("slow", "ms", 7.0, "peer", 3.5, at_most=5, benchmark="one"),
        Row("gone", "s", note="a|b is absent", benchmark="another"),
    ]
    head, slow, gone = table.text(rows)
    assert slow == "one        slow                  7 ms      3.50 ms, peer  0.50          ≤ 5 ms  MISSED"
    assert gone == "another    gone (a|b is absent)  –"
    assert head.index("infscale") == slow.index("7 ms") == gone.index("–")
    assert table.markdown(rows) == [
        "| benchmark | what | infscale | peer | times better | target | met |",
        "| --- | --- | --: | --- | --: | --: | --- |",
        "| one | slow | 7 ms | 3.50 ms, peer | 0.50 | ≤ 5 ms | MISSED |",
        "| another | gone (a\\|b is absent) | – |  |  |  |  |",
    ]


def test_a_benchmark_that_fails_or_hangs_is_a_row(monkeypatch):
    """It ends with what it started, and the others' table is there all the same."""
    monkeypatch.setattr(bench, "CHILD", "import sys; sys.exit('no such engine')")
    assert bench.measured("decide", Size.TINY) == [Row("no figures", note="failed: no such engine", benchmark="decide")]
    monkeypatch.setattr(bench, "CHILD", "import subprocess; subprocess.run(['sleep', '100'])")
    assert bench.measured("decide", Size.TINY, limit_s=0.5) == [
        Row("no figures", note="ended: it took more than 0.5 s", benchmark="decide")
    ]


@pytest.mark.parametrize(
    ("row", "code"),
    [
        (Row("fine", "s", 1.0, at_most=2), 0), (Row("slow", "s", 3.0, at_most=2), 1),
        (Row("absent", "s", at_most=2), 0), (Row("no figures"), 1),
    ],
)  # fmt: skip
def test_only_check_judges(row, code, monkeypatch, capsys):
    """A missed target changes the exit code with --check alone; a figure that is absent never does."""
    monkeypatch.setattr(bench, "run", lambda _names, _size: iter([row]))
    assert bench.main(["decide"]) == 0
    assert bench.main(["decide", "--check"]) == code
    assert capsys.readouterr().out.count("benchmark") == 2


def test_without_the_blackbox_exporter_its_rows_say_so():
    """The sidecar's own figures stay."""
    from bench.sidecar import Cost, blackbox_rows

    absent = blackbox_rows(Cost(100.0, 20.0, 30.0), None)
    assert [(row.ours, row.peer, row.ratio) for row in absent] == [
        (100.0, None, None),
        (20.0, None, None),
        (30.0, None, None),
    ]
    assert all("prometheus-blackbox-exporter is absent" in table.cells(row)[3] for row in absent)


def test_percentiles_of_few_bursts():
    """One burst is its own percentile; of several the 99th is near the longest."""
    from bench.reaction import percentiles

    assert percentiles([3.0]) == (3.0, 3.0)
    assert percentiles([1.0, 2.0, 3.0, 4.0, 11.0]) == pytest.approx((3.0, 10.72))
