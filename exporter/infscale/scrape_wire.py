"""One connection under one deadline: names, addresses, TLS, bytes. What travels on it is `infscale.scrape_http`.

Called by `infscale.scrape`. Every wait (for a name, a connection, a handshake, a byte) lasts at most what is left of
the whole read's time, so a server that drips a byte a second cannot stretch it. No proxy: the socket is our own.

Runs on Python 3.9 (it travels in the drain bundle). `ssl` is imported for https alone: it costs 20 ms and 6 MB.
"""

from __future__ import annotations

import os
import socket
import threading
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from infscale.scrape_url import Url

_RECEIVE_BYTES = 64 * 1024
_Address = tuple[int, int, int, str, Any]
_TIMEOUTS = (socket.timeout, TimeoutError)  # two classes before Python 3.10


class WireFault(Exception):
    """Why a read ended without an answer.

    Attributes:
        kind: one of `infscale.reading.FAILURES`.
        message: one line, without the place.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind, self.message = kind, message


class Deadline:
    """The time of one read, from its start to its last byte."""

    def __init__(self, clock: Callable[[], float], budget_s: float) -> None:
        self.budget_s = budget_s
        self._clock = clock
        self._start_s = clock()

    def spent_s(self) -> float:
        """Seconds since the read began."""
        return self._clock() - self._start_s

    def left_s(self) -> float:
        """Seconds that are left; 0 or less when there are none."""
        return self.budget_s - self.spent_s()


class Wire:
    """A connection to one server, and what has come from it so far.

    Attributes:
        connected: the port accepted the connection.
        step: what is being waited for, for messages.
        buffer: bytes received and not yet taken.
        secret: never shown in a message, not even when the server repeats it.
    """

    def __init__(self, deadline: Deadline, secret: str = "") -> None:
        self.connected = False
        self.step = "the connection"
        self.buffer = bytearray()
        self.secret = secret
        self._deadline = deadline
        self._received = 0
        self._socket: socket.socket | None = None

    def connect(self, url: Url) -> None:
        """Tries each address of the host (`localhost` may be ::1 first), each with a fair share of the time left.

        Raises:
            WireFault: `refused` when all that could be tried refused, `timeout`, else `reset` (no such host, no route).
        """
        self.step = f"the address of {url.host}"
        addresses = _addresses(url.host, url.port, self._left_s())
        self.step = "the connection"
        errors: list[OSError] = []
        for position, (family, kind, protocol, _, address) in enumerate(addresses):
            share_s = self._left_s() / (len(addresses) - position)
            try:
                self._socket = socket.socket(family, kind, protocol)
                self._socket.settimeout(share_s)
                self._socket.connect(address)
                # A port that nobody listens on, out of the kernel's own range, can connect to itself.
                if self._socket.getsockname() == address:
                    raise ConnectionRefusedError("connection refused")
            except OSError as error:
                self.close()
                errors.append(error)
            else:
                self.connected = True
                return
        raise self._unconnected(errors)

    def _unconnected(self, errors: list[OSError]) -> WireFault:
        if any(isinstance(error, _TIMEOUTS) for error in errors):
            return self._late()
        if any(isinstance(error, ConnectionRefusedError) for error in errors):
            return WireFault("refused", "connection refused: nothing listens there")
        return WireFault("reset", f"cannot connect: {errors[-1].strerror or errors[-1]}")

    def start_tls(self, context: ssl.SSLContext, name: str) -> None:
        """Makes the TLS handshake; `name` is what the certificate must be for.

        Raises:
            WireFault: `tls` with the reason, `timeout`, `reset`.
        """
        self.step = "the TLS handshake"
        plain = self._open_socket()
        plain.settimeout(self._left_s())
        try:
            # As bytes, since text would import the idna codec.
            self._socket = context.wrap_socket(plain, server_hostname=name.partition("%")[0].encode("ascii"))
        except (OSError, ValueError) as error:
            raise self._fault(error) from None

    def send(self, data: bytes) -> None:
        """Sends all of `data`; that the server has left already shows when its answer is read.

        Raises:
            WireFault: `timeout`.
        """
        self.step = "the request to be taken"
        connection = self._open_socket()
        connection.settimeout(self._left_s())
        try:
            connection.sendall(data)
        except _TIMEOUTS:
            raise self._late() from None
        except OSError:
            pass  # a server that left may have said why, as one that wants a client certificate: reading tells

    def receive(self) -> bool:
        """Waits for bytes and adds them to `buffer`; False at the end of the stream.

        Raises:
            WireFault: `timeout`, `reset`, `tls`.
        """
        connection = self._open_socket()
        connection.settimeout(self._left_s())
        try:
            data = connection.recv(_RECEIVE_BYTES)
        except OSError as error:
            raise self._fault(error) from None
        self.buffer += data
        self._received += len(data)
        return bool(data)

    def take(self, count: int) -> bytes:
        """Takes the first `count` bytes out of `buffer`."""
        data = bytes(self.buffer[:count])
        del self.buffer[:count]
        return data

    def close(self) -> None:
        """Closes the connection; harmless when there is none."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def cut(self) -> WireFault:
        """The stream ended too early."""
        if not self._received:
            return WireFault("reset", "closed the connection without an answer (a TLS server? then use https://)")
        return WireFault("reset", f"closed the connection in the middle of {self.step}{self._came()}")

    def quote(self, text: str) -> str:
        """What the server said, for a message: quoted, at most 100 characters, without the secret."""
        if self.secret:
            text = text.replace(self.secret, "***")
        return repr(text[:100])

    def _open_socket(self) -> socket.socket:
        if self._socket is None:
            raise RuntimeError("not connected")
        return self._socket

    def _left_s(self) -> float:
        left_s = self._deadline.left_s()
        if left_s <= 0:
            raise self._late()
        return left_s

    def _late(self) -> WireFault:
        return WireFault(
            "timeout", f"timed out after {self._deadline.budget_s:g} s, waiting for {self.step}{self._came()}"
        )

    def _came(self) -> str:
        return f" ({self._received} bytes came)" if self.connected else ""

    def _fault(self, error: Exception) -> WireFault:
        if isinstance(error, _TIMEOUTS):
            return self._late()
        if isinstance(error, ConnectionError) and not _is_tls(error):
            return WireFault("reset", f"the connection was reset, waiting for {self.step}{self._came()}")
        if _is_tls(error) or isinstance(error, ValueError):
            return WireFault("tls", f"TLS failed: {_tls_reason(error)}")
        return WireFault("reset", f"the connection broke, waiting for {self.step}: {error}")


def _is_tls(error: Exception) -> bool:
    return type(error).__module__ == "ssl"


def _tls_reason(error: Exception) -> str:
    said = getattr(error, "verify_message", "")
    if said:
        return str(said)
    reason = str(getattr(error, "reason", "") or error)
    if reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "UNKNOWN_PROTOCOL"):
        return "the server does not speak TLS (then use http://)"
    return reason.partition(" (_ssl.c")[0].replace("_", " ").lower()


def tls_context(ca_file: str | None, insecure_skip_verify: bool) -> ssl.SSLContext:
    """Settings for TLS 1.2 and newer; kept, and made anew when the CA file changes.

    Raises:
        OSError: the CA file cannot be read, or holds no certificate.
    """
    if ca_file is None or insecure_skip_verify:
        return _tls_context(None, insecure_skip_verify, ())
    found = os.stat(ca_file)
    return _tls_context(ca_file, False, (found.st_mtime_ns, found.st_ino, found.st_size))


@lru_cache(maxsize=8)
def _tls_context(ca_file: str | None, insecure_skip_verify: bool, _signature: tuple[int, ...]) -> ssl.SSLContext:
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif ca_file is not None:
        context.load_verify_locations(ca_file)
    else:
        context.load_default_certs()
    return context


class _Lookup:
    """A name being resolved, by a thread of its own: the resolver has no time-out that could be set."""

    def __init__(self, host: str, port: int) -> None:
        self.done = threading.Event()
        self.addresses: list[_Address] = []
        self.error: Exception | None = None
        self._key = (host, port)

    def run(self) -> None:
        """Ask for the addresses; a thread of its own, since nothing bounds it."""
        host, port = self._key
        try:
            # As bytes, since text would import the idna codec.
            self.addresses = socket.getaddrinfo(host.encode("ascii"), port, type=socket.SOCK_STREAM)  # type: ignore[assignment]
        except OSError as error:
            self.error = error
        finally:
            with _lookups_lock:
                _lookups.pop(self._key, None)
            self.done.set()


_lookups: dict[tuple[str, int], _Lookup] = {}
_lookups_lock = threading.Lock()


def _addresses(host: str, port: int, timeout_s: float) -> list[_Address]:
    """Addresses of a host. One look-up of a name at a time, so that a dead resolver gathers one thread, not many."""
    try:
        return socket.getaddrinfo(host.encode("ascii"), port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)  # type: ignore[return-value]
    except socket.gaierror:
        pass  # a name
    with _lookups_lock:
        lookup = _lookups.get((host, port))
        fresh = lookup is None
        if lookup is None:
            lookup = _lookups[(host, port)] = _Lookup(host, port)
    if fresh:
        try:
            threading.Thread(target=lookup.run, name=f"resolve {host}", daemon=True).start()
        except RuntimeError:  # the container's limit of threads: rather without a deadline than not at all
            lookup.run()
    if not lookup.done.wait(timeout_s):
        raise WireFault("timeout", f"timed out, waiting for the address of {host}")
    if lookup.error is not None:
        raise WireFault("reset", f"the host name cannot be resolved: {getattr(lookup.error, 'strerror', lookup.error)}")
    return lookup.addresses
