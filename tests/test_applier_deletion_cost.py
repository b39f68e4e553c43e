"""`--apply` scales a Deployment down by way of deletion costs: the replica with the least in flight leaves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from infscale.applier import KubeApplier
from infscale.core.decision import Reason
from infscale.core.replicas import Phase, Replica
from infscale.core.scale_decision import Counts, ScaleDecision
from infscale.kube.deletion_cost import OURS
from infscale.kube.objects import DELETION_COST
from tests.certs import Certs, make_certs
from tests.kube import objects
from tests.kube.controller import follow_replicas
from tests.raw_server import Call
from tests.town import START_S, Town, address

STEP_S = 15.0
PAGE = 'vllm:num_requests_running{{model_name="m"}} {0}\nvllm:num_requests_waiting{{model_name="m"}} 0\n'


class Uneven(Town):
    """A workload whose replicas have different loads.

    Attributes:
        loads: requests in flight by the Pod's address.
    """

    def __init__(self, *arguments, **options) -> None:
        self.loads: dict[str, int] = {}
        super().__init__(*arguments, **options)

    def _page(self, call: Call) -> None:
        here = call.connection.getsockname()[0]
        if here in self.quiet:
            call.reset()
        else:
            call.page(PAGE.format(self.loads.get(here, 0)).encode())

    def staying(self) -> set[str]:
        """Addresses of the Pods that do not leave, once the controller has done its work."""
        self.api.hook()
        pods = self.api.list("pods")
        return {pod["status"]["podIP"] for pod in pods if "deletionTimestamp" not in pod["metadata"]}

    def patched(self) -> list[str]:
        """Pods that were written to."""
        return [call.path.rsplit("/", 1)[1] for call in self.api.calls("PATCH")]


@pytest.fixture(scope="module")
def certs(tmp_path_factory) -> Certs:
    """Certificates of the API server."""
    return make_certs(tmp_path_factory.mktemp("certs"))


@pytest.fixture
def town(certs, tmp_path) -> Iterator[Uneven]:
    """A Deployment of three."""
    made = Uneven(tmp_path, certs, 3)
    with made:
        yield made


def down(*inflight: float | None, to: int = 2, current: int = 3) -> ScaleDecision:
    """A decision with replicas that have so much in flight."""
    replicas = tuple(
        Replica(f"vllm-{number:05d}", Phase.SILENT if value is None else Phase.SERVING, inflight=value)
        for number, value in enumerate(inflight, 1)
    )
    decision = ScaleDecision(current, to, to, to, Reason.METRIC, (), Counts(), 1.0)
    return replace(decision, replicas=replicas)


def test_the_idlest_leaves_and_the_busiest_stays(town):
    """From the engines' pages to the Pod that leaves: the youngest, which would leave by itself, is the busiest."""
    town.loads = {address(1): 9, address(2): 1, address(3): 30}
    evaluator = town.evaluator("queue:16,max=8,downwindow=30", applier=town.applier())
    for _ in range(4):
        evaluator.evaluate()
        if town.replicas == 3:
            assert town.patched() == [], "no decision, no cost"
        town.now_s += STEP_S
    assert town.replicas == 3
    town.loads = {address(1): 1, address(2): 0, address(3): 30}
    for _ in range(4):
        evaluator.evaluate()
        town.now_s += STEP_S
    assert town.replicas == 2
    assert town.staying() == {address(1), address(3)}
    assert sorted(town.patched()) == ["vllm-00001", "vllm-00002", "vllm-00003"], "once for the decision"


def test_loads_that_change_write_nothing(town):
    """Without a decision to scale down no Pod is touched, whatever the metric does."""
    evaluator = town.evaluator("queue:10,min=3,max=8", applier=town.applier())
    for load in (0, 3, 9, 27, 81, 2):
        town.loads = {address(1): load}
        evaluator.evaluate()
        town.now_s += STEP_S
    assert town.patched() == []


def test_costs_come_before_the_scale(town):
    """Every cost is written, and shown by a list, before the count is."""
    assert town.applier().apply(down(5, 0, 7), START_S) == ""
    calls = [(call.method, call.path.rsplit("/", 1)[1]) for call in town.api.calls()]
    scaled = calls.index(("PUT", "scale"))
    last_cost = max(at for at, (method, _) in enumerate(calls) if method == "PATCH")
    assert last_cost < max(at for at, call in enumerate(calls) if call == ("GET", "pods")) < scaled
    assert town.staying() == {address(1), address(3)}


@pytest.mark.parametrize(
    "decision",
    [down(1, 2, 3, to=5), down(1, 2, 3, to=3), down(1, 2, 3, to=0), down(1, 2, 3, current=4)],
    ids=["up", "none", "all", "another count"],
)
def test_only_for_a_scale_down_with_a_choice(town, decision):
    """Up, unchanged, to 0, and a decision about another count: no cost is written."""
    town.applier().apply(decision, START_S)
    assert town.patched() == []


def test_another_writers_cost_is_told_beside_the_scale(town):
    """It may well keep the idle Pod: theirs to decide; the answer says which."""
    theirs = {DELETION_COST: "1000"}
    town.api.change("pods", "vllm-00001", lambda one: one["metadata"].update(annotations=dict(theirs)))
    said = town.applier().apply(down(0, 2, 3), START_S)
    assert said == "1 of 3 Pods keep the deletion cost that another wrote: vllm-00001"
    assert town.replicas == 2
    assert town.staying() == {address(1), address(3)}
    assert OURS not in town.api.get("pods", "vllm-00001")["metadata"]["annotations"]


def test_without_the_right_to_write_costs_nothing_is_scaled(town):
    """A scale-down that cannot choose would cut requests: it says what the Role lacks."""
    town.api.role = [
        objects.role_rule("coordination.k8s.io", "leases", "get", "create", "update"),
        objects.role_rule("apps", "deployments", "get"),
        objects.role_rule("apps", "deployments/scale", "get", "update"),
        objects.role_rule("autoscaling", "horizontalpodautoscalers", "list"),
        objects.role_rule("keda.sh", "scaledobjects", "list"),
        objects.role_rule("", "pods", "list"),
    ]
    said = town.applier().apply(down(1, 2, 3), START_S)
    assert said.startswith("not scaled: not allowed to patch pods")
    assert "verbs: [list, patch]" in said
    assert town.replicas == 3
    town.api.role.append(objects.role_rule("", "pods", "patch"))
    assert town.applier().apply(down(1, 2, 3), START_S) == ""
    assert town.replicas == 2


def test_a_silent_replica_is_not_taken_for_idle(town):
    """The one that does not answer stays, one with requests leaves."""
    assert town.applier().apply(down(None, 4, None), START_S) == ""
    assert town.staying() == {address(1), address(3)}


def test_a_stateful_set_takes_the_highest_ordinal(town):
    """Costs mean nothing there, and none is written."""
    town.api.add(objects.stateful_set("db", replicas=3))
    follow_replicas(town.api, "statefulsets", "db")
    applier = KubeApplier(town.cluster(), "statefulset", "ml", "db", "a", wall_clock=town.clock)
    assert applier.apply(down(1, 2, 3), START_S) == ""
    assert town.patched() == []
    assert town.api.get("statefulsets", "db")["spec"]["replicas"] == 2
