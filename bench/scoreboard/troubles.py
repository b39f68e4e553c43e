"""What a scaler sees while metrics are missing: `Troubled` stands between a run and its scaler.

The simulator's sidecars never fail, so the trouble is made here, in what they say.
"""

from __future__ import annotations

from dataclasses import replace

from infscale.core.replicas import Fleet, Phase, Replica
from infscale_sim.policies import Choice, Scaler

SILENT, OUTAGE, ZERO = "one replica silent", "no metrics", "no metrics, read as 0"
TROUBLES = (SILENT, OUTAGE, ZERO)
"""`ZERO`: an empty query result, which KEDA takes for 0 unless `ignoreNullValues` is "false"."""


class Troubled:
    """A scaler that sees trouble from `first_s` until `until_s`; see `infscale_sim.policies.Scaler`."""

    def __init__(self, scaler: Scaler, trouble: str, first_s: float, until_s: float) -> None:
        self.scaler, self.trouble, self.first_s, self.until_s = scaler, trouble, first_s, until_s
        self.needs = scaler.needs

    def start(self, replicas: int) -> int:
        """As the scaler has it."""
        return self.scaler.start(replicas)

    def next_s(self, now_s: float) -> float:
        """As the scaler has it."""
        return self.scaler.next_s(now_s)

    def decide(self, fleet: Fleet) -> Choice:
        """What the scaler makes of what is left to see."""
        if self.first_s <= fleet.now_s < self.until_s:
            fleet = troubled(fleet, self.trouble)
        return self.scaler.decide(fleet)


def troubled(fleet: Fleet, trouble: str) -> Fleet:
    """The fleet as it looks in trouble; the silent one is the oldest that serves."""
    serving = [replica.name for replica in fleet.replicas if replica.phase is Phase.SERVING]
    hit = set(serving[:1] if trouble == SILENT else serving)
    blind = _zero if trouble == ZERO else _silent
    return replace(fleet, replicas=tuple(blind(r) if r.name in hit else r for r in fleet.replicas))


def _silent(replica: Replica) -> Replica:
    return Replica(replica.name, Phase.SILENT, created_s=replica.created_s, served_s=replica.served_s)


def _zero(replica: Replica) -> Replica:
    return replace(replica, running=0.0, waiting=0.0, inflight=0.0)
