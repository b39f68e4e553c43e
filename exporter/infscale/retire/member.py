"""The verdict on one read of one member: idle, held or refused, and by which rule. Pure.

| the member | verdict |
|---|---|
| still serving requests | held |
| some gauges missing, unusable, negative or NaN | held; unusable is told before missing |
| the read fails, times out, is too large, is not metrics | held |
| the container restarted, or drifts during the read | held (`target.drift`) |
| a prefill or decode replica | refused (`command`, and the sidecar's own word) |
| command unreadable, members disagree, an engine that no profile claims | held (`command`) |
| an engine with no gauge list | refused (`command`) |
| several Pods | the leader's read; held while the group is not whole (`groups`) |
| the sidecar claims idle over a series that is not 0, missing or unusable | refused |
"""

from __future__ import annotations

from dataclasses import dataclass

from infscale.engines import PROFILES
from infscale.retire.envelope import Envelope
from infscale.retire.rules import Reason, Rule
from infscale.retire.series import Series

IDLE, HELD, REFUSED = "idle", "held", "refused"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one read of a member says.

    Attributes:
        kind: `idle`, `held` (look again) or `refused` (never).
        reason: the rule.
        inflight: requests in flight, where they were measured.
        counters: digest of the monotonic counters.
        engine_read_at_s: when the sidecar read the engine, on its clock; None where the page is the engine's own.
        started_at_s: the engine's start, where it is told.
    """

    kind: str
    reason: Reason
    inflight: float | None = None
    counters: str = ""
    engine_read_at_s: float | None = None
    started_at_s: float | None = None


def held(rule: Rule, detail: str, inflight: float | None = None) -> Verdict:
    """A verdict that may change with the next read."""
    return Verdict(HELD, Reason(rule, detail), inflight)


def refused(rule: Rule, detail: str) -> Verdict:
    """A verdict that ends the retirement."""
    return Verdict(REFUSED, Reason(rule, detail))


def judge_load(engine: str, uid: str, envelope: Envelope) -> Verdict:
    """The verdict on the sidecar's word alone: how replicas are compared before one is chosen. Never `idle` for sure.

    Args:
        engine: the profile's name of the engine that the container runs.
        uid: of the Pod.
        envelope: what its sidecar says.
    """
    if found := _contradiction(engine, uid, envelope):
        return found
    if not envelope.complete or envelope.inflight is None:
        return held(Rule.INCOMPLETE, envelope.lack)
    if envelope.inflight > 0:
        return held(Rule.SERVING, _in_flight(envelope.inflight), envelope.inflight)
    return Verdict(IDLE, Reason(Rule.ONE_READ, "its sidecar says that nothing is in flight"), 0.0)


def judge(engine: str, uid: str, envelope: Envelope | Reason | None, page: Series | Reason) -> Verdict:
    """The verdict on one read.

    Args:
        engine: the profile's name of the engine that the container runs.
        uid: of the Pod.
        envelope: what its sidecar says, or why that is not known; None where there is no sidecar.
        page: what its page shows, or why that is not known.
    """
    if isinstance(envelope, Envelope) and (found := _contradiction(engine, uid, envelope)):
        return found
    for failed in (envelope, page):
        if isinstance(failed, Reason):
            return Verdict(HELD, failed)
    assert isinstance(page, Series) and not isinstance(envelope, Reason)  # noqa: S101, PT018 (told above)
    if page.role:
        return refused(Rule.ROLE, f"the page says that it is a {page.role} replica")
    if page.not_metrics:
        return held(Rule.READ_FAILED, page.fault)
    if envelope and envelope.claims_idle and page.inflight != 0:
        shown = page.fault or _in_flight(page.inflight or 0.0)
        return refused(Rule.FALSE_CLAIM, f"the sidecar says idle, and the series on its page say: {shown}")
    if envelope and not envelope.complete:
        return held(Rule.INCOMPLETE, envelope.lack)
    if page.inflight is None:
        return held(Rule.INCOMPLETE, page.fault)
    inflight = max(page.inflight, (envelope.inflight or 0.0) if envelope else 0.0)
    if inflight > 0:
        return held(Rule.SERVING, _in_flight(inflight), inflight)
    return _idle(envelope, page)


def _idle(envelope: Envelope | None, page: Series) -> Verdict:
    if envelope is not None and envelope.inflight is None:
        return held(Rule.INCOMPLETE, "the sidecar says complete, and shows no number of requests in flight")
    started_s = page.started_at_s
    if envelope and started_s is None:
        started_s = max((e.started_at_s for e in envelope.engines if e.started_at_s is not None), default=None)
    return Verdict(
        IDLE,
        Reason(Rule.ONE_READ, "nothing is in flight"),
        0.0,
        page.counters,
        # An engine's own page was read just now; only the sidecar's page may be a shared read.
        None if page.engine or envelope is None else envelope.read_at_s,
        started_s,
    )


def _in_flight(count: float) -> str:
    return f"{count:g} requests in flight"


def _contradiction(engine: str, uid: str, envelope: Envelope) -> Verdict | None:
    """What the sidecar says against the Pod that the API server shows."""
    if envelope.pod_uid is not None and envelope.pod_uid != uid:
        return held(Rule.DRIFTED, f"the answer is of the Pod with UID {envelope.pod_uid}, not {uid}")
    for said in envelope.engines:
        if said.role in ("prefill", "decode"):
            return refused(Rule.ROLE, f"its sidecar says that it is a {said.role} replica")
        if said.engine is not None and said.engine not in PROFILES:
            return held(Rule.UNCLAIMED, f"its sidecar reads it as {said.engine!r}, an engine of its own configuration")
        if said.engine is not None and said.engine != engine:
            return held(Rule.DISAGREE, f"its command runs {engine}, its sidecar reads {said.engine}")
    if engine == "vllm" and len({said.port for said in envelope.engines}) > 1:
        return refused(Rule.ROLE, "its engine has several ports: each is a data-parallel rank of its own")
    return None
