"""Stabilisation: recent proposals hold the count against a short-lived change.

The log keeps what the metrics proposed, never what came of it. It stays short because a new entry takes the place of an
outdated one where there is one. Used by `core.decide`.
"""

from __future__ import annotations

from infscale.core.decision import Condition, Reason, Step
from infscale.core.policy import Policy
from infscale.core.state import Log, Recommendation, stored


def stabilise(policy: Policy, log: Log, now_s: float, current: int, proposal: int) -> tuple[Step, Condition, Log]:
    """The proposal as the recent ones let it through, the HPA's AbleToScale condition, and the log with it added."""
    up_window_s, down_window_s = policy.windows_s
    if policy.behavior is None:
        replicas, log = without_behavior(log, now_s, proposal, down_window_s)
        waits_down = replicas != proposal
    else:
        replicas, log = with_behavior(log, now_s, current, proposal, up_window_s, down_window_s)
        waits_down = proposal < current
    if replicas == proposal:
        words = f"{proposal}: no recent proposal holds it"
        return Step("stabilise", proposal, replicas, None, words), _able("ReadyForNewScale"), log
    other, window_s = ("larger", down_window_s) if waits_down else ("smaller", up_window_s)
    words = f"{replicas} instead of {proposal}: the last {window_s} s saw a {other} proposal"
    reason = "ScaleDownStabilized" if waits_down else "ScaleUpStabilized"
    return Step("stabilise", proposal, replicas, Reason.STABILISED, words), _able(reason), log


def without_behavior(log: Log, now_s: float, proposal: int, window_s: float) -> tuple[int, Log]:
    """The largest of the proposal and all logged ones of age **<=** window.

    Source: pkg/controller/podautoscaler/horizontal.go, `stabilizeRecommendation`.
    """
    recent = [entry.replicas for entry in log if now_s - entry.time_s <= window_s]
    return max([proposal, *recent]), logged(log, now_s, proposal, window_s)


def with_behavior(
    log: Log, now_s: float, current: int, proposal: int, up_window_s: float, down_window_s: float
) -> tuple[int, Log]:
    """The current count, moved up to what all recent proposals agree on and down to what none of them exceeds.

    Recent is of age **<** window, each direction with its own. So a rise waits until every proposal of the up window is
    above the count, a fall until every one of the down window is below it.

    Source: horizontal.go, `stabilizeRecommendationWithBehaviors`.
    """
    up = min([proposal, *(entry.replicas for entry in log if now_s - entry.time_s < up_window_s)])
    down = max([proposal, *(entry.replicas for entry in log if now_s - entry.time_s < down_window_s)])
    return min(max(current, up), down), logged(log, now_s, proposal, max(up_window_s, down_window_s))


def logged(log: Log, now_s: float, proposal: int, window_s: float) -> Log:
    """The log with the proposal in the place of the last entry older than the window, else at the end."""
    return stored(log, Recommendation(proposal, now_s), window_s)


def _able(reason: str) -> Condition:
    return Condition("AbleToScale", True, reason)
