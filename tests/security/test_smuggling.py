"""Request smuggling: what two readers could cut differently is refused, and its connection ends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from infscale.activator.serve import Activator
from tests.activator.rig import activator, ready
from tests.fuzz.http_targets import Strict
from tests.security.attempts import BAD_CHUNKS, REFUSED, REFUSED_BY_PAGES, SMUGGLED, chunked
from tests.security.roles import kubelet_address, main_address, role
from tests.security.wire import say


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory):
    """A sidecar to which everybody may speak."""
    with role("sidecar", tmp_path_factory.mktemp("sidecar")) as process:
        yield process


@pytest.fixture(scope="module")
def passing() -> Iterator[tuple[Activator, Strict]]:
    """An activator before a replica that is ready and reads strictly."""
    replica = Strict()
    with activator(f"http://127.0.0.1:{replica.port}", max_connections=64) as found:
        ready(found)
        yield found, replica
    replica.close()


@pytest.mark.parametrize("address", [main_address, kubelet_address], ids=["main", "kubelet"])
@pytest.mark.parametrize("path", ["/metrics", "/-/ready"])
def test_listeners_for_pages(sidecar, address, path):
    """Each attempt gets one error and the end of its connection; the second request is never answered."""
    for name, data in {**REFUSED, **REFUSED_BY_PAGES}.items():
        said = say(address(sidecar), data.replace(b"/v1/x", path.encode()), half_close=False)
        assert len(said.statuses) == 1, (name, said.data)
        assert 400 <= said.status < 600, (name, said.data)
        assert b"\r\nConnection: close\r\n" in said.data, name


@pytest.mark.parametrize("name", [*REFUSED, *BAD_CHUNKS])
def test_activator(passing, name):
    """Each attempt gets one error and the end of its connection; nothing at all reaches the replica."""
    found, replica = passing
    data = REFUSED[name] if name in REFUSED else chunked(BAD_CHUNKS[name])
    said = say(("127.0.0.1", found.port), data, half_close=False)
    assert len(said.statuses) == 1, said.data
    assert said.status in (400, 501), said.data
    assert replica.seen == []
    assert replica.faults == []


def test_what_goes_through_is_framed_anew(passing):
    """Chunks with extensions and trailers, and fields that `Connection` names: the replica gets a length and a body."""
    found, replica = passing
    lines = ["Host: h", "Transfer-Encoding: chunked", "X-Hop: secret", "Connection: x-hop, close", "Trailer: X-T"]
    body = "3;a=b\r\nabc\r\n0;c\r\nX-T: y\r\n\r\n"
    data = "\r\n".join(["POST /v1/x HTTP/1.1", *lines, "", ""]) + body
    assert say(("127.0.0.1", found.port), data.encode(), half_close=False).statuses == [200]
    assert replica.faults == []
    head = replica.seen.pop().lower()
    assert b"\r\ncontent-length: 3" in head
    for gone in (b"transfer-encoding", b"x-hop", b"trailer", b"x-t:"):
        assert gone not in head


def test_absolute_targets(sidecar, passing):
    """Pages answer `GET http://elsewhere/metrics` themselves (RFC 9112 3.2.2), and the activator is no open proxy."""
    asked = f"GET http://elsewhere{SMUGGLED} HTTP/1.1\r\nHost: elsewhere\r\nConnection: close\r\n\r\n".encode()
    assert say(main_address(sidecar), asked).statuses == [404]
    found, replica = passing
    assert say(("127.0.0.1", found.port), asked, half_close=False).statuses == [400]
    assert replica.seen == []
