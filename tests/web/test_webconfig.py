"""The web config file: what is read from it, what is refused in one line, and how changes arrive."""

from __future__ import annotations

import logging
import shutil
import string
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import bcrypt
import pytest
from cryptography.hazmat.primitives import serialization

from infscale.errors import ConfigError
from infscale.web.webconfig import WebConfig
from tests.web.conftest import tls_section, write

HASH = bcrypt.hashpw(b"right", bcrypt.gensalt(4)).decode()

GOOD = [
    "http_server_config:\n  headers:\n    X-Frame-Options: deny\n    Strict-Transport-Security: max-age=3600",
    "http_server_config:\n  http2: false",
    "http_server_config:\n  http2: true\n  headers: {}",
    f"basic_auth_users:\n  alice: {HASH}\n  bob: {HASH.replace('$2b$', '$2y$')}",
    "$TLS",
    "$TLS\n  client_auth_type: NoClientCert\n  min_version: TLS13\n  prefer_server_cipher_suites: false",
    "$TLS\n  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: $CA\n  max_version: TLS12",
    "$TLS\n  client_auth_type: VerifyClientCertIfGiven\n  client_ca_file: $CA",
]


@pytest.fixture
def fill(certs, tmp_path) -> Callable[[str], str]:
    """Write a web config file with the names of real certificate files filled in; its path."""
    locked = tmp_path / "locked.key"
    key = serialization.load_pem_private_key(certs.server.key.read_bytes(), None)
    locked.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"x")
        )
    )
    files = {"TLS": tls_section(certs), "CA": certs.ca, "CERT": certs.server.cert, "KEY": certs.server.key,
             "OTHER": certs.client.key, "LOCKED": locked}  # fmt: skip
    return lambda text: write(tmp_path, string.Template(text).safe_substitute(files))


@pytest.mark.parametrize("text", GOOD)
def test_good_files_are_good_for_promtool_too(text, fill):
    """What is accepted here is accepted by `promtool check web-config`: one format for all exporters."""
    path = fill(text)
    assert WebConfig(path).current() is not None
    done = subprocess.run(["promtool", "check", "web-config", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_is_read(certs, tmp_path):
    """Headers, users and TLS are there when asked for; relative names count from the file's folder."""
    shutil.copy(certs.server.cert, tmp_path / "a.pem")
    shutil.copy(certs.server.key, tmp_path / "a.key")
    text = f"""
tls_server_config: {{cert_file: a.pem, key_file: ./a.key}}
http_server_config: {{headers: {{X-XSS-Protection: "0", Content-Security-Policy: ""}}}}
basic_auth_users: {{alice: {HASH}}}
"""
    settings = WebConfig(write(tmp_path, text)).current()
    assert settings.headers == {"X-XSS-Protection": "0"}
    assert settings.wrap is not None
    assert settings.auth is not None


def test_nothing_asked_for(tmp_path):
    """Empty sections are plain HTTP for everybody."""
    settings = WebConfig(write(tmp_path, "tls_server_config: {}\nbasic_auth_users: {}")).current()
    assert (settings.wrap, settings.auth, dict(settings.headers)) == (None, None, {})


@pytest.mark.parametrize(
    ("text", "where", "message"),
    [
        ("- a", "", "expected a mapping"),
        ("a: [", "line", "not YAML"),
        ("tls_config: {}", "tls_config", "did you mean 'tls_server_config'?"),
        ("basic_auth_user: {}", "basic_auth_user", "did you mean 'basic_auth_users'?"),
        ("tls_server_config:\n  cert: |\n    x", "tls_server_config.cert", "name a file with cert_file"),
        ("$TLS\n  cert_fil: x", "tls_server_config.cert_fil", "did you mean 'cert_file'?"),
        ("$TLS\n  cipher_suites: []", "tls_server_config.cipher_suites", "not supported"),
        ("$TLS\n  curve_preferences: []", "tls_server_config.curve_preferences", "not supported"),
        ("$TLS\n  client_allowed_sans: [a]", "tls_server_config.client_allowed_sans", "client_ca_file"),
        ("tls_server_config: {min_version: TLS13}", "tls_server_config.cert_file", "missing"),
        ("tls_server_config: {cert_file: $CERT}", "tls_server_config.key_file", "missing"),
        ("tls_server_config: {cert_file: 3}", "tls_server_config.cert_file", "expected a file name"),
        ("tls_server_config: {cert_file: ''}", "tls_server_config.cert_file", "empty"),
        ("tls_server_config: {cert_file: nowhere.pem}", "tls_server_config.cert_file", "nowhere.pem: cannot be read"),
        ("tls_server_config: {cert_file: $KEY, key_file: $KEY}", "tls_server_config.cert_file", "not a PEM cert"),
        ("tls_server_config: {cert_file: $CERT, key_file: $CERT}", "tls_server_config.key_file", "not a PEM private"),
        ("tls_server_config: {cert_file: $CERT, key_file: $OTHER}", "tls_server_config.key_file", "not the key of"),
        ("tls_server_config: {cert_file: $CERT, key_file: $LOCKED}", "tls_server_config.key_file", "encrypted"),
        ("$TLS\n  client_ca_file: $KEY\n  client_auth_type: RequireAndVerifyClientCert",
         "tls_server_config.client_ca_file", "not a PEM file of certificates"),
        ("$TLS\n  client_ca_file: $CERT", "tls_server_config.client_auth_type", "missing"),
        ("$TLS\n  client_auth_type: RequireAndVerifyClientCert", "tls_server_config.client_ca_file", "missing"),
        ("$TLS\n  client_auth_type: RequireAnyClientCert", "tls_server_config.client_auth_type", "does not verify"),
        ("$TLS\n  client_auth_type: yes", "tls_server_config.client_auth_type", "expected text, got true"),
        ("$TLS\n  min_version: TLS10", "tls_server_config.min_version", "expected TLS12 or TLS13"),
        ("$TLS\n  min_version: TLS13\n  max_version: TLS12", "tls_server_config.min_version", "above max_version"),
        ("$TLS\n  prefer_server_cipher_suites: 1", "tls_server_config.prefer_server_cipher_suites", "true or false"),
        ("http_server_config: {http2: maybe}", "http_server_config.http2", "true or false"),
        ("http_server_config: {header: {}}", "http_server_config.header", "did you mean 'headers'?"),
        ("http_server_config: {headers: {X-Frame-Option: deny}}", "http_server_config.headers.X-Frame-Option",
         "did you mean 'X-Frame-Options'?"),
        ("http_server_config: {headers: {X-Frame-Options: allow}}", "http_server_config.headers.X-Frame-Options",
         "expected deny or sameorigin"),
        ('http_server_config: {headers: {X-XSS-Protection: "0\\r\\nA: b"}}',
         "http_server_config.headers.X-XSS-Protection", "one line"),
        ("basic_auth_users: [alice]", "basic_auth_users", "expected a mapping"),
        ("basic_auth_users: {alice: secret-in-clear}", "basic_auth_users.alice", "expected a bcrypt hash"),
        ("basic_auth_users: {alice: 1234}", "basic_auth_users.alice", "expected a bcrypt hash"),
        pytest.param(f"basic_auth_users: {{'a:b': {HASH}}}", "basic_auth_users", "no colon", id="colon in a name"),
        ("rate_limit: {interval: 1s, burst: 5}", "rate_limit", "--web.max-requests"),
    ],
)  # fmt: skip
def test_refused(text, where, message, fill):
    """A file that cannot be used is one line: the file, the place in it, what was expected; never a secret."""
    path = fill(text)
    with pytest.raises(ConfigError) as caught:
        WebConfig(path)
    line = str(caught.value)
    assert line.startswith(f"{path}: {where}")
    assert message in line
    assert "\n" not in line
    assert "secret-in-clear" not in line


def test_file_that_is_not_there(tmp_path):
    """A missing file is said to be so."""
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        WebConfig(str(tmp_path / "web.yml"))


def test_without_bcrypt(tmp_path):
    """Without bcrypt the extra to install is named; a file without users does not need it."""
    path = write(tmp_path, f"basic_auth_users: {{alice: {HASH}}}")
    code = (
        "import sys; sys.modules['bcrypt'] = None\n"
        "from infscale.web.webconfig import WebConfig\n"
        f"try: WebConfig({path!r})\n"
        "except Exception as error: print(error)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": sources()})
    assert "pip install 'infscale[auth]'" in run.stdout
    assert run.stderr == ""


def test_plain_server_needs_neither_ssl_nor_yaml():
    """A listener without a web config file loads neither TLS, nor YAML, nor the email package: they cost memory."""
    code = (
        "import sys, infscale.web.server, infscale.web.lifecycle, infscale.web.landing\n"
        "print([name for name in ('ssl', 'yaml', 'bcrypt', 'email', 'http.server') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": sources()})
    assert run.stdout == "[]\n", run.stderr


def sources() -> str:
    """The folder that `infscale` is imported from."""
    return str(Path(__file__).parents[2] / "exporter")


class Clock:
    """Seconds that a test sets."""

    now = 100.0

    def __call__(self) -> float:
        """Return them."""
        return self.now


def test_change_arrives(tmp_path, caplog):
    """A change arrives without a restart; the files are looked at once a second."""
    clock = Clock()
    path = write(tmp_path, "http_server_config: {headers: {X-Frame-Options: deny}}")
    config = WebConfig(path, clock=clock)
    before = config.current()
    write(tmp_path, "http_server_config: {headers: {X-Frame-Options: sameorigin}}")
    clock.now += 0.5
    assert config.current() is before
    clock.now += 0.6
    with caplog.at_level(logging.INFO, "infscale.web"):
        assert config.current().headers == {"X-Frame-Options": "sameorigin"}
    assert [record.message for record in caplog.records] == ["web config file read anew"]


def test_bad_change_is_logged_once_and_mended(tmp_path, caplog):
    """A bad change keeps the former settings and is logged once; the next good one counts."""
    clock = Clock()
    config = WebConfig(write(tmp_path, "http_server_config: {headers: {X-Frame-Options: deny}}"), clock=clock)
    before = config.current()
    path = Path(write(tmp_path, "http_server_conf: {}"))
    for _ in range(3):
        clock.now += 2
        assert config.current() is before
    (record,) = caplog.records
    assert "did you mean 'http_server_config'?" in record.__dict__["error"]
    path.unlink()
    clock.now += 2
    assert config.current() is before
    write(tmp_path, "http_server_config: {headers: {X-Frame-Options: sameorigin}}")
    clock.now += 2
    assert config.current().headers == {"X-Frame-Options": "sameorigin"}


def test_change_of_a_certificate(certs, tmp_path):
    """New certificate files count too, even when the key follows later than the certificate."""
    clock = Clock()
    cert, key = tmp_path / "a.pem", tmp_path / "a.key"
    shutil.copy(certs.server.cert, cert)
    shutil.copy(certs.server.key, key)
    config = WebConfig(write(tmp_path, "tls_server_config: {cert_file: a.pem, key_file: a.key}"), clock=clock)
    before = config.current()
    shutil.copy(certs.self_signed.cert, cert)
    clock.now += 2
    assert config.current() is before
    shutil.copy(certs.self_signed.key, key)
    clock.now += 2
    assert config.current() is not before
