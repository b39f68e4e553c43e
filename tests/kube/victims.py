"""Which Pods a ReplicaSet gives up first, as the real controller orders them.

Facts from kubernetes pkg/controller/controller_utils.go (`ActivePodsWithRanks`) and
pkg/controller/replicaset/replica_set.go (`getPodsToDelete`), with LogarithmicScaleDown and PodDeletionCost on, as they
are by default: not assigned to a node, Pending before Unknown before Running, not ready, lower deletion cost, more Pods
of the workload on its node, ready for less time, more restarts, younger. Times are compared by the whole logarithm of
the age; of two about as old the one with the lower UID leaves. `controller` calls this.
"""

from __future__ import annotations

import datetime
import math
import re
from collections import Counter
from functools import cmp_to_key
from typing import Any

Json = dict[str, Any]

COST = "controller.kubernetes.io/pod-deletion-cost"
_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}


def in_order(pods: list[Json], now_s: float) -> list[Json]:
    """The active Pods of one workload, those that leave first at the front."""
    on_node = Counter(pod["spec"].get("nodeName", "") for pod in pods)

    def compare(one: Json, other: Json) -> int:
        for key in (_assigned, _phase, is_ready, cost):
            if key(one) != key(other):
                return key(one) - key(other)
        ranks = [on_node[pod["spec"].get("nodeName", "")] for pod in (one, other)]
        if ranks[0] != ranks[1]:
            return ranks[1] - ranks[0]
        if is_ready(one) and is_ready(other) and (found := _younger(one, other, _ready_since_s, now_s)):
            return found
        if _restarts(one) != _restarts(other):
            return _restarts(other) - _restarts(one)
        return _younger(one, other, _created_s, now_s)

    return sorted(pods, key=cmp_to_key(compare))


def is_ready(pod: Json) -> bool:
    """Whether its Ready condition is true."""
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", ()))


def cost(pod: Json) -> int:
    """Its deletion cost; what is no int32 in the strict form counts as 0."""
    text = pod["metadata"].get("annotations", {}).get(COST, "0")
    number = int(text) if re.fullmatch(r"-[0-9]{1,12}|0|[1-9][0-9]{0,11}", text) else 0
    return number if -(2**31) <= number < 2**31 else 0


def time_s(text: str) -> float:
    """A time of the API in Unix seconds."""
    return datetime.datetime.fromisoformat(text).timestamp()


def _younger(one: Json, other: Json, since: Any, now_s: float) -> int:
    """Below 0 where the first is younger; 0 where they began in the same second."""
    times = since(one), since(other)
    if times[0] == times[1]:
        return 0
    scale = [int(math.log2((now_s - time) * 1e9)) if now_s > time else -1 for time in times]
    if scale[0] != scale[1]:
        return scale[0] - scale[1]
    return -1 if one["metadata"]["uid"] < other["metadata"]["uid"] else 1


def _assigned(pod: Json) -> bool:
    return bool(pod["spec"].get("nodeName"))


def _phase(pod: Json) -> int:
    return _PHASES.get(pod["status"].get("phase", "Unknown"), 1)


def _ready_since_s(pod: Json) -> float:
    return max(time_s(c["lastTransitionTime"]) for c in pod["status"]["conditions"] if c["type"] == "Ready")


def _created_s(pod: Json) -> float:
    return time_s(pod["metadata"]["creationTimestamp"])


def _restarts(pod: Json) -> int:
    return max((state.get("restartCount", 0) for state in pod["status"].get("containerStatuses", ())), default=0)
