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
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

sys.path.insert(0, str(Path(__file__).parents[1]))  # for bench.table

from bench.table import Row, Size

PAGES = Path(__file__).parents[1] / "tests" / "data" / "pages"
TIMES = 10


@dataclass(frozen=True)
class Result:
    """CPU of one call over many files.

    Attributes:
        help_s: of a call that reads none.
        first_s: of a call that reads one.
        whole_s: of the call that reads all.
        ours_ms, theirs_ms: for each further file; what prometheus_client's parser needs for one.
    """

    files: int
    bytes_each: float
    help_s: float
    first_s: float
    whole_s: float
    ours_ms: float
    theirs_ms: float


def measure(folder: Path, times: int) -> Result:
    """Read every page of a folder so many times."""
    files = sorted(str(path) for path in folder.glob("*.prom")) * times
    help_s, first_s, whole_s = cpu_s("parse", "--help"), cpu_s("parse", *files[:1]), cpu_s("parse", *files)
    ours_ms = (whole_s - first_s) / (len(files) - 1) * 1000
    theirs_ms = peer_s(files[::times]) / len(files[::times]) * 1000
    return Result(len(files), sum(map(size_of, files)) / len(files), help_s, first_s, whole_s, ours_ms, theirs_ms)


def rows(size: Size = Size.FULL) -> list[Row]:
    """CPU for a file."""
    found = measure(PAGES, size.pick(2, TIMES))
    what = f"CPU for a file of `infscale parse`, {found.bytes_each / 1000:.0f} kB on average"
    return [Row(what, "ms", found.ours_ms, "prometheus_client's parser", found.theirs_ms)]


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    arguments.add_argument("folder", nargs="?", type=Path, default=PAGES)
    arguments.add_argument("--times", type=int, default=TIMES)
    given = arguments.parse_args()
    found = measure(given.folder, given.times)
    print(f"{found.files} files, {found.bytes_each / 1000:.1f} kB on average")
    print(f"one call                   {found.whole_s:.2f} s CPU, of which {found.first_s:.2f} s start and first file")
    print(f"help only                  {found.help_s:.2f} s CPU")
    print(f"infscale parse             {found.ours_ms:.3f} ms CPU a file")
    times = found.theirs_ms / found.ours_ms
    print(f"prometheus_client.parser   {found.theirs_ms:.3f} ms CPU a file, {times:.0f} times as much")


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


def size_of(file: str) -> int:
    """Bytes of a file."""
    return Path(file).stat().st_size


if __name__ == "__main__":
    main()
