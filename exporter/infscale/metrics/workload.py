"""A workload at the instant of its last evaluation, as a plain value: what is published, shown and answered. Pure.

The recommender (and a sidecar with a fleet source) makes one out of each decision; `workload_collector` makes metrics
of it, `infscale.recommender_page` a page, `infscale.recommender_answers` JSON. It knows nothing of the decision core.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from infscale.metrics.catalogue_workload import REASON_MEANINGS


@dataclass(frozen=True)
class Counts:
    """Replicas by state; None is a count that was not read, which is not 0.

    Attributes:
        spec: asked for (spec.replicas).
        ready: ready, as Kubernetes says; a replica that is ready may be silent.
        serving: gave a value at the last read.
        starting: never were ready.
        silent: were ready once, and gave no value.
        draining: leave, with their last requests.
    """

    spec: int | None = None
    ready: int | None = None
    serving: int | None = None
    starting: int | None = None
    silent: int | None = None
    draining: int | None = None


@dataclass(frozen=True)
class WorkloadView:
    """What is known of a workload. With a name alone it is one that was not evaluated yet, or not here.

    Attributes:
        namespace, name: the labels `workload_namespace` and `workload`; empty where nobody told.
        recommended: replicas to ask for; None: no recommendation, and `message` says why.
        hpa_recommended: what a plain HPA would ask for with the same input; None as `recommended`.
        measured: requests of the replicas that gave a value and do not drain, held ones included; None: nothing was
            measured. `inflight` is what may be published of it.
        filled: the same by the policy's metric, with silent replicas filled in; None without a value. `demand` is what
            may be published of it.
        held: requests that an activator holds; 0 without an activator; None: it did not answer.
        target: requests per replica that the policy aims at; None where it scales on something else than requests.
        replicas: counts by state.
        silent_names: of the replicas that are silent.
        reason: one of `catalogue_workload.REASON_MEANINGS`; empty before the first evaluation.
        lookahead_demand: the demand at the end of the lookahead; None without one.
        coverage: replicas that gave a value, of those that should, 0 to 1; 1 where none should; None before the first
            evaluation.
        evaluated_at_s: Unix seconds; None before the first evaluation.
        steps: what each step made of the count, in words, in order.
        message: what a person should know besides, in one line; may be empty.

    Raises:
        ValueError: a reason that is not in the list; its series could not say what it is.
    """

    namespace: str
    name: str
    recommended: int | None = None
    hpa_recommended: int | None = None
    measured: float | None = None
    filled: float | None = None
    held: float | None = 0.0
    target: float | None = None
    replicas: Counts = field(default_factory=Counts)
    silent_names: tuple[str, ...] = ()
    reason: str = ""
    lookahead_demand: float | None = None
    coverage: float | None = None
    evaluated_at_s: float | None = None
    steps: tuple[str, ...] = ()
    message: str = ""

    def __post_init__(self) -> None:
        if self.reason and self.reason not in REASON_MEANINGS:
            raise ValueError(f"reason {self.reason!r}: expected one of {', '.join(REASON_MEANINGS)}")

    @property
    def inflight(self) -> float | None:
        """Requests in flight over the workload, held ones included; None where they are not known.

        A 0 that is the sum over no replica at all is not "no load": an outage looks the same. It counts only where
        spec.replicas was read and is 0, and no request can be held unseen. The 0 of a replica that answered, and
        everything above 0, was measured.
        """
        return self._known(self.measured)

    @property
    def demand(self) -> float | None:
        """Requests that the policy scales on, silent replicas filled in; None where not known, as for `inflight`."""
        return None if self.target is None else self._known(self.filled)

    def _known(self, requests: float | None) -> float | None:
        if requests is not None and (requests > 0 or self.replicas.serving):
            return requests
        return 0.0 if self.replicas.spec == 0 and self.held is not None else None

    @property
    def current(self) -> int | None:
        """What the workload asks for now (spec.replicas); None: not read."""
        return self.replicas.spec

    @property
    def direction(self) -> str:
        """What the recommendation does to the count: `up`, `down` or `none` (also where either is not known)."""
        return direction(self.current, self.recommended)


def direction(current: int | None, desired: int | None) -> str:
    """`up`, `down` or `none` for two counts; `none` where either is not known."""
    if current is None or desired is None or current == desired:
        return "none"
    return "up" if desired > current else "down"
