"""CPU that `infscale parse` needs for a file, over hundreds of files in one call.

    python bench/parse_files.py [FOLDER] [--times N]

Reads every page of FOLDER (default: tests/data/pages) N times in one call of the command line and takes the CPU of an
empty `--help` off, so that the interpreter's start does not count. Beside it: what `prometheus_client.parser` needs for
the same files.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

ROOT = Path(__file__).parent.parent


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    arguments.add_argument("folder", nargs="?", type=Path, default=ROOT / "tests" / "data" / "pages")
    arguments.add_argument("--times", type=int, default=10)
    given = arguments.parse_args()
    files = sorted(str(path) for path in given.folder.glob("*.prom")) * given.times
    started_s, first_s = cpu_s("parse", "--help"), cpu_s("parse", *files[:1])
    whole_s = cpu_s("parse", *files)
    ours_ms = (whole_s - first_s) / (len(files) - 1) * 1000
    theirs_ms = peer_s(files[:: given.times]) / len(files[:: given.times]) * 1000
    print(f"{len(files)} files, {sum(map(size, files)) / len(files) / 1000:.1f} kB on average")
    print(f"one call                   {whole_s:.2f} s CPU, of which {first_s:.2f} s start and first file")
    print(f"help only                  {started_s:.2f} s CPU")
    print(f"infscale parse             {ours_ms:.3f} ms CPU a file")
    print(f"prometheus_client.parser   {theirs_ms:.3f} ms CPU a file, {theirs_ms / ours_ms:.0f} times as much")


def cpu_s(*arguments: str) -> float:
    """CPU seconds of one call of the command line."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "infscale", *arguments]
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def peer_s(files: list[str]) -> float:
    """CPU seconds that the client library's parser needs for the files; pages it refuses count until there."""
    pages = [Path(file).read_text(encoding="utf-8") for file in files]
    start_s = time.process_time()
    for page in pages:
        try:
            for _family in text_string_to_metric_families(page):
                pass
        except ValueError:
            continue
    return time.process_time() - start_s


def size(file: str) -> int:
    """Bytes of a file."""
    return Path(file).stat().st_size


if __name__ == "__main__":
    main()
