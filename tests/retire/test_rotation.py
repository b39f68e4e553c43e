"""Whether requests can still reach the target: Services, clients, and a router that is asked itself."""

from __future__ import annotations

import pytest

from infscale.errors import UsageError
from infscale.kube.objects import Endpoint
from infscale.retire.envelope import Clients
from infscale.retire.rotation import still_connected, still_served
from infscale.retire.router import parse_rotation, still_routed
from infscale.retire.rules import Rule
from tests.raw_server import raw_server
from tests.retire.pods import pod

NOW = 2000.0


def endpoint(*, ready: bool = False, serving: bool = False, service: str = "vllm") -> Endpoint:
    """The target in a slice."""
    return Endpoint("s", service, "10.0.0.1", ready, serving, False)


@pytest.mark.parametrize(
    ("endpoints", "out"),
    [
        ([], True),
        ([endpoint()], True),
        ([endpoint(ready=True, serving=True)], False),
        ([endpoint(serving=True)], False),
        ([endpoint(ready=True)], False),
        ([endpoint(), endpoint(ready=True, serving=True, service="other")], False),
        ([endpoint(ready=True, service="group")], True),
        ([endpoint(ready=True, serving=True, service="group")], False),
    ],
)
def test_services(endpoints, out):
    """No EndpointSlice may serve it; one that publishes what is not ready does, but for a group's own discovery."""
    found = still_served(endpoints, ("group",))

    assert (found is None) is out
    assert found is None or found.rule is Rule.ENDPOINTS


@pytest.mark.parametrize(
    ("clients", "out"),
    [
        (None, False),
        (Clients(1, 0, NOW, NOW - 100, NOW), False),
        (Clients(0, 0, NOW - 9.9, NOW - 100, NOW), False),
        (Clients(0, 0, NOW - 10, NOW - 100, NOW), True),
        (Clients(0, 0, None, NOW - 9.9, NOW), False),
        (Clients(0, 0, None, NOW - 10, NOW), True),
        (Clients(0, 0, NOW - 100, NOW - 5, NOW), False),
        (Clients(0, 0, None, NOW + 3500, NOW + 3600), True),
        (Clients(0, 0, None, NOW - 10, None), True),
        (Clients(0, 0, None, NOW - 5, None), False),
    ],
)
def test_clients(clients, out):
    """None for 10 s on the sidecar's own clock, and looked at for as long."""
    found = still_connected(clients, NOW)

    assert (found is None) is out
    assert found is None or found.rule is Rule.CLIENTS


TARGET, SIBLING = pod("vllm-1", ip="10.0.0.1"), pod("vllm-12", ip="10.0.0.12")


@pytest.mark.parametrize(
    ("body", "out"),
    [
        (b'["10.0.0.1:8000", "10.0.0.12:8000"]', False),
        (b'["10.0.0.12:8000"]', True),
        (b'{"endpoints": [{"address": "10.0.0.12", "port": 8000}]}', True),
        (b'{"endpoints": [{"address": "10.0.0.1", "port": 8000}]}', False),
        (b'inference_pool_per_pod_queue_size{model_server_pod="vllm-12",name="pool"} 0\n', True),
        (b'inference_pool_per_pod_queue_size{model_server_pod="vllm-1",name="pool"} 0\n', False),
        (b"[]", True),
        (b'{"endpoints": []}', True),
        (b"{}", False),
        (b"", False),
        (b"<html>", False),
        (b'["10.9.9.9:8000"]', False),
    ],
)
def test_a_router_is_asked(body, out):
    """The target's address and name must be absent from its list, which must be this workload's."""
    with raw_server(lambda call: call.page(body)) as server:
        found = still_routed(parse_rotation(f"llm-d:{server.url('/endpoints')}"), [TARGET], [SIBLING])

    assert (found is None) is out
    assert found is None or found.rule is Rule.ROUTER


@pytest.mark.parametrize("answer", ["500 Oops", "404 Not Found", None])
def test_a_router_that_does_not_answer_holds(answer):
    """An error, or no answer at all."""
    with raw_server(lambda call: call.page(b"[]", status=answer) if answer else call.reset()) as server:
        found = still_routed(parse_rotation(f"llm-d:{server.url()}"), [TARGET], [SIBLING])

    assert found
    assert found.rule is Rule.ROUTER


def test_a_router_with_too_much_to_say_holds():
    """At most 8 MiB are read."""

    def answer(call):
        call.send(b"HTTP/1.1 200 OK\r\n\r\n")
        call.forever(b"10.0.0.12 " * 10_000)

    with raw_server(answer) as server:
        assert still_routed(parse_rotation(f"llm-d:{server.url()}"), [TARGET], [SIBLING])


@pytest.mark.parametrize("text", ["", "llm-d", "llm-d:", "envoy:http://x/", "llm-d:ftp://x/", "llm-d:http://u:p@x/"])
def test_no_router(text):
    """Only llm-d with a URL."""
    with pytest.raises(UsageError):
        parse_rotation(text)
