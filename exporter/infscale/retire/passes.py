"""`Retirer`: takes one replica of a workload away, a pass at a time.

    retirer = Retirer(cluster, "deployment", "ml", "vllm", token_file="/run/secrets/infscale/token")
    progress = retirer.step(time.time())        # again each second, until progress.final

A pass reads the record, looks (`look`), lets the protocol say what follows (`protocol`), writes the record and then
does the one thing that the step asks for. It never waits: each of its reads is bounded, and whatever fails is a reason
to hold, with the budgets running on. Whoever is killed between any two of these goes on at the record.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from infscale.errors import UsageError
from infscale.kube.cluster import Cluster
from infscale.kube.deletion_cost import annotations_of
from infscale.kube.errors import Conflict, KubeError, NotAllowed, NotFound
from infscale.kube.kinds import workload_target
from infscale.kube.objects import Workload
from infscale.retire.look import Looker
from infscale.retire.persisted import AnnotationStore, Store
from infscale.retire.protocol import OVERALL_S, Act, Step, abort, advance
from infscale.retire.record import Frozen, Record, State
from infscale.retire.rules import Reason, Rule
from infscale.retire.seen import Choice, Seen
from infscale.retire.siblings import KINDS
from infscale.retire.withdrawer import LEASE_S, Withdrawer
from infscale.scrape import Target

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a retirement is after a pass.

    Attributes:
        state: None where none is under way, and none could be begun.
        target: the Pod; empty before it is chosen.
        reason: what holds it, or how it ended.
        rule: the rule of the reason; None where there is none.
        final: it is over; a further step begins nothing (see `Retirer.again`).
        exhausted: the overall budget is over; from Deleting on the retirement goes on all the same.
    """

    state: State | None
    target: str = ""
    reason: str = ""
    rule: Rule | None = None
    final: bool = False
    exhausted: bool = False

    @property
    def done(self) -> bool:
        """Whether the replica was taken away."""
        return self.state is State.COMPLETED


class Retirer:
    """Retires one replica of one workload; one operation at a time, whoever runs it.

    Args:
        cluster: the API.
        kind, namespace, name: a Deployment, StatefulSet or LeaderWorkerSet.
        store: where the record is kept; None: as an annotation on the workload.
        token_file: holds the token of the sidecars' `/withdraw`.
        rotation: the page of a router that ignores readiness (`router.parse_rotation`).
        retry: begin anew where the last retirement was aborted.
        clock, wall_clock: monotonic and Unix seconds.

    Raises:
        UsageError: another kind of workload.
    """

    def __init__(
        self,
        cluster: Cluster,
        kind: str,
        namespace: str,
        name: str,
        *,
        store: Store | None = None,
        token_file: str | None = None,
        rotation: Target | None = None,
        retry: bool = False,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        workload_target(kind, namespace, name)
        self._cluster, self._kind, self._namespace, self._name = cluster, kind, namespace, name
        self._store = store or AnnotationStore(cluster)
        self._withdrawer = Withdrawer(cluster, namespace, token_file, clock=clock)
        self._looker = Looker(
            cluster, namespace, self._withdrawer, rotation=rotation, clock=clock, wall_clock=wall_clock
        )
        self._retry, self._clock = retry, clock
        self._following: float | None = None  # when the retirement began that this one has seen under way

    def check(self) -> Workload:
        """The workload, so that what can never work is told at the start.

        Raises:
            KubeError: it cannot be read.
            UsageError: it is of another kind.
        """
        workload = self._cluster.workload(self._kind, self._namespace, self._name)
        if workload.kind not in KINDS:
            raise UsageError(f"{workload}: only a {', '.join(KINDS)} gives up a replica that can be told beforehand")
        return workload

    def again(self, *, retry: bool = False) -> None:
        """Let the next step begin another retirement, once the last one is over."""
        self._following, self._retry = None, retry

    def choice(self) -> tuple[Workload, Choice]:
        """Who would leave now; nothing is changed.

        Raises:
            KubeError: it cannot be told.
        """
        workload = self.check()
        return workload, self._looker.choice(workload)

    def step(self, now_s: float) -> Progress:
        """One pass.

        Args:
            now_s: Unix seconds.

        Raises:
            StateError: the record cannot be used, or the file not be written.
            NotAllowed: a right is missing before a replica was chosen: waiting does not give it.
        """
        begin_s = self._clock()
        try:
            workload = self.check()
            record = self._store.load(workload, now_s)
        except KubeError as error:
            return _unseen(error)
        if record is None or (record.state.final and record.started_s != self._following):
            return self._begin(workload, record, now_s)
        self._following = record.started_s
        if record.state.final:
            return _ended(record)
        try:
            seen = self._looker.look(record, workload, now_s)
        except KubeError as error:
            if isinstance(error, NotAllowed) and record.state is State.ADMITTED:
                raise
            seen = Seen(fault=Reason(Rule.API, str(error)))
        after_s = now_s + (self._clock() - begin_s)
        return self._carry_out(workload, record, advance(record, seen, after_s), after_s)

    def cancel(self, why: str, now_s: float) -> Progress:
        """Abort what nothing was taken away for yet: the replica is wanted again. From Deleting on it goes on.

        Raises:
            StateError: as `step`.
        """
        try:
            workload = self.check()
            record = self._store.load(workload, now_s)
        except KubeError as error:
            return _unseen(error)
        if record is None or not record.state.may_abort:
            return Progress(None) if record is None else _progress(record, None, now_s)
        return self._carry_out(workload, record, abort(record, Reason(Rule.CANCELLED, why), now_s), now_s)

    def _begin(self, workload: Workload, last: Record | None, now_s: float) -> Progress:
        """Admit a new retirement; one that was aborted, and not called off, is only followed by another on request."""
        failed = last is not None and last.state is State.ABORTED and not last.called_off
        if last and failed and not self._retry:
            why = f"the last retirement of {workload} was aborted ({last.reason}): --retry begins another"
            return Progress(State.ABORTED, last.target, str(Reason(Rule.RETRY, why)), Rule.RETRY, final=True)
        record = Record(str(workload), workload.uid, State.ADMITTED, now_s, now_s)
        try:
            self._store.save(workload, record)
        except NotAllowed:
            raise
        except KubeError as error:
            return _unseen(error)
        self._following, self._retry = now_s, False
        return _progress(record, None, now_s)

    def _carry_out(self, workload: Workload, record: Record, step: Step, now_s: float) -> Progress:
        """Write the record, then do what the step asks for: in this order, so that nothing is done twice."""
        try:
            if step.record != record:
                self._store.save(workload, step.record)
        except KubeError as error:
            return _progress(record, Reason(Rule.API, str(error)), now_s)
        if step.record.state is not record.state:
            fields = {"workload": str(workload), "state": step.record.state.value, "pod": step.record.target}
            log.info("retirement", extra=fields | ({"reason": str(step.hold)} if step.hold else {}))
        failed = self._do(step) if step.act else None
        return _progress(step.record, failed or step.hold, now_s)

    def _do(self, step: Step) -> Reason | None:
        """The step's act; what kept it from being done."""
        record = step.record
        try:
            match step.act:
                case Act.WRITE_COST:
                    self._write_cost(record, step.cost or 0)
                case Act.SCALE_DOWN:
                    return self._scale_down(record)
                case Act.DELETE:
                    target = record.members[0]
                    self._cluster.delete_pod(self._namespace, target.name, uid=target.uid)
                case Act.PUT_BACK:
                    self._put_back(record.members[0])
        except KubeError as error:
            return Reason(Rule.API, str(error))
        return None

    def _write_cost(self, record: Record, cost: int) -> None:
        pod = self._cluster.pod(self._namespace, record.target)
        if pod.uid == record.members[0].uid:
            self._cluster.annotate_pod(pod, annotations_of(cost))

    def _scale_down(self, record: Record) -> Reason | None:
        """Patch the scale down by one, from the count that was decided on and no other.

        Where the API server says that it was not done, the decision is taken back; where nobody knows, it stays.
        """
        cut = record.cut
        assert cut is not None  # noqa: S101 (the protocol asks for this with a cut only)
        workload = self.check()
        scale = self._cluster.scale(workload)
        if scale.spec_replicas != cut.before:
            self._store.save(workload, replace(record, cut=None))
            why = f"{workload} asks for {scale.spec_replicas} by now, not {cut.before}: looking anew"
            return Reason(Rule.SCALE, why)
        try:
            self._cluster.set_replicas(workload, cut.after, expected_resource_version=scale.resource_version)
        except Conflict:
            self._store.save(self.check(), replace(record, cut=None))
            return Reason(Rule.SCALE, f"{workload} changed while it was patched: looking anew")
        log.info("scaled down", extra={"workload": str(workload), "from": cut.before, "to": cut.after})
        self._store.save(self.check(), replace(record, cut=replace(cut, done=True)))
        return None

    def _put_back(self, target: Frozen) -> None:
        """Back in rotation; whatever fails is no reason to hold: the lease runs out by itself."""
        try:
            pod = self._cluster.pod(self._namespace, target.name)
            failed = self._withdrawer.put_back(pod) if pod.uid == target.uid else None
        except NotFound:
            return
        except KubeError as error:
            failed = Reason(Rule.API, str(error))
        if failed:
            fields = {"pod": target.name, "s": LEASE_S, "reason": str(failed)}
            log.warning("its lease runs out by itself", extra=fields)


def _unseen(error: KubeError) -> Progress:
    """Not even the record could be read, or the first one not be written."""
    return Progress(None, reason=str(Reason(Rule.API, str(error))), rule=Rule.API)


def _progress(record: Record, reason: Reason | None, now_s: float) -> Progress:
    if record.state.final:
        return replace(_ended(record), rule=reason.rule if reason else None)
    text = str(reason) if reason else ""
    exhausted = now_s >= record.started_s + OVERALL_S
    return Progress(record.state, record.target, text, reason.rule if reason else None, exhausted=exhausted)


def _ended(record: Record) -> Progress:
    return Progress(record.state, record.target, record.reason, final=True)
