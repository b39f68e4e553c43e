"""Listen addresses: what they mean, and one line for what cannot be listened on."""

from __future__ import annotations

import socket

import pytest

from infscale.errors import UsageError
from infscale.web.bind import listen, parse_address
from tests.web.rig import Client, listening


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        (":10047", "", 10047),
        ("127.0.0.1:0", "127.0.0.1", 0),
        ("localhost:65535", "localhost", 65535),
        ("[::1]:80", "::1", 80),
        ("[fe80::1%eth0]:80", "fe80::1%eth0", 80),
    ],
)
def test_addresses(address, host, port):
    """Host and port, an IPv6 address in brackets, or a port for every interface."""
    assert parse_address(address, "--flag") == (host, port)


@pytest.mark.parametrize("address", ["", "10047", "host", "::1:80", "host:", "host:-1", "host:http", "[::1]", "a b:c"])
def test_not_an_address(address):
    """Anything else is refused in one line with the flag, the text and what was expected."""
    with pytest.raises(UsageError, match=r"^--web.listen-address: '.*' is not an address; expected ") as caught:
        parse_address(address, "--web.listen-address")
    assert "\n" not in str(caught.value)


def test_port_out_of_range():
    """A port above 65535 is refused."""
    with pytest.raises(UsageError, match="the port must be from 0"):
        parse_address(":65536", "--web.listen-address")


def test_port_in_use():
    """A port that is taken is one line that names the flag, the address and what to do."""
    with listening() as server, pytest.raises(UsageError) as caught:
        listen(f"127.0.0.1:{server.port}", "--kubelet.listen-address")
    assert str(caught.value) == (
        f"--kubelet.listen-address: cannot listen on 127.0.0.1:{server.port}: "
        "the port is taken; stop what listens there or choose another port"
    )


def test_address_of_another_machine():
    """An address that this machine does not have is said to be so."""
    with pytest.raises(UsageError, match="this machine does not have that address"):
        listen("192.0.2.1:0", "--flag")


def test_unknown_host():
    """A host that cannot be resolved is said to be so."""
    with pytest.raises(UsageError, match=r"no such host 'no-such-host\.invalid'"):
        listen("no-such-host.invalid:0", "--flag")


def test_every_interface():
    """`:PORT` answers on IPv4, and on IPv6 where the machine has it; IPv4 clients are known by their IPv4 address."""
    with listening(address=":0") as server:
        with Client(server.port) as client:
            assert client.get("/echo").body.endswith(b" 127.0.0.1\n")
        if socket.has_dualstack_ipv6():
            with socket.create_connection(("::1", server.port), timeout=10) as sock:
                sock.sendall(b"GET /echo HTTP/1.0\r\n\r\n")
                assert b" ::1\n" in sock.makefile("rb").read()


def test_without_ipv6(monkeypatch):
    """On a machine without IPv6, `:PORT` means every IPv4 interface."""
    real = socket.socket

    def no_ipv6(family: int = socket.AF_INET, *args: int, **kwargs: int) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(97, "Address family not supported by protocol")
        return real(family, *args, **kwargs)

    monkeypatch.setattr("infscale.web.bind.socket.socket", no_ipv6)
    with listen(":0", "--flag") as sock:
        assert sock.family == socket.AF_INET
