"""Look for inputs that break a reader: `python -m tests.fuzz TARGET --seconds 600`, or `make fuzz TARGET=...`.

Guided by coverage with atheris (`pip install atheris`); it begins with the saved corpus, and ends at the first input
that raises, takes too long or too much, which it writes beside `--work`. `--keep` takes over from the work folder, into
`tests/data/fuzz`, the fewest and shortest inputs that reach all the lines that it found; `--list` names the targets.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import sys
from collections.abc import Callable
from pathlib import Path

MOST_KEPT_BYTES = 40_000
"""Of the inputs that are kept for one target."""


def main() -> int:
    """Run, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", nargs="?", default="")
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--work", type=Path, default=Path("build/fuzz"))
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--list", action="store_true")
    asked = parser.parse_args()
    logging.getLogger("infscale").setLevel(logging.CRITICAL)
    logging.getLogger("aiohttp").setLevel(logging.CRITICAL)
    if asked.list:
        from tests.fuzz.targets import TARGETS

        sys.stdout.write("\n".join(TARGETS) + "\n")
        return 0
    folder = asked.work / asked.target
    folder.mkdir(parents=True, exist_ok=True)
    return keep(asked.target, folder) if asked.keep else fuzz(asked.target, folder, asked.seconds)


def fuzz(name: str, folder: Path, seconds: int) -> int:
    """Let atheris look for so long; it ends the process itself, with another code than 0 if it found something."""
    try:
        atheris = importlib.import_module("atheris")  # not among the development requirements: 35 MB
    except ImportError:
        sys.stderr.write("atheris is not installed: pip install atheris\n")
        return 2
    with atheris.instrument_imports(include=["infscale"], enable_loader_override=False):
        from tests.fuzz import targets
    from tests.fuzz import bounds, corpus

    if name not in targets.TARGETS:
        sys.stderr.write(f"no target {name!r}: expected one of {', '.join(targets.TARGETS)}\n")
        return 2
    target = targets.TARGETS[name]
    for number, data in enumerate(corpus.saved(name)):
        (folder / f"saved-{number}").write_bytes(data)
    words = folder.with_suffix(".dict")
    words.write_text("".join(f'"{_escaped(word)}"\n' for word in target.words.split()))

    def once(data: bytes) -> None:
        most_s = bounds.MOST_S * bounds.INSTRUMENTED
        cost = bounds.cost_of(target.run, data, most_s)
        if cost.cpu_s > most_s or (cost.clock_s > most_s and not target.waits):
            raise AssertionError(f"{cost.cpu_s:.2f} s of CPU time, {cost.clock_s:.2f} s on the clock")

    options = [f"-max_total_time={seconds}", f"-max_len={target.most_bytes}", f"-dict={words}", "-rss_limit_mb=1024"]
    options += [
        "-timeout=30",
        f"-artifact_prefix={folder.parent}/found-{name}-",
        "-print_final_stats=1",
        "-verbosity=0",
    ]
    atheris.Setup([sys.argv[0], str(folder), *options], once)
    atheris.Fuzz()
    return 0


def _escaped(word: str) -> str:
    """A word as libFuzzer's dictionaries have it."""
    plain = word.encode().decode("unicode_escape").encode("latin-1")
    return "".join(chr(b) if 32 < b < 127 and b not in b'"\\' else f"\\x{b:02x}" for b in plain)


def keep(name: str, folder: Path) -> int:
    """Choose from the saved corpus and the work folder, shortest first, what reaches a step between lines anew."""
    from tests.fuzz import corpus
    from tests.fuzz.targets import TARGETS

    run = TARGETS[name].run
    found = {path.read_bytes() for path in folder.iterdir()}
    kept: list[bytes] = []
    reached: set[tuple[str, int, int]] = set()
    for data in [*corpus.saved(name), *sorted(found, key=lambda data: (len(data), data))]:
        steps = steps_of(run, data)
        room = sum(map(len, kept)) + len(data) <= MOST_KEPT_BYTES
        if room and (TARGETS[name].elsewhere or not steps <= reached):
            reached |= steps
            kept.append(data)
    corpus.save(name, kept)
    sys.stdout.write(f"{name}: {len(kept)} of {len(found)} inputs, {len(reached)} steps\n")
    return 0


def steps_of(run: Callable[[bytes], object], data: bytes) -> set[tuple[str, int, int]]:
    """The steps from line to line that an input takes in infscale, on this thread."""
    steps: set[tuple[str, int, int]] = set()
    before: dict[int, int] = {}

    def trace(frame, event, _argument):
        name = frame.f_code.co_filename
        if "/infscale/" not in name:
            return None
        if event == "line":
            steps.add((name, before.get(id(frame), 0), frame.f_lineno))
            before[id(frame)] = frame.f_lineno
        elif event == "call":
            before[id(frame)] = 0
        return trace

    sys.settrace(trace)
    try:
        run(data)
    finally:
        sys.settrace(None)
    return steps


if __name__ == "__main__":
    sys.exit(main())
