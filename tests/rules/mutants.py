"""Wrong rules, each with one change that a person might make: tests/rules/test_mutants.py shows that each is caught."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """One change of one rule file.

    Attributes:
        name: what is wrong.
        file: in rules/.
        old: a text that is there.
        new: what takes its place.
        at: which of several places, from 0.
        test: the scenario or the group of the written tests that tells it.
    """

    name: str
    file: str
    old: str
    new: str
    at: int = 0
    test: str = ""

    def apply(self, text: str) -> str:
        """The file with the change."""
        parts = text.split(self.old)
        assert len(parts) > self.at + 1, f"{self.name}: {self.old!r} is not in {self.file}"
        head, tail = self.old.join(parts[: self.at + 1]), self.old.join(parts[self.at + 1 :])
        return head + self.new + tail


WORKLOAD, FLEET, LATENCY = "workload.yaml", "fleet.yaml", "latency.yaml"

EXPECTED, MISSING = (f"max * workload:infscale_{which}_replicas:count" for which in ("expected", "missing"))
TOKENS = "max by (namespace, workload, pod, model_name) (\n                rate(infscale_generation"
CAPACITY = "and on (namespace, workload, pod)\n                  infscale_capacity_requests"
WORST = "max by (workload_namespace, workload) (\n            histogram_quantile(0.95"

BY_STORY = (
    Mutant(
        "a scrape of 60 s ago is too old",
        WORKLOAD,
        'timestamp(up{workload!=""}) <= 60',
        'timestamp(up{workload!=""}) < 60',
        test="gap",
    ),
    Mutant("a drain is forgotten with its sidecar", WORKLOAD, "[5m1s]", "[29s]", test="drain"),
    Mutant(
        "a Pod drains because one of its name did",
        WORKLOAD,
        "on (job, instance, namespace, pod)",
        "on (namespace, pod)",
        test="again",
    ),
    Mutant(
        "draining replicas serve",
        WORKLOAD,
        "unless on (namespace, workload, pod)",
        "or on (namespace, workload, pod)",
        test="drain",
    ),
    Mutant("silence of half a minute is a start", WORKLOAD, "[1h1s]", "[29s]", test="hole"),
    Mutant(
        "a Pod is silent because one of its name served",
        WORKLOAD,
        "on (job, instance, namespace, pod)",
        "on (namespace, pod)",
        2,
        test="again",
    ),
    Mutant("draining replicas are silent too", WORKLOAD, 'phase=~"draining|serving"', 'phase=~"serving"', test="drain"),
    Mutant(
        "silent replicas are starting too",
        WORKLOAD,
        'phase=~"draining|serving|silent"',
        'phase=~"draining|serving"',
        test="hole",
    ),
    Mutant(
        "starting replicas are expected",
        WORKLOAD,
        'phase=~"serving|silent"',
        'phase=~"serving|silent|starting"',
        test="restart",
    ),
    Mutant("starting replicas are missing", WORKLOAD, 'phase="silent"}', 'phase="starting"}', test="restart"),
    Mutant("the second model of a page is left out", WORKLOAD, "pod, model_name)", "pod)", test="twice"),
    Mutant(
        "a sidecar scraped twice counts twice",
        WORKLOAD,
        "max by (namespace, workload, pod, model_name)",
        "sum by (namespace, workload, pod, model_name)",
        test="twice",
    ),
    Mutant(
        "requests of draining replicas are demand",
        WORKLOAD,
        'pod:infscale_phase:group{phase="serving"}',
        "pod:infscale_phase:group",
        test="drain",
    ),
    Mutant(
        "of two activators one counts",
        WORKLOAD,
        "sum by (workload_namespace, workload) (\n            max",
        "max by (workload_namespace, workload) (\n            max",
        test="zero",
    ),
    Mutant("draining replicas are the HPA's count", WORKLOAD, '{phase!="draining"}', "", test="drain"),
    Mutant(
        "the larger of what is filled in and all at target",
        WORKLOAD,
        "<\n              workload",
        ">\n              workload",
        test="restart",
    ),
    Mutant(
        "all at target are only those that are missing",
        WORKLOAD,
        EXPECTED + "\n      #",
        MISSING + "\n      #",
        test="hole",
    ),
    Mutant(
        "held requests are taken off",
        WORKLOAD,
        "workload:infscale_filled_requests:sum + ",
        "workload:infscale_filled_requests:sum - ",
        test="zero",
    ),
    Mutant(
        "no replica reads as no load",
        WORKLOAD,
        "(workload:infscale_spec_replicas:max == 0)",
        "(workload:infscale_spec_replicas:max >= 0)",
        test="zero",
    ),
    Mutant("fractions of a thousandth are dropped", WORKLOAD, "> bool", "< bool", test="fractions"),
    Mutant("0.9 is outside the tolerance", WORKLOAD, "0.9 <=", "0.9 <", test="edge"),
    Mutant("1.1 is outside the tolerance", WORKLOAD, "<= 1.1", "< 1.1", test="edge"),
    Mutant("a tolerance of 5 % upwards", WORKLOAD, "<= 1.1", "<= 1.05", test="edge"),
    Mutant("replicas are rounded down", WORKLOAD, "ceil(workload", "floor(workload", test="burst"),
    Mutant(
        "the ratio leaves the count out",
        WORKLOAD,
        "target_thousandths:ceil * workload:infscale_status_replicas:max)",
        "target_thousandths:ceil)",
        test="edge",
    ),
    Mutant("a proposal of 300 s ago holds", WORKLOAD, "[299s]", "[301s]", test="burst"),
    Mutant("a proposal of 285 s ago does not hold", WORKLOAD, "[299s]", "[284s]", test="burst"),
    Mutant(
        "the smallest recent proposal holds", WORKLOAD, "max_over_time(workload", "min_over_time(workload", test="burst"
    ),
    Mutant(
        "a rise waits for the window",
        WORKLOAD,
        "workload:infscale_spec_replicas:max > workload",
        "workload:infscale_spec_replicas:max < workload",
        test="settled",
    ),
)
"""Those that a scenario tells, with the core's numbers."""

BY_HAND = (
    Mutant("a replica is expected for an hour only", WORKLOAD, "[1h1s]", "[59m59s]", test="an hour"),
    Mutant(
        "the larger target is not taken",
        WORKLOAD,
        "max by (workload_namespace, workload) (infscale_target",
        "min by (workload_namespace, workload) (infscale_target",
        test="targets",
    ),
    Mutant("a hung recommender keeps the demand", WORKLOAD, "< 60\n", "< 90\n", test="who publishes"),
    Mutant(
        "without a target a hole reads as no load",
        WORKLOAD,
        "missing_replicas:count > 0",
        "missing_replicas:count > 1",
        test="no target",
    ),
    Mutant("replica-minutes of a minute too many", FLEET, "[3599s]", "[3661s]", test="an hour's cost"),
    Mutant("tokens of a sidecar scraped twice", FLEET, TOKENS, TOKENS.replace("max", "sum"), test="together"),
    Mutant(
        "saturation over replicas without a capacity",
        FLEET,
        CAPACITY,
        CAPACITY.replace("and", "unless"),
        test="together",
    ),
    Mutant(
        "finished requests of one outcome",
        FLEET,
        "model_name, outcome) (\n                rate(infscale_finished",
        "model_name) (\n                rate(infscale_finished",
        test="together",
    ),
    Mutant("layouts are merged", LATENCY, "workload, engine, layout, le)", "workload, engine, le)", test="layouts"),
    Mutant("the best layout is shown", LATENCY, WORST, WORST.replace("max", "min"), test="layouts"),
    Mutant(
        "the 99th percentile for the 95th",
        LATENCY,
        "histogram_quantile(0.95",
        "histogram_quantile(0.99",
        test="layouts",
    ),
)
"""Those that rules/fleet_test.yaml and rules/latency_test.yaml tell."""
