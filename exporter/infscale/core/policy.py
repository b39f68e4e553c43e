"""What is asked for: the metrics and their targets, the bounds, and how fast the count may change.

The policy grammar, manifests and the simulator build a `Policy`; the steps of the core read it. Field names are those
of a HorizontalPodAutoscaler (autoscaling/v2) in Python's spelling; `Controller` holds what a cluster sets by the flags
and the version of its kube-controller-manager. What infscale adds to the HPA stands in types of its own around these.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from infscale.core.numbers import MAX_INT32, Tolerance


class Source(StrEnum):
    """Where a metric comes from: `spec.metrics[].type`."""

    EXTERNAL = "External"
    OBJECT = "Object"
    PODS = "Pods"
    RESOURCE = "Resource"
    CONTAINER_RESOURCE = "ContainerResource"


class TargetType(StrEnum):
    """What the measured value is held against: `target.type`."""

    AVERAGE_VALUE = "AverageValue"
    VALUE = "Value"
    UTILIZATION = "Utilization"


class PolicyType(StrEnum):
    """The unit of a scaling policy."""

    PODS = "Pods"
    PERCENT = "Percent"


class SelectPolicy(StrEnum):
    """Which of several scaling policies counts: the largest change, the smallest, or none at all."""

    MAX = "Max"
    MIN = "Min"
    DISABLED = "Disabled"


@dataclass(frozen=True, slots=True)
class MetricTarget:
    """One metric and its target.

    Attributes:
        source: where it comes from.
        target_type: what the target means.
        target: thousandths, or whole percent of the request for `Utilization`.
        name: the metric's name, for people; empty says the source instead.
        resource: `cpu` or `memory` for the two resource sources. Only cpu samples of starting Pods are distrusted.
        container: the one container that counts (ContainerResource); empty for whole Pods.
    """

    source: Source
    target_type: TargetType
    target: int
    name: str = ""
    resource: str = ""
    container: str = ""


@dataclass(frozen=True, slots=True)
class ScalingPolicy:
    """How much may change within a period: `value` Pods, or `value` percent of the count at the period's start."""

    type: PolicyType
    value: int
    period_s: int


@dataclass(frozen=True, slots=True)
class ScalingRules:
    """One direction of `spec.behavior`.

    Attributes:
        policies: each has a period of its own.
        select_policy: which of them counts.
        stabilization_window_s: None in the down direction means the controller's flag.
        tolerance: None means the controller's flag.
    """

    policies: tuple[ScalingPolicy, ...]
    select_policy: SelectPolicy = SelectPolicy.MAX
    stabilization_window_s: int | None = None
    tolerance: float | None = None


DEFAULT_SCALE_UP = ScalingRules(
    policies=(ScalingPolicy(PolicyType.PODS, 4, 15), ScalingPolicy(PolicyType.PERCENT, 100, 15)),
    stabilization_window_s=0,
)
"""What a missing `scaleUp` (or a missing field of it) means. Source: pkg/apis/autoscaling/v2/defaults.go."""

DEFAULT_SCALE_DOWN = ScalingRules(policies=(ScalingPolicy(PolicyType.PERCENT, 100, 15),))
"""What a missing `scaleDown` (or a missing field of it) means. Source: pkg/apis/autoscaling/v2/defaults.go."""


@dataclass(frozen=True, slots=True)
class Behavior:
    """`spec.behavior`. Setting it at all, even empty, changes how a count is stabilised and limited."""

    scale_up: ScalingRules = DEFAULT_SCALE_UP
    scale_down: ScalingRules = DEFAULT_SCALE_DOWN


@dataclass(frozen=True, slots=True)
class Controller:
    """The kube-controller-manager: its version, and its flags with their defaults.

    Attributes:
        version: (major, minor). Up to (1, 32) the tolerance is compared by distance and cannot be set per direction;
            from (1, 37) on a count of zero is left only where the controller itself went to zero (`ScaledToZero`).
        tolerance: `--horizontal-pod-autoscaler-tolerance`.
        configurable_tolerance: the gate HPAConfigurableTolerance: the tolerances set in `behavior` count.
        downscale_stabilization_s: `--horizontal-pod-autoscaler-downscale-stabilization`.
        cpu_initialization_period_s: `--horizontal-pod-autoscaler-cpu-initialization-period`.
        initial_readiness_delay_s: `--horizontal-pod-autoscaler-initial-readiness-delay`.
        scale_up_limit_factor, scale_up_limit_minimum: constants of the controller: without `behavior` a count grows to
            at most the larger of factor * count and the minimum.
    """

    version: tuple[int, int] = (1, 35)
    tolerance: float = 0.1
    configurable_tolerance: bool = True
    downscale_stabilization_s: int = 300
    cpu_initialization_period_s: int = 300
    initial_readiness_delay_s: int = 30
    scale_up_limit_factor: float = 2.0
    scale_up_limit_minimum: float = 4.0

    @property
    def leaves_zero_by_condition(self) -> bool:
        """Whether leaving zero needs the `ScaledToZero` condition (1.37 and newer) and not just a minimum of 0."""
        return self.version >= (1, 37)


@dataclass(frozen=True, slots=True)
class Policy:
    """All that the HPA layer is asked for.

    Attributes:
        metrics: at least one; the largest valid proposal wins.
        min_replicas, max_replicas: the bounds, both included.
        behavior: None where `spec.behavior` is not set.
        controller: flags and version of the controller that is matched.
    """

    metrics: tuple[MetricTarget, ...]
    min_replicas: int = 1
    max_replicas: int = MAX_INT32
    behavior: Behavior | None = None
    controller: Controller = field(default_factory=Controller)

    @property
    def tolerance(self) -> Tolerance:
        """The tolerance that counts: per direction where `behavior` sets one and the controller honours it.

        Source: pkg/controller/podautoscaler/horizontal.go, `tolerancesForHpa` (1.33 and newer).
        """
        by_flag = self.controller.tolerance
        if self.controller.version <= (1, 32):
            return Tolerance(by_flag, by_flag, by_distance=True)
        if self.behavior is None or not self.controller.configurable_tolerance:
            return Tolerance(by_flag, by_flag)
        down, up = self.behavior.scale_down.tolerance, self.behavior.scale_up.tolerance
        return Tolerance(by_flag if down is None else down, by_flag if up is None else up)

    @property
    def windows_s(self) -> tuple[int, int]:
        """The stabilisation windows (up, down) in seconds; without `behavior` (0, the controller's flag).

        Source: horizontal.go, `maybeInitScaleDownStabilizationWindow`: an unset down window is the flag's.
        """
        if self.behavior is None:
            return 0, self.controller.downscale_stabilization_s
        down = self.behavior.scale_down.stabilization_window_s
        return (
            self.behavior.scale_up.stabilization_window_s or 0,
            self.controller.downscale_stabilization_s if down is None else down,
        )

    @property
    def has_object_or_external(self) -> bool:
        """Whether a metric exists without any Pod, so that a count of zero can be left again."""
        return any(metric.source in (Source.OBJECT, Source.EXTERNAL) for metric in self.metrics)
