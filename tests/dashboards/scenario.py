"""An hour and twenty minutes of two workloads, made by the product's own code on a driven clock.

`chat` (vLLM, 2 to 6 replicas) has a burst, a replica that hangs, an outage, a rollout and a recommender that hangs.
`batch` (SGLang, 0 to 2) sleeps at zero until requests are held for it. Their policies are evaluated by the evaluator of
the recommender, whose decisions start and drain replicas; what would be scraped is written as OpenMetrics. What no code
of ours publishes is written here: `up`, and what kube-state-metrics would say.

As a program it writes the text: `python -m tests.dashboards.scenario FILE`.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infscale.activator.counts import HoldCollector, HoldCounters
from infscale.core.grammar import parse_policy
from infscale.core.replicas import Fleet, Held
from infscale.core.scale_decision import ScaleDecision
from infscale.evaluator import Evaluator
from infscale.fleet.members import Members
from infscale.fleet.source import WorkloadName
from infscale.metrics.workload_collector import WorkloadCollector
from infscale_sim.engine_dialect import Dialect
from infscale_sim.engine_sglang import sglang
from infscale_sim.engine_vllm import vllm
from tests.dashboards.fleet_of_engines import Replica

STEP_S = 15
START_S = 248_611 * 7200
"""At the beginning of a block of two hours, so that the history is one block."""
END_S = START_S + 4800

NAMESPACE = "inference"
COLD_START_S = 80.0

BURST = (600, 1200)
HANG = (2100, 2400)
TIME_OUT = (2100, 2160)
OUTAGE = (2700, 2940)
DARK = (2790, 2880)
"""Within the outage: not one replica of `chat` answers."""
ROLLOUT = 3300
WAKE = (1800, 2400)
SECOND_WAKE = (3900, 4200)
INERT = (4320, 4620)

_HOLD_LIMIT, _HOLD_TIMEOUT_S = 30, 75.0


@dataclass(frozen=True)
class Traffic:
    """Requests a second from an instant on, seconds after START_S."""

    since_s: float
    rate: float


class Workload:
    """A Deployment, its recommender and, where it has one, its activator.

    Attributes:
        wanted: replicas that are asked for.
        generation: of the Pod template; a new one is rolled out.
        inert_until_s: its recommender hangs: the page shows the last evaluation.

    Args:
        name: of the workload.
        model: that its engines serve.
        dialect: whose pages they have.
        policy: in the grammar.
        wanted: replicas at first.
        traffic: in the order of time.
        activator: whether requests are held while no replica serves.
    """

    def __init__(
        self,
        name: str,
        model: str,
        dialect: Dialect,
        policy: str,
        wanted: int,
        traffic: Iterable[Traffic],
        *,
        activator: bool = False,
    ) -> None:
        self.workload = WorkloadName(NAMESPACE, name)
        self.wanted, self.now_s = wanted, float(START_S)
        self.replicas: list[Replica] = []
        self._model, self._dialect, self._traffic = model, dialect, tuple(traffic)
        self._policy = parse_policy(policy)
        self._random = random.Random(name)
        self._next_s = float(START_S)
        self._numbers = self.generation = 0
        self.inert_until_s = 0.0
        self._waiting: list[tuple[float, int, int]] = []
        self._holds = HoldCounters() if activator else None
        self._members = Members(lost_s=0.0)
        self.evaluator = Evaluator(
            self,
            self._policy,
            held=(lambda: Held(float(len(self._waiting)))) if activator else None,
            applier=self,
            wall_clock=lambda: self.now_s,
        )
        self._reconcile(cold_start_s=0.0)

    # As the evaluator's source and applier.

    def observe(self, now_s: float) -> Fleet:
        """See `infscale.fleet.source.Source`."""
        seen = self._members.take([one.sighting() for one in self.replicas], now_s, expected=self.wanted)
        ready = sum(one.serving(now_s) for one in self.replicas)
        staying = sum(not one.draining for one in self.replicas)
        return Fleet(now_s, self.wanted, status_replicas=staying, ready_replicas=ready, replicas=seen)

    def names(self) -> tuple[str, ...]:
        """See `infscale.fleet.source.Source`."""
        return ()

    def close(self) -> None:
        """See `infscale.fleet.source.Source`."""

    def apply(self, decision: ScaleDecision, now_s: float) -> str:
        """See `infscale.evaluator.Applier`."""
        if decision.desired is not None:
            self.wanted = decision.desired
        return ""

    def stop(self) -> None:
        """See `infscale.evaluator.Applier`."""

    # A step of 15 s.

    def step(self, now_s: float) -> None:
        """Requests arrive and are worked on until now; then sidecars read, and the policy is evaluated."""
        while self._next_s < now_s:
            rate = self._rate(self._next_s)
            if rate:
                self._arrive(self._next_s)
            self._next_s += self._random.expovariate(rate) if rate else STEP_S
        self.now_s = now_s
        self.replicas = [one for one in self.replicas if not one.ended]
        for one in self.replicas:
            one.advance(now_s)
            one.drain(now_s)
        self._release(now_s)
        self._reconcile()
        for one in self.replicas:
            one.read(now_s)
        if now_s >= self.inert_until_s:
            self.evaluator.evaluate()

    def _rate(self, now_s: float) -> float:
        return next((one.rate for one in reversed(self._traffic) if START_S + one.since_s <= now_s), 0.0)

    def _arrive(self, now_s: float) -> None:
        prompt_tokens, output_tokens = self._random.randint(100, 300), self._random.randint(300, 500)
        for one in self.replicas:
            one.advance(now_s)
        serving = [one for one in self.replicas if one.serving(now_s)]
        if serving:
            min(serving, key=lambda one: one.inflight).submit(prompt_tokens, output_tokens, now_s)
        elif self._holds is not None and len(self._waiting) >= _HOLD_LIMIT:
            self._holds.ended("full", None)
        elif self._holds is not None:
            self._waiting.append((now_s, prompt_tokens, output_tokens))

    def _release(self, now_s: float) -> None:
        """Hand held requests to a replica that serves; those that waited too long are answered 503."""
        if self._holds is None:
            return
        serving = [one for one in self.replicas if one.serving(now_s)]
        kept = []
        for since_s, prompt_tokens, output_tokens in self._waiting:
            if now_s - since_s > _HOLD_TIMEOUT_S:
                self._holds.ended("timed_out", _HOLD_TIMEOUT_S)
            elif serving:
                min(serving, key=lambda one: one.inflight).submit(prompt_tokens, output_tokens, now_s)
                self._holds.ended("released", now_s - since_s)
            else:
                kept.append((since_s, prompt_tokens, output_tokens))
        self._waiting = kept

    def _reconcile(self, cold_start_s: float = COLD_START_S) -> None:
        """Start and drain replicas as a Deployment does: the youngest leave; a rollout adds one before one leaves."""
        staying = [one for one in self.replicas if not one.draining]
        old = [one for one in staying if one.generation < self.generation]
        for _ in range(self.wanted + bool(old) - len(staying)):
            self._numbers += 1
            name = f"{self.workload.name}-{self.generation}-{self._numbers}"
            ready_s = self.now_s + cold_start_s * self._random.uniform(0.9, 1.2)
            one = Replica(name, self._model, self._dialect, self.now_s, ready_s, self.generation)
            self.replicas.append(one)
        spare = sum(one.serving(self.now_s) for one in staying) - self.wanted
        leaving = old[:1] if old and spare > 0 else [] if old else staying[self.wanted :]
        for one in leaving:
            one.draining_since_s = self.now_s

    # What is scraped.

    def scraped(self) -> Iterator[tuple[dict[str, str], Iterable[Any]]]:
        """The labels of each target, and the samples of its page."""
        namespace, name = NAMESPACE, self.workload.name
        for one in self.replicas:
            yield self._target("infscale-sidecars", one.name, workload=name), one.samples()
        recommender = WorkloadCollector(self.evaluator.view, self.evaluator.counters)
        yield self._target("infscale-roles", f"{name}-recommender-0"), _samples(recommender)
        if self._holds is not None:
            collector = HoldCollector(WorkloadName(namespace, name), _HOLD_LIMIT, self._held, self._holds)
            yield self._target("infscale-roles", f"{name}-activator-0"), _samples(collector)

    def kube_state(self) -> Iterator[tuple[str, dict[str, str], float]]:
        """What kube-state-metrics says of the Deployment and its HPA."""
        deployment = {"job": "kube-state-metrics", "namespace": NAMESPACE, "deployment": self.workload.name}
        staying = sum(not one.draining for one in self.replicas)
        yield "kube_deployment_spec_replicas", deployment, self.wanted
        yield "kube_deployment_status_replicas", deployment, staying
        hpa = {"job": "kube-state-metrics", "namespace": NAMESPACE, "horizontalpodautoscaler": self.workload.name}
        aim = {"scaletargetref_kind": "Deployment", "scaletargetref_name": self.workload.name}
        yield "kube_horizontalpodautoscaler_info", hpa | aim, 1
        yield "kube_horizontalpodautoscaler_spec_min_replicas", hpa, self._policy.min_replicas
        yield "kube_horizontalpodautoscaler_spec_max_replicas", hpa, self._policy.max_replicas or 0
        yield "kube_horizontalpodautoscaler_status_desired_replicas", hpa, self.wanted

    def _held(self) -> int:
        return len(self._waiting)

    def _target(self, job: str, pod: str, **more: str) -> dict[str, str]:
        instance = f"{pod}:10047"
        return {"job": f"{NAMESPACE}/{job}", "instance": instance, "namespace": NAMESPACE, "pod": pod, **more}


def _samples(collector: Any) -> Iterator[Any]:
    for family in collector.collect():
        yield from family.samples


def _chat() -> Workload:
    quiet, burst = 0.6, 2.4
    traffic = [Traffic(0, quiet), Traffic(BURST[0], burst), Traffic(BURST[1], quiet)]
    policy = "queue:8,min=2,max=6,down=1/60,downwindow=300,lookahead=60"
    return Workload("chat", "llama-3.1-8b", vllm("0.33.0"), policy, 2, traffic)


def _batch() -> Workload:
    traffic = [Traffic(since, rate) for span in (WAKE, SECOND_WAKE) for since, rate in zip(span, (0.5, 0), strict=True)]
    return Workload("batch", "qwen3-32b", sglang("0.5.23"), "queue:8,min=0,max=2", 0, traffic, activator=True)


def _incidents(chat: Workload) -> dict[int, Callable[[], None]]:
    """What goes wrong, by the seconds after START_S; at the beginning of a step."""

    def long_request() -> None:
        """One that outlasts the drain of the youngest replica."""
        chat.replicas[-1].submit(100, 9000, chat.now_s)

    def hang() -> None:
        chat.replicas[0].times_out_until_s = START_S + TIME_OUT[1]
        chat.replicas[0].hangs_until_s = START_S + HANG[1]

    def crash() -> None:
        chat.replicas[0].crash(chat.now_s, START_S + OUTAGE[1])

    def go_dark() -> None:
        for one in chat.replicas[1:]:
            one.crash(chat.now_s, START_S + DARK[1])

    def roll_out() -> None:
        chat.generation += 1

    def stop_evaluating() -> None:
        chat.inert_until_s = START_S + INERT[1]

    return {
        BURST[1] + 240: long_request,
        HANG[0]: hang,
        OUTAGE[0]: crash,
        DARK[0]: go_dark,
        ROLLOUT: roll_out,
        INERT[0]: stop_evaluating,
    }


def lines() -> Iterator[str]:
    """The whole history as OpenMetrics, a sample a line."""
    workloads = [_chat(), _batch()]
    incidents = _incidents(workloads[0])
    for now_s in range(START_S, END_S + 1, STEP_S):
        incidents.get(now_s - START_S, lambda: None)()
        for workload in workloads:
            workload.step(float(now_s))
            for target, samples in workload.scraped():
                yield _line("up", target, 1, now_s)
                for sample in samples:
                    yield _line(sample.name, {**sample.labels, **target}, sample.value, now_s)
            for name, labels, value in workload.kube_state():
                yield _line(name, labels, value, now_s)
    yield "# EOF\n"


def _line(name: str, labels: dict[str, str], value: float, now_s: int) -> str:
    inside = ",".join(f'{label}="{text}"' for label, text in labels.items())
    return f"{name}{{{inside}}} {value!r} {now_s}\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text("".join(lines()))
