"""How a read connects: addresses, names, refusals, no proxies, redirects; and what it imports."""

from __future__ import annotations

import contextlib
import socket
import time

import pytest

from infscale.scrape import Page, ScrapeFailure, Target, fetch
from tests.raw_server import Call, raw_server
from tests.scrape_reads import PAGE, failed, read, run_python


def closed_port():
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_nobody_listens(host):
    """A port without a listener refuses, on every address of the host."""
    page = fetch(Target(f"http://{host}:{closed_port()}/metrics", timeout_s=20))

    failed(page, "refused", says="connection refused", connected=False)


def test_every_address_of_a_host_is_tried(monkeypatch):
    """`localhost` that is ::1 first, where nobody listens, is read on 127.0.0.1."""
    with raw_server(lambda call: call.page(PAGE)) as server:
        found = [
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", server.port, 0, 0)),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", server.port)),
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: found)

        page = fetch(Target(server.url(host="localhost"), timeout_s=20))

    assert isinstance(page, Page), page
    assert page.body == PAGE


def test_an_address_that_does_not_answer_leaves_time_for_the_next(monkeypatch):
    """An address whose queue is full takes its share of the time, not all of it."""
    with (
        socket.create_server(("127.0.0.1", 0), backlog=0) as full,
        contextlib.ExitStack() as stack,
        raw_server(lambda call: call.page(PAGE)) as server,
    ):
        for _ in range(4):
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(full.getsockname())
        time.sleep(0.05)
        found = [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", address)
            for address in (full.getsockname(), ("127.0.0.1", server.port))
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: found)

        page = fetch(Target(server.url(host="localhost"), timeout_s=1.4))

    assert isinstance(page, Page), page
    assert page.duration_s > 0.65


def test_an_ipv6_address():
    """A host in brackets is read, and stands in brackets in the Host header."""
    with raw_server(lambda call: call.page(PAGE), host="::1") as server:
        page = fetch(Target(server.url(host="[::1]"), timeout_s=20))

    assert isinstance(page, Page), page
    assert server.calls[0].header("host") == f"[::1]:{server.port}"


def test_a_host_that_does_not_exist():
    """A name without an address is no refusal: nothing is known of the engine."""
    page = fetch(Target("http://no-such-host.invalid/metrics", timeout_s=20))

    assert isinstance(page, ScrapeFailure)
    assert (page.kind, page.connected) == ("reset", False)
    assert page.message.startswith("no-such-host.invalid:80: the host name cannot be resolved")


def test_no_more_files_is_no_refusal(monkeypatch):
    """A fault of our own says nothing of the engine, and is a value all the same."""

    def none_left(*args):
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(socket, "socket", none_left)

    failed(fetch(Target("http://127.0.0.1:1/")), "reset", says="Too many open files", connected=False)


def test_a_port_that_connects_to_itself_is_a_refusal():
    """Out of the kernel's own range of ports, a connection to a port without a listener may reach itself."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    class Bound(socket.socket):
        def connect(self, address):
            self.bind(address)
            super().connect(address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "socket", Bound)
        page = fetch(Target(f"http://127.0.0.1:{port}/metrics", timeout_s=20))

    failed(page, "refused", says="refused", connected=False)


@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY", "ALL_PROXY", "https_proxy"])
def test_proxies_of_the_environment_do_not_apply(monkeypatch, name):
    """Whatever proxy the environment names, the engine itself is read."""
    with raw_server(lambda call: call.page(b"from the proxy")) as proxy, raw_server(lambda c: c.page(PAGE)) as server:
        monkeypatch.setenv(name, proxy.url("/"))
        monkeypatch.setenv("NO_PROXY", "")

        page = fetch(Target(server.url(), timeout_s=20))

    assert isinstance(page, Page), page
    assert page.body == PAGE
    assert proxy.calls == []


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("location", ["/metrics/", "http://127.0.0.1:{port}/metrics/", "metrics/"])
def test_a_redirect_on_the_same_server_is_followed(status, location, tmp_path):
    """`/metrics` that sends to `/metrics/` (a mounted application) is read, with the token."""
    token = tmp_path / "token"
    token.write_text("s3cret\n")

    def answer(call: Call) -> None:
        if call.path == "/metrics/":
            call.page(PAGE)
        else:
            call.page(b"", f"Location: {location.format(port=server.port)}", status=f"{status} x")

    with raw_server(answer) as server:
        page = fetch(Target(server.url(), timeout_s=20, token_file=str(token)))

    assert isinstance(page, Page), page
    assert page.body == PAGE
    assert [call.header("authorization") for call in server.calls] == ["Bearer s3cret"] * 2


@pytest.mark.parametrize(
    "location", ["http://localhost:{port}/metrics", "https://127.0.0.1:{port}/metrics", "//127.0.0.1/metrics"]
)
def test_a_redirect_to_another_server_is_not_followed(location):
    """Another host, port or scheme is told, and not asked."""
    with raw_server(
        lambda call: call.page(b"", f"Location: {location.format(port=server.port)}", status="302 x")
    ) as server:
        page = fetch(Target(server.url(), timeout_s=20))

    failed(page, "http", says=repr(location.format(port=server.port)))
    assert len(server.calls) == 1


@pytest.mark.parametrize(
    ("location", "says"),
    [
        ("Location: /again", "more than 3 redirects, the last to '/again'"),
        ("X-No: location", "without saying where"),
        ("Location: javascript:alert(1)", "no URL that can be read"),
        ("Location: /a b", "no URL that can be read"),
        ("Location: http://[::1/", "no URL that can be read"),
    ],
)
def test_a_redirect_that_leads_nowhere(location, says):
    """Loops end after three, and a redirect without a usable place is told."""
    with raw_server(lambda call: call.page(b"", location, status="307 x")) as server:
        page = fetch(Target(server.url(), timeout_s=20))

    failed(page, "http", says=says)
    assert len(server.calls) == (4 if "again" in location else 1)


def test_a_slow_redirect_shares_the_deadline():
    """All hops together have the one deadline."""

    def answer(call: Call) -> None:
        call.hang(0.3)
        call.page(b"", "Location: /again", status="307 x")

    failed(read(answer, timeout_s=0.7), "timeout", says="after 0.7 s")


def test_it_starts_light_and_runs_on_the_oldest_python():
    """A read imports no HTTP library, no TLS, no codecs of host names, and works on Python 3.9."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from infscale.scrape import Target, fetch, check_target\n"
        "target = Target(sys.argv[2]); check_target(target); page = fetch(target, timeout_s=20)\n"
        "print(page.status, page.body.decode().split()[-1])\n"
        "heavy = {'ssl', 'zlib', 'http', 'http.client', 'email', 'urllib', 'urllib.parse', 'urllib.request', 'json',\n"
        "         'encodings.idna', 'stringprep', 'unicodedata', 'logging', 'asyncio', 'ipaddress'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    with raw_server(lambda call: call.page(PAGE)) as server:
        said = run_python(code, server.url(host="localhost"))

    assert said == "200 3.0\n[]\n"
