"""Certificates and a TLS web config file for the tests of infscale.web."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from infscale.web.webconfig import WebConfig
from tests.certs import Certs, make_certs


@pytest.fixture(scope="session")
def certs(tmp_path_factory) -> Certs:
    """A CA, a server's and a client's certificate, and some that are not good."""
    return make_certs(tmp_path_factory.mktemp("certs"))


@pytest.fixture
def trust(certs) -> ssl.SSLContext:
    """What a client needs to trust the server."""
    return ssl.create_default_context(cafile=certs.ca)


@pytest.fixture
def tls_config(certs, trust, tmp_path) -> tuple[WebConfig, ssl.SSLContext]:
    """A web config for TLS without client certificates, and a client's side of it."""
    return WebConfig(write(tmp_path, tls_section(certs))), trust


def tls_section(certs: Certs, *lines: str) -> str:
    """The TLS section of a web config file with further lines."""
    return "\n".join(
        ["tls_server_config:", f"  cert_file: {certs.server.cert}", f"  key_file: {certs.server.key}"]
        + [f"  {line}" for line in lines]
    )


def write(folder: Path, text: str) -> str:
    """Write a web config file and return its path."""
    path = folder / "web.yml"
    path.write_text(text + "\n")
    return str(path)
