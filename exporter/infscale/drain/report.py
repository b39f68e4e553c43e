"""What came of a drain: a line of JSON on the engine's and the sidecar's output, and the sidecar's metrics.

`infscale.drain.run` makes it, the hook writes and posts it, the sidecar's `/drain/report` reads it back. What the hook
does not need at its start (`json`, `infscale.checks`) is imported where it is used: 6 ms.

Runs on Python 3.9 (it travels in the drain bundle).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Dict, Optional, Union

from infscale.drain.timeline import OUTCOMES

if TYPE_CHECKING:
    from infscale.checks import Place

MAX_NOTE_CHARACTERS = 300
MAX_REPORT_BYTES = 16 * 1024
"""Of a report that is read back; a real one has under 1 kB."""

_SECONDS = ("seconds", "grace_s", "deadline_s")


@dataclass(frozen=True)
class DrainReport:
    """How a drain ended.

    Attributes:
        outcome: one of OUTCOMES.
        seconds: from its start to its end.
        reads: of the engine, in all.
        busy_reads: those that found it busy, or could not measure.
        timeouts: those that timed out.
        missing: those on whose page a counted gauge was missing.
        unusable: those with a counted gauge that was no count (NaN, negative), or a page that was no text.
        inflight: requests in flight at the last read that could tell; None if none could.
        connections: clients connected at the end, idle ones included; None where they cannot be seen.
        grace_s: the grace period that was gone by: the smaller of the Pod's and the limit of its node.
        deadline_s: no read began at or after this many seconds.
        engine: the engine's name; empty where it was neither told nor found.
        restarted: the engine was another process at the end than at the start.
        note: one line for a person; empty where there is nothing to say.
    """

    outcome: str
    seconds: float = 0.0
    reads: int = 0
    busy_reads: int = 0
    timeouts: int = 0
    missing: int = 0
    unusable: int = 0
    inflight: Optional[float] = None
    connections: Optional[int] = None
    grace_s: float = 0.0
    deadline_s: float = 0.0
    engine: str = ""
    restarted: bool = False
    note: str = ""

    def to_json(self) -> str:
        """One line of JSON, without the line's end; control characters of a note stay escaped."""
        import json

        return json.dumps(_rounded(asdict(self)))

    @classmethod
    def from_json(cls, text: Union[str, bytes], source: str = "") -> DrainReport:
        """Reads a report back; what is unknown in it is left out, so that an older sidecar takes a newer hook's.

        Args:
            text: the line.
            source: whom it came from, for the error.

        Raises:
            ConfigError: it is too long, no JSON, or a field is not what it should be.
        """
        import json

        from infscale import checks

        place = checks.Place(source)
        if len(text) > MAX_REPORT_BYTES:
            raise place.error(f"a report of {len(text)} bytes: expected at most {MAX_REPORT_BYTES}")
        try:
            loaded = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise place.error(f"not JSON ({error}): expected a drain's report") from None
        given = checks.mapping(loaded, place)
        if "outcome" not in given:
            raise place.key("outcome").error("missing: expected a drain's report")
        known = {field.name for field in fields(cls)}
        return cls(**{key: _value(key, value, place.key(key)) for key, value in given.items() if key in known})


def _rounded(values: Dict[str, Any]) -> Dict[str, Any]:
    """Milliseconds will do, and whole counts read better without a fraction."""
    for key in _SECONDS:
        values[key] = round(values[key], 3)
    if values["inflight"] is not None and values["inflight"] == int(values["inflight"]):
        values["inflight"] = int(values["inflight"])
    return values


def _value(key: str, value: object, place: Place) -> Any:
    """One field's value, checked."""
    from infscale import checks

    if key == "outcome":
        word = checks.text(value, place)
        if word not in OUTCOMES:
            raise place.error(f"expected one of {', '.join(OUTCOMES)}, got {checks.described(word)}")
        return word
    if key in ("engine", "note"):
        return "".join(c if c.isprintable() else " " for c in checks.text(value, place)[:MAX_NOTE_CHARACTERS])
    if key == "restarted":
        if not isinstance(value, bool):
            raise place.error(f"expected true or false, got {checks.described(value)}")
        return value
    if value is None and key in ("inflight", "connections"):
        return None
    number = checks.number(value, place, at_least=0, at_most=1e9)
    if key in _SECONDS or key == "inflight":
        return number
    if number != int(number):
        raise place.error(f"expected a whole number, got {number:g}")
    return int(number)
