"""The cases: what each row of the scoreboard runs. A case is a scenario, its traffic and the policies on it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench.scoreboard import menu, troubles
from bench.scoreboard.menu import DOWN, Entry
from infscale_sim.distribution import Delay
from infscale_sim.scenario import Scenario, load_scenario
from infscale_sim.traces.trace import open_trace
from infscale_sim.traffic import Requests

SCENARIOS = Path(__file__).parent / "scenarios"
MOONCAKE = "normalised/mooncake_conversation.csv"
M_LARGE = "servegen/language_m-large_10min.csv"
DEEPSEEK = "servegen/reason_deepseek-r1_10min.csv"
BURSTGPT = "burstgpt/burstgpt1_week1_tokens_per_minute.csv"
M_LARGE_SCALE = 1 / 200
"""A policy on 14 days at 1/100 takes a minute of a core, at 1/200 half of that; the oracle takes 170 s."""
DEEPSEEK_SCALE = 1 / 5
STARTS_S = (0, 30, 60, 100, 120, 180, 300)
TROUBLE_S = (600.0, 1500.0)
OSCILLATION_TARGET = 40
"""Requests per replica: what one has who measured with short prompts. 27 would follow from this traffic's knee."""
REACTIONS = (
    *(
        ("infscale", "queue:24"),
        ("infscale", "queue:42"),
        ("infscale", "work:learned+queue:24"),
        ("signals", "waiting:2"),
    ),
    *(("signals", "ttft:1"), ("signals", "ttft:0.2"), ("signals", "work:learned"), ("signals", "kv:60")),
    *(("hpa", "hpa:cpu:35"), ("kpa", "kpa:queue:24")),
)
DRAINS = (
    ("no hook", 0.0, "random"),
    ("sleep 15", 15.0, "random"),
    ("gauge drain", 600.0, "random"),
    ("gauge drain, deletion cost", 600.0, "deletion_cost"),
)
"""What happens to a leaving replica, its grace period in seconds, and who leaves. Without a hook the engine aborts what
it has at SIGTERM; a sleep delays that; the gauge drain waits until nothing runs, at most the grace period."""


@dataclass(frozen=True, eq=False)
class Trace:
    """A file of the folder of traces.

    Attributes:
        name: its path in there.
        path: where it is.
        scale: how many times its requests are used.
    """

    name: str
    path: Path
    scale: float = 1.0

    @property
    def is_there(self) -> bool:
        """Whether there is such a file."""
        return self.path.is_file()

    def sha256(self) -> str:
        """Of its content, in hexadecimal."""
        return hashlib.sha256(self.path.read_bytes()).hexdigest()


@dataclass(frozen=True, eq=False)
class Case:
    """One table of the scoreboard.

    Attributes:
        row: which row of the scoreboard it belongs to, from 1.
        title: what is different from the row's other cases.
        scenario: the cluster, and the traffic where there is no trace.
        trace: where the traffic comes from.
        entries: the policies; none where the trace is absent.
        has_oracle: whether the oracle is asked.
        is_judged: whether the goal is for this case.
        trouble_s: from when until when entries with trouble have it.
    """

    row: int
    title: str
    scenario: Scenario
    trace: Trace | None = None
    entries: tuple[Entry, ...] = ()
    has_oracle: bool = False
    is_judged: bool = False
    trouble_s: tuple[float, float] = field(default=TROUBLE_S)

    @property
    def is_there(self) -> bool:
        """Whether its traffic is there."""
        return self.trace is None or self.trace.is_there

    def requests(self) -> Requests:
        """The traffic."""
        if self.trace is None:
            return self.scenario.requests()
        return Requests.of(open_trace(self.trace.path, scale=self.trace.scale))


def all_cases(folder: Path | None) -> Iterator[Case]:
    """Every case of the scoreboard, in order.

    Args:
        folder: that of the traces; None: none are there.
    """
    traces = folder or Path("traces-are-not-there")
    yield from published()
    yield from mooncake(Trace(MOONCAKE, traces / MOONCAKE))
    yield m_large(Trace(M_LARGE, traces / M_LARGE, M_LARGE_SCALE))
    yield burstgpt(Trace(BURSTGPT, traces / BURSTGPT))
    yield from drains(Trace(DEEPSEEK, traces / DEEPSEEK, DEEPSEEK_SCALE))
    yield from regressions()


def scenario(name: str) -> Scenario:
    """The scenario of that file."""
    return replace(load_scenario(str(SCENARIOS / f"{name}.yaml")), name=name)


def published() -> Iterator[Case]:
    """Row 1: on one card a replica, and on four."""
    one = scenario("published")
    for cards in (1, 4):
        for horizon_s in (600.0, 1800.0):
            hardware = replace(one.hardware, tensor_parallel=cards)
            chosen = replace(one, horizon_s=horizon_s, hardware=hardware)
            target = menu.target_requests(hardware, chosen.requests())
            entries = [
                *menu.infscale(target),
                *menu.signals(chosen.slo.ttft_s),
                *menu.hpa(target, shares=(0.5, 1.0), cpu=(25, 35)),
                *menu.kpa(target)[-1:],
                *menu.static(10, 10),
            ]
            title = f"{cards} H100 a replica, {horizon_s:,.0f} s"
            yield Case(1, title, chosen, None, tuple(entries), has_oracle=True)


def mooncake(trace: Trace) -> Iterator[Case]:
    """Row 2: the whole menu at the replica's own start-up, then a few policies over start-ups."""
    base = scenario("mooncake")
    own = Case(2, f"start-up {base.cold_start.mean:.0f} s", base, trace, has_oracle=True, is_judged=True)
    if not trace.is_there:
        yield own
        return
    requests = own.requests()
    target = menu.target_requests(base.hardware, requests)
    yield replace(own, entries=(*_whole_menu(base, target), *menu.static(3, 8)))
    few = (
        *menu.infscale(target)[:5],
        *menu.signals(base.slo.ttft_s),
        *menu.hpa(target, shares=(0.5, 1.0), cpu=(35,)),
        *menu.kpa(target)[-1:],
    )
    for start_s in STARTS_S:
        chosen = replace(base, cold_start=Delay("constant", float(start_s)))
        yield Case(2, f"start-up {start_s} s", chosen, trace, few)


def m_large(trace: Trace) -> Case:
    """Row 3."""
    base = scenario("m-large")
    case = Case(3, f"14 days, 1/{1 / trace.scale:.0f}", base, trace, has_oracle=True, is_judged=True)
    if not trace.is_there:
        return case
    target = menu.target_requests(base.hardware, case.requests())
    variants = menu.infscale(target)
    entries = (
        *variants[:4],
        *(entry for entry in variants[4:] if "auto" in entry.policy or entry.policy.startswith("work")),
        *menu.signals(base.slo.ttft_s),
        *menu.hpa(target, shares=(0.8, 1.0, 1.1, 1.3, 1.5), cpu=(35,)),
        *menu.kpa(target)[-1:],
        *menu.static(4, 4),
    )
    return replace(case, entries=entries)


def burstgpt(trace: Trace) -> Case:
    """Row 4: scale to zero."""
    base = scenario("burstgpt")
    texts = [
        *(("infscale", f"queue:24,min=0,cooldown={cooldown}") for cooldown in (120, 300, 900, 1800, 3600)),
        ("keda", "keda:queue:24,min=0,poll=5,cooldown=300"),
        ("keda", "keda:queue:24,min=0"),
        ("kpa", "kpa:queue:24,min=0"),
        ("static", "static:1"),
    ]
    case = Case(4, "a week from and to zero", base, trace, has_oracle=True)
    entries = tuple(Entry(family, text, is_fixed="cooldown=300" in text) for family, text in texts)
    return replace(case, entries=entries if trace.is_there else ())


def drains(trace: Trace) -> Iterator[Case]:
    """Row 5: the same policy with each way to leave."""
    base = scenario("drain")
    for title, grace_s, victim in DRAINS:
        case = Case(5, title, replace(base, grace_s=grace_s, victim=victim), trace)
        if trace.is_there:
            target = menu.target_requests(base.hardware, case.requests())
            case = replace(case, entries=tuple(menu.infscale(target)[:1]))
        yield case


def regressions() -> Iterator[Case]:
    """Row 6: known troubles of scalers."""
    for name, title in (("cascade", "2-4-8-16 while replicas load"), ("oscillation", "2-1-2")):
        base = scenario(name)
        target = OSCILLATION_TARGET
        if name == "cascade":
            target = menu.target_requests(base.hardware, base.requests())
        entries = (
            *menu.infscale(target),
            *menu.signals(base.slo.ttft_s),
            *menu.hpa(target, shares=(0.5, 1.0), cpu=(35,)),
            *menu.kpa(target)[-1:],
        )
        yield Case(6, title, base, None, entries, has_oracle=True)
    ramp = tuple(Entry(family, text) for family, text in REACTIONS)
    yield Case(
        6, "who reacts when, on the built-in scenario's ramp", load_scenario("default"), None, ramp, has_oracle=True
    )
    base = scenario("faults")
    target = menu.target_requests(base.hardware, base.requests())
    for trouble in troubles.TROUBLES:
        yield Case(6, trouble, base, None, tuple(_troubled(target, trouble)))


def _troubled(target: int, trouble: str) -> Iterator[Entry]:
    texts = [("hpa", f"hpa:queue:{target}"), ("keda", f"keda:queue:{target}")]
    if trouble != troubles.ZERO:  # infscale takes no silence for 0
        texts = [("infscale", f"queue:{target},{DOWN}"), ("infscale", f"queue:{target}+work:learned,{DOWN}"), *texts]
    for family, text in texts:
        yield Entry(family, text, trouble=trouble)


def _whole_menu(base: Scenario, target: int) -> Sequence[Entry]:
    return (*menu.infscale(target), *menu.signals(base.slo.ttft_s), *menu.hpa(target), *menu.kpa(target))
