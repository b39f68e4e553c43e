"""The server side of TLS over a non-blocking socket. Imported only once a web config file asks for TLS."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from selectors import EVENT_READ, EVENT_WRITE

from infscale.web.stream import RECEIVE_BYTES, NotReadyError

_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}


class UnusableFileError(Exception):
    """A certificate, key or CA file that cannot be used.

    Attributes:
        key: which one, as the web config file calls it.
    """

    def __init__(self, key: str, message: str) -> None:
        self.key = key
        super().__init__(message)


@dataclass(frozen=True)
class TlsSettings:
    """What a web config file says of TLS, checked.

    Attributes:
        cert_file: PEM, the server's certificate and what leads to its root.
        key_file: PEM, not encrypted.
        client_ca_file: PEM, who signs clients' certificates; empty when clients need none.
        client_required: whether a client without a certificate is refused; one with a bad certificate always is.
        minimum: `TLS12` or `TLS13`.
        maximum: the same.
        prefer_server: whether the server's order of ciphers counts (TLS 1.2).
    """

    cert_file: str
    key_file: str
    client_ca_file: str
    client_required: bool
    minimum: str
    maximum: str
    prefer_server: bool


def wrapper(settings: TlsSettings) -> Callable[[socket.socket], TlsStream]:
    """Read the files and return what makes a TLS stream of a socket; UnusableFileError says which file is wrong."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[settings.minimum]
    context.maximum_version = _VERSIONS[settings.maximum]
    context.options |= ssl.OP_NO_RENEGOTIATION
    if settings.prefer_server:
        context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    try:
        # Without a password function OpenSSL would ask for one on the terminal.
        context.load_cert_chain(settings.cert_file, settings.key_file, password=_no_password)
    except (OSError, ValueError) as error:
        raise _unusable(context, settings, error) from error
    if settings.client_ca_file:
        context.verify_mode = ssl.CERT_REQUIRED if settings.client_required else ssl.CERT_OPTIONAL
        try:
            context.load_verify_locations(settings.client_ca_file)
        except OSError as error:
            message = f"{settings.client_ca_file}: not a PEM file of certificates"
            raise UnusableFileError("client_ca_file", message) from error
    return lambda sock: TlsStream(sock, context)


def _no_password() -> str:
    raise ValueError("the key is encrypted")


def _unusable(context: ssl.SSLContext, settings: TlsSettings, error: OSError | ValueError) -> UnusableFileError:
    """Find out which of the two files is at fault, and how."""
    if not isinstance(error, OSError):
        return UnusableFileError("key_file", f"{settings.key_file}: encrypted; expected a key without password")
    if getattr(error, "reason", "") == "KEY_VALUES_MISMATCH":
        return UnusableFileError("key_file", f"{settings.key_file}: not the key of {settings.cert_file}")
    try:
        context.load_verify_locations(settings.cert_file)
    except OSError:
        return UnusableFileError("cert_file", f"{settings.cert_file}: not a PEM certificate")
    return UnusableFileError("key_file", f"{settings.key_file}: not a PEM private key")


class TlsStream:
    """A stream that is encrypted; each step of the handshake is taken by whoever has the connection."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        sock.setblocking(False)
        self._sock = context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)

    def handshake(self) -> None:
        """Go on with the handshake as far as the client's bytes reach; `ssl.SSLError` when the two cannot agree."""
        try:
            self._sock.do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as wait:
            raise _not_ready(wait) from None

    def receive(self) -> bytes:
        """Return what has arrived, decrypted."""
        try:
            return self._sock.recv(RECEIVE_BYTES)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as wait:
            raise _not_ready(wait) from None

    def send(self, data: memoryview) -> int:
        """Encrypt and send; after NotReadyError the same bytes have to be offered again."""
        try:
            return self._sock.send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as wait:
            raise _not_ready(wait) from None

    def end(self) -> None:
        """Send close_notify, then FIN."""
        self._close_notify()
        self._sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Send close_notify if that works at once, and close."""
        self._close_notify()
        with contextlib.suppress(OSError):
            self._sock.close()

    def _close_notify(self) -> None:
        # Non-blocking: it goes out, and the peer's own is not waited for (SSLWantReadError is an OSError).
        with contextlib.suppress(OSError, ValueError):
            self._sock.unwrap()


def _not_ready(wait: ssl.SSLError) -> NotReadyError:
    return NotReadyError(EVENT_WRITE if isinstance(wait, ssl.SSLWantWriteError) else EVENT_READ)
