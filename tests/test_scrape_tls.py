"""Reads over TLS: whom they trust, and what each failure is called."""

from __future__ import annotations

import shutil
import ssl
from dataclasses import replace

import pytest

from infscale.errors import UsageError
from infscale.scrape import Page, ScrapeFailure, Target, check_target, fetch
from tests.certs import Certs, make_certs
from tests.raw_server import Call, raw_server
from tests.scrape_reads import OK, PAGE, failed, run_python


@pytest.fixture(scope="module")
def certs(tmp_path_factory) -> Certs:
    """A CA and what it signed."""
    return make_certs(tmp_path_factory.mktemp("certs"))


def page(call: Call) -> None:
    """Answers with the page."""
    call.page(PAGE)


def read(certs, pair, *, host="127.0.0.1", answer=page, client_ca=None, timeout_s=20.0, **fields):
    """One read of a TLS server with this certificate, trusting the CA."""
    fields.setdefault("ca_file", str(certs.ca))
    with raw_server(answer, tls=pair.server_context(client_ca)) as server:
        return fetch(Target(server.url(host=host), timeout_s=timeout_s, **fields))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_certificate_of_the_own_ca(certs, host):
    """A server whose certificate the given CA signed is read, by name and by address."""
    answer = read(certs, certs.server, host=host)

    assert isinstance(answer, Page), answer
    assert answer.body == PAGE


@pytest.mark.parametrize(
    ("pair", "ca", "says"),
    [
        ("expired", "ca", "certificate has expired"),
        ("wrong_host", "ca", "not valid for '127.0.0.1'"),
        ("self_signed", "ca", "self"),
        ("server", "other_ca", "issuer certificate"),
        ("server", None, "issuer certificate"),
    ],
)
def test_a_certificate_that_is_not_trusted(certs, pair, ca, says):
    """Expired, for another host, signed by itself or by another: `tls`, with the reason."""
    ca_file = None if ca is None else str(getattr(certs, ca))

    failed(read(certs, getattr(certs, pair), ca_file=ca_file), "tls", says=says)


@pytest.mark.parametrize("pair", ["expired", "wrong_host", "self_signed", "server"])
def test_any_certificate_without_verification(certs, pair):
    """`insecure_skip_verify` reads every one of them, and needs no CA file."""
    answer = read(certs, getattr(certs, pair), insecure_skip_verify=True, ca_file="/no/such/file")

    assert isinstance(answer, Page), answer


def test_the_server_name_may_differ_from_the_host(certs):
    """`server_name` is whom the certificate must be for."""
    assert isinstance(read(certs, certs.wrong_host, server_name="elsewhere.example"), Page)
    failed(read(certs, certs.server, server_name="elsewhere.example"), "tls", says="elsewhere.example")


def test_no_old_tls(certs):
    """A server that speaks TLS 1.1 at most is refused, and one with 1.2 at most is read."""
    context = certs.server.server_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with raw_server(page, tls=context) as server:
        assert isinstance(fetch(Target(server.url(), timeout_s=20, ca_file=str(certs.ca))), Page)
    context = certs.server.server_context()
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        context.minimum_version = ssl.TLSVersion.TLSv1
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with raw_server(page, tls=context) as server:
        failed(fetch(Target(server.url(), timeout_s=20, insecure_skip_verify=True)), "tls", says="TLS failed")


def test_a_server_that_wants_a_client_certificate(certs):
    """We have none to show: `tls`."""
    failed(read(certs, certs.server, client_ca=certs.ca), "tls", says="certificate required")


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"-ERR unknown command\r\n"])
def test_a_plain_server_behind_an_https_url(certs, answer):
    """`tls`, with a hint to http://."""

    def plain(call: Call) -> None:
        call.connection.recv(1)
        call.send(answer)
        call.hang(1)

    with raw_server(plain, read_request=False) as server:
        answer = fetch(Target(server.url().replace("http:", "https:"), timeout_s=20, ca_file=str(certs.ca)))

    failed(answer, "tls", says="does not speak TLS (then use http://)")


def test_a_plain_server_that_hangs_up_on_a_handshake(certs):
    """A server that closes in the middle of the handshake: `tls`."""
    with raw_server(lambda call: call.connection.recv(65536), read_request=False) as server:
        answer = fetch(Target(server.url().replace("http:", "https:"), timeout_s=20, ca_file=str(certs.ca)))

    failed(answer, "tls", says="TLS failed")


def test_a_handshake_that_hangs_ends_at_the_deadline(certs):
    """A port that accepts and then says nothing is a time-out on an open port."""
    with raw_server(lambda call: call.hang(), read_request=False) as server:
        answer = fetch(Target(server.url().replace("http:", "https:"), timeout_s=0.3, ca_file=str(certs.ca)))

    failed(answer, "timeout", says="waiting for the TLS handshake (0 bytes came)")


def test_a_tls_server_behind_an_http_url(certs):
    """A TLS alert in place of an answer says to use https://."""
    with raw_server(lambda call: call.send(b"\x15\x03\x01\x00\x02\x02\x46"), read_request=False) as server:
        failed(fetch(Target(server.url(), timeout_s=20)), "tls", says="must begin with https://")
    with raw_server(page, tls=certs.server.server_context()) as server:
        answer = fetch(Target(server.url().replace("https:", "http:"), timeout_s=20))

    assert isinstance(answer, ScrapeFailure)
    assert answer.kind in ("tls", "reset")
    assert "https://" in answer.message or "reset" in answer.message


def test_a_body_that_drips_over_tls_ends_at_the_deadline(certs):
    """One deadline for the whole read holds over TLS too."""

    def drip(call: Call) -> None:
        call.send(OK + b"\r\n")
        call.drip(b"a" * 900, 0.05)

    failed(read(certs, certs.server, answer=drip, timeout_s=0.5), "timeout", says="waiting for the body")


def test_a_body_that_is_cut_over_tls(certs):
    """A connection that ends without its announced bytes is a reset, with or without TLS's own good-bye."""

    def cut(call: Call) -> None:
        call.send(OK + b"Content-Length: 100\r\n\r\nabc")

    failed(read(certs, certs.server, answer=cut), "reset", says="in the middle of the body")


def test_a_ca_file_that_changes_is_read_again(certs, tmp_path):
    """A rotated CA counts from the next read on; one that vanished is `tls` and names the file."""
    ca = tmp_path / "ca.pem"
    shutil.copy(certs.other_ca, ca)
    with raw_server(page, tls=certs.server.server_context()) as server:
        target = Target(server.url(), timeout_s=20, ca_file=str(ca))
        check_target(target)
        before = fetch(target)
        shutil.copy(certs.ca, tmp_path / "new.pem")
        (tmp_path / "new.pem").replace(ca)
        after = fetch(target)
        ca.unlink()
        gone = fetch(target)

    failed(before, "tls", says="issuer certificate")
    assert isinstance(after, Page), after
    failed(gone, "tls", says=f"CA file {ca}: No such file", connected=False)


@pytest.mark.parametrize(("content", "says"), [(None, "No such file"), ("", "PEM"), ("no certificate", "PEM")])
def test_a_ca_file_that_cannot_be_used(tmp_path, content, says):
    """A CA file that is missing or holds no certificate is told at the start, for https alone."""
    ca = tmp_path / "ca.pem"
    if content is not None:
        ca.write_text(content)
    target = Target("https://h/", ca_file=str(ca))

    with pytest.raises(UsageError, match=says) as refused:
        check_target(target)

    assert str(ca) in str(refused.value)
    check_target(replace(target, url="http://h/"))
    check_target(replace(target, insecure_skip_verify=True))


def test_tls_on_the_oldest_python(certs):
    """A verified read works on Python 3.9, without site packages."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from infscale.scrape import Target, fetch\n"
        "for ca, insecure in ((sys.argv[3], False), (sys.argv[4], False), (None, True)):\n"
        "    page = fetch(Target(sys.argv[2], timeout_s=20, ca_file=ca, insecure_skip_verify=insecure))\n"
        "    print(getattr(page, 'status', None) or page.kind)\n"
    )
    with raw_server(page, tls=certs.server.server_context()) as server:
        said = run_python(code, server.url(host="localhost"), str(certs.ca), str(certs.other_ca))

    assert said == "200\ntls\n200\n"
