"""URLs of metrics pages: taken apart, joined and extended, without `urllib` (the drain helper must start fast).

Called by `infscale.scrape`; the command line checks its arguments with `split_url`.

Runs on Python 3.9 (it travels in the drain bundle).
"""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass

from infscale.errors import UsageError

EXAMPLE = "http://127.0.0.1:8000/metrics"

_PORTS = {"http": 80, "https": 443}
_PARTS = re.compile(r"([^/?#]*)([^?#]*)(\?[^#]*)?")
_HOST = re.compile(r"(?:[A-Za-z0-9_-]{1,63}\.)*[A-Za-z0-9_-]{1,63}\.?")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_USER = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*://)?.*@", re.DOTALL)


@dataclass(frozen=True)
class Url:
    """A URL that can be read.

    Attributes:
        scheme: `http` or `https`.
        host: lower case, an IPv6 address without its brackets.
        port: 1 to 65535.
        path: path and query as sent in the request line, from the first `/` on.
    """

    scheme: str
    host: str
    port: int
    path: str

    @property
    def place(self) -> str:
        """`host:port`, for messages."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def host_header(self) -> str:
        """The `Host` header: without the scheme's own port, and without an IPv6 zone."""
        host = f"[{self.host.partition('%')[0]}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


def split_url(url: str) -> Url:
    """Takes a URL apart.

    Raises:
        UsageError: no scheme or another than http and https, no host, a host or IPv6 address that is none, a port out
            of range, a user name, a character that would have to be percent-encoded. A password never shows.
    """
    shown = show_url(url)
    if not url.isascii() or not url.isprintable() or " " in url:
        raise UsageError(f"URL {shown} holds a blank, a control or a non-ASCII character: write it percent-encoded")
    scheme, separator, rest = url.partition("://")
    scheme = scheme.lower()
    if not separator:
        raise UsageError(f"URL {shown} has no scheme: expected http:// or https://, as in {EXAMPLE}")
    if scheme not in _PORTS:
        raise UsageError(f"URL {shown} has a scheme that cannot be read: expected http:// or https://, as in {EXAMPLE}")
    parts = _PARTS.match(rest)
    authority, path, query = parts.groups("") if parts else ("", "", "")
    if "@" in authority:
        raise UsageError(f"URL {shown} holds a user name or password: give a token with --engine.token-file instead")
    host, port = _split_authority(authority, shown)
    return Url(scheme, host.lower(), _PORTS[scheme] if port is None else port, (path or "/") + query)


def _split_authority(authority: str, shown: str) -> tuple[str, int | None]:
    if authority.startswith("["):
        host, bracket, after = authority[1:].partition("]")
        if not bracket or not _is_ipv6(host) or (after and not after.startswith(":")):
            raise UsageError(f"URL {shown} has no IPv6 address in its brackets: expected as in http://[::1]:8000/")
        colon, port = after[:1], after[1:]
    elif authority.count(":") > 1:
        raise UsageError(f"URL {shown} has a bad host and port: an IPv6 address stands in brackets, http://[::1]:8000/")
    else:
        host, colon, port = authority.partition(":")
        if not host:
            raise UsageError(f"URL {shown} has no host: expected as in {EXAMPLE}")
        if not _HOST.fullmatch(host) or len(host) > 253:
            raise UsageError(f"URL {shown} has a host that is no name and no address: expected as in {EXAMPLE}")
    if not colon:
        return host, None
    if not port.isdigit() or len(port) > 5 or not 1 <= int(port) <= 65535:
        raise UsageError(f"URL {shown} has a port out of range: expected a number from 1 to 65535")
    return host, int(port)


def _is_ipv6(host: str) -> bool:
    address, percent, zone = host.partition("%")
    if percent and not _HOST.fullmatch(zone):
        return False
    try:
        socket.inet_pton(socket.AF_INET6, address)
    except OSError:
        return False
    return True


def show_url(url: str) -> str:
    """The URL for a message: quoted, cut to 120 characters, whatever stands before an `@` hidden."""
    return repr(_USER.sub(r"\1***@", url)[:120])


def join_url(base: Url, location: str) -> Url:
    """Where a `Location` header points, as seen from `base`.

    Raises:
        UsageError: it is no http or https URL.
    """
    origin = f"{base.scheme}://{base.place}"
    if _SCHEME.match(location):
        return split_url(location)
    if location.startswith("//"):
        return split_url(f"{base.scheme}:{location}")
    path, _, _ = base.path.partition("?")
    if location.startswith("?"):
        return split_url(origin + path + location)
    if not location.startswith("/"):
        location = path[: path.rindex("/") + 1] + location
    return split_url(origin + location)


def add_query(url: str, query: str) -> str:
    """Appends `key=value` pairs to a URL; a key that the URL has already stays as it is.

    llama.cpp's router loads the model of `/metrics?model=NAME` unless `autoload=false` stands beside it
    (ggml-org/llama.cpp, tools/server/README.md, router mode).
    """
    base, hash_mark, fragment = url.partition("#")
    path, _, old = base.partition("?")
    given = {pair.partition("=")[0] for pair in old.split("&")}
    pairs = [old, *(pair for pair in query.split("&") if pair.partition("=")[0] not in given)]
    joined = "&".join(pair for pair in pairs if pair)
    return path + ("?" + joined if joined else "") + hash_mark + fragment
