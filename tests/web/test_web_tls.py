"""TLS, client certificates, authentication and headers of a listener, from the client's side."""

from __future__ import annotations

import base64
import logging
import shutil
import ssl
import time

import bcrypt
import pytest

from infscale.web.webconfig import WebConfig
from tests.web.conftest import tls_section, write
from tests.web.rig import PAGE, Client, eventually, listening

REQUIRED = "client_auth_type: RequireAndVerifyClientCert"


def test_tls(tls_config):
    """A scrape over TLS, kept alive, split and pipelined as over plain HTTP."""
    config, trust = tls_config
    with listening(web_config=config) as server, Client(server.port, tls=trust) as client:
        assert all(client.get().body == PAGE for _ in range(20))
        for byte in b"GET /echo HTTP/1.1\r\nHost: h\r\n\r\n":
            client.send(bytes([byte]))
        assert client.answer().status == 200
        for _ in range(30):
            client.send(b"GET /echo HTTP/1.1\r\nHost: h\r\n\r\n")
        assert [client.answer().status for _ in range(30)] == [200] * 30
        client.send(b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 1048576\r\n\r\n" + b"x" * (1 << 20))
        assert b" 1048576 " in client.answer().body
        assert client.get("/echo", "Connection: close").status == 200
        assert client.at_end()


def test_large_answers_over_tls(tls_config):
    """Answers larger than the socket's buffer arrive whole over TLS, also to a client that reads late."""
    config, trust = tls_config
    with listening(web_config=config) as server, Client(server.port, tls=trust) as client:
        client.send(b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n" * 400)
        time.sleep(0.3)
        assert all(client.answer().body == PAGE for _ in range(400))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_client_certificates(certs, trust, tmp_path, version):
    """With RequireAndVerifyClientCert only a client with a certificate of that CA is answered."""
    trust.maximum_version = version
    path = write(tmp_path, tls_section(certs, REQUIRED, f"client_ca_file: {certs.ca}"))
    with listening(web_config=WebConfig(path)) as server:
        with pytest.raises((ssl.SSLError, ConnectionError, AssertionError)), Client(server.port, tls=trust) as client:
            client.get()
        trust.load_cert_chain(certs.client.cert, certs.client.key)
        with Client(server.port, tls=trust) as client:
            assert client.get().body == PAGE


@pytest.mark.parametrize("client_auth", ["RequireAndVerifyClientCert", "VerifyClientCertIfGiven"])
def test_wrong_client_certificate(certs, trust, tmp_path, caplog, client_auth):
    """A client with a certificate of another CA is not answered, and the log says so in one line."""
    path = write(tmp_path, tls_section(certs, f"client_auth_type: {client_auth}", f"client_ca_file: {certs.other_ca}"))
    trust.load_cert_chain(certs.client.cert, certs.client.key)
    with caplog.at_level(logging.INFO, "infscale.web"), listening(web_config=WebConfig(path)) as server:
        with pytest.raises((ssl.SSLError, ConnectionError, AssertionError)), Client(server.port, tls=trust) as client:
            client.get()
        assert eventually(lambda: bool(caplog.records))
    assert [record.message for record in caplog.records] == ["TLS handshake failed"]


def test_client_certificate_if_given(certs, trust, tmp_path):
    """With VerifyClientCertIfGiven a client without a certificate is answered."""
    path = write(
        tmp_path, tls_section(certs, "client_auth_type: VerifyClientCertIfGiven", f"client_ca_file: {certs.ca}")
    )
    with listening(web_config=WebConfig(path)) as server, Client(server.port, tls=trust) as client:
        assert client.get().status == 200


def test_min_version(certs, trust, tmp_path):
    """A client that speaks less than min_version is refused."""
    trust.maximum_version = ssl.TLSVersion.TLSv1_2
    path = write(tmp_path, tls_section(certs, "min_version: TLS13"))
    with listening(web_config=WebConfig(path)) as server, pytest.raises((ssl.SSLError, ConnectionError)):
        Client(server.port, tls=trust)


def test_plain_http_on_a_tls_port(tls_config):
    """Who speaks plain HTTP to a TLS port is told so."""
    config, _ = tls_config
    with listening(web_config=config) as server, Client(server.port) as client:
        answer = client.get()
        assert answer.status == 400
        assert b"https://" in answer.body


def test_basic_auth_and_headers(tmp_path):
    """Every path asks for user and password, and every answer has the configured headers."""
    hashed = bcrypt.hashpw(b"right", bcrypt.gensalt(4)).decode()
    text = f"basic_auth_users: {{alice: {hashed}}}\nhttp_server_config: {{headers: {{X-Frame-Options: deny}}}}"
    with listening(web_config=WebConfig(write(tmp_path, text))) as server, Client(server.port) as client:
        for path in ("/metrics", "/nowhere"):
            answer = client.get(path)
            assert (answer.status, answer.headers["x-frame-options"]) == (401, "deny")
            assert answer.headers["www-authenticate"].startswith("Basic ")
        for user, status in (("alice:right", 200), ("alice:wrong", 401), ("mallory:right", 401)):
            authorization = f"Authorization: Basic {base64.b64encode(user.encode()).decode()}"
            assert client.get("/metrics", authorization).status == status


def test_change_for_running_server(certs, tmp_path):
    """A new certificate serves the next connection, new headers the next request, without a restart."""
    now = 0.0
    cert, key = tmp_path / "a.pem", tmp_path / "a.key"
    shutil.copy(certs.self_signed.cert, cert)
    shutil.copy(certs.self_signed.key, key)
    text = "tls_server_config: {cert_file: a.pem, key_file: a.key}\n"
    config = WebConfig(write(tmp_path, text), clock=lambda: now)
    with (
        listening(web_config=config) as server,
        Client(server.port, tls=ssl.create_default_context(cafile=certs.self_signed.cert)) as old,
    ):
        assert "x-frame-options" not in old.get().headers
        shutil.copy(certs.server.cert, cert)
        shutil.copy(certs.server.key, key)
        write(tmp_path, text + "http_server_config: {headers: {X-Frame-Options: deny}}")
        now = 10.0
        assert old.get().headers["x-frame-options"] == "deny"
        with Client(server.port, tls=ssl.create_default_context(cafile=certs.ca)) as new:
            assert new.get().status == 200
