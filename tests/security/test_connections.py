"""With authentication on, no connection opens by what went before on it, by its version, or by what is no request."""

from __future__ import annotations

import re
import ssl

import pytest

from tests.certs import make_certs
from tests.security.attempts import REFUSED, REFUSED_BY_PAGES
from tests.security.roles import AUTHORIZATION, ROLES, WITHDRAW_TOKEN, main_address, role, web_config
from tests.security.test_unauthenticated import METHODS, STRANGE, paths_of
from tests.security.wire import request, say

LOCKED = b"this server asks for a user and a password\n"
TOLD = (b"infscale_", b"the-model", b"<html", b"recommended", b"inflight", b'"held"', b"withdrawn")
"""Words of every page that there is."""


@pytest.fixture(scope="module", params=ROLES)
def locked(request, tmp_path_factory):
    """Each role with a password."""
    folder = tmp_path_factory.mktemp(request.param)
    with role(request.param, folder, "--web.config.file", web_config(folder)) as process:
        yield process


def kept(path: str, *lines: str, method: str = "GET", version: str = "HTTP/1.1") -> bytes:
    """A request after whose answer the connection stays."""
    return "\r\n".join([f"{method} {path} {version}", "Host: h", *lines, "", ""]).encode()


@pytest.mark.parametrize(
    "first",
    [
        kept("/metrics"),
        kept("/metrics", "Authorization: Basic YWxpY2U6d3Jvbmc="),
        kept("/metrics", AUTHORIZATION),
        kept("/nowhere", AUTHORIZATION),
        kept("/metrics", AUTHORIZATION, method="HEAD"),
        kept("/metrics", AUTHORIZATION, "Content-Length: 3") + b"abc",
        kept("/metrics", AUTHORIZATION, "Expect: 100-continue", "Content-Length: 0"),
        kept("/metrics", AUTHORIZATION, "Connection: keep-alive", version="HTTP/1.0"),
    ],
    ids=["nothing", "wrong", "right", "right and no page", "HEAD", "with a body", "expecting", "HTTP/1.0"],
)
def test_one_request_opens_none_after_it(locked, first):
    """Whatever came first on a connection, one after the other or in one piece: the next is asked for its own."""
    for method, path in (("GET", "/metrics"), ("POST", "/withdraw"), ("GET", "/"), ("OPTIONS", "*")):
        second = request(method, path, f"X-Infscale-Token: {WITHDRAW_TOKEN}")
        said = say(main_address(locked), first + second)
        assert len(re.findall(rb"HTTP/1\.1 (?!100)\d{3} ", said.data)) == 2, said.data[-300:]
        assert said.statuses[-1] == 401, (method, path)
        assert said.data.endswith(b"\r\n\r\n" + LOCKED)


def test_a_refused_connection_can_still_prove_itself(locked):
    """A 401 does not end a connection: clients ask again on it, with the password."""
    said = say(main_address(locked), kept("/metrics") + request("GET", "/metrics", AUTHORIZATION))
    assert said.statuses == [401, 200]


@pytest.mark.parametrize("version", ["HTTP/1.0", "HTTP/1.1", "HTTP/0.9", "HTTP/2.0", "HTTP/1", "", "http/1.1"])
def test_no_version_opens_it(locked, version):
    """An old or made-up version of HTTP, with and without `Host`, on every path."""
    for path in (*paths_of(locked), "/nowhere", "*"):
        for host in (b"Host: h\r\n", b""):
            said = say(main_address(locked), f"GET {path} {version}".rstrip().encode() + b"\r\n" + host + b"\r\n")
            assert said.status in ((401, 400) if version in ("HTTP/1.0", "HTTP/1.1") else (400, 505)), said.data
            assert not any(word in said.data for word in TOLD)


@pytest.mark.parametrize("name", [*REFUSED, *REFUSED_BY_PAGES])
def test_what_is_no_request_opens_nothing(locked, name):
    """A fixed error, or 401, and nothing of a page: for what is malformed, and for what is hidden behind it."""
    for path in ("/metrics", "/"):
        said = say(main_address(locked), {**REFUSED, **REFUSED_BY_PAGES}[name].replace(b"/v1/x", path.encode()))
        assert 400 <= said.status < 600
        assert len(said.statuses) == 1
        assert not any(word in said.data for word in TOLD), said.data


@pytest.mark.parametrize(
    "data",
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        kept("/metrics", "Upgrade: h2c", "Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: AAMAAABkAAQ"),
        kept("/metrics", "Upgrade: websocket", "Connection: Upgrade"),
        kept("/metrics", "Expect: 100-continue", "Content-Length: 9", method="POST") + b"123456789",
        kept("/metrics", "Range: bytes=0-10"),
        kept("/metrics", 'If-None-Match: "*"', "If-Modified-Since: Thu, 01 Jan 1970 00:00:00 GMT"),
        kept("/metrics", "Origin: http://elsewhere", "Access-Control-Request-Method: GET", method="OPTIONS"),
    ],
)
def test_no_other_protocol_opens_it(locked, data):
    """Neither HTTP/2 nor an upgrade, a range, a condition or a preflight is answered by anything but a refusal."""
    said = say(main_address(locked), data)
    assert {status for status in said.statuses if status != 100} <= {400, 401, 505}
    assert b"Access-Control" not in said.data
    assert not any(word in said.data for word in TOLD)


@pytest.mark.parametrize("name", ROLES)
def test_nothing_over_tls_without_a_password(name, tmp_path):
    """As over plain HTTP: each path and method is 401, a password once is none for the next, and plain HTTP is none."""
    certs = make_certs(tmp_path)
    lines = ["tls_server_config:", f"  cert_file: {certs.server.cert}", f"  key_file: {certs.server.key}"]
    tls = ssl.create_default_context(cafile=certs.ca)
    with role(name, tmp_path, "--web.config.file", web_config(tmp_path, *lines)) as process:
        address = main_address(process)
        told = say(address, request("GET", "/nowhere", AUTHORIZATION), tls=tls)
        for path in (*re.findall(r"/[\w/-]*", told.body.decode()), *STRANGE[:4]):
            for method in METHODS:
                said = say(address, request(method, path), tls=tls)
                assert (said.status, said.body) == (401, b"" if method == "HEAD" else LOCKED), (method, path)
        both = kept("/metrics", AUTHORIZATION) + request("GET", "/metrics")
        assert say(address, both, tls=tls).statuses == [200, 401]
        plain = say(address, request("GET", "/metrics", AUTHORIZATION))
        assert (plain.status, plain.body) == (400, b"this port speaks HTTPS; ask with https://\n")
