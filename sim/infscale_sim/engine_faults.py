"""The faults of the stand-in engine, by name; `--fault` turns them on at the start, a POST to /fault at any time."""

from __future__ import annotations

import json
from collections.abc import Iterable

from infscale.errors import UsageError
from infscale_sim.engine_page import DROP, NAN

HANG, ERROR, FREEZE, STALL = "hang-metrics", "error-500", "freeze-gauges", "stall"

FAULTS = {
    HANG: "the metrics page never answers",
    ERROR: "the metrics page answers 500",
    DROP: "the page has no gauges",
    NAN: "every gauge is NaN",
    FREEZE: "gauges keep the values of the moment",
    STALL: "the engine hangs: no token comes, counters stand still, /health is 200",
}


def check_faults(names: Iterable[str]) -> frozenset[str]:
    """Return the names as a set.

    Raises:
        UsageError: one is unknown.
    """
    found = frozenset(names)
    unknown = sorted(found - FAULTS.keys())
    if unknown:
        raise UsageError(f"no such fault {unknown[0]!r}; there are {', '.join(FAULTS)}")
    return found


def read_faults(body: bytes) -> frozenset[str]:
    """Return what a POST to /fault asks for: `{"faults": ["nan"]}` are all that shall be on; an empty list ends them.

    Raises:
        UsageError: it is anything else.
    """
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        value = None
    names = value.get("faults") if isinstance(value, dict) else None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UsageError('expected {"faults": ["NAME", ...]}, every fault that shall be on; [] ends them all')
    return check_faults(names)
