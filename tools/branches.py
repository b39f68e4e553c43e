"""Which share of the branches of the packages that matter most their own tests take. Called by `make coverage`.

A line for each module of each package; exit code 1 where a package is below 95 %. The rest of the tests does not count:
a branch that only a whole process takes by chance is not tested.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LEAST = 0.95
TESTS = {
    "core": ["tests/core"],
    "exposition": ["tests/test_exposition.py", "tests/test_exposition_generated.py", "tests/test_exposition_select.py"],
    "engines": ["tests/test_pages.py", "tests/test_custom_engine.py"],
    "drain": ["tests/drain"],
    "retire": ["tests/retire"],
}
"""The packages (`exposition`: the modules that begin so) and the tests that are theirs."""
LEFT_OUT = {"drain": ["exec_form", "http_form", "removal", "launcher", "cost"]}
"""Files of processes that no tracer follows, and that wait on the wall clock."""

CONFIG = """\
[run]
branch = True
parallel = True
patch = subprocess
data_file = {folder}/data
include = {include}
"""


def include(package: str) -> str:
    """The files of a package."""
    folder = ROOT / "exporter" / "infscale"
    return f"{folder}/{package}*.py" if package == "exposition" else f"{folder}/{package}/*.py"


def measured(package: str, folder: Path) -> dict[str, tuple[int, int]]:
    """The branches that the tests of a package take, and how many there are, by module."""
    config, report = folder / "coveragerc", folder / "report.json"
    config.write_text(CONFIG.format(folder=folder, include=include(package)), encoding="utf-8")
    ignored = [f"--ignore=tests/{package}/test_{name}.py" for name in LEFT_OUT.get(package, [])]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", *TESTS[package], *ignored]
    command += ["--cov", f"--cov-config={config}", f"--cov-report=json:{report}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stdout, file=sys.stderr)
        raise SystemExit(f"the tests of {package} failed; what they said stands above")
    files = json.loads(report.read_text(encoding="utf-8"))["files"]
    found = {name: entry["summary"] for name, entry in files.items()}
    return {
        Path(name).stem: (counts["covered_branches"], counts["num_branches"]) for name, counts in sorted(found.items())
    }


def main() -> int:
    """Measure, print, and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="*", metavar="PACKAGE", help=f"some of {', '.join(TESTS)}; else all")
    packages = parser.parse_args().packages or list(TESTS)
    if unknown := [package for package in packages if package not in TESTS]:
        parser.error(f"no such package: {unknown[0]}: expected some of {', '.join(TESTS)}")
    low = []
    for package in packages:
        with tempfile.TemporaryDirectory() as folder:
            modules = measured(package, Path(folder))
        taken, all_of_them = (sum(counts) for counts in zip(*modules.values(), strict=True))
        for module, (covered, branches) in modules.items():
            if covered < branches:
                print(f"    {module:20} {covered:>5} of {branches}")
        print(f"{package:20} {taken / all_of_them:7.1%}  {taken} of {all_of_them} branches", flush=True)
        if taken < LEAST * all_of_them:
            low.append(package)
    print(f"below {LEAST:.0%}: {', '.join(low)}" if low else f"each has at least {LEAST:.0%}")
    return int(bool(low))


if __name__ == "__main__":
    sys.exit(main())
