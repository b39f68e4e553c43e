"""What a metric of an HPA or ScaledObject is in infscale's words: told from the names in it.

The names are those of the engine profiles and infscale's own. `infscale.manifest` calls this for each metric and each
trigger; what has no equivalent is None with a note of why.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field

from infscale.checks import Place
from infscale.core.policy import TargetType
from infscale.core.scaling import Goal, MetricName
from infscale.core.settings import NUMBERS, TARGETS, Number
from infscale.engines import PROFILES, Metric
from infscale.policy_yaml import number_at

ABOVE_0 = Number("a number above 0", lambda n: n > 0)

_OWN = {
    "infscale_workload_demand_requests": MetricName.QUEUE,
    "infscale_workload_inflight_requests": MetricName.QUEUE,
    "infscale_inflight_requests": MetricName.QUEUE,
    "infscale_running_requests": MetricName.RUNNING,
    "infscale_waiting_requests": MetricName.WAITING,
    "infscale_kv_cache_usage_ratio": MetricName.KV,
    "infscale_time_to_first_token_seconds": MetricName.TTFT,
}
_RECOMMENDATION = ("infscale_recommended_replicas", "/api/v1/recommendation")
_LOAD = "/api/v1/load"
_WORD = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_QUANTILE = re.compile(r"histogram_quantile\s*\(\s*([0-9.]+)\s*,")
_REQUESTS = frozenset({MetricName.QUEUE, MetricName.WAITING, MetricName.RUNNING})


@dataclass(slots=True)
class Findings:
    """What the metrics of a manifest come to; grows while they are read.

    Attributes:
        goals: the target of each metric that has an equivalent.
        quantile: of `ttft`, where a query says it.
        notes: what has no equivalent, each with its path in front.
    """

    goals: dict[MetricName, float] = field(default_factory=dict)
    quantile: float | None = None
    notes: list[str] = field(default_factory=list)

    def note(self, place: Place, words: str) -> None:
        """Tell of what stands at a place and has no equivalent."""
        self.notes.append(f"{place.path}: {words}")

    def left_out(self, place: Place) -> str:
        """What is noted below a place, for the end of an error; empty where nothing is."""
        notes = "; ".join(note for note in self.notes if note.startswith(place.path))
        return f" ({notes})" if notes else ""

    def add(self, metric: MetricName, target: float, place: Place) -> None:
        """A metric with its target; of two of one metric the HPA follows the smaller target, the larger proposal."""
        if metric in self.goals and target != self.goals[metric]:
            self.note(place, f"{metric} has two targets, the smaller one counts")
            target = min(target, self.goals[metric])
        self.goals[metric] = target

    def as_goals(self) -> tuple[Goal, ...]:
        """The goals of a policy, in the order in which they were found."""
        return tuple(Goal(metric, target) for metric, target in self.goals.items())


def add_metric(found: Findings, words: str, kind: TargetType, target: object, place: Place) -> None:
    """Add a metric by its name or query, or note why it has no equivalent.

    Args:
        found: what there is so far.
        words: the metric's name, a PromQL query, or a URL.
        kind: what the target means.
        target: its value as it stands in the manifest.
        place: where it stands.

    Raises:
        ConfigError: the target is no number above 0, or the metric is infscale's own recommendation.
    """
    if any(name in words for name in _RECOMMENDATION):
        raise place.error("asks infscale for its recommendation: the policy is the one that the recommender was given")
    metric = metric_in(words)
    if metric is None:
        shown = words if len(words) <= 80 else words[:77] + "..."
        found.note(place, f"no equivalent for {' '.join(shown.split())!r}")
    elif metric in _REQUESTS and kind is not TargetType.AVERAGE_VALUE:
        found.note(place, f"no equivalent for a target of type {kind} on {metric}; infscale's is per replica")
    elif metric is MetricName.TTFT:
        _add_ttft(found, words, kind, target, place)
    elif metric is MetricName.KV:
        share = number_at(target, place, TARGETS[metric])
        found.add(metric, share * 100 if share <= 1 else share, place)  # the engines' gauges go from 0 to 1
    else:
        found.add(metric, number_at(target, place, TARGETS[metric]), place)


def _add_ttft(found: Findings, words: str, kind: TargetType, target: object, place: Place) -> None:
    quantile = _QUANTILE.search(words)
    if quantile is None:
        found.note(place, "no equivalent for a time to first token that is no histogram_quantile(...)")
        return
    if kind is TargetType.AVERAGE_VALUE:
        found.note(place, "AverageValue divides the quantile by the replicas; infscale holds the quantile itself")
    found.quantile = number_at(quantile[1], place, NUMBERS["quantile"])
    found.add(MetricName.TTFT, number_at(target, place, TARGETS[MetricName.TTFT]), place)


def add_resource(found: Findings, name: str, kind: TargetType, target: object, place: Place) -> None:
    """Add the cpu of whole Pods, or note that a resource has no equivalent; errors as in `add_metric`."""
    if name == "cpu" and kind is TargetType.UTILIZATION:
        found.add(MetricName.CPU, number_at(target, place, TARGETS[MetricName.CPU]), place)
    else:
        found.note(place, f"no equivalent for {name} with a target of type {kind}, only for cpu with Utilization")


def some_goal(found: Findings, place: Place) -> None:
    """Refuse a manifest of which no metric has an equivalent."""
    if not found.goals:
        left_out = found.left_out(place)
        raise place.error(f"nothing that infscale can scale on{left_out}; give the policy itself, as --policy queue:24")


def metric_in(words: str) -> MetricName | None:
    """The metric that a name, query or URL is about; None where it is none of infscale's, or more than one."""
    if _LOAD in words:
        return MetricName.QUEUE
    names = _names()
    found = {names[name] for word in _WORD.findall(words) for name in _spellings(word) if name in names}
    if found and found <= _REQUESTS:
        return found.pop() if len(found) == 1 else MetricName.QUEUE
    return found.pop() if len(found) == 1 else None


def _spellings(word: str) -> list[str]:
    """A word of a query as the names below have it: `ray_vllm:num_requests_running` without the gateway's word."""
    word = word.replace(":", "_")
    for ending in ("_bucket", "_sum", "_count"):
        word = word.removesuffix(ending)
    first, _, rest = word.partition("_")
    return [word, rest] if first in ("ray", "kserve") else [word]


@functools.cache
def _names() -> dict[str, MetricName]:
    """The metric that each name on a page stands for, with `_` for `:`.

    A name without its engine's prefix, as adapters make them, is known where it speaks of requests itself.
    """
    names = dict(_OWN)
    for profile in PROFILES.values():
        ttft = profile.histograms[0]
        kinds: list[tuple[MetricName, tuple[Metric | None, ...]]] = [
            (MetricName.RUNNING, (profile.running,)),
            (MetricName.WAITING, (profile.waiting, *profile.queues)),
            (MetricName.QUEUE, (profile.total,)),
            (MetricName.KV, (profile.kv,)),
            (MetricName.TTFT, (ttft,)),
        ]
        for kind, metrics in kinds:
            for name in (name for metric in metrics if metric and not metric.where for name in metric.names):
                names[f"{profile.prefix}_{name}"] = kind
                if name.startswith("num_"):
                    names[name] = kind
    return names
