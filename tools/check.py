"""Run every check of the project in turn and close with a line that a person understands. Called by `make test`.

Quiet where all is well: a check that passes prints one line. Loud where not: one that fails prints all that it said.
The tests run last, with pytest's own output.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
CLOSING_LINE = re.compile(r"\d+ (passed|failed|skipped|error|deselected).* in [\d.]+s")
"""Pytest's own, with -q."""
END_LIMIT_S = 20
"""From that line to the end of the process: it hangs for ever where a test left a thread running."""


def lints() -> list[tuple[str, list[str]]]:
    """The checks before the tests: (what it is, command)."""
    yaml = [str(path) for path in sorted(ROOT.rglob("*.y*ml")) if is_ours(path)]
    return [
        ("lint", [f"{BIN}/ruff", "check", "--quiet", "."]),
        ("format", [f"{BIN}/ruff", "format", "--check", "--quiet", "."]),
        ("types", [f"{BIN}/mypy", "--no-error-summary"]),
        ("import contracts", [f"{BIN}/lint-imports"]),
        *([("YAML", [f"{BIN}/yamllint", "--strict", *yaml])] if yaml else []),
        ("Dockerfile", [f"{BIN}/hadolint", "Dockerfile"]),
    ]


def is_ours(path: Path) -> bool:
    """Whether a YAML file is one to lint: not in a virtual environment or cache, nor among the tests' data."""
    parts = path.relative_to(ROOT).parts
    return not parts[0].startswith((".", "build", "venv")) and parts[:2] != ("tests", "data")


def run_lints() -> list[str]:
    """Run the lints; print what failed in full. Returns the names of those that failed."""
    failed = []
    for name, command in lints():
        began = time.monotonic()
        done = subprocess.run(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        took = time.monotonic() - began
        if done.returncode:
            failed.append(name)
            print(done.stdout.rstrip(), flush=True)
        print(f"{name}: {'FAILED' if done.returncode else 'ok'} ({took:.1f} s)", flush=True)
    return failed


def run_tests(data: dict[str, str], arguments: list[str]) -> tuple[bool, str]:
    """Run pytest with its output shown.

    Args:
        data: folders of further data by pytest's option for them; empty where there is none.
        arguments: for pytest.

    Returns:
        Whether all passed, and the counts, as `512 tests passed`.
    """
    # Half of the tests' time is waiting: one process more than there are cores. The tests of a file stay together.
    side_by_side = ["-n", str(1 + (os.cpu_count() or 1)), "--dist", "loadfile"]
    command = [sys.executable, "-m", "pytest", "-q", *side_by_side, *arguments]
    command += [f"--{option}={folder}" for option, folder in data.items() if folder]
    if os.environ.get("CI"):
        command += ["-p", "no:randomly"]
    last = ""
    env = {**os.environ, "PATH": os.pathsep.join((os.environ["PATH"], str(BIN)))}  # where tools/kubectl.sh puts kubectl
    with subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        limit = threading.Timer(END_LIMIT_S, process.kill)
        for line in process.stdout:
            print(line, end="", flush=True)
            if CLOSING_LINE.match(line):
                if not last:
                    limit.start()
                last = line
        code = process.wait()
        limit.cancel()
    if code == -signal.SIGKILL:
        return False, f"a test left something running: pytest did not end {END_LIMIT_S} s after its closing line"
    counts = re.findall(r"(\d+) (passed|failed|skipped|errors?)\b", last)
    words = [f"{count} {'test' if count == '1' else 'tests'} {outcome}" for count, outcome in counts]
    return code == 0, ", ".join(words) or "no test ran"


def main() -> int:
    """Run the checks; exit status 0 when all of them passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lint-only", action="store_true")
    parser.add_argument("--recordings", default="")
    parser.add_argument("--traces", default="")
    parser.add_argument("--crds", default="")
    parser.add_argument("arguments", nargs="*", help="for pytest, after --")
    options = parser.parse_args()
    began = time.monotonic()
    failed = run_lints()
    passed = [name for name, _ in lints() if name not in failed]
    command = "make lint" if options.lint_only else "make test"
    if not options.lint_only:
        data = {"recordings": options.recordings, "traces": options.traces, "crds": options.crds}
        good, counts = run_tests(data, options.arguments)
        (passed if good else failed).append(counts)
    took = f"{time.monotonic() - began:.0f} s"
    if failed:
        print(f"\n{command}: NOT green: {', '.join(failed)} (in {took}; what went wrong stands above)")
        return 1
    print(f"\n{command}: all green: {', '.join(passed)}, in {took}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
