"""Fields of API objects: numbers, times, quantities, selectors, deletion costs."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infscale.kube.decode import pod_of
from infscale.kube.errors import BrokenAnswer
from infscale.kube.fields import Fields, rfc3339
from infscale.kube.objects import DELETION_COST
from infscale.kube.selector import selector_text
from infscale.kube.transport import Target
from tests.kube import objects
from tests.kube.store import selects


def pod(spec=None, **metadata):
    """A Pod of the API, read."""
    base = objects.pod("a", spec=spec)
    return pod_of(Fields({**base, "metadata": {**base["metadata"], "uid": "u", **metadata}}, "pod a"))


@pytest.mark.parametrize(
    ("quantity", "milli"),
    [
        ("1", 1000), ("250m", 250), ("0.1", 100), (".5", 500), ("2.", 2000), (2, 2000), (0.5, 500), ("1e3", 1_000_000),
        ("1E-3", 1), ("1u", 1), ("1500u", 2), ("1n", 1),
        ("2k", 2_000_000), ("1Ki", 1_024_000), ("0", 0), ("1E", 10**21),
    ],
)  # fmt: skip
def test_quantities(quantity, milli):
    """Quantities in every form of the grammar are thousandths, rounded up and held within int64."""
    fields = Fields({"cpu": quantity}, "x")

    assert fields.quantity_milli("cpu") == min(milli, 2**63 - 1)


@pytest.mark.parametrize("quantity", ["", "m", "1 m", "one", "1x", [], "1e9999", True])
def test_no_quantities(quantity):
    """What is no quantity is an error that shows it."""
    with pytest.raises(BrokenAnswer, match=r"^x: cpu is .*: expected a quantity such as 500m or 2$"):
        Fields({"cpu": quantity}, "x").quantity_milli("cpu")


@pytest.mark.parametrize("time", ["2026-01-31T12:00:00Z", "2026-01-31T12:00:00.000000Z", "2026-01-31T13:00:00+01:00"])
def test_times(time):
    """Times with and without fractions and with offsets are Unix seconds."""
    noon = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)

    assert Fields({"t": time}, "x").time_s("t") == noon.timestamp()


@given(st.integers(0, 4_000_000_000_000_000))
def test_micro_times_round_trip(micros):
    """A time that is written and read again is the same to the microsecond."""
    time_s = micros / 1e6

    assert Fields({"t": rfc3339(time_s)}, "x").time_s("t") == pytest.approx(time_s, abs=1e-6)


@pytest.mark.parametrize("time", ["yesterday", 5, ""])
def test_no_times(time):
    """What is no time is an error that shows it."""
    with pytest.raises(BrokenAnswer, match=r"t is .*: expected a time such as"):
        Fields({"t": time}, "x").time_s("t")


@pytest.mark.parametrize(
    ("cost", "number"),
    [("5", 5), ("-5", -5), ("0", 0), ("-05", -5), ("2147483647", 2**31 - 1), ("-2147483648", -(2**31))]
    + [(text, 0) for text in ("+5", "05", "5.0", "", " 5", "five", "2147483648", "9" * 5000)],
)
def test_deletion_costs(cost, number):
    """A deletion cost reads as the ReplicaSet controller reads it; what it refuses counts as 0."""
    assert pod(annotations={DELETION_COST: cost}).deletion_cost == number


def test_request_of_a_pod():
    """Apps and sidecars count, init containers do not; one that does not say makes the whole unknown."""
    app = [objects.container(cpu="2"), objects.container("b", cpu="500m")]
    sidecar = objects.container("s", "100m", restartPolicy="Always")
    init = objects.container("i", "8")

    assert pod({"containers": app, "initContainers": [sidecar, init]}).cpu_request_milli == 2600
    assert pod({"containers": [*app, objects.container("c", None)]}).cpu_request_milli is None
    assert pod({"containers": []}).cpu_request_milli is None


def test_selectors():
    """All parts of a label selector come out as a query takes them, and mean the same."""
    selector = {
        "matchLabels": {"b": "2", "a": "1"},
        "matchExpressions": [
            {"key": "c", "operator": "In", "values": ["y", "x"]},
            {"key": "d", "operator": "NotIn", "values": ["z"]},
            {"key": "e", "operator": "Exists"},
            {"key": "f", "operator": "DoesNotExist"},
        ],
    }

    text = selector_text(Fields(selector, "x"))

    assert text == "a=1,b=2,c in (x,y),d notin (z),e,!f"
    fits = {"a": "1", "b": "2", "c": "x", "e": ""}
    assert selects(text, fits)
    for change in ({"a": "2"}, {"c": "w"}, {"d": "z"}, {"f": ""}):
        assert not selects(text, fits | change)
    assert selector_text(Fields({}, "x")) == ""


def test_selector_with_an_unknown_operator():
    """An operator that does not exist is an error: a selector that is half understood selects too much."""
    with pytest.raises(BrokenAnswer, match="operator 'Gt': expected In, NotIn"):
        selector_text(Fields({"matchExpressions": [{"key": "a", "operator": "Gt"}]}, "x"))


def test_errors_name_the_path():
    """An error names the object and the way to the field, in lists too."""
    with pytest.raises(BrokenAnswer, match=r"^pod a: spec.containers\[1\].name is absent: expected text$"):
        pod({"containers": [objects.container(), {}]})
    with pytest.raises(BrokenAnswer, match=r"^pod a: metadata.labels is \['x'\]: expected names with texts$"):
        pod(labels=["x"])
    with pytest.raises(BrokenAnswer, match=r"^x: the answer is \[\]: expected an object$"):
        Fields([], "x")


def test_paths():
    """A target's path quotes what a name must not hold, and its words are for people."""
    scale = Target("apps", "v1", "deployments", "ml", "a/../b", "scale")

    assert scale.path == "/apis/apps/v1/namespaces/ml/deployments/a%2F..%2Fb/scale"
    assert Target("", "v1", "pods", "ml").path == "/api/v1/namespaces/ml/pods"
    assert (scale.resource, str(scale)) == ("deployments/scale", "deployments/scale a/../b in namespace ml")
