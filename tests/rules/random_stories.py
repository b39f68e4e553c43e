"""Random workloads, from a seed: loads, counts, starts, restarts, drains, silence, double scrapes, gaps, held ones."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tests.rules.story import ABSENT, Look, Pod, Story

TARGETS = (0.7, 1.0, 1.1, 2.5, 4.0, 8.6, 16.1, 24.0, 100.0)
STEPS = 40


def random_stories(seed: int, count: int, steps: int = STEPS) -> list[Story]:
    """So many stories; the same ones for the same seed."""
    dice = random.Random(seed)
    return [_story(dice, f"w{number}", steps) for number in range(count)]


def _story(dice: random.Random, name: str, steps: int) -> Story:
    target = dice.choice(TARGETS)
    trouble = dice.choice((0.0, 0.0, 0.05, 0.3, 0.8))
    load = _walk(dice, steps, high=2.2 * target)
    models = dice.choice((1, 1, 1, 2))
    pods: list[Pod] = []
    for index in range(dice.choice((0, 1, 1, 2, 3, 5, 9))):
        pods += _pods(dice, f"{name}-{index}", load, trouble, models)
    owner = dice.choice(("", "", "deployment", "statefulset"))
    there = [sum(pod.looks[step].kind != "absent" for pod in pods) for step in range(steps)]
    status = tuple(max(0, count + dice.choice((0, 0, 0, -1, 1, 2))) for count in there)
    spec = tuple(max(0, count + dice.choice((0, 0, -1, 1))) for count in status)
    held = tuple(_held(dice, steps) for _ in range(dice.choice((0, 0, 0, 1, 2))))
    # What began in a gap and is only remembered after it, Prometheus was never told of.
    remembered = any(look.kind in ("draining_lost", "saturated") for pod in pods for look in pod.looks)
    gaps = _gap(dice, steps) if not remembered and dice.random() < 0.6 else frozenset()
    return Story(
        name,
        tuple(pods),
        steps,
        target=target,
        published=dice.random() < 0.5,
        owner=owner,
        spec=spec if owner else (),
        status=status if owner else (),
        recommended_spec=spec if not owner and dice.random() < 0.3 else (),
        held=held,
        gaps=gaps,
    )


def _pods(dice: random.Random, name: str, load: list[float], trouble: float, models: int) -> Iterator[Pod]:
    """A replica, and now and then one of its name after it (a StatefulSet's)."""
    steps = len(load)
    kinds = list(_life(dice, steps, trouble))
    again = None
    if dice.random() < 0.25:
        # A second job that fails remembers a drain that was called off; it fails beside others only.
        sure = any(kind.startswith("draining") for kind in kinds)
        again = frozenset(step for step in range(steps) if sure or dice.random() < 0.8)
    looks = tuple(_look(dice, kind, load[step], models) for step, kind in enumerate(kinds))
    yield Pod(name, looks, again=again)
    gone = max((step for step, kind in enumerate(kinds) if kind != "absent"), default=-1) + 2
    if gone < steps and dice.random() < 0.5:
        later = ["absent"] * gone + list(_life(dice, steps - gone, trouble, born=0))
        yield Pod(
            name,
            tuple(_look(dice, kind, load[step], models) for step, kind in enumerate(later)),
            instance=f"{name}-later",
        )


def _life(dice: random.Random, steps: int, trouble: float, born: int | None = None) -> Iterator[str]:
    """What a replica is at each step."""
    born = dice.choice((0, 0, 0, dice.randrange(steps))) if born is None else born
    ready = born + dice.choice((0, 0, 2, 5))
    leaves = dice.choice((steps, steps, dice.randrange(steps)))
    gone = leaves + dice.randrange(1, 12)
    kind, read = "serving", False
    for step in range(steps):
        if step < born or step >= gone:
            yield "absent"
        elif step >= max(leaves, born):
            yield "draining" if step < max(leaves, born) + 2 or dice.random() < 0.7 else "draining_lost"
        elif step < ready:
            yield dice.choice(("starting", "starting", "lost"))
        else:
            if dice.random() < 0.25:
                # Of a withdrawn replica whose sidecar is lost nobody knows whether it comes back: no story here.
                odd = ("silent", "saturated", "starting", "draining", *(["lost"] if kind != "draining" else []))
                kind = dice.choice(odd) if read and dice.random() < trouble else "serving"
            read = True  # a sidecar shows last values only of an engine that it has read
            yield kind


def _look(dice: random.Random, kind: str, load: float, models: int) -> Look:
    if kind == "absent":
        return ABSENT
    if kind not in ("serving", "saturated", "draining"):
        return Look(kind)
    return Look(kind, tuple(max(0, round(load / models + dice.choice((0, 0, 1, -1)))) for _ in range(models)))


def _walk(dice: random.Random, steps: int, high: float) -> list[float]:
    """A load per replica that stays, jumps and drifts."""
    load, loads = dice.uniform(0, high), []
    for _ in range(steps):
        turn = dice.random()
        if turn < 0.1:
            load = dice.uniform(0, high)
        elif turn < 0.5:
            load = min(high, max(0.0, load + dice.uniform(-0.15, 0.15) * high))
        loads.append(load)
    return loads


def _held(dice: random.Random, steps: int) -> tuple[int, ...]:
    """What an activator holds: mostly nothing."""
    return tuple(dice.choice((0, 0, 0, 1, 3, 40)) for _ in range(steps))


def _gap(dice: random.Random, steps: int) -> frozenset[int]:
    """Scrapes that Prometheus missed in a row, up to some that are too many."""
    start = dice.randrange(1, steps)
    return frozenset(range(start, min(steps, start + dice.randrange(1, 9))))
