"""Replicas before, in and after their drains, as a sidecar counts them."""

from __future__ import annotations

from infscale.metrics.drains import DrainCollector, DrainCounters


def collector(*ended: tuple[str, float, float], draining: bool = False) -> DrainCollector:
    """The collector of a replica whose drains ended so: (outcome, seconds, requests cut)."""
    counters = DrainCounters()
    for outcome, seconds, cut in ended:
        counters.ended(outcome, seconds)
        counters.cut(outcome, cut)
    return DrainCollector(lambda: draining, counters)


CASES = {
    "none": collector(),
    "marked": collector(draining=True),
    "deadline": collector(("idle", 6.0, 0), ("deadline", 25.0, 12), ("deadline", 115.0, 3), draining=True),
}
"""By the name of the golden file."""
