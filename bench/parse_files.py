"""CPU that `infscale parse` needs for a file, over hundreds of files in one call.

    python bench/parse_files.py [FOLDER] [--times N]

Reads every page of FOLDER (default: tests/data/pages) N times in one call of the command line and takes off the CPU of
a call that reads one file, so that the interpreter's start does not count. Beside it: what `prometheus_client.parser`
needs for the same files.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

sys.path.insert(0, str(Path(__file__).parents[1]))  # for bench.table

from bench.table import Row, Size, alone, show

PAGES = Path(__file__).parents[1] / "tests" / "data" / "pages"
TIMES = 10


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


def measure(folder: Path, times: int) -> list[Row]:
    """Read every page of a folder so many times."""
    files = sorted(str(path) for path in folder.glob("*.prom"))
    if not files:
        raise SystemExit(f"{folder}: no *.prom files in it")
    first_s, whole_s = cpu_s("parse", files[0]), cpu_s("parse", *files * times)
    own_s, peer_each_s = (whole_s - first_s) / (len(files) * times - 1), peer_s(files) / len(files)
    bytes_each = sum(Path(file).stat().st_size for file in files) / len(files)
    what = f"CPU for a file of `infscale parse`, {bytes_each / 1000:.0f} kB on average"
    return [Row(what, "ms", own_s * 1e3, "prometheus_client's parser", peer_each_s * 1e3)]


def rows(size: Size = Size.FULL) -> list[Row]:
    """CPU for a file."""
    return measure(PAGES, size.pick(2, TIMES))


def main() -> int:
    """Run alone."""
    parser = alone(__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=PAGES)
    parser.add_argument("--times", type=int, default=TIMES, help=f"read them so often (default {TIMES})")
    options = parser.parse_args()
    return show(measure(options.folder, options.times), check=options.check)


if __name__ == "__main__":
    sys.exit(main())
