"""A scenario: traffic, the replica, the cluster and its rules, and the policies to compare; a YAML file.

Keys that a file leaves out have the values of `scenarios/default.yaml`. `infscale simulate` loads one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from infscale import checks
from infscale.checks import Place
from infscale.core.grammar import Part, read_settings
from infscale.core.scaling import Fit
from infscale.core.settings import Value
from infscale.errors import PolicyError
from infscale.yaml_file import load_yaml
from infscale_sim.book import NEVER
from infscale_sim.defaults import MOST_REPLICAS, Defaults
from infscale_sim.distribution import Delay, delay_of, lengths_of, process_of
from infscale_sim.hardware import Hardware, choice, load_profile, profile_of
from infscale_sim.traffic import Lengths, Process, Rate, Requests, synthetic

SCENARIOS = Path(__file__).parent / "scenarios"
BALANCES = ("least_outstanding", "round_robin", "random2")
VICTIMS = ("deletion_cost", "random")

_KEYS = (
    *("rate", "arrivals", "prompt_tokens", "output_tokens", "horizon_s", "replica", "cluster", "sync", "hpa"),
    *("lookahead", "zero", "slo", "policies", "seed", "cpu", "knee"),
)
_CLUSTER = (
    *("start", "min", "max", "balance", "queue", "gauge_lag_s", "scrape_age_s", "victim", "grace_s"),
    *("cold_start_s", "held_limit", "held_timeout_s"),
)
_HPA = (
    *("tolerance", "uptolerance", "downtolerance", "up", "upwindow", "upselect", "uppods", "uppercent"),
    *("down", "downwindow", "downselect", "downpods", "downpercent"),
)


@dataclass(frozen=True, slots=True)
class Slo:
    """What a request is promised: its first token within `ttft_s`; where given, a token every `itl_s` on the mean."""

    ttft_s: float
    itl_s: float | None = None


@dataclass(frozen=True, slots=True)
class Scenario:
    """All that a run needs but the policy.

    Attributes:
        name: the built-in name, or the file's.
        rate, process, prompt, output: the traffic; replaced by a trace where there is one.
        horizon_s: the end; no first token by then is a miss.
        hardware: the replica.
        start: replicas that are ready at 0.
        balance: `least_outstanding` (of several the oldest), `round_robin` or `random2`.
        victim: which ready replica leaves: `deletion_cost` (the fewest requests, of several the oldest) or `random`.
        grace_s: how long a leaving replica may take; NEVER: as long as it needs.
        cold_start: from the decision to ready.
        delay_s: how old gauges are when the scaler looks: the scrape's age and the engine's own lag.
        held_limit, held_timeout_s: how many requests the activator holds, and for how long.
        defaults: what holds for every policy.
        knee_known: whether `guard` and `work` know what a replica carries from the physics, or have to learn it.
        slo: what makes a request a miss.
        policies: the texts of those to compare.
        seed: of all that is random.
    """

    name: str
    rate: Rate
    process: Process
    prompt: Lengths
    output: Lengths
    horizon_s: float
    hardware: Hardware
    start: int
    balance: str
    victim: str
    grace_s: float
    cold_start: Delay
    delay_s: float
    held_limit: float
    held_timeout_s: float
    defaults: Defaults
    knee_known: bool
    slo: Slo
    policies: tuple[str, ...]
    seed: int = 0

    @property
    def period_s(self) -> float:
        """Between two syncs."""
        return self.defaults.period_s

    @property
    def is_random(self) -> bool:
        """Whether the seed changes anything."""
        random_traffic = self.process.is_random or self.prompt.is_random or self.output.is_random
        return random_traffic or self.cold_start.is_random or self.balance == "random2" or self.victim == "random"

    def requests(self) -> Requests:
        """The traffic."""
        return Requests.of(synthetic(self.rate, self.process, self.prompt, self.output, self.horizon_s, self.seed))


def scenario_names() -> list[str]:
    """The built-in scenarios."""
    return sorted(path.stem for path in SCENARIOS.glob("*.yaml"))


def load_scenario(name: str, *, hardware: Hardware | None = None, seed: int | None = None) -> Scenario:
    """A built-in scenario by its name, or a user's by its file.

    Args:
        name: `default`, `prompts`, or a path.
        hardware: takes the place of the scenario's replica.
        seed: takes the place of the scenario's.

    Raises:
        ConfigError: there is no such scenario, or the file does not describe one.
    """
    built_in = name in scenario_names()
    if not built_in and not os.path.exists(name):  # Path.exists raises for a name too long
        known = ", ".join(scenario_names())
        raise Place(f"scenario {name}").error(f"no such file, and no built-in scenario; those are {known}")
    path = str(SCENARIOS / f"{name}.yaml") if built_in else name
    values = load_yaml(path)
    base = load_yaml(str(SCENARIOS / "default.yaml"))
    scenario = scenario_of(values, base, Place(path if not built_in else f"scenario {name}"), name, hardware, seed)
    if built_in:
        return scenario
    # A file that says what a built-in one says is that one: wherever it lies, it gives the same bytes.
    same = (
        known
        for known in scenario_names()
        if replace(scenario, name=known) == load_scenario(known, hardware=hardware, seed=seed)
    )
    return replace(scenario, name=next(same, name))


def scenario_of(
    values: object,
    base: Mapping[str, object],
    place: Place,
    name: str,
    hardware: Hardware | None = None,
    seed: int | None = None,
) -> Scenario:
    """The scenario that a mapping holds, with the base's values where it has none.

    Raises:
        ConfigError: with the place of what is wrong.
    """
    given = checks.mapping(values, place, _KEYS)
    top = {**base, **given}
    cluster = _section(given, base, place, "cluster", _CLUSTER)
    slo = _section(given, base, place, "slo", ("ttft_s", "itl_s"))
    if given.get("cpu"):
        raise place.key("cpu").error("it has no settings of its own: the figures are the replica's (cpu_idle, ...)")
    at = place.key("cluster")
    replica = hardware or _hardware(top["replica"], place.key("replica"))
    if cluster["queue"] != "fifo":
        raise at.key("queue").error(f"expected fifo, got {checks.described(cluster['queue'])}")
    delays = [checks.number(cluster[key], at.key(key), at_least=0) for key in ("gauge_lag_s", "scrape_age_s")]
    horizon_s = checks.number(top["horizon_s"], place.key("horizon_s"), at_least=0)
    itl_s = slo.get("itl_s")
    return Scenario(
        name=name,
        rate=_rate(top["rate"], place.key("rate")),
        process=process_of(top["arrivals"], place.key("arrivals")),
        prompt=lengths_of(top["prompt_tokens"], place.key("prompt_tokens")),
        output=lengths_of(top["output_tokens"], place.key("output_tokens")),
        horizon_s=horizon_s,
        hardware=replica,
        start=_whole(cluster["start"], at.key("start"), MOST_REPLICAS),
        balance=choice(cluster["balance"], at.key("balance"), BALANCES),
        victim=choice(cluster.get("victim", "deletion_cost"), at.key("victim"), VICTIMS),
        grace_s=_or_never(cluster.get("grace_s"), at.key("grace_s")),
        cold_start=delay_of(cluster.get("cold_start_s"), at.key("cold_start_s"), replica.cold_start_s),
        delay_s=sum(delays),
        held_limit=_or_never(cluster.get("held_limit"), at.key("held_limit")),
        held_timeout_s=_or_never(cluster.get("held_timeout_s"), at.key("held_timeout_s")),
        defaults=_defaults(given, base, place, cluster),
        knee_known=choice(top.get("knee", "known"), place.key("knee"), ("known", "learned")) == "known",
        slo=Slo(
            ttft_s=checks.number(slo["ttft_s"], place.key("slo").key("ttft_s"), at_least=0),
            itl_s=None if itl_s is None else checks.number(itl_s, place.key("slo").key("itl_s"), at_least=0),
        ),
        policies=checks.texts(top["policies"], place.key("policies")),
        seed=_seed(top, place) if seed is None else seed,
    )


def _section(
    given: Mapping[str, object], base: Mapping[str, object], place: Place, key: str, known: tuple[str, ...]
) -> dict[str, object]:
    """A mapping of the scenario over that of the base."""
    own = given.get(key)
    before = base[key]
    if not isinstance(before, Mapping):
        raise place.key(key).error("the base has no such section")
    return {**before, **({} if own is None else checks.mapping(own, place.key(key), known))}


def _defaults(
    given: Mapping[str, object], base: Mapping[str, object], place: Place, cluster: Mapping[str, object]
) -> Defaults:
    sync = _section(given, base, place, "sync", ("first_s", "period_s"))
    lookahead = _section(given, base, place, "lookahead", ("fit", "samples"))
    zero = _section(given, base, place, "zero", ("cooldown_s",))
    at, look = place.key("cluster"), place.key("lookahead")
    least, most = _whole(cluster["min"], at.key("min")), _whole(cluster["max"], at.key("max"))
    if not max(1, least) <= most <= MOST_REPLICAS:
        expected = f"expected at least 1 and the minimum {least}, at most {MOST_REPLICAS:,}"
        raise at.key("max").error(f"{expected}, got {most}")
    samples = lookahead["samples"]
    period_s = checks.number(sync["period_s"], place.key("sync").key("period_s"), at_least=0.001)
    return Defaults(
        min_replicas=least,
        max_replicas=most,
        behavior=_behavior(base.get("hpa"), place) | _behavior(given.get("hpa"), place),
        first_s=checks.number(sync["first_s"], place.key("sync").key("first_s"), at_least=0.001),
        period_s=period_s,
        fit=Fit(choice(lookahead["fit"], look.key("fit"), tuple(Fit))),
        fit_samples=None if samples is None else max(1, _whole(samples, look.key("samples"))),
        cooldown_s=checks.number(zero["cooldown_s"], place.key("zero").key("cooldown_s"), at_least=0),
    )


def _behavior(value: object, place: Place) -> dict[str, Value]:
    """The HPA's behaviour by the keys of the policy grammar; they are read by it, so that both mean the same."""
    at = place.key("hpa")
    mapping = checks.mapping({} if value is None else value, at, _HPA)
    settings = [f"{key}={item}" for key, item in mapping.items()]
    try:
        return read_settings([Part(setting, ",".join(settings)) for setting in settings], {})
    except PolicyError as exc:
        raise at.error(str(exc)) from exc


def _rate(value: object, place: Place) -> Rate:
    """A list of [seconds, requests per second]."""
    points: list[tuple[float, float]] = []
    for index, item in enumerate(checks.items(value, place)):
        at = place.item(index)
        pair = checks.items(item, at)
        if len(pair) != 2:
            raise at.error(f"expected [seconds, requests per second], got {len(pair)} values")
        time_s, rate = (checks.number(pair[n], at.item(n), at_least=0) for n in (0, 1))
        if points and time_s < points[-1][0]:
            raise at.error(f"expected a time from {points[-1][0]:g} s on, got {time_s:g}")
        points.append((time_s, rate))
    if len(points) < 2:
        raise place.error("expected at least two points, as [[0, 3], [60, 3]]")
    return Rate(points)


def _hardware(value: object, place: Place) -> Hardware:
    """A profile's name or file, or a mapping with `profile` and what differs from it."""
    if isinstance(value, str):
        return load_profile(value)
    mapping = dict(checks.mapping(value, place))
    base = load_profile(checks.text(mapping.pop("profile", "h100-8b"), place.key("profile")))
    return profile_of(mapping, place, base.name, base)


def _seed(top: Mapping[str, object], place: Place) -> int:
    """The scenario's seed; it may stand beside the arrivals."""
    arrivals = top["arrivals"]
    if "seed" not in top and isinstance(arrivals, Mapping) and "seed" in arrivals:
        return _whole(arrivals["seed"], place.key("arrivals").key("seed"))
    return _whole(top.get("seed", 0), place.key("seed"))


def _whole(value: object, place: Place, at_most: float = NEVER) -> int:
    number = checks.number(value, place, at_least=0, at_most=at_most)
    if not number.is_integer():
        raise place.error(f"expected a whole number, got {number:g}")
    return int(number)


def _or_never(value: object, place: Place) -> float:
    return NEVER if value is None else checks.number(value, place, at_least=0)
