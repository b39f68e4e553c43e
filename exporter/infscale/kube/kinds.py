"""The kinds of workload that can be named, and where each is in the API.

`deployment`, `statefulset` and `leaderworkerset` go by name (also their short forms); anything else that has a `scale`
subresource goes by `GROUP/VERSION/PLURAL`.
"""

from __future__ import annotations

from infscale.errors import UsageError
from infscale.kube.transport import Target

_DEPLOYMENT = ("apps", "v1", "deployments")
_STATEFULSET = ("apps", "v1", "statefulsets")
_LEADER_WORKER_SET = ("leaderworkerset.x-k8s.io", "v1", "leaderworkersets")
_BY_NAME = {
    **dict.fromkeys(("deployment", "deployments", "deploy"), _DEPLOYMENT),
    **dict.fromkeys(("statefulset", "statefulsets", "sts"), _STATEFULSET),
    **dict.fromkeys(("leaderworkerset", "leaderworkersets", "lws"), _LEADER_WORKER_SET),
}


def workload_target(kind: str, namespace: str, name: str) -> Target:
    """Where a workload is in the API.

    Raises:
        UsageError: no such kind, or no namespace or name.
    """
    if not namespace or not name:
        raise UsageError(f"workload {kind}/{namespace}/{name}: expected a namespace and a name")
    place = _BY_NAME.get(kind.lower())
    if place is None:
        parts = kind.split("/")
        if len(parts) != 3 or not all(parts):
            raise UsageError(
                f"workload kind {kind!r}: expected deployment, statefulset, leaderworkerset or GROUP/VERSION/PLURAL"
            )
        place = (parts[0], parts[1], parts[2])
    return Target(*place, namespace, name)
