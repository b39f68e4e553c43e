"""`--apply` over the API server stand-in: one writer, a Lease, refusals with names, and nothing on a bad answer."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from infscale.applier import KubeApplier, lease_s
from infscale.core.decision import Reason
from infscale.core.scale_decision import Counts, ScaleDecision
from infscale.errors import UsageError
from infscale.kube.cluster import RestCluster
from infscale.kube.kubectl import Kubectl
from infscale.kube.rest import Rest
from tests.certs import Certs, make_certs
from tests.kube import objects
from tests.kube.wire import Fault
from tests.town import START_S, Town

LEASE = "infscale-deployments.apps-vllm"
DISABLED = {"behavior": {"scaleDown": {"selectPolicy": "Disabled"}}}


@pytest.fixture(scope="module")
def certs(tmp_path_factory) -> Certs:
    """Certificates of the API server."""
    return make_certs(tmp_path_factory.mktemp("certs"))


@pytest.fixture
def town(certs, tmp_path) -> Iterator[Town]:
    """A Deployment of three."""
    with Town(tmp_path, certs, 3) as made:
        yield made


@pytest.fixture(params=["in-cluster", "kubectl"])
def applier(request, town: Town, certs, tmp_path, monkeypatch) -> KubeApplier:
    """One that scales it, by each of the two ways to the API."""
    if request.param == "in-cluster":
        return town.applier()
    assert shutil.which("kubectl"), "these tests run the real kubectl: install it and put it on the PATH"
    monkeypatch.setenv("HOME", str(tmp_path))
    config = town.api.kubeconfig(tmp_path, certs.ca)
    cluster = RestCluster(Rest(Kubectl(kubeconfig=str(config)), timeout_s=20.0))
    return KubeApplier(cluster, "deployment", "ml", "vllm", "a", wall_clock=town.clock)


def to(desired: int | None, current: int = 3) -> ScaleDecision:
    """A decision."""
    return ScaleDecision(current, desired, desired, desired, Reason.METRIC, (), Counts(), 1.0)


def writes(town: Town) -> list[int]:
    """The counts that were asked for."""
    return [request.body["spec"]["replicas"] for request in town.api.calls("PUT") if request.path.endswith("/scale")]


def holder(town: Town) -> str | None:
    """Who has the Lease."""
    who: str | None = town.api.get("leases", LEASE)["spec"]["holderIdentity"]
    return who


def test_up_down_and_nothing(town, applier):
    """It scales to what was decided, both ways; where nothing changes it writes nothing but its Lease."""
    assert applier.apply(to(5), START_S) == ""
    assert town.replicas == 5
    assert applier.apply(to(5, current=5), START_S + 15) == ""
    assert applier.apply(to(2, current=5), START_S + 30) == ""
    assert (town.replicas, writes(town), holder(town)) == (2, [5, 2], "a")
    applier.stop()
    assert holder(town) is None


def test_zero_and_back(town):
    """0 is a count like any other."""
    applier = town.applier()
    assert applier.apply(to(0), START_S) == ""
    assert town.replicas == 0
    assert applier.apply(to(1, current=0), START_S) == ""
    assert town.replicas == 1


def test_no_recommendation_writes_nothing(town):
    """Nothing decided, nothing scaled."""
    assert town.applier().apply(to(None), START_S) == ""
    assert writes(town) == []


def test_conflict_loses_nothing(town, applier):
    """Another's write in between: theirs stands, this one is dropped, the next decision goes."""
    town.api.before_write = lambda: town.api.change("deployments", "vllm", lambda one: one["spec"].update(paused=True))
    said = applier.apply(to(5), START_S)
    assert said.startswith("not scaled: ")
    assert "has changed since it was read" in said
    town.api.before_write = lambda: None
    assert (town.replicas, town.api.get("deployments", "vllm")["spec"]["paused"]) == (3, True)
    assert applier.apply(to(5), START_S + 15) == ""
    assert town.replicas == 5


def test_count_that_has_changed_is_decided_anew(town):
    """A person scaled while this process looked: the decision was about another count."""
    applier = town.applier()
    said = applier.apply(to(5, current=2), START_S)
    assert said == "not scaled: deployment ml/vllm asks for 3 by now, not 2: deciding anew"
    assert writes(town) == []


KEDAS = objects.hpa("keda-hpa-vllm", behavior=DISABLED["behavior"])
OTHERS: dict[str, tuple[list[dict[str, Any]], bool, list[str]]] = {
    # what is there, only down?, what the refusal says (nothing: none)
    "hpa": ([objects.hpa()], False, ["HorizontalPodAutoscaler ml/vllm scales deployment ml/vllm", "remove it"]),
    "scaled object": ([objects.scaled_object("so")], False, ["ScaledObject ml/so scales deployment ml/vllm"]),
    "both": ([objects.scaled_object("so"), KEDAS], False, ["ScaledObject ml/so", "ml/keda-hpa-vllm"]),
    "up beside one that only goes up": ([KEDAS], False, ["--apply=down"]),
    "down beside an hpa": ([objects.hpa()], True, ["HorizontalPodAutoscaler ml/vllm", "down too", "Disabled"]),
    "down beside one of two": (
        [objects.scaled_object("so"), KEDAS],
        True,
        ["ScaledObject ml/so scales deployment ml/vllm down too"],
    ),
    "down beside what only goes up": (
        [objects.scaled_object("so", advanced={"horizontalPodAutoscalerConfig": DISABLED}), KEDAS],
        True,
        [],
    ),
    "down alone": ([], True, []),
    "another's hpa": ([objects.hpa(target="other")], False, []),
}


@pytest.mark.parametrize("name", OTHERS)
def test_another_autoscaler(town, name):
    """It is named and refused, at the start and when it comes later; form (c) goes beside what never scales down."""
    found, down_only, said = OTHERS[name]
    applier = town.applier(down_only=down_only)
    applier.check()
    for one in found:
        town.api.add(one)
    refusal = applier.apply(to(2), START_S)
    assert writes(town) == ([] if said else [2])
    for words in said:
        assert words in refusal
    if said:
        with pytest.raises(UsageError, match="--apply: ") as raised:
            applier.check()
        assert all(words in str(raised.value) for words in said)
    else:
        assert refusal == ""
        applier.check()


def test_refusal_by_kubectl_too(town, applier):
    """Both ways to the API see the HPA."""
    town.api.add(objects.hpa())
    assert "HorizontalPodAutoscaler ml/vllm" in applier.apply(to(5), START_S)
    assert writes(town) == []


def test_down_only_leaves_up_to_others(town):
    """What asks for more is the HPA's."""
    applier = town.applier(down_only=True)
    assert applier.apply(to(5), START_S) == ""
    assert writes(town) == []
    assert applier.apply(to(2), START_S) == ""
    assert writes(town) == [2]


def test_keda_that_goes_to_zero_is_told(town, caplog):
    """A ScaledObject whose minimum is 0 scales down although its HPA may not."""
    town.api.add(objects.scaled_object("so", advanced={"horizontalPodAutoscalerConfig": DISABLED}, minReplicaCount=0))
    town.applier(down_only=True).check()
    assert "minReplicaCount 0" in caplog.records[-1].reason


def test_without_keda(town):
    """A cluster without KEDA has no ScaledObjects to look at, which is no failure."""
    town.api.without = {"keda.sh"}
    town.applier().check()
    assert town.applier().apply(to(5), START_S) == ""
    assert town.replicas == 5


def test_two_recommenders_one_writes(town):
    """While one renews its Lease the other writes nothing and says so; a dead one is followed after the duration."""
    first, second = town.applier("first"), town.applier("second")
    for step in range(5):
        now_s = START_S + 15 * step
        assert first.apply(to(4, current=town.replicas), now_s) == ""
        said = second.apply(to(6, current=town.replicas), now_s + 1)
        assert said == f"not scaled: another recommender holds the Lease ml/{LEASE}"
    assert (town.replicas, holder(town)) == (4, "first")

    last_s = START_S + 61  # when the second saw it renewed for the last time
    assert "holds the Lease" in second.apply(to(6, current=4), last_s + lease_s(15.0) - 1)
    assert second.apply(to(6, current=4), last_s + lease_s(15.0)) == ""
    assert (town.replicas, holder(town)) == (6, "second")
    assert "holds the Lease" in first.apply(to(2, current=6), last_s + lease_s(15.0) + 1)
    assert town.replicas == 6


def test_lease_that_is_given_back_is_taken_at_once(town):
    """An orderly end costs no pause."""
    first, second = town.applier("first"), town.applier("second")
    assert first.apply(to(3), START_S) == ""
    first.stop()
    assert second.apply(to(5), START_S + 1) == ""
    assert town.replicas == 5


@pytest.mark.parametrize("kind", ["Deployment", "deploy", "deployments", "apps/v1/deployments"])
def test_one_workload_one_lease(town, kind):
    """However the kind is spelt, two recommenders of a workload meet at one Lease."""
    assert town.applier("first").apply(to(3), START_S) == ""
    other = KubeApplier(town.cluster(), kind, "ml", "vllm", "other")
    assert "holds the Lease" in other.apply(to(5), START_S)
    assert writes(town) == []


def test_kind_that_cannot_be_named():
    """It is told when it is made."""
    with pytest.raises(UsageError, match="'deploymnt': expected deployment"):
        KubeApplier(RestCluster(Rest(None)), "deploymnt", "ml", "vllm", "a")  # type: ignore[arg-type]


def test_a_lease_lasts_three_evaluations():
    """Whatever the interval, but never less than some calls of a slow API take."""
    assert [lease_s(interval_s) for interval_s in (0.2, 5.0, 15.0, 60.0)] == [5, 15, 45, 180]


RULES = {
    "leases": objects.role_rule("coordination.k8s.io", "leases", "get", "create", "update"),
    "deployments": objects.role_rule("apps", "deployments", "get"),
    "scale": objects.role_rule("apps", "deployments/scale", "get", "update"),
    "horizontalpodautoscalers": objects.role_rule("autoscaling", "horizontalpodautoscalers", "list"),
    "scaledobjects": objects.role_rule("keda.sh", "scaledobjects", "list"),
}


def test_the_role_that_is_needed(town):
    """These rules are enough."""
    town.api.role = list(RULES.values())
    town.applier().check()
    assert town.applier().apply(to(5), START_S) == ""
    assert town.replicas == 5


@pytest.mark.parametrize("lacking", RULES)
def test_403_names_the_line_of_the_role(town, lacking):
    """Not allowed is not scaled, with the line to add; a recommender that lacks it starts all the same."""
    town.api.role = [rule for name, rule in RULES.items() if name != lacking]
    applier = town.applier()
    applier.check()
    said = applier.apply(to(5), START_S)
    assert said.startswith("not scaled: ")
    assert "add to a Role in namespace ml: apiGroups: [" in said
    assert f"resources: [{RULES[lacking]['resources'][0]}" in said
    assert "\n" not in said
    assert town.replicas == 3
    town.api.role = None
    assert applier.apply(to(5), START_S) == ""
    assert town.replicas == 5


def test_403_by_kubectl_too(town, applier):
    """Through kubectl the line is the same."""
    town.api.role = [rule for name, rule in RULES.items() if name != "leases"]
    assert "apiGroups: [coordination.k8s.io], resources: [leases]" in applier.apply(to(5), START_S)
    assert town.replicas == 3


PATHS = ["/leases", "/deployments/vllm", "/horizontalpodautoscalers", "/scaledobjects", "/scale"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "what",
    [{"what": "status", "status": 429, "retry_after": 60}, {"what": "broken"}, {"what": "html"}, {"what": "cut"}],
)
def test_bad_answers_never_scale(town, path, what):
    """A busy API server, half an answer, a proxy's page: wherever it comes, nothing is written, and it is said."""
    town.applier().apply(to(3), START_S)  # the Lease is there
    town.api.faults.append(Fault(path=path, method="GET", times=99, **what))
    applier = town.applier()
    said = applier.apply(to(5), START_S)
    assert said.startswith("not scaled: ")
    assert "\n" not in said
    assert (writes(town), town.replicas) == ([], 3)
    town.api.faults.clear()
    assert applier.apply(to(5), START_S) == ""


def test_slow_answers_never_scale(town):
    """What is not answered within the time of a call is not scaled upon."""
    applier = KubeApplier(town.cluster(timeout_s=0.3), "deployment", "ml", "vllm", "a")
    town.api.faults.append(Fault("hang", path="/horizontalpodautoscalers"))
    said = applier.apply(to(5), START_S)
    assert "not scaled: " in said
    assert "within 0.3" in said
    assert writes(town) == []


@pytest.mark.parametrize("what", [{"what": "broken"}, {"what": "cut"}, {"what": "status", "status": 500}])
def test_write_with_a_bad_answer_is_told_and_never_repeated(town, what):
    """It may have been carried out: the next look at the count tells, nothing is sent twice."""
    town.api.faults.append(Fault(path="/scale", method="PUT", **what))
    said = town.applier().apply(to(5), START_S)
    assert said.startswith("not scaled: ")
    assert writes(town) == [5]


def test_lease_that_cannot_be_given_back_runs_out(town, caplog):
    """The end of a process does not hang on it."""
    applier = town.applier()
    applier.apply(to(3), START_S)
    town.api.faults.append(Fault("status", status=503, times=99))
    applier.stop()
    assert "503" in caplog.records[-1].reason
    town.api.faults.clear()
    assert holder(town) == "a"


def test_writer_that_slept_writes_nothing_old(town):
    """Stopped between its last look and its write, while another took over and scaled: its write is a conflict."""
    first = town.applier("first")

    def another_scales() -> None:
        if town.api.requests[-1].path.endswith("/scale") and town.replicas == 3:
            town.api.change("deployments", "vllm", lambda one: one["spec"].update(replicas=7))

    town.api.before_write = another_scales
    assert "has changed since it was read" in first.apply(to(2), START_S)
    assert town.replicas == 7


def test_the_token_stays_secret(town, tmp_path, caplog):
    """Neither a refusal nor a log line shows the token."""
    (tmp_path / "token").write_text("another-t0ken-that-nobody-may-see")
    said = town.applier().apply(to(5), START_S)
    assert "credentials" in said
    assert "nobody-may-see" not in said + caplog.text
