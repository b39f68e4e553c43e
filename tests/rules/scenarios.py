"""Stories with a name and a moral: what `generate` writes into rules/workload_test.yaml for a person to read.

A replica is told in words with a count of steps each: `4*10` serves 4 requests for ten steps, `4+2*10` 4 of one model
and 2 of another, `saturated:9*3`, `draining:2*4`, and `silent*2`, `lost*2`, `starting*5`, `absent*3`, `draining_lost*2`
without requests.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.rules.story import Look, Pod, Story

STEPS = 32


@dataclass(frozen=True)
class Scenario:
    """A story, what it shows, and the steps at which a person wants the numbers."""

    moral: str
    story: Story
    steps: tuple[int, ...]


def pod(name: str, words: str, *, steps: int = STEPS, instance: str = "", again: bool = False) -> Pod:
    """A replica out of its words; the last one holds to the end."""
    looks: list[Look] = []
    for word in words.split():
        what, _, count = word.partition("*")
        kind, _, requests = what.rpartition(":") if ":" in what or what[0].isdigit() else (what, "", "")
        look = Look(kind or "serving", tuple(int(one) for one in requests.split("+") if one))
        looks += [look] * int(count or 1)
    looks += [looks[-1]] * (steps - len(looks))
    return Pod(name, tuple(looks), instance=instance, again=frozenset(range(steps)) if again else None)


def pods(name: str, *words: str) -> tuple[Pod, ...]:
    """Replicas of a workload, numbered."""
    return tuple(pod(f"{name}-{number}", told) for number, told in enumerate(words))


def counts(*words: str) -> tuple[int, ...]:
    """Numbers over time: `2*10` is 2 for ten steps, the last one holds to the end."""
    found: list[int] = []
    for word in words:
        number, _, count = word.partition("*")
        found += [int(number)] * int(count or 1)
    return tuple(found + [found[-1]] * (STEPS - len(found)))


def scenarios() -> list[Scenario]:
    """All of them, in the order of the file."""
    return [*_loads(), *_holes(), *_leaving(), *_counts()]


def _loads() -> list[Scenario]:
    return [
        Scenario(
            "A burst raises the proposal at once; when it is over the window holds it while its last proposal is"
            " younger than 300 s, here until 6m15s.",
            Story("burst", pods("burst", "4*2 20*4 3", "4*2 20*4 3"), STEPS, published=True),
            (0, 1, 2, 5, 6, 24, 25, 26),
        ),
        Scenario(
            "Ratios of 0.9 and 1.1 are still within the tolerance, 0.89 and 1.11 are not.",
            Story("edge", pods("edge", *["9*4 11*4 9*4 11"] * 9, "9*4 11*4 8*4 12"), STEPS, target=10.0),
            (0, 3, 4, 8, 12),
        ),
        Scenario(
            "A sidecar that is scraped under two jobs, and a page with two models: each request counts once.",
            Story("twice", (pod("twice-0", "4+3", again=True), pod("twice-1", "5+1")), STEPS),
            (0, 20),
        ),
    ]


def _holes() -> list[Scenario]:
    return [
        Scenario(
            "A silent replica counts as at its target, and never below: the count stays. Beside one that asks for more"
            " than all of them should take, nothing is added.",
            Story("hole", pods("hole", "4*12 40", "4*4 silent*4 4*4 lost", "4"), STEPS),
            (3, 4, 8, 12),
        ),
        Scenario(
            "All are silent: known is 0, and the demand is as if each were at its target.",
            Story("dark", pods("dark", "1*4 silent", "1*4 lost"), STEPS),
            (3, 4),
        ),
        Scenario(
            "A replica that starts is neither expected nor missing; one that starts anew is silent.",
            Story("restart", pods("restart", "5", "starting*4 5*4 lost starting*4 5"), STEPS),
            (0, 4, 8, 9, 13),
        ),
        Scenario(
            "A saturated engine is not read, and its last values count.",
            Story("full", pods("full", "9*4 saturated:9*10 silent", "4"), STEPS),
            (4, 14),
        ),
        Scenario(
            "Nothing was scraped: after 60 s the last values are no longer those of now, and there is no demand.",
            Story("gap", pods("gap", "5", "7"), STEPS, gaps=frozenset(range(4, 12))),
            (7, 8, 12),
        ),
    ]


def _leaving() -> list[Scenario]:
    return [
        Scenario(
            "A draining replica is no capacity and its requests are no demand; its sidecar may end before the Pod is"
            " gone.",
            Story("drain", pods("drain", "4", "4*4 draining:4*4 draining:1*4 draining_lost*3 absent"), STEPS),
            (3, 4, 11, 12, 15),
        ),
        Scenario(
            "A retirement that is called off: the replica counts again.",
            Story("recalled", pods("recalled", "4", "4*4 draining:4*4 4"), STEPS),
            (4, 8),
        ),
        Scenario(
            "A StatefulSet's next Pod has the name of the one before: it starts, though that one served and drained.",
            Story(
                "again",
                (
                    pod("again-0", "4*4 draining:1*4 absent"),
                    pod("again-0", "absent*9 starting*4 4", instance="again-0-new"),
                ),
                STEPS,
            ),
            (4, 8, 9, 13),
        ),
    ]


def _counts() -> list[Scenario]:
    return [
        Scenario(
            "The status has more replicas than the spec (a surge): within the tolerance the HPA proposes the status.",
            Story(
                "surge", pods("surge", "4", "4", "4"), STEPS,
                owner="deployment", spec=counts("2*8", "3"), status=counts("3*4", "2*4", "3"),
            ),
            (0, 4, 8),
        ),
        Scenario(
            "At zero: 0 where the count was read, held requests ask for replicas; beside a replica they are added.",
            Story(
                "zero", pods("zero", "absent*20 5"), STEPS, published=True,
                owner="statefulset", spec=counts("0*12", "1"), status=counts("0*14", "1"),
                held=(counts("0*4", "3*4", "60*8", "0"), counts("0*8", "5*8", "0*6", "2")),
            ),
            (0, 4, 8, 16, 20, 24),
        ),
        Scenario(
            "A proposal below the count, above it and at it: what the HPA would ask for before its limits.",
            Story(
                "settled", pods("settled", "2*3 9*3 4"), STEPS,
                owner="deployment", spec=counts("4*8", "2*8", "1"), status=counts("1"),
            ),
            (0, 3, 8, 16, 25, 26),
        ),
        Scenario(
            "The spec of a recommender, where kube-state-metrics tells nothing.",
            Story("told", pods("told", "1", "1"), STEPS, recommended_spec=counts("5*8", "2")),
            (0, 8),
        ),
    ]  # fmt: skip
