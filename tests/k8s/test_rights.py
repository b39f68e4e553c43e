"""The Roles that ship, given to the API server stand-in: they allow all that is called, and nothing that never is."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path

import pytest

from infscale.applier import KubeApplier
from infscale.core.decision import Reason
from infscale.core.replicas import Phase, Replica
from infscale.core.scale_decision import Counts, ScaleDecision
from infscale.fleet.parse import parse_source
from infscale.fleet.source import FleetSettings
from infscale.retire.record import State
from infscale.retirement import Retirement
from tests.certs import make_certs
from tests.k8s.manifests import Object, build
from tests.kube.apiserver import ApiServer
from tests.retire.rig import KINDS, Rig
from tests.town import Town

VERBS = {"PUT": "update", "POST": "create", "PATCH": "patch", "DELETE": "delete"}


def rules(name: str) -> list[Object]:
    """The rules of every Role of a build, all of which are bound to the recommender."""
    return [rule for obj in build(name) if obj["kind"] == "Role" for rule in obj["rules"]]


def allowed(roles: Sequence[Object]) -> set[tuple[str, str]]:
    """Each resource and verb that a Role has."""
    return {(resource, verb) for rule in roles for resource in rule["resources"] for verb in rule["verbs"]}


def called(api: ApiServer) -> set[tuple[str, str]]:
    """Each resource and verb that was asked for."""
    found = set()
    for call in api.calls():
        resource, name, sub, *_ = [*call.path.partition("/namespaces/")[2].split("/")[1:], "", ""]
        verb = VERBS.get(call.method, "get" if name else "list")
        found.add((f"{resource}/{sub}" if sub else resource, verb))
    return found


def one_less(*inflight: float) -> ScaleDecision:
    """A decision for one replica less than there are, with what each has in flight."""
    replicas = tuple(
        Replica(f"vllm-{number:05d}", Phase.SERVING, inflight=value) for number, value in enumerate(inflight, 1)
    )
    current, less = len(inflight), len(inflight) - 1
    return ScaleDecision(current, less, less, less, Reason.METRIC, (), Counts(), 1.0, replicas=replicas)


def test_rights_to_scale(tmp_path: Path) -> None:
    """`--apply` looks, writes deletion costs and scales with just the Roles of the example, and needs each of them."""
    roles = rules("examples/vllm-apply")
    with Town(tmp_path, make_certs(tmp_path), 3) as town:
        town.api.role = roles
        applier = town.applier()
        applier.check()

        assert applier.apply(one_less(5, 0, 4), town.now_s) == ""
        assert town.replicas == 2
        town.evaluator("queue:16,max=8").evaluate()
        applier.stop()

        assert called(town.api) == allowed(roles)


@pytest.mark.parametrize(
    ("name", "plural"),
    [("scaling of a StatefulSet", "statefulsets"), ("scaling of groups", "leaderworkersets")],
)
def test_rights_to_scale_by_ordinal(tmp_path: Path, name: str, plural: str) -> None:
    """The same where the highest ordinal leaves: a look and `--apply` need each right they have, and no Pod's patch."""
    roles, rig = rules(name), Rig(tmp_path, plural=plural)
    try:
        rig.api.role = roles
        source = parse_source(f"kubernetes:{KINDS[plural]}/ml/vllm", FleetSettings(), cluster=rig.cluster)
        assert len(source.observe(rig.now_s).replicas) == 3
        applier = KubeApplier(rig.cluster(), KINDS[plural], "ml", "vllm", "a", wall_clock=lambda: rig.now_s)
        applier.check()

        assert applier.apply(one_less(5, 0, 4), rig.now_s) == ""
        applier.stop()
        source.close()

        assert rig.replicas == 2
        assert called(rig.api) == allowed(roles)
    finally:
        rig.close()


@pytest.mark.parametrize(
    ("name", "plural"),
    [
        ("examples/vllm-retire", "deployments"),
        ("retirement of a StatefulSet", "statefulsets"),
        ("retirement of groups", "leaderworkersets"),
    ],
)
def test_rights_to_retire(tmp_path: Path, name: str, plural: str) -> None:
    """`--apply=down --retire` beside the ScaledObject of form (c): one is put back, another leaves, with its Roles."""
    roles = rules(name)
    scaler = copy.deepcopy(next(obj for obj in build(name) if obj["kind"] == "ScaledObject"))
    scaler["metadata"]["namespace"] = "ml"
    scaler["spec"]["scaleTargetRef"]["name"] = "vllm"
    rig = Rig(tmp_path, plural=plural)
    try:
        rig.api.role = roles
        rig.api.add(scaler)
        retirer = rig.retirer()
        rig.run(retirer, State.DRAINING)
        assert retirer.cancel("it is wanted again", rig.now_s).state is State.ABORTED
        retirer.again()

        applier = KubeApplier(
            rig.cluster(), KINDS[plural], "ml", "vllm", "a", down_only=True, lease_s=600, retirement=_driven(rig),
            wall_clock=lambda: rig.now_s,
        )  # fmt: skip
        applier.check()
        assert "Completed" in applier.apply(one_less(0, 0, 0), rig.now_s)
        assert rig.replicas == 2
        applier.stop()

        # A Pod is deleted where its controller does not act: the one right that this course does not need.
        assert allowed(roles) - called(rig.api) == {("pods", "delete")}
    finally:
        rig.close()


def _driven(rig: Rig) -> Retirement:
    """One whose waits drive the clock."""

    def wait(seconds: float) -> None:
        rig.now_s += seconds

    return Retirement(rig.retirer(), background=False, clock=lambda: rig.now_s, wall_clock=lambda: rig.now_s, wait=wait)
