"""`python -m bench`: one command, one table; its form, and that every benchmark has a row."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import __main__ as bench
from bench import table
from bench.table import Row, Size

ROOT = Path(__file__).parents[1]
NO_BENCHMARKS = {"__main__", "measure", "table"}


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
    assert "\ndef main() -> int:\n" in source
    assert "alone(__doc__)" in source
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


def test_the_table_of_the_docs_is_not_replaced_by_a_part():
    """docs/performance.md takes a full run alone; what is less than that needs a file of its own."""
    for less in (["decide"], ["--quick"], ["--tiny"]):
        done = run(*less, "--markdown")
        assert (done.returncode, done.stdout) == (2, "")
        assert "docs/performance.md has the table of a full run: give --markdown a FILE" in done.stderr


@contextlib.contextmanager
def interruptible(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The command, for a Ctrl-C as a terminal sends it."""
    command = [sys.executable, *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for_child(process: subprocess.Popen[str]) -> None:
    """Until it has started a process of its own."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    end_s = time.monotonic() + 40
    while not children.read_text():
        assert time.monotonic() < end_s
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_it_with_rows_that_say_so(number):
    """The rest is told as not measured, in JSON too; exit code 130, no traceback. SIGTERM does the same."""
    with interruptible("-m", "bench", "drain_side_by_side", "decide", "--json", "--check") as process:
        wait_for_child(process)
        process.send_signal(number)
        out, err = process.communicate(timeout=40)
    assert (process.returncode, err) == (130, "")
    assert [(row["benchmark"], row["what"], row["note"]) for row in json.loads(out)] == [
        ("drain_side_by_side", "no figures", "interrupted"),
        ("decide", "no figures", "interrupted"),
    ]


def test_a_reader_that_leaves_is_no_fault():
    """`python -m bench ... | head` says nothing of a broken pipe."""
    with interruptible("-m", "bench", "--list") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""


def test_ctrl_c_at_a_benchmark_that_runs_alone():
    """A word, no traceback."""
    with interruptible("bench/cli_startup.py") as process:
        wait_for_child(process)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=40)
    assert (process.returncode, out) == (-signal.SIGINT, "")
    assert err == "interrupted\n"


def test_run_alone_it_judges_with_check_only():
    """The exit code of each benchmark is that of the whole: 0 unless --check is given and a target is missed."""
    late, fine = Row("slow", "s", 3.0, at_most=2), Row("fine", "s", 1.0, at_most=2)
    assert [table.show([late], check=check) for check in (False, True)] == [0, 1]
    assert table.show([fine, Row("absent", "s", at_most=2)], check=True) == 0


def test_without_simpy_ours_stays(monkeypatch):
    """The row says what to install."""
    from bench import simpy_step

    monkeypatch.setitem(sys.modules, "simpy", None)
    (row,) = simpy_step.measure(0.02)
    assert row.ours is not None
    assert (row.peer, row.ratio, row.met) == (None, None, None)
    assert "SimPy is absent: pip install" in table.cells(row)[3]


def test_without_curl_the_drain_is_measured_alone(monkeypatch):
    """Its rows keep their targets and say which peer is missing."""
    from bench import drain_listeners, drain_side_by_side
    from tests.drain.matrix import BY_NAME

    monkeypatch.setattr(shutil, "which", lambda _name: None)
    monkeypatch.setattr(drain_listeners, "SHOWN", ("refuses",))
    judged, told, refuses = drain_listeners.measure([BY_NAME["refuses"]])
    assert (judged.ours, judged.met, told.ours, refuses.met) == (1, True, 1, True)
    assert "curl is absent: apt-get install it" in table.cells(refuses)[3]
    monkeypatch.setattr(drain_side_by_side, "beside", lambda *_numbers, at_once: [Row("some")])
    assert drain_side_by_side.rows()[-1].note == "curl is absent"


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
    assert (decide["target"], decide["peer_name"]) == ("≤ 1,000 µs", "the formula alone")
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
    assert capsys.readouterr().out.count(row.what) == 2


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
