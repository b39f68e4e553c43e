"""The web config file: TLS, client certificates, basic authentication, response headers; `--web.config.file`.

The format is the one that Prometheus exporters share (prometheus/exporter-toolkit, docs/web-configuration.md), so
`promtool check web-config FILE` accepts what is accepted here. What is not supported here is refused, never ignored,
with one exception: `http2` may say anything, since clients fall back to HTTP/1.1 by themselves.

The file, the certificates and keys are read anew when they change, at the latest a second later, for new connections
(TLS) and the next request (the rest). A change that cannot be used is logged once and the former settings stay.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from infscale import checks
from infscale.checks import Place
from infscale.errors import ConfigError

if TYPE_CHECKING:
    from infscale.web.auth import BasicAuth
    from infscale.web.connection import Wrap

log = logging.getLogger(__name__)

KEYS = ("tls_server_config", "http_server_config", "basic_auth_users", "rate_limit")
"""What stands at the top of the file."""

_TLS = (
    "cert_file", "key_file", "client_ca_file", "client_auth_type", "min_version", "max_version",
    "prefer_server_cipher_suites",
)  # fmt: skip
_INLINE = "text in the file is not supported; name a file with {}_file"
_TLS_REFUSED = {
    "cert": _INLINE.format("cert"),
    "key": _INLINE.format("key"),
    "client_ca": _INLINE.format("client_ca"),
    "client_allowed_sans": "not supported; give the scrapers a CA of their own and name it with client_ca_file",
    "cipher_suites": "not supported; the TLS library's own choice for TLS 1.2 and 1.3 is used, remove it",
    "curve_preferences": "not supported; the TLS library's own choice is used, remove it",
}
_CLIENT_AUTH = ("NoClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert")
_CLIENT_AUTH_REFUSED = ("RequestClientCert", "RequireAnyClientCert", "RequireClientCert")
_VERSIONS = ("TLS12", "TLS13")
_HEADERS: Mapping[str, tuple[str, ...]] = {
    "Content-Security-Policy": (),
    "Strict-Transport-Security": (),
    "X-Content-Type-Options": ("nosniff",),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-XSS-Protection": (),
}
_BCRYPT = re.compile(r"\$2[aby]\$(?:0[4-9]|[12]\d|3[01])\$[./A-Za-z0-9]{53}")
_CHECK_EVERY_S = 1.0

Stamp = tuple[int, int, int] | None
"""What tells one version of a file from the next; None when there is no file."""


@dataclass(frozen=True)
class WebSettings:
    """What a web config file asks for; as it is by default, plain HTTP for everybody.

    Attributes:
        wrap: makes a TLS stream of a socket, or None for plain HTTP.
        headers: fields for every answer.
        auth: the check of users and passwords, or None.
    """

    wrap: Wrap | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    auth: BasicAuth | None = None


class WebConfig:
    """A web config file that is watched. Safe for several threads.

    Args:
        path: the file.
        clock: seconds that never go back.

    Raises:
        ConfigError: the file, or one that it names, cannot be used.
    """

    def __init__(self, path: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._stamps: dict[str, Stamp] = {}
        self._settings = _load(path, self._stamps)
        self._next_check = clock() + _CHECK_EVERY_S
        self._checking = threading.Lock()

    def current(self) -> WebSettings:
        """Return the settings of now; looks at the files at most once a second."""
        now = self._clock()
        if now >= self._next_check and self._checking.acquire(blocking=False):
            try:
                self._next_check = now + _CHECK_EVERY_S
                self._refresh()
            finally:
                self._checking.release()
        return self._settings

    def _refresh(self) -> None:
        if all(_stamp(file) == stamp for file, stamp in self._stamps.items()):
            return
        stamps: dict[str, Stamp] = {}
        try:
            self._settings = _load(self._path, stamps)
        except ConfigError as error:
            log.error("web config file cannot be used, the former settings stay", extra={"error": str(error)})  # noqa: TRY400
        else:
            log.info("web config file read anew", extra={"file": self._path})
        self._stamps = stamps


def _stamp(file: str) -> Stamp:
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _load(path: str, stamps: dict[str, Stamp]) -> WebSettings:
    """Read the file and those that it names; each one's stamp is taken before it is read, so no change is missed."""
    from infscale.yaml_file import load_yaml  # yaml costs 3 MB, and most sidecars have no web config file

    stamps[path] = _stamp(path)
    values, top = load_yaml(path), Place(path)
    checks.mapping(values, top, KEYS)
    if "rate_limit" in values:
        raise top.key("rate_limit").error("not supported; --web.max-requests bounds the requests at once")
    return WebSettings(
        wrap=_tls(values["tls_server_config"], top.key("tls_server_config"), stamps)
        if "tls_server_config" in values
        else None,
        headers=_headers(values.get("http_server_config", {}), top.key("http_server_config")),
        auth=_auth(values.get("basic_auth_users", {}), top.key("basic_auth_users")),
    )


def _headers(value: object, place: Place) -> Mapping[str, str]:
    section = checks.mapping(value, place, ("http2", "headers"))
    if not isinstance(section.get("http2", True), bool):
        raise place.key("http2").error(f"expected true or false, got {checks.described(section['http2'])}")
    place = place.key("headers")
    headers = {}
    for name, item in checks.mapping(section.get("headers", {}), place, tuple(_HEADERS)).items():
        text = checks.text(item, place.key(name))
        allowed = _HEADERS[name]
        if text and allowed and text not in allowed:
            raise place.key(name).error(f"expected {' or '.join(allowed)}, got {checks.described(text)}")
        if not text.isprintable() or not text.isascii():
            raise place.key(name).error("expected one line of plain ASCII text")
        if text:  # a blank one is left out
            headers[name] = text
    return headers


def _auth(value: object, place: Place) -> BasicAuth | None:
    hashes = {}
    # What stands here in the wrong form may be a password: nothing of it is told.
    if not isinstance(value, Mapping):
        raise place.error("expected a mapping of user names to bcrypt hashes, as {prometheus: $2y$10$...}")
    for user, item in checks.mapping(value, place).items():
        if not user or ":" in user:
            raise place.error("a user name needs at least one character and no colon")
        if not isinstance(item, str) or not _BCRYPT.fullmatch(item):
            raise place.key(user).error("expected a bcrypt hash such as 'htpasswd -nBC 10 USER' prints")
        hashes[user] = item.encode()
    if not hashes:
        return None
    try:
        from infscale.web.auth import BasicAuth
    except ImportError as error:
        raise place.error("bcrypt is not installed, which checks passwords: pip install 'infscale[auth]'") from error
    return BasicAuth(hashes)


def _tls(value: object, place: Place, stamps: dict[str, Stamp]) -> Wrap | None:
    """Return what makes TLS streams. `ssl` is imported only here: it costs 3 MB."""
    section = checks.mapping(value, place, (*_TLS, *_TLS_REFUSED))
    for key in section:
        if key in _TLS_REFUSED:
            raise place.key(key).error(_TLS_REFUSED[key])
    if not section:
        return None
    files = {key: _file(section, key, place, stamps) for key in ("cert_file", "key_file", "client_ca_file")}
    for key in ("cert_file", "key_file"):
        if not files[key]:
            raise place.key(key).error("missing; TLS needs a certificate and its key")
    client_auth = _choice(section, "client_auth_type", _CLIENT_AUTH, "NoClientCert", place)
    if (client_auth != "NoClientCert") != bool(files["client_ca_file"]):
        missing = "client_ca_file" if client_auth != "NoClientCert" else "client_auth_type"
        raise place.key(missing).error(
            f"missing; client certificates need client_ca_file and client_auth_type: {_CLIENT_AUTH[-1]}"
        )
    minimum = _choice(section, "min_version", _VERSIONS, "TLS12", place)
    maximum = _choice(section, "max_version", _VERSIONS, "TLS13", place)
    if minimum > maximum:
        raise place.key("min_version").error(f"{minimum} is above max_version {maximum}")
    prefer_server = section.get("prefer_server_cipher_suites", True)
    if not isinstance(prefer_server, bool):
        raise place.key("prefer_server_cipher_suites").error(
            f"expected true or false, got {checks.described(prefer_server)}"
        )
    from infscale.web import tls

    try:
        return tls.wrapper(
            tls.TlsSettings(
                files["cert_file"], files["key_file"], files["client_ca_file"],
                client_auth.startswith("Require"), minimum, maximum, prefer_server,
            )
        )  # fmt: skip
    except tls.UnusableFileError as error:
        raise place.key(error.key).error(str(error)) from error


def _file(section: Mapping[str, object], key: str, place: Place, stamps: dict[str, Stamp]) -> str:
    """Return a file's path, relative ones from the web config file's folder; empty when the key is not there."""
    if key not in section:
        return ""
    name = checks.text(section[key], place.key(key), expected="a file name")
    if not name:
        raise place.key(key).error("expected a file name, got an empty one")
    path = str(Path(place.source).parent / name)
    stamps[path] = _stamp(path)
    try:
        with open(path, "rb"):
            pass
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "not a file name"
        raise place.key(key).error(f"{path}: cannot be read: {why}") from error
    return path


def _choice(section: Mapping[str, object], key: str, known: tuple[str, ...], default: str, place: Place) -> str:
    value = checks.text(section.get(key, default), place.key(key))
    if value in known:
        return value
    why = " (it does not verify the client)" if value in _CLIENT_AUTH_REFUSED else ""
    raise place.key(key).error(f"expected {', '.join(known[:-1])} or {known[-1]}, got {checks.described(value)}{why}")
