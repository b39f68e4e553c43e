"""With authentication on, the main listener of every role says nothing to whoever has no password."""

from __future__ import annotations

import base64
import re
import ssl

import pytest

from tests.certs import make_certs
from tests.security.roles import (
    AUTHORIZATION,
    PASSWORD,
    ROLES,
    WITHDRAW_TOKEN,
    main_address,
    role,
    web_config,
)
from tests.security.wire import request, say

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "BREW")
STRANGE = (
    "/nowhere", "//metrics", "/metrics/", "/METRICS", "/%6detrics", "/./metrics", "/../metrics", "/%2e%2e/etc/passwd",
    "/metrics;a=b", "/metrics?x=y", "*", "http://localhost/metrics", "http://elsewhere/metrics",
)  # fmt: skip


def paths_of(process) -> list[str]:
    """Every path that a listener has: what it tells those who may ask about one that it has not."""
    told = say(main_address(process), request("GET", "/nowhere", AUTHORIZATION))
    assert told.status == 404
    return re.findall(r"/[\w/-]*", told.body.decode())


@pytest.mark.parametrize("name", ROLES)
def test_nothing_without_a_password(name, tmp_path):
    """Each path, known or not, with each method, gets the same 401 with the same words; nothing of the page shows."""
    with role(name, tmp_path, "--web.config.file", web_config(tmp_path)) as process:
        paths = paths_of(process)
        assert {"/", "/metrics"} <= set(paths)
        assert ("/withdraw" in paths) == (name == "sidecar")
        for path in (*paths, *STRANGE):
            for method in METHODS:
                said = say(main_address(process), request(method, path))
                words = b"" if method == "HEAD" else b"this server asks for a user and a password\n"
                assert (said.status, said.body) == (401, words), (method, path)
        for path in paths:
            method = "DELETE" if path == "/withdraw" else "GET"
            assert say(main_address(process), request(method, path, AUTHORIZATION)).status in (200, 403, 503), path


@pytest.mark.parametrize(
    "line",
    [
        "Authorization: Basic " + base64.b64encode(b"alice:wrong").decode(),
        "Authorization: Basic " + base64.b64encode(f"mallory:{PASSWORD}".encode()).decode(),
        "Authorization: Basic " + base64.b64encode(f"alice:{PASSWORD}x".encode()).decode(),
        "Authorization: Basic " + base64.b64encode(f"alice\0:{PASSWORD}".encode()).decode(),
        f"Authorization: Bearer {PASSWORD}",
        f"Authorization: {AUTHORIZATION.partition(' ')[2]}, x",
        f"Proxy-Authorization: {AUTHORIZATION.partition(' ')[2]}",
        f"X-Infscale-Token: {WITHDRAW_TOKEN}",
        "X-Forwarded-For: 127.0.0.1",
        "X-Original-URL: /-/healthy",
        f"Cookie: {AUTHORIZATION}",
    ],
)
def test_nothing_else_opens_it(line, locked):
    """A wrong password or user, another scheme or field, /withdraw's token, a claim to come from elsewhere: 401."""
    for method, path in (("GET", "/metrics"), ("POST", "/withdraw"), ("GET", "/api/v1/reading")):
        said = say(main_address(locked), request(method, path, line))
        assert said.status == 401
        assert b"the-model" not in said.data


@pytest.fixture(scope="module")
def locked(tmp_path_factory):
    """A sidecar with a password."""
    folder = tmp_path_factory.mktemp("locked")
    with role("sidecar", folder, "--web.config.file", web_config(folder)) as process:
        yield process


def test_nothing_without_a_certificate(tmp_path):
    """With client certificates, who has none, or one of another CA, or speaks plain HTTP, reads nothing."""
    certs = make_certs(tmp_path)
    lines = [
        "tls_server_config:",
        f"  cert_file: {certs.server.cert}",
        f"  key_file: {certs.server.key}",
        f"  client_ca_file: {certs.ca}",
        "  client_auth_type: RequireAndVerifyClientCert",
    ]
    with role("sidecar", tmp_path, "--web.config.file", web_config(tmp_path, *lines)) as process:
        nobody = ssl.create_default_context(cafile=certs.ca)
        stranger = ssl.create_default_context(cafile=certs.ca)
        stranger.load_cert_chain(certs.self_signed.cert, certs.self_signed.key)
        friend = ssl.create_default_context(cafile=certs.ca)
        friend.load_cert_chain(certs.client.cert, certs.client.key)
        asked = request("GET", "/metrics", AUTHORIZATION)
        for context in (nobody, stranger):
            try:
                said = say(main_address(process), asked, tls=context)
            except ssl.SSLError:
                continue
            assert said.data == b""
        plain = say(main_address(process), asked)
        assert (plain.status, plain.body) == (400, b"this port speaks HTTPS; ask with https://\n")
        assert say(main_address(process), request("GET", "/metrics"), tls=friend).status == 401
        assert say(main_address(process), asked, tls=friend).status == 200
