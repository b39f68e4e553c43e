"""A workload told step by step, every 15 s: what Prometheus scrapes of it, and what the decision core sees of the same.

`random_stories` and `scenarios` tell stories; `series` is the one side of one, `fleets` the other. What each rule must
record is in `core_values`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from infscale.core.replicas import Fleet, Held, Phase, Replica
from infscale.fleet.members import Members
from infscale.fleet.sighting import Sighting

STEP_S = 15
NAMESPACE = "llm"
STALE = "stale"

FRESH_STEPS = 4
"""A target counts for 60 s without a scrape."""


@dataclass(frozen=True)
class Look:
    """One replica at one step.

    Attributes:
        kind: `absent` (no target), `starting`, `serving`, `saturated` (not read, shows its last values), `silent` (its
            engine gives nothing), `lost` (its sidecar cannot be scraped), `draining`, `draining_lost`.
        requests: in flight, of each model.
    """

    kind: str
    requests: tuple[int, ...] = ()


ABSENT = Look("absent")


@dataclass(frozen=True)
class Pod:
    """A replica's story.

    Attributes:
        name: the Pod's.
        looks: one a step.
        instance: its address; a Pod of the same name that comes later has another.
        again: the steps at which a second job scrapes it as well; None: there is no second job.
    """

    name: str
    looks: tuple[Look, ...]
    instance: str = ""
    again: frozenset[int] | None = None


@dataclass(frozen=True)
class Story:
    """A workload's story; sequences have one entry a step, None where nothing is told.

    Attributes:
        name: the workload's.
        pods: its replicas.
        target: requests per replica.
        published: the target comes from a recommender, not from the user's file.
        owner: `deployment` or `statefulset`, as kube-state-metrics counts it; empty without kube-state-metrics.
        spec, status: what it tells.
        recommended_spec: `infscale_replicas{state="spec"}` of a recommender.
        held: of each activator.
        gaps: steps at which Prometheus scraped nothing at all.
    """

    name: str
    pods: tuple[Pod, ...]
    steps: int
    target: float = 4.0
    published: bool = False
    owner: str = ""
    spec: tuple[int, ...] = ()
    status: tuple[int, ...] = ()
    recommended_spec: tuple[int, ...] = ()
    held: tuple[tuple[int, ...], ...] = ()
    gaps: frozenset[int] = field(default_factory=frozenset)

    def seen_at(self, step: int) -> int | None:
        """The step whose scrape still counts at this one; None after more than 60 s without any."""
        for back in range(FRESH_STEPS + 1):
            if step - back >= 0 and step - back not in self.gaps:
                return step - back
        return None


def series(story: Story) -> Iterator[tuple[str, str]]:
    """Every series of a story: its name with labels, and its values as promtool reads them."""
    own = f'namespace="{NAMESPACE}",workload="{story.name}"'
    for pod in story.pods:
        for job, scraped in (("sidecars", None), ("again", pod.again)):
            if job == "sidecars" or scraped is not None:
                target = f'job="{job}",instance="{pod.instance or pod.name}",pod="{pod.name}",{own}'
                yield from _pod_series(story, pod, target, scraped)
    about = f'workload_namespace="{NAMESPACE}",workload="{story.name}"'
    recommender = f'job="recommender",instance="r:1",namespace="infscale",pod="recommender-0",{about}'
    if story.published:
        yield _one(story, f"infscale_target_inflight_requests{{{recommender}}}", [story.target] * story.steps)
    else:
        yield _one(story, f"workload:infscale_target_inflight_requests:set{{{about}}}", [story.target] * story.steps)
    if story.recommended_spec:
        yield _one(story, f'infscale_replicas{{state="spec",{recommender}}}', story.recommended_spec)
        evaluated = [float(step * STEP_S) for step in range(story.steps)]
        yield _one(story, f"infscale_evaluation_timestamp_seconds{{{recommender}}}", evaluated)
    for number, requests in enumerate(story.held):
        labels = f'job="activator",instance="a:{number}",namespace="infscale",pod="activator-{number}",{about}'
        yield _one(story, f"infscale_pending_requests{{{labels}}}", requests)
    if story.owner:
        spec = "kube_deployment_spec_replicas" if story.owner == "deployment" else "kube_statefulset_replicas"
        labels = f'job="kube-state-metrics",namespace="{NAMESPACE}",{story.owner}="{story.name}"'
        yield _one(story, f"{spec}{{{labels}}}", story.spec)
        yield _one(story, f"kube_{story.owner}_status_replicas{{{labels}}}", story.status)


def _pod_series(story: Story, pod: Pod, target: str, scraped: frozenset[int] | None) -> Iterator[tuple[str, str]]:
    """The series of one target; where `scraped` is given, its scrape fails at the other steps."""
    looks = [
        Look("lost") if scraped is not None and step not in scraped and look.kind != "absent" else look
        for step, look in enumerate(pod.looks)
    ]
    page = [look.kind not in ("absent", "lost", "draining_lost") for look in looks]

    def where(shown: Sequence[bool], values: Sequence[float]) -> list[float | None]:
        return [value if there else None for there, value in zip(shown, values, strict=True)]

    yield _one(story, f"up{{{target}}}", where([look.kind != "absent" for look in looks], [float(p) for p in page]))
    read = [float(look.kind in ("serving", "draining")) for look in looks]
    yield _one(story, f"infscale_up{{{target}}}", where(page, read))
    leaving = [float(look.kind == "draining") for look in looks]
    yield _one(story, f"infscale_draining{{{target}}}", where(page, leaving))
    models = max((len(look.requests) for look in looks), default=0)
    for model in range(models):
        shown = [there and len(look.requests) > model for there, look in zip(page, looks, strict=True)]
        requests = [float(look.requests[model]) if len(look.requests) > model else 0.0 for look in looks]
        name = f'infscale_inflight_requests{{model_name="m{model}",{target}}}'
        yield _one(story, name, where(shown, requests))


def _one(story: Story, name: str, values: Sequence[float | None]) -> tuple[str, str]:
    """A series: a sample for each value, a staleness mark at the first None after one, nothing at a gap."""
    words, there = [], False
    for step, value in enumerate(values):
        if step in story.gaps:
            words.append("_")
        elif value is not None:
            words.append(number(value))
            there = True
        else:
            words.append(STALE if there else "_")
            there = False
    return name, " ".join(words)


def number(value: float) -> str:
    """A number as promtool reads it, all digits of it."""
    return str(int(value)) if value == int(value) else repr(float(value))


def fleets(story: Story) -> Iterator[Fleet]:
    """What the core sees at each step: the replicas, remembered as every fleet source remembers them."""
    members = Members(lost_s=0.0)
    for step in range(story.steps):
        now_s = float(step * STEP_S)
        seen = story.seen_at(step)
        if seen is None:
            members.missed()
            yield Fleet(now_s, None, failure="Prometheus scraped nothing for more than 60 s")
            continue
        sightings = [
            _sighting(pod, look, number)
            for number, pod in enumerate(story.pods, start=1)
            if (look := pod.looks[seen]).kind != "absent"
        ]
        replicas = members.take(sightings, now_s)
        spec = story.spec[seen] if story.owner else story.recommended_spec[seen] if story.recommended_spec else None
        status = story.status[seen] if story.owner else sum(one.phase is not Phase.DRAINING for one in replicas)
        held = Held(float(sum(requests[seen] for requests in story.held))) if story.held else None
        yield Fleet(now_s, spec, status_replicas=status, replicas=replicas, held=held)


def _sighting(pod: Pod, look: Look, created: int) -> Sighting:
    """One replica as a source sees it that knows when each Pod was created and which of them are terminating."""
    told = Replica(pod.name, Phase.SILENT, created_s=float(created), state=look.kind)
    if look.kind in ("serving", "saturated"):
        state = "ok" if look.kind == "serving" else "saturated"
        return Sighting(replace(told, phase=Phase.SERVING, inflight=float(sum(look.requests)), state=state))
    if look.kind in ("draining", "draining_lost"):
        return Sighting(replace(told, phase=Phase.DRAINING), served_before=look.kind == "draining")
    return Sighting(told)
