"""What is searched: axes with their values in the order of their size, and a policy's text for a combination.

An axis's values are pieces of the policy grammar, so a candidate (an index per axis) is a policy by joining pieces.
`space_of` makes the space of a scenario; tests make small ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod

from infscale.core.grammar import parse_policy, policy_text
from infscale.core.scaling import Goal, MetricName
from infscale.core.settings import policy_of
from infscale_sim.defaults import Defaults
from infscale_sim.policies import Core, scaler_of
from infscale_sim.scenario import Scenario

Candidate = tuple[int, ...]
"""An index per axis."""

DEFAULT_TOLERANCE = 0.1
"""The HPA's."""

STEPS = (4, 2, 1)
"""Of a refinement, in values of an ordered axis."""
_TARGETS = range(1, 41)  # in 32nds of the slots: to a quarter above what a full batch holds
_COARSE_TARGETS = (2, 4, 8, 12, 16, 24, 32)
_LOOKAHEADS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0)  # in cold starts
_COARSE_LOOKAHEADS = (0.0, 0.5, 1.0)
_DOWN_WINDOWS_S = (0, 15, 30, 60, 120, 180, 300, 450, 600, 900)
_UP_WINDOWS_S = (0, 15, 30, 60)
_COOLDOWNS_S = (120, 300, 600, 1200)
_MOST_LOOKAHEAD_S = 3600


@dataclass(frozen=True, slots=True)
class Axis:
    """One thing that is varied.

    Attributes:
        name: for people.
        values: pieces of the grammar, as `queue:24`; an empty one leaves the key out.
        coarse: the indices that the first grid takes.
        is_ordered: whether neighbours are alike, so that a search can take steps; else each value is tried.
    """

    name: str
    values: tuple[str, ...]
    coarse: tuple[int, ...]
    is_ordered: bool = True


@dataclass(frozen=True, slots=True)
class Space:
    """All candidates.

    Attributes:
        axes: what is varied; the first gives the metric and its target.
        rest: pieces that every candidate has.
    """

    axes: tuple[Axis, ...]
    rest: tuple[str, ...] = ()

    def text(self, candidate: Candidate) -> str:
        """The policy, with every searched key written out, so that a scenario's own values have no say."""
        pieces = (axis.values[index] for axis, index in zip(self.axes, candidate, strict=True))
        return ",".join(piece for piece in (*pieces, *self.rest) if piece)

    def grid(self) -> list[Candidate]:
        """The coarse grid."""
        return list(product(*(axis.coarse for axis in self.axes)))

    @property
    def size(self) -> int:
        """How many candidates there are."""
        return prod(len(axis.values) for axis in self.axes)

    def all(self) -> list[Candidate]:
        """Every candidate there is."""
        return list(product(*(range(len(axis.values)) for axis in self.axes)))

    def moves(self, candidate: Candidate, step: int) -> Iterator[Candidate]:
        """Its neighbours along one axis: a step both ways, or any other value of one without order."""
        for at, (axis, index) in enumerate(zip(self.axes, candidate, strict=True)):
            steps = (index - step, index + step) if axis.is_ordered else range(len(axis.values))
            for other in steps:
                if other != index and 0 <= other < len(axis.values):
                    yield (*candidate[:at], other, *candidate[at + 1 :])

    def paired_moves(self, candidate: Candidate) -> Iterator[Candidate]:
        """Its neighbours along the first axis and one other at once, by steps of several sizes.

        A higher target often pays only together with a longer lookahead, by steps that are not the same.
        """
        offsets = [sign * step for step in STEPS for sign in (-1, 1)]
        firsts = [candidate[0] + offset for offset in offsets if 0 <= candidate[0] + offset < len(self.axes[0].values)]
        for at, axis in enumerate(self.axes[1:], 1):
            index = candidate[at]
            others = [index + offset for offset in offsets] if axis.is_ordered else range(len(axis.values))
            for first, other in product(firsts, others):
                if other != index and 0 <= other < len(axis.values):
                    yield (first, *candidate[1:at], other, *candidate[at + 1 :])


def space_of(scenario: Scenario, *, least: int, most: int, knee: int, knee_rate: float | None) -> Space:
    """What a scenario leaves open.

    Args:
        scenario: the cold start and what its HPA settings say beyond windows and rates.
        least: 0 to search scale to zero as well, else the fewest replicas.
        most: the most replicas.
        knee: requests in flight that fill a replica; targets go to a quarter above.
        knee_rate: tokens per second that a replica carries, for the guard; None where it has to learn it.
    """
    guard = "guard=0.85" if knee_rate is None else f"guard=0.85,knee={knee_rate:.0f}"
    axes = (
        _numbers("target", "queue:{}", _shares(_TARGETS, knee), _shares(_COARSE_TARGETS, knee)),
        _lookaheads(scenario.cold_start.typical_s),
        _numbers("window down", "downwindow={}", _DOWN_WINDOWS_S, (60, 300)),
        _words("rate down", ("down=100%/15", "down=1/60", "down=1/15", "down=1/180", "down=50%/60"), 2),
        _numbers("window up", "upwindow={}", _UP_WINDOWS_S, (0,)),
        _words("rate up", ("up=100%/15+4/15", "up=2/15", "up=1/15", "up=1/60"), 1),
        _words("guard", ("", guard), 1),
        _minimum(least),
    )
    return Space(axes, (f"max={most}", *_unsearched(scenario.defaults)))


def _shares(shares: range | tuple[int, ...], knee: int) -> tuple[int, ...]:
    return tuple(sorted({max(1, round(knee * share / 32)) for share in shares}))


def _numbers(name: str, piece: str, values: tuple[int, ...], coarse: tuple[int, ...]) -> Axis:
    return Axis(name, tuple(piece.format(value) for value in values), tuple(values.index(value) for value in coarse))


def _words(name: str, values: tuple[str, ...], coarse: int) -> Axis:
    return Axis(name, values, tuple(range(coarse)), is_ordered=False)


def _lookaheads(cold_start_s: float) -> Axis:
    """Parts and multiples of a cold start, in whole seconds."""
    seconds = {share: min(_MOST_LOOKAHEAD_S, round(share * cold_start_s)) for share in _LOOKAHEADS}
    values = tuple(sorted(set(seconds.values())))
    coarse = sorted({values.index(seconds[share]) for share in _COARSE_LOOKAHEADS})
    return Axis("lookahead", tuple(f"lookahead={value}" for value in values), tuple(coarse))


def _minimum(least: int) -> Axis:
    if least > 0:
        return _words("zero", (f"min={least}",), 1)
    asleep = (f"min=0,cooldown={cooldown_s}" for cooldown_s in _COOLDOWNS_S)
    return Axis("zero", ("min=1", *asleep), (0, 2), is_ordered=False)


def _unsearched(defaults: Defaults) -> tuple[str, ...]:
    """What the scenario's HPA has beyond windows and rates, and other than the HPA's defaults."""
    kept = {
        key: value
        for key, value in defaults.behavior.items()
        if key.endswith("select") or (key.endswith("tolerance") and value != DEFAULT_TOLERANCE)
    }
    pieces = policy_text(policy_of((Goal(MetricName.QUEUE, 1),), kept)).split(",")[1:]
    return tuple(piece for piece in pieces if piece != "upwindow=0")


def shortened(text: str, defaults: Defaults) -> str:
    """The policy without the pieces that neither the scenario nor the recommender needs to be told."""
    pieces = text.split(",")
    for piece in pieces[1:]:
        shorter = ",".join(other for other in pieces if other != piece)
        if _meaning(shorter, defaults) == _meaning(text, defaults):
            pieces.remove(piece)
    return ",".join(pieces)


def _meaning(text: str, defaults: Defaults) -> tuple[object, object]:
    scaler = scaler_of(text, defaults)
    return (scaler.policy if isinstance(scaler, Core) else text), parse_policy(text)
