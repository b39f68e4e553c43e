"""One bounded read of one HTTP page: what the sidecar, `infscale parse`, the drain helper and peers' readers read with.

    answer = fetch(Target("http://127.0.0.1:8000/metrics"))      # a Page, whatever its status, or a ScrapeFailure

One deadline holds from the name's look-up to the last byte, and one limit for the bytes. The proxy variables of the
environment never apply, and a redirect is followed on the same scheme, host and port only, so that the token goes
nowhere else. Both outcomes are values; what they mean for an engine is `infscale.outcome`.

    scrape_url      URLs
    scrape_wire     the connection: names, addresses, TLS, the deadline
    scrape_http     the answer: head, body, chunks, gzip
    scrape_shared   one read at a time, its answer shared
    scrape_token    the token of a file

Runs on Python 3.9 (it travels in the drain bundle).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from infscale import __version__
from infscale.errors import UsageError
from infscale.scrape_http import Head, read_body, read_head
from infscale.scrape_token import file_fault, read_token
from infscale.scrape_url import Url, add_query, join_url, show_url, split_url
from infscale.scrape_wire import Deadline, Wire, WireFault, tls_context

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "MAX_REDIRECTS", "Page", "ScrapeFailure", "Target", "Url", "add_query", "check_target", "fetch",
    "show_url", "split_url",
]  # fmt: skip

MAX_REDIRECTS = 3
_REDIRECTS = (301, 302, 303, 307, 308)


@dataclass(frozen=True)
class Target:
    """Where a page is and how it is read; built once, its files are looked at anew for each read.

    Attributes:
        url: http or https; a user name or password in it is refused.
        timeout_s: for the whole read, in seconds.
        max_bytes: of the page, compressed and not; one more is `too_large`.
        token_file: holds what is sent as `Authorization: Bearer`.
        ca_file: certificates (PEM) to trust instead of the system's.
        insecure_skip_verify: any certificate will do (the drain reads on the loopback address).
        server_name: whom the certificate must be for, instead of the URL's host.
        accept: the `Accept` header.

    Raises:
        UsageError: one of these cannot be used. The files are for `check_target`.
    """

    url: str
    timeout_s: float = 2.0
    max_bytes: int = 8 * 2**20
    token_file: str | None = None
    ca_file: str | None = None
    insecure_skip_verify: bool = False
    server_name: str | None = None
    accept: str = "text/plain;version=0.0.4"

    def __post_init__(self) -> None:
        split_url(self.url)
        if not 0 < self.timeout_s < float("inf"):
            raise UsageError(f"the time-out of {show_url(self.url)} is {self.timeout_s:g} s: expected more than 0")
        if self.max_bytes < 1:
            raise UsageError(f"the size limit of {show_url(self.url)} is {self.max_bytes} bytes: expected 1 or more")
        for what, text in (("server name", self.server_name or "x"), ("Accept header", self.accept)):
            if not (text.isascii() and text.isprintable()):
                raise UsageError(f"the {what} {text[:120]!r} holds a control or non-ASCII character")


@dataclass(frozen=True)
class Page:
    """An HTTP answer, whole. An error status is a Page too: the caller knows what it means.

    Attributes:
        status: 200 to 999, no redirect that was followed.
        content_type: as sent, empty where there was none.
        body: decompressed.
        duration_s: from the start of the read to its last byte, in seconds.
    """

    status: int
    content_type: str
    body: bytes
    duration_s: float


@dataclass(frozen=True)
class ScrapeFailure:
    """Why a read gave no answer.

    Attributes:
        kind: `refused` (nothing listens), `timeout`, `reset` (the connection broke or was cut, or there is no way to
            the host), `tls`, `too_large` or `http` (no HTTP, a redirect elsewhere, or the token file cannot be read);
            all are reasons of `infscale.reading.FAILURES`.
        message: one line for a person, with `host:port` and what was waited for; never with the token.
        connected: the port had accepted the connection: a time-out then is a busy engine. A time-out without it is a
            host that does not answer, or an accept queue that is full.
        duration_s: how long the read took, in seconds.
    """

    kind: str
    message: str
    connected: bool
    duration_s: float


def check_target(target: Target) -> None:
    """Looks at the target's files, so that a wrong one is told at the start.

    Raises:
        UsageError: the token file cannot be read, is empty or holds no token; the CA file cannot be read or holds no
            certificate.
    """
    _token_of(target)
    if split_url(target.url).scheme == "https":
        try:
            tls_context(target.ca_file, target.insecure_skip_verify)
        except OSError as error:
            raise UsageError(f"CA file {target.ca_file}: {file_fault(error)}; expected certificates (PEM)") from None


def fetch(
    target: Target, *, timeout_s: float | None = None, clock: Callable[[], float] = time.monotonic
) -> Page | ScrapeFailure:
    """Reads a page once, on a connection of its own.

    Args:
        target: what to read.
        timeout_s: for the whole read, in seconds, instead of the target's.
        clock: monotonic seconds.
    """
    deadline = Deadline(clock, target.timeout_s if timeout_s is None else timeout_s)
    url = split_url(target.url)
    try:
        token = _token_of(target)
    except UsageError as error:
        return ScrapeFailure("http", f"{url.place}: {error}", False, deadline.spent_s())
    for _ in range(MAX_REDIRECTS + 1):
        wire = Wire(deadline, secret=token)
        try:
            head = _ask(wire, target, url, token)
            onward = _redirect(wire, head, url)
            if onward is None:
                body = read_body(wire, head, target.max_bytes)
                return Page(head.status, head.headers.get("content-type", ""), body, deadline.spent_s())
            url = onward
        except WireFault as fault:
            return ScrapeFailure(fault.kind, f"{url.place}: {fault.message}", wire.connected, deadline.spent_s())
        finally:
            wire.close()
    message = f"{url.place}: more than {MAX_REDIRECTS} redirects, the last to {url.path[:100]!r}"
    return ScrapeFailure("http", message, True, deadline.spent_s())


def _ask(wire: Wire, target: Target, url: Url, token: str) -> Head:
    """Connects, sends the request and reads the answer's head."""
    context = None
    if url.scheme == "https":
        try:
            context = tls_context(target.ca_file, target.insecure_skip_verify)
        except OSError as error:
            raise WireFault("tls", f"CA file {target.ca_file}: {file_fault(error)}") from None
    wire.connect(url)
    if context is not None:
        wire.start_tls(context, target.server_name or url.host)
    lines = [
        f"GET {url.path} HTTP/1.1",
        f"Host: {url.host_header}",
        f"User-Agent: infscale/{__version__}",
        f"Accept: {target.accept}",
        "Accept-Encoding: identity",  # gzip would cost the engine CPU; it is read all the same
        "Connection: close",
    ]
    if token:
        lines.append(f"Authorization: Bearer {token}")
    wire.send("\r\n".join([*lines, "", ""]).encode("ascii"))
    return read_head(wire)


def _redirect(wire: Wire, head: Head, url: Url) -> Url | None:
    """Where the answer says to look instead; None if it does not.

    Raises:
        WireFault: `http`, if that is nowhere or another server, which must not see the token.
    """
    if head.status not in _REDIRECTS:
        return None
    location = head.headers.get("location", "")
    if not location:
        raise WireFault("http", f"redirected (HTTP {head.status}) without saying where")
    shown = wire.quote(location)
    try:
        onward = join_url(url, location)
    except UsageError:
        raise WireFault("http", f"redirected to {shown}, which is no URL that can be read") from None
    if (onward.scheme, onward.host, onward.port) != (url.scheme, url.host, url.port):
        raise WireFault("http", f"redirected to {shown}, another server, which is not followed: give its URL if meant")
    return onward


def _token_of(target: Target) -> str:
    """What is sent as bearer token; empty without a token file."""
    return "" if target.token_file is None else read_token(target.token_file)
