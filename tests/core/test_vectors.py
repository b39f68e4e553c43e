"""The core against the Kubernetes controller: every test vector, and the runner that can be pointed at more of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import hpa_vectors

FILE = Path(__file__).parent.parent / "data" / "hpa" / "vectors.json"
ROWS = hpa_vectors.load(FILE)


@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_the_core_gives_what_the_controller_gives(row):
    """Each row's expectation comes out, every key of it."""
    assert hpa_vectors.check(row) == []


def test_every_kind_of_the_schema_can_be_run():
    """The runner knows the kinds that the header describes and the one without rows here."""
    kinds = set(json.loads(FILE.read_text())["schema"]["kinds"])
    assert kinds <= set(hpa_vectors.KINDS)
    assert "scale_down_limit" in hpa_vectors.KINDS


@pytest.fixture
def vectors(tmp_path):
    """Write a file of vectors with the given rows."""

    def write(*rows: object) -> str:
        path = tmp_path / "vectors.json"
        path.write_text(json.dumps({"schema": {"format": "infscale-hpa-vectors/1"}, "vectors": rows}))
        return str(path)

    return write


def test_the_runner_is_a_command():
    """`python -m tests.hpa_vectors FILE` passes the file and closes with the count."""
    root = FILE.parents[3]
    done = subprocess.run(
        [sys.executable, "-m", "tests.hpa_vectors", str(FILE)], cwd=root, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == f"{len(ROWS)} passed, 0 failed"


def test_a_wrong_number_fails_with_its_id(vectors, capsys):
    """A row that differs is named, the others still count, and the exit status is 1."""
    good = ROWS[0]
    wrong = {**good, "id": "wrong-1", "expect": {**good["expect"], "replicas": 99}}
    assert hpa_vectors.main([vectors(wrong, good)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["wrong-1: replicas: expected 99, got 7", "1 passed, 1 failed"]


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "no_such_kind"},
        {"expect": {"no_such_key": 1}},
        {"expect": {"error_contains": "anything"}},
        {"input": {}},
    ],
)
def test_what_a_row_asks_for_is_never_passed_over(vectors, capsys, change):
    """An unknown kind or key, an error that did not come, and an input that breaks the core are failures."""
    assert hpa_vectors.main([vectors({**ROWS[0], **change})]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "0 passed, 1 failed"


def test_an_unexpected_error_is_a_failure(vectors, capsys):
    """A row that expects numbers fails on an error of the core."""
    row = {
        "id": "empty-1",
        "kind": "replica_calc",
        "input": {"metric_source": "external_average", "target": 1000, "current_replicas": 3, "samples_milli": []},
        "expect": {"replicas": 3},
    }
    assert hpa_vectors.main([vectors(row)]) == 1
    assert "no metrics returned" in capsys.readouterr().out


def test_scale_down_limit_takes_the_input_of_scale_up_limit(vectors, capsys):
    """The kind without rows of its own runs: 90 less 30 % is 62 in float64."""
    rules = {"policies": [{"type": "Percent", "value": 30, "period_s": 60}]}
    row = {
        "kind": "scale_down_limit",
        "input": {"current_replicas": 90, "scale_up_events": [], "scale_down_events": [], "rules": rules},
        "expect": {"limit": 62},
    }
    assert hpa_vectors.main([vectors(row)]) == 0
    assert capsys.readouterr().out == "1 passed, 0 failed\n"


def test_succeeded_reads_as_running_in_old_rows_only(vectors, capsys):
    """`pre_succeeded_ignored` rows count a Succeeded Pod; all others, whatever their semantics say, ignore it."""
    source = {"pods": [{"name": "p", "phase": "Succeeded"}], "samples": {"p": {"value": 1}}, "resource": "memory"}
    old = {"ready": 1, "unready": [], "missing": [], "ignored": []}
    new = {"ready": 0, "unready": [], "missing": [], "ignored": ["p"]}
    rows = [
        {"kind": "group_pods", "semantics": "pre_succeeded_ignored", "input": source, "expect": old},
        {"kind": "group_pods", "semantics": "some day", "input": source, "expect": new},
    ]
    assert hpa_vectors.main([vectors(*rows)]) == 0
    assert capsys.readouterr().out == "2 passed, 0 failed\n"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"vectors": 1}', '{"vectors": [1]}', '{"vectors": [{"kind": "x"}]}'])
def test_a_file_that_is_not_one_of_vectors_is_told_apart(tmp_path, capsys, text):
    """Exit status 2 and one line on standard error that names the file."""
    path = tmp_path / "foreign.json"
    path.write_text(text)
    assert hpa_vectors.main([str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert str(path) in err
    assert err.count("\n") == 1


def test_without_a_file_the_usage_is_shown(capsys):
    """No argument, and a file that does not exist, are exit status 2."""
    assert hpa_vectors.main([]) == 2
    assert "usage" in capsys.readouterr().err
    assert hpa_vectors.main(["no/such/file.json"]) == 2
