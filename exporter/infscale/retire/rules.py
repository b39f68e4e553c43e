"""The rules of a retirement: every hold and refusal names the one that it follows. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Rule(Enum):
    """What holds a retirement back, or ends it. The words are what a person sees, and what docs/retire.md explains."""

    # What one read of a member says.
    SERVING = "still-serving"
    INCOMPLETE = "incomplete-gauges"
    READ_FAILED = "read-failed"
    RESTARTED = "restarted"
    DRIFTED = "drifted"
    ROLE = "prefill-or-decode"
    UNREADABLE = "command-unreadable"
    DISAGREE = "members-disagree"
    UNCLAIMED = "engine-unknown"
    NO_GAUGES = "no-gauge-list"
    GROUP = "group"
    FALSE_CLAIM = "false-claim"
    ONE_READ = "one-idle-read"
    COUNTERS = "counters-moved"
    # Whether requests still reach it.
    NOT_WITHDRAWN = "not-withdrawn"
    ENDPOINTS = "still-in-endpoints"
    ROUTER = "still-in-router"
    CLIENTS = "client-connections"
    # The workload around it.
    AUTOSCALER = "autoscaler-scales-down"
    UNSETTLED = "workload-unsettled"
    SIBLINGS = "sibling-not-ready"
    ORDINAL = "not-highest-ordinal"
    NO_TARGET = "no-target"
    COST = "deletion-cost"
    SCALE = "scale"
    TARGET_LEFT = "target-left"
    # The retirement itself.
    BUDGET = "budget-exhausted"
    API = "api"
    RETRY = "needs-retry"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why nothing goes on, or why it ended.

    Attributes:
        rule: the rule.
        detail: what was found and, where a person can help it, what to do.
    """

    rule: Rule
    detail: str

    def __str__(self) -> str:
        return f"{self.rule.value}: {self.detail}"
