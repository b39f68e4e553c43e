"""What was seen of a workload: one entry for each replica, the counts, and the requests held before it.

Fleet sources (`infscale.fleet`), `infscale decide` and the simulator build a `Fleet`; the core reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Phase(StrEnum):
    """What a replica is to a decision."""

    SERVING = "serving"  # expected, and gave a value
    SILENT = "silent"  # expected (it was ready once), and gave none
    STARTING = "starting"  # never was ready: capacity on the way
    DRAINING = "draining"  # leaves, and its requests with it


@dataclass(frozen=True, slots=True)
class Buckets:
    """One TTFT histogram of a replica: cumulative counts by `le`, ascending, the last at infinity."""

    bounds: tuple[float, ...]
    counts: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica at one instant. None is not told, which is not 0.

    Attributes:
        name: unique in the workload (the Pod's name, or its address).
        phase: what it is to a decision.
        running, waiting, inflight: requests; `inflight` is not None in SERVING.
        kv: KV cache use, 0 to 1.
        cpu_ratio: CPU over the Pod's request.
        prompt_tokens, generation_tokens: the engine's counters.
        ttft: its time-to-first-token histograms, one for each bucket layout.
        state: the engine's state (`ok`, `saturated`, `stale`, ...), for people and for the rule that nothing scales
            down on a stale replica.
        created_s, served_s: when it was created and when it first gave a value, Unix seconds: the cold start.
    """

    name: str
    phase: Phase
    running: float | None = None
    waiting: float | None = None
    inflight: float | None = None
    kv: float | None = None
    cpu_ratio: float | None = None
    prompt_tokens: float | None = None
    generation_tokens: float | None = None
    ttft: tuple[Buckets, ...] = ()
    state: str = "ok"
    created_s: float | None = None
    served_s: float | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """Requests that an activator holds before the workload.

    Attributes:
        requests: how many; None: the activator did not answer.
    """

    requests: float | None


@dataclass(frozen=True, slots=True)
class Fleet:
    """One look at a workload.

    Attributes:
        now_s: the instant, Unix seconds.
        spec_replicas: what the workload asks for; None: not read, and then nothing is recommended.
        status_replicas: what it has (not leaving, starting ones included); None: not read, spec is taken.
        ready_replicas: how many are ready; None: not read.
        replicas: every replica that is known of.
        held: what the activator says; None where there is no activator.
        last_activity_s: when the workload last had a request, where a source knows it across restarts.
        failure: why the source could not be read at all; then `replicas` is what was known before or empty.
    """

    now_s: float
    spec_replicas: int | None
    status_replicas: int | None = None
    ready_replicas: int | None = None
    replicas: tuple[Replica, ...] = ()
    held: Held | None = None
    last_activity_s: float | None = None
    failure: str = ""
