"""Who is the one that scales: the rules on a driven clock, and two that want the same Lease on the stand-in."""

from __future__ import annotations

import pytest

from infscale.kube.cluster import RestCluster
from infscale.kube.errors import KubeError
from infscale.kube.lease import Lease, Step, given_back, next_step, renewed, taken
from infscale.kube.rest import Rest
from tests.kube import objects
from tests.kube.wire import Fault

HELD = Lease("ml", "l", "a", 15, 100.0, 110.0, 3, "7")


@pytest.mark.parametrize(
    ("lease", "identity", "now_s", "since_s", "step"),
    [
        (None, "b", 0.0, 0.0, Step.CREATE),
        (HELD, "a", 500.0, 0.0, Step.RENEW),
        (HELD, "b", 114.999, 100.0, Step.WAIT),
        (HELD, "b", 115.0, 100.0, Step.TAKE),
        (HELD, "b", 9e9, 9e9, Step.WAIT),  # seen for the first time: its times say it is old, but on another clock
        (given_back(HELD, 120.0), "b", 120.0, 120.0, Step.TAKE),
    ],
    ids=["none", "own", "held", "left behind", "first sight", "given back"],
)
def test_next_step(lease, identity, now_s, since_s, step):
    """Own ones are renewed, free ones taken, held ones waited for until they were seen unchanged for their duration."""
    assert next_step(lease, identity, now_s, since_s) is step


def test_what_is_written():
    """A change of hands counts and begins anew; a renewal keeps who and since when; giving back leaves no holder."""
    assert taken(HELD, "b", 20, 200.0) == Lease("ml", "l", "b", 20, 200.0, 200.0, 4, "7")
    assert renewed(HELD, 15, 120.0) == Lease("ml", "l", "a", 15, 100.0, 120.0, 3, "7")
    assert given_back(HELD, 120.0) == Lease("ml", "l", "", 1, 100.0, 120.0, 3, "7")


def test_the_life_of_a_lease(server, cluster):
    """Created, renewed with its labels kept, given back, in RFC 3339 with microseconds."""
    lease = cluster.acquire("ml", "l", "a", 15, 1_700_000_000.25)
    spec = server.get("leases", "l")["spec"]
    server.change("leases", "l", lambda stored: stored["metadata"].update(labels={"a": "b"}))
    later = cluster.renew(lease, 1_700_000_005.0)
    cluster.release(later, 1_700_000_006.0)
    left = server.get("leases", "l")

    assert spec == {
        "holderIdentity": "a",
        "leaseDurationSeconds": 15,
        "acquireTime": "2023-11-14T22:13:20.250000Z",
        "renewTime": "2023-11-14T22:13:20.250000Z",
        "leaseTransitions": 0,
    }
    assert (lease.holder, lease.renewed_s, later.acquired_s, later.renewed_s) == (
        "a",
        1.7e9 + 0.25,
        1.7e9 + 0.25,
        1.7e9 + 5,
    )
    assert (left["spec"]["holderIdentity"], left["metadata"]["labels"]) == (None, {"a": "b"})


@pytest.fixture
def two(in_cluster):
    """Two processes."""
    return RestCluster(Rest(in_cluster)), RestCluster(Rest(in_cluster))


def test_one_at_a_time(two):
    """While one renews the other never gets it, however long; once it stops, after one duration."""
    one, other = two
    lease = one.acquire("ml", "l", "one", 15, 0.0)
    for now_s in range(0, 100, 10):
        assert other.acquire("ml", "l", "other", 15, now_s + 5.0) is None
        lease = one.renew(lease, now_s + 10.0)
        assert lease.holder == "one"

    assert other.acquire("ml", "l", "other", 15, 101.0) is None
    assert other.acquire("ml", "l", "other", 15, 115.9) is None
    taken_over = other.acquire("ml", "l", "other", 15, 116.0)

    assert (taken_over.holder, taken_over.transitions) == ("other", 1)
    assert one.renew(lease, 117.0) is None
    assert one.acquire("ml", "l", "one", 15, 117.0) is None
    one.release(lease, 118.0)
    assert other.renew(taken_over, 119.0).holder == "other"


def test_given_back_is_taken_at_once(two):
    """A holder that ends well leaves the Lease to whoever asks next."""
    one, other = two
    one.release(one.acquire("ml", "l", "one", 15, 0.0), 1.0)

    assert other.acquire("ml", "l", "other", 15, 1.0).holder == "other"


@pytest.mark.parametrize("offset_s", [-86400.0, 86400.0])
def test_wrong_clocks(two, offset_s):
    """A clock that is a day off neither takes a Lease that is held nor waits a day for one that is not."""
    one, other = two
    lease = one.acquire("ml", "l", "one", 15, 1e9)
    assert other.acquire("ml", "l", "other", 15, 1e9 + offset_s) is None
    lease = one.renew(lease, 1e9 + 10)
    assert other.acquire("ml", "l", "other", 15, 1e9 + offset_s + 20) is None

    assert other.acquire("ml", "l", "other", 15, 1e9 + offset_s + 35).holder == "other"


def test_a_rival_is_faster(server, two):
    """Of two that create or take at the same time one gets it; the other's write is a conflict."""
    one, other = two
    once = iter([lambda: server.add(objects.lease("l", holderIdentity="rival", leaseDurationSeconds=15))])
    server.before_write = lambda: next(once, lambda: None)()
    assert one.acquire("ml", "l", "one", 15, 0.0) is None

    assert other.acquire("ml", "l", "other", 15, 0.0) is None
    take = {"holderIdentity": "rival 2"}
    twice = iter([lambda: server.change("leases", "l", lambda stored: stored["spec"].update(take))])
    server.before_write = lambda: next(twice, lambda: None)()
    assert other.acquire("ml", "l", "other", 15, 15.0) is None
    assert server.get("leases", "l")["spec"]["holderIdentity"] == "rival 2"


def test_another_writer_of_an_own_lease(server, two):
    """A label that a person adds between read and write does not cost the Lease."""
    one, _ = two
    lease = one.acquire("ml", "l", "one", 15, 0.0)
    label = iter([lambda: server.change("leases", "l", lambda stored: stored["metadata"].update(labels={"a": "b"}))])
    server.before_write = lambda: next(label, lambda: None)()

    assert one.renew(lease, 5.0).renewed_s == 5.0
    assert server.get("leases", "l")["metadata"]["labels"] == {"a": "b"}


def test_gone(server, two):
    """A Lease that somebody deleted is lost to its holder, who may acquire it anew."""
    one, _ = two
    lease = one.acquire("ml", "l", "one", 15, 0.0)
    server.remove("leases", "l")

    assert one.renew(lease, 5.0) is None
    one.release(lease, 5.0)
    assert one.acquire("ml", "l", "one", 15, 5.0).holder == "one"


def test_not_to_know_is_no_lease(server, two):
    """An API server that fails is an error, never a Lease."""
    one, _ = two
    server.faults = [
        Fault("status", status=500, times=9, method="POST"),
        Fault("status", status=500, times=9, method="PUT"),
    ]

    with pytest.raises(KubeError, match="HTTP 500"):
        one.acquire("ml", "l", "one", 15, 0.0)
    server.add(objects.lease("l"))
    with pytest.raises(KubeError, match="HTTP 500"):
        one.acquire("ml", "l", "one", 15, 0.0)
