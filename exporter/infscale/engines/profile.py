"""What an engine profile is: names, roles and how label sets combine, as data.

One file beside this one holds one engine's profile; `custom.py` makes a profile from a user's mapping, and
`infscale.normalise` finds the profile of a page and applies it. A gauge list stands once in the tree, here, for the
sidecar, the drain and everything else.

Runs on Python 3.9 (it travels in the drain bundle).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import FrozenSet, Optional, Tuple

HISTOGRAM_KINDS = ("time_to_first_token", "inter_token_latency", "request_queue")
"""What each of `Profile.histograms` is, in their order."""


@dataclass(frozen=True)
class Metric:
    """One quantity of an engine's page.

    Attributes:
        names: its spellings without the prefix; the first that has samples is taken.
        where: labels that a series must have to count, as `(("request_type", "waiting"),)`.
    """

    names: Tuple[str, ...]
    where: Tuple[Tuple[str, str], ...] = ()


def metric(*names: str, **where: str) -> Metric:
    """`metric("num_queue_reqs")`, or with labels `metric("request_metrics", request_type="max")`."""
    return Metric(names, tuple(where.items()))


@dataclass(frozen=True)
class Hints:
    """What to tell a person whose engine does not answer with its gauges.

    Attributes:
        not_found: for HTTP 404 and 501 and for a page of another kind: the flag that turns metrics on.
        unauthorized: for HTTP 401 and 403.
        disabled: for a page of this engine without its gauges.
        timeout: for a read that timed out on an open port.
    """

    not_found: str = "check the address of the metrics page"
    unauthorized: str = "give the engine's API key with --engine.token-file"
    disabled: str = "turn the engine's own metrics on"
    timeout: str = "the engine is too busy to answer"


@dataclass(frozen=True)
class Profile:
    """How the page of one engine becomes a Reading. Names are without the prefix unless they stand in `plain`.

    Attributes:
        name: the engine's name in the `engine` label and in `--engine`.
        prefix: first word of the engine's own names; matched with `:` or `_` after it and, before it, any word that a
            gateway put there (`ray_vllm_`, `kserve_vllm:`). Empty: the names are complete.
        running, waiting: the two gauges. `waiting` may be None where an engine tells only a total.
        total: a gauge that already is running + waiting (Dynamo's front end), instead of the two.
        queues: the engine's other queues, each counted as waiting when present.
        front: a queue in front of the engine that every model of a chain counts again; the largest is taken.
        optional: which of `running`, `waiting` may be absent on a page that has the other (TGI's batch size is absent
            until the first decode); an absent one then reads as 0.
        sum_over: labels whose values are different engines or ranks with requests of their own: gauges are summed over
            these and the model; over every other label (tensor, pipeline, expert ranks, pid) they are copies, and the
            largest is taken.
        copies: labels over which the series of a counter or histogram are copies; over all others they are summed
            (SGLang splits its counters by `is_streaming`).
        replica_label: label that tells replicas apart on a page of a whole node (Ray); several values without `select`
            are summed with a warning.
        only: labels that a series may lack or must have with one of these values (SGLang's `priority=""` is the total
            beside its parts).
        not_engine: labels that only a router's page has on these gauges.
        kv: KV cache use, 0 to 1; the largest series is taken.
        kv_parts: used and total blocks, where the page has no ratio.
        prompt_tokens, generation_tokens: the engine's counters.
        finished: counter of finished requests.
        outcome_labels: where `finished` and `rejected` say the outcome; the first that a series has is taken.
        rejected: counter of requests refused by an admission cap.
        progress: counters that move while requests are worked on; an engine without one, or whose page has none of
            them (SGLang before 0.5.6), is never `stale`.
        served: counters that are above 0 once anything was served (beside `progress`): what forbids `fresh`.
        capacity: slots, where the engine's page tells.
        sleep: a state gauge: (metric, its label, the value that means awake).
        cpu, start_time: names (complete) of the process counters, where the page has them.
        requests: counter (complete name) of HTTP requests: one of an inference handler above 0 forbids `fresh`.
        histograms: (time to first token, inter-token latency, queue time); an empty Metric where there is none.
        model_labels, role_label: where a series says its model and its role.
        min_interval_s: reads of the engine are shared for at least this long.
        select: labels that a series must have to count, from the user (`ReplicaId`).
    """

    name: str
    prefix: str
    running: Optional[Metric] = None
    waiting: Optional[Metric] = None
    total: Optional[Metric] = None
    queues: Tuple[Metric, ...] = ()
    front: Optional[Metric] = None
    optional: Tuple[str, ...] = ()
    sum_over: Tuple[str, ...] = ()
    copies: FrozenSet[str] = frozenset(("pid",))
    replica_label: str = ""
    only: Tuple[Tuple[str, Tuple[str, ...]], ...] = ()
    not_engine: Tuple[str, ...] = ()
    kv: Optional[Metric] = None
    kv_parts: Optional[Tuple[Metric, Metric]] = None
    prompt_tokens: Optional[Metric] = None
    generation_tokens: Optional[Metric] = None
    finished: Optional[Metric] = None
    outcome_labels: Tuple[str, ...] = ("finished_reason", "finish_reason")
    rejected: Optional[Metric] = None
    progress: Tuple[Metric, ...] = ()
    served: Tuple[Metric, ...] = ()
    capacity: Optional[Metric] = None
    sleep: Optional[Tuple[Metric, str, str]] = None
    cpu: str = "process_cpu_seconds_total"
    start_time: str = "process_start_time_seconds"
    requests: str = "http_requests_total"
    histograms: Tuple[Metric, Metric, Metric] = (Metric(()), Metric(()), Metric(()))
    model_labels: Tuple[str, ...] = ("model_name",)
    role_label: str = ""
    min_interval_s: float = 1.0
    select: Tuple[Tuple[str, str], ...] = ()
    hints: Hints = field(default_factory=Hints)

    def full(self, name: str) -> str:
        """A name as it stands on the page, for messages."""
        return f"{self.prefix}:{name}" if self.prefix else name

    def __hash__(self) -> int:
        """Cheap: a profile keys the memo of what to search a page for, at each read."""
        return hash((self.name, self.prefix))
