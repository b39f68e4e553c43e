"""Less or more of a trace that has one request a row. Called by `trace`; what is made from a rate scales its rate."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

from infscale_sim.traffic import Request


def scaled(requests: Iterable[Request], scale: float, rng: random.Random) -> Iterator[Request]:
    """So many times the requests, in order, with the same lengths.

    Below 1 each request stays with this probability, which leaves a Poisson stream one. From 1 on each stays, and its
    copies come at random times before the request that follows it, so that they follow its bursts and make no batches
    of their own.
    """
    return thinned(requests, scale, rng) if scale < 1 else multiplied(requests, scale, rng)


def thinned(requests: Iterable[Request], share: float, rng: random.Random) -> Iterator[Request]:
    """Each request with this probability."""
    draw = rng.random
    return (request for request in requests if draw() < share)


def multiplied(requests: Iterable[Request], times: float, rng: random.Random) -> Iterator[Request]:
    """Each request, and on average `times - 1` copies of it before the next one."""
    whole = int(times)
    part = times - whole
    before: Request | None = None
    for request in requests:
        if before is not None:
            yield from _copies(before, request.arrival_s, whole + (rng.random() < part), rng)
        before = request
    if before is not None:
        yield from _copies(before, before.arrival_s, whole + (rng.random() < part), rng)


def _copies(request: Request, until_s: float, count: int, rng: random.Random) -> Iterator[Request]:
    yield request
    for arrival_s in sorted(rng.uniform(request.arrival_s, until_s) for _ in range(count - 1)):
        yield request._replace(arrival_s=arrival_s)
