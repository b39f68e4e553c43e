"""The saved inputs of a target: `tests/data/fuzz/NAME.json`, a list of texts, each byte of an input a character.

One file for each target, an input a line: a new one is one line of a diff, and can be read in most cases.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "data" / "fuzz"


def saved(name: str) -> list[bytes]:
    """The inputs of a target, shortest first; none where there is no file yet."""
    path = FOLDER / f"{name}.json"
    return [text.encode("latin-1") for text in json.loads(path.read_text())] if path.exists() else []


def save(name: str, inputs: Iterable[bytes]) -> None:
    """Replace the inputs of a target."""
    lines = [json.dumps(data.decode("latin-1")) for data in sorted(set(inputs), key=lambda data: (len(data), data))]
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{name}.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")
