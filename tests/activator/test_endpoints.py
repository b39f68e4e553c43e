"""Which replica is taken, and when one counts as ready."""

from __future__ import annotations

from infscale.activator.endpoints import MAX_ENDPOINTS, MAX_TIMEOUTS, Endpoints, Health


def of(*addresses: str, ready: bool = True) -> Endpoints:
    """Endpoints that a probe has found so."""
    endpoints = Endpoints()
    endpoints.update(addresses)
    for endpoint in endpoints:
        endpoints.probed(endpoint, Health.READY if ready else Health.NOT_READY)
    return endpoints


def take(endpoints: Endpoints) -> str:
    """The address of the one that is taken."""
    found = endpoints.take()
    assert found is not None
    return found.address


def test_none_is_ready_before_a_probe_said_so():
    """An address alone is no replica that answers."""
    endpoints = Endpoints()
    endpoints.update(["a"])
    assert endpoints.take() is None
    assert of("a", ready=False).take() is None


def test_the_least_outstanding_one():
    """A request goes where the fewest are; one that came back counts no more."""
    endpoints = of("a", "b", "c")
    assert sorted(take(endpoints) for _ in range(3)) == ["a", "b", "c"]
    busy = {endpoint.address: endpoint for endpoint in endpoints}
    endpoints.give_back(busy["b"])
    assert take(endpoints) == "b"
    endpoints.give_back(busy["c"])
    endpoints.give_back(busy["c"]) if busy["c"].outstanding else None
    assert take(endpoints) == "c"


def test_equals_take_turns():
    """One request at a time goes round, so that no replica gets all of a quiet day."""
    endpoints = of("a", "b", "c")
    turns = []
    for _ in range(6):
        endpoint = endpoints.take()
        assert endpoint is not None
        turns.append(endpoint.address)
        endpoints.give_back(endpoint)
    assert turns == ["a", "b", "c"] * 2


def test_known_replicas_keep_their_state():
    """A new list of addresses changes nothing for those that were there; who is gone is not taken."""
    endpoints = of("a", "b")
    assert take(endpoints) == "a"
    endpoints.update(["a", "c"])
    assert {endpoint.address: (endpoint.ready, endpoint.outstanding) for endpoint in endpoints} == {
        "a": (True, 1),
        "c": (False, 0),
    }
    assert take(endpoints) == "a"


def test_nobody_can_say_which_there_are():
    """Without an answer of the name server, those that answer themselves are kept, and no others."""
    endpoints = of("a", "b")
    gone = next(iter(endpoints))
    endpoints.probed(gone, Health.NOT_READY)
    endpoints.keep_ready()
    assert [endpoint.address for endpoint in endpoints] == ["b"]


def test_a_busy_replica_may_be_late():
    """A few probes without an answer leave a ready replica ready; one that was not, is not."""
    endpoints = of("a")
    (endpoint,) = endpoints
    for _ in range(MAX_TIMEOUTS - 1):
        endpoints.probed(endpoint, Health.NO_ANSWER)
        assert endpoint.ready
    endpoints.probed(endpoint, Health.NO_ANSWER)
    assert not endpoint.ready
    endpoints.probed(endpoint, Health.NO_ANSWER)
    assert not endpoint.ready
    endpoints.probed(endpoint, Health.READY)
    endpoints.probed(endpoint, Health.NO_ANSWER)
    assert endpoint.ready


def test_one_that_says_no_is_not_ready_at_once():
    """Refused, or HTTP 503: no further request goes there."""
    endpoints = of("a")
    (endpoint,) = endpoints
    endpoints.probed(endpoint, Health.NOT_READY, "HTTP 503 for /health")
    assert endpoints.ready == 0


def test_a_name_with_too_many_addresses():
    """They are bounded."""
    endpoints = Endpoints()
    endpoints.update(str(number) for number in range(MAX_ENDPOINTS + 5))
    assert len(list(endpoints)) == MAX_ENDPOINTS
