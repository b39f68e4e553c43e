"""Knative's autoscaler (KPA): the mean of a long window, and of a short one while there is panic.

`infscale_sim.policies` asks it at every tick.

Source: knative/serving pkg/autoscaler/scaling/autoscaler.go, `Scale`; the defaults are those of the ConfigMap
config-autoscaler: max-scale-up-rate 1000, max-scale-down-rate 2, tick every 2 s.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

_MOST_UP = 1000.0
_MOST_DOWN = 2.0


@dataclass(slots=True)
class Knative:
    """The autoscaler and what it remembers.

    Attributes:
        target: requests in flight per replica.
        stable_s, panic_s: the two windows.
        panic_at: panic begins where the short window asks for so many times the ready replicas.
        tick_s: how often it looks.
        seen: (time, requests in flight) over the stable window.
        panicked_s: when there last was reason to panic; None: no panic.
        most: the largest count asked for during the panic, below which it does not go.
    """

    target: float
    stable_s: float = 60.0
    panic_s: float = 6.0
    panic_at: float = 2.0
    tick_s: float = 2.0
    seen: deque[tuple[float, float]] = field(default_factory=deque)
    panicked_s: float | None = None
    most: int = 0

    def decide(self, now_s: float, inflight: float, ready: int) -> tuple[int, str]:
        """The count to ask for, and the window that asks: `stable` or `panic`."""
        self.seen.append((now_s, inflight))
        while self.seen[0][0] <= now_s - self.stable_s:
            self.seen.popleft()
        replicas = max(1.0, float(ready))
        up, down = math.ceil(_MOST_UP * replicas), math.floor(replicas / _MOST_DOWN)
        stable_raw = math.ceil(self._mean(now_s, self.stable_s) / self.target)
        panic_raw = math.ceil(self._mean(now_s, self.panic_s) / self.target)
        stable, panic = (min(max(raw, down), up) for raw in (stable_raw, panic_raw))
        if panic_raw / replicas >= self.panic_at:
            self.panicked_s = now_s
        elif self.panicked_s is not None and self.panicked_s + self.stable_s < now_s:
            self.panicked_s, self.most = None, 0
        if self.panicked_s is None:
            return stable, "stable"
        self.most = max(self.most, stable, panic)
        return self.most, "panic"

    def _mean(self, now_s: float, window_s: float) -> float:
        values = [value for time_s, value in self.seen if time_s > now_s - window_s]
        return sum(values) / len(values)
