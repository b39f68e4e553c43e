"""What one read says about whether the engine is still working: the verdict. Pure: an answer in, a value out.

A page becomes a reading by the same profile and the same gauges as in the sidecar (`infscale.outcome`); what differs is
what is made of it. For a drain whatever is no measurement is *busy*: the absence of a measurement is not a measurement
of absence. Called by `infscale.drain.run`; what follows from a verdict is `infscale.drain.timeline`.

Runs on Python 3.9 (it travels in the drain bundle).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Mapping, Optional, Tuple, Union

from infscale.drain.connections import Clients
from infscale.engines.profile import Profile
from infscale.outcome import outcome
from infscale.reading import FRESH, ReadFailure, Reading
from infscale.scrape import Page, ScrapeFailure
from infscale.watch import restarted

IDLE, BUSY, REFUSED, HTTP, TLS = "idle", "busy", "refused", "http", "tls"
KINDS = (IDLE, BUSY, REFUSED, HTTP, TLS)

UNMEASURED = (HTTP, TLS)
"""The engine is there and shows no gauges: only its clients' connections can tell."""

TIMEOUT, MISSING, UNUSABLE = "timeout", "missing", "unusable"

_HEALTH_CHECK: Mapping[str, Mapping[str, float]] = {
    "sglang": {
        "num_requests_total": 1.0,
        "prompt_tokens_total": 1.0,
        "generation_tokens_total": 1.0,
        "realtime_tokens_total": 2.0,
    }
}
"""Engines that answer a health check by serving a request of one token to themselves, and what that adds to their
counters (SGLang, `health_generate` in `srt/entrypoints/http_server.py`: one prompt token, one generated)."""


@dataclass(frozen=True)
class Verdict:
    """What one read says.

    Attributes:
        kind: one of KINDS.
        why: one line for a person; empty where the numbers say it.
        reading: what the page says, where it was measured.
        fault: why it was not measured: `timeout`, `missing`, `unusable`; empty for what has no such name.
        clients: the engine's clients at that time; None where they cannot be seen.
        answered: the engine answered with a page, whatever it says.
        unreached: nothing could be connected to, and no refusal says that nothing is there.
        restarted: the engine is another process than at the reading before.
    """

    kind: str
    why: str = ""
    reading: Optional[Reading] = None
    fault: str = ""
    clients: Optional[Clients] = None
    answered: bool = False
    unreached: bool = False
    restarted: bool = False


def judge(
    answer: Union[Page, ScrapeFailure],
    *,
    source: str,
    profile: Optional[Profile] = None,
    profiles: Optional[Tuple[Profile, ...]] = None,
    clients: Optional[Clients] = None,
    before: Optional[Reading] = None,
) -> Verdict:
    """The verdict on one read.

    Args:
        answer: what the read gave.
        source: names the engine in messages.
        profile: the engine, where it is told or was found before.
        profiles: the engines to look for otherwise; None: the built-in ones.
        clients: the engine's clients, looked at after the read; None where they cannot be seen.
        before: the last reading of this drain.
    """
    if isinstance(answer, ScrapeFailure):
        return replace(_failed(answer), clients=clients)
    read = outcome(answer, profile=profile, profiles=profiles, source=source)
    if answer.status >= 400 and isinstance(read, ReadFailure):
        return Verdict(HTTP, read.message, clients=clients, answered=True)
    return replace(_measured(read, clients, before), clients=clients, answered=True)


def _failed(failure: ScrapeFailure) -> Verdict:
    kinds = {"refused": REFUSED, "tls": TLS, "http": HTTP}
    fault = TIMEOUT if failure.kind == "timeout" else ""
    unreached = failure.kind == "reset" and not failure.connected
    return Verdict(kinds.get(failure.kind, BUSY), failure.message, fault=fault, unreached=unreached)


def _measured(read: Union[Reading, ReadFailure], clients: Optional[Clients], before: Optional[Reading]) -> Verdict:
    if isinstance(read, ReadFailure):
        return Verdict(BUSY, read.message, fault=UNUSABLE if read.reason == UNUSABLE else MISSING)
    another = before is not None and restarted(before, read)
    if read.state == FRESH and before is not None and before.state != FRESH and not another:
        why = "the engine's gauges were there before and are gone, though it did not restart"
        return Verdict(BUSY, why, fault=MISSING)
    if read.inflight > 0:
        return Verdict(BUSY, reading=read, restarted=another)
    if clients is not None and clients.queued:
        why = f"the gauges are at 0, but {clients.queued} client connection(s) have bytes queued"
        return Verdict(BUSY, why, reading=read, restarted=another)
    return Verdict(IDLE, reading=read, restarted=another)


def confirms(first: Verdict, second: Verdict) -> bool:
    """Whether the second of two idle reads says that nothing came or went between them.

    Counters on neither page are no evidence either way. On one page only, moved, or of another process they are
    evidence against it, but for the engine's own health check, where no client is connected that may have moved them.
    """
    before, after = first.reading, second.reading
    if before is None or after is None or second.restarted:
        return False
    old, new = dict(before.counters), dict(after.counters)
    if old.keys() != new.keys():
        return False
    grown = {name: new[name] - old[name] for name in new if new[name] != old[name]}
    allowed = _HEALTH_CHECK.get(after.engine, {})
    if any(not 0 <= by <= allowed.get(name, 0.0) for name, by in grown.items()):
        return False
    return not grown or second.clients is None or not second.clients.established
