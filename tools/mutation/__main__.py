"""Mutate a package of infscale, run its tests against each mutant, and list those that no test notices.

    python -m tools.mutation core                 # what was killed before is not run again
    python -m tools.mutation core 'infscale.core.hpa.*'

Called by `make mutation PACKAGE=core`. mutmut mutates and runs: only the tests that call the mutated function, the
fastest first, until one fails. It works in build/mutation/PACKAGE, on a copy; survivors.txt there has their diffs.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
MUTMUT = "3.8.1"
"""The version that is used: some of its inside is replaced."""
TESTS = {"core": ["tests/core"], "drain": ["tests/drain"]}
"""The packages with a mutation run, and the tests that must notice."""
LEFT_OUT = {
    "core": [
        "tests/core/test_memory.py::test_the_memory_is_bounded_whatever_the_fleet_does",
        "tests/core/test_memory.py::test_a_compact_log_says_the_same",
        "tests/core/test_grammar.py::test_any_text_is_a_policy_or_a_fault",
    ],
    "drain": [
        *(f"tests/drain/test_{name}.py" for name in ("exec_form", "http_form", "removal", "launcher", "cost")),
        "tests/drain/test_cli.py::test_live_lines_and_verdict",
        "tests/drain/test_matrix.py::test_rule_04_return_on_the_wall_clock",
        "tests/drain/test_rules_timeline.py::test_rule_05_manifests_give_one_grace_period",
        "tests/drain/test_rules_timeline.py::test_rule_05_another_grace_period_is_noticed",
        "tests/drain/test_bundle.py::test_needs_no_home_and_no_environment",
    ],
}
"""Tests that take longer than all others together (drain's wait on the wall clock, in processes of their own), or that
no mutated copy passes: fewer tests kill fewer mutants."""
MOST_SURVIVORS = 0.05
MOST_BYTES = 4 << 30
"""Of address space: a mutant that appends without end is stopped here."""


def work_folder(package: str) -> Path:
    """The folder of a package's runs, with the repository in it by links: src is where mutmut expects the code."""
    folder = ROOT / "build" / "mutation" / package
    copy = folder / "mutants"
    copy.mkdir(parents=True, exist_ok=True)
    links = {folder / name: ROOT / name for name in ("setup.cfg", "pyproject.toml", "tests")}
    links |= {folder / "src": ROOT / "exporter", copy / "exporter": Path("src")}
    kept = {"build", "exporter", "tests", "setup.cfg", "pyproject.toml"}
    links |= {copy / path.name: path for path in ROOT.iterdir() if path.name[0] != "." and path.name not in kept}
    for link, target in links.items():
        if not link.is_symlink():
            link.symlink_to(target)
    return folder


def configure(package: str) -> None:
    """Tell mutmut what to mutate and how to run the tests."""
    config = importlib.import_module("mutmut.configuration").config()
    config.only_mutate = [f"src/infscale/{package}/*"]
    config.pytest_add_cli_args_test_selection = TESTS[package]
    config.pytest_add_cli_args = [
        *("-p", "tools.mutation.plugin", "--hypothesis-profile=mutation"),
        *("-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:cov"),
        *(f"--deselect={test}" for test in LEFT_OUT[package]),
    ]
    config.timeout_multiplier, config.timeout_constant = 10.0, 2.0
    config.use_git_change_detection = config.track_dependencies = False
    libcst = importlib.import_module("libcst")
    head = (Path(__file__).parent / "active.py").read_text(encoding="utf-8").partition('"""\n\n')[2]
    file_mutation: Any = importlib.import_module("mutmut.mutation.file_mutation")
    file_mutation.trampoline_impl_cst = libcst.parse_module(head).body


def forget_survivors() -> None:
    """Have those run again that no test noticed the last time: there may be new tests, and they may call other code."""
    Path("mutants/mutmut-stats.json").unlink(missing_ok=True)
    for path in Path("mutants").rglob("*.py.meta"):
        meta = json.loads(path.read_text(encoding="utf-8"))
        codes = meta["exit_code_by_key"]
        meta["exit_code_by_key"] = {name: 1 if code in (1, 3) else None for name, code in codes.items()}
        path.write_text(json.dumps(meta, indent=4), encoding="utf-8")


def results() -> Iterator[Any]:
    """What mutmut knows of each mutated file."""
    for path in importlib.import_module("mutmut.utils.file_utils").walk_mutatable_files():
        data = importlib.import_module("mutmut.mutation.data").SourceFileMutationData(path=path)
        data.load()
        yield data


def run_afresh(package: str) -> None:
    """Run the survivors among functions that run at import once more, each in a process of its own.

    A fork of a process that has imported everything comes too late for them.
    """
    copy = Path("mutants").resolve()
    hits = copy / "import-hits.txt"
    hits.unlink(missing_ok=True)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(str(copy / name) for name in ("src", "sim", "."))}
    modules = [path.relative_to(copy / "src").with_suffix("") for path in copy.glob(f"src/infscale/{package}/*.py")]
    imports = "\n".join(f"import {'.'.join(module.parts)}" for module in modules)
    subprocess.run(
        [sys.executable, "-c", imports],
        env={**env, "MUTANT_UNDER_TEST": "stats", "MUTANT_HITS": str(hits)},
        cwd=copy,
        check=True,
    )
    early = set(hits.read_text(encoding="utf-8").split()) if hits.exists() else set()
    options = importlib.import_module("mutmut.configuration").config().pytest_add_cli_args
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:randomly", *options, *TESTS[package]]
    for data in results():
        for name, code in data.exit_code_by_key.items():
            if code == 0 and name.partition("__mutmut_")[0] in early:
                done = subprocess.run(
                    command, env={**env, "MUTANT_UNDER_TEST": name}, cwd=copy, capture_output=True, check=False
                )
                data.exit_code_by_key[name] = int(done.returncode != 0)
        data.save()


def report() -> int:
    """Print the counts, and write the diff of each mutant that was not killed; 1 where these are too many."""
    stats = importlib.import_module("mutmut.stats")
    difference = importlib.import_module("mutmut.mutation.diff_apply").get_diff_for_mutant
    outcomes: dict[str, str] = {}
    diffs = []
    for data in results():
        for name, code in data.exit_code_by_key.items():
            outcomes[name] = stats.status_by_exit_code[code]
            if outcomes[name] not in ("killed", "timeout"):
                diffs.append(f"# {name}: {outcomes[name]}\n{difference(name, path=data.path)}\n")
    Path("survivors.txt").write_text("\n".join(diffs), encoding="utf-8")
    counts = Counter(outcomes.values())
    print(f"{len(outcomes)} mutants: {', '.join(f'{number} {outcome}' for outcome, number in counts.most_common())}")
    share = len(diffs) / len(outcomes)
    print(f"{share:.1%} were noticed by no test, at most {MOST_SURVIVORS:.0%} may: {Path('survivors.txt').resolve()}")
    return int(share > MOST_SURVIVORS)


def run(package: str, names: list[str], children: int) -> None:
    """Make the mutants and run the tests against them."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    os.chdir(work_folder(package))
    os.environ["MUTANT_HITS"] = str(Path("hits.txt").resolve())
    sys.path.insert(0, str(ROOT))
    configure(package)
    if not names:
        forget_survivors()
    main: Any = importlib.import_module("mutmut.__main__")
    runner: Any = importlib.import_module("tools.mutation.runner")
    main.get_mutant_runner = lambda most=1: runner.Runner(most, runner.Collected())
    main._run(names, children)
    run_afresh(package)


def main() -> int:
    """Run and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", choices=TESTS)
    parser.add_argument(
        "names", nargs="*", help="mutants to run, with * for any text; all that were not killed if none"
    )
    parser.add_argument("--children", type=int, default=1, help="mutants side by side")
    options = parser.parse_args()
    try:
        installed = version("mutmut")
    except PackageNotFoundError:
        installed = "none"
    if installed != MUTMUT:
        parser.error(f"mutmut {MUTMUT} is needed, {installed} is installed: pip install mutmut=={MUTMUT}")
    run(options.package, options.names, options.children)
    return report()


if __name__ == "__main__":
    sys.exit(main())
