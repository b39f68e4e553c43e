"""The API server as a Pod reaches it: over TLS with the token of its service account. The only user of requests here.

Each call has a connection of its own: a handshake costs a few milliseconds, calls are some seconds apart, and so the
token (the kubelet renews a bound one within the hour) and the CA file are read anew for each. Neither proxy variables
nor .netrc apply, and no redirect is followed, so that the token goes to the API server only.

Source: the Kubernetes documentation, "Accessing the Kubernetes API from a Pod".
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPSConnection

from infscale import __version__
from infscale.kube.errors import BrokenAnswer, KubeError, TimedOut, Unreachable, one_line
from infscale.kube.transport import MAX_ANSWER_BYTES, Answer, Method, Target

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_MAX_TOKEN_BYTES = 16 * 1024
_CHUNK_BYTES = 64 * 1024


class InCluster:
    """A transport over HTTPS.

    Args:
        host: of the API server, a name or an IPv4 or IPv6 address.
        port: its port.
        token_file: the bearer token.
        ca_file: the certificates (PEM) to trust, and no others.
        max_bytes: of one answer.
    """

    def __init__(
        self, host: str, port: int | str, token_file: Path, ca_file: Path, *, max_bytes: int = MAX_ANSWER_BYTES
    ) -> None:
        self._url = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        self._token_file, self._ca_file, self._max_bytes = token_file, ca_file, max_bytes

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ, account: Path = _ACCOUNT) -> InCluster:
        """The API server that the kubelet names to every container, with the Pod's service account.

        Raises:
            KubeError: this is not a Pod.
        """
        host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
        if not host:
            raise KubeError("this is not a Pod (KUBERNETES_SERVICE_HOST is not set): use kubectl's access instead")
        return cls(host, port, account / "token", account / "ca.crt")

    def request(
        self,
        method: Method,
        target: Target,
        *,
        query: Mapping[str, str],
        body: bytes,
        content_type: str,
        timeout_s: float,
    ) -> Answer:
        """See `Transport.request`."""
        headers = {"Accept": "application/json"} | ({"Content-Type": content_type} if body else {})
        call = f"{method} {target}"
        return self._send(call, method, target.path, query, body, headers, timeout_s, self._max_bytes)

    def proxy(
        self, method: Method, path: str, *, headers: Mapping[str, str], timeout_s: float, max_bytes: int
    ) -> Answer:
        """See `Transport.proxy`."""
        return self._send(f"{method} {path}", method, path, {}, b"", headers, timeout_s, max_bytes)

    def exec(
        self, namespace: str, name: str, container: str, command: Sequence[str], *, timeout_s: float, max_bytes: int
    ) -> NoReturn:
        """See `Transport.exec`: the API server wants another protocol for it, which kubectl speaks."""
        raise KubeError(
            f"exec in pod {namespace}/{name}: from within a Pod this is not done: it needs kubectl's access"
        )

    def _send(
        self,
        call: str,
        method: Method,
        path: str,
        query: Mapping[str, str],
        body: bytes,
        headers: Mapping[str, str],
        timeout_s: float,
        max_bytes: int,
    ) -> Answer:
        token = self._token()
        headers = {
            **headers,
            "Authorization": f"Bearer {token}",
            "Accept-Encoding": "identity",
            "User-Agent": f"infscale/{__version__}",
        }
        deadline = time.monotonic() + timeout_s
        with requests.Session() as session, _ending_at(session, timeout_s):
            session.trust_env = False
            try:
                response = session.request(
                    method, self._url + path, params=query, data=body or None, headers=headers,
                    timeout=timeout_s, verify=self._ca(), allow_redirects=False, stream=True,
                )  # fmt: skip
                data = _body(response, call, max_bytes)
            except requests.RequestException as error:
                if time.monotonic() >= deadline or isinstance(error, requests.Timeout):
                    raise self._late(call, timeout_s) from None
                raise self._fault(error) from None
        if time.monotonic() >= deadline:  # an end of the connection may look like the end of the answer
            raise self._late(call, timeout_s)
        return Answer(response.status_code, data.replace(token.encode(), b"***"), _retry_after_s(response))

    def _token(self) -> str:
        try:
            with self._token_file.open("rb") as file:
                token = file.read(_MAX_TOKEN_BYTES + 1).decode("ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "not ASCII text"
            raise KubeError(
                f"service account token {self._token_file}: {why}: is automountServiceAccountToken off for this Pod?"
            ) from None
        if not token or len(token) > _MAX_TOKEN_BYTES or any(c.isspace() or not c.isprintable() for c in token):
            raise KubeError(f"service account token {self._token_file}: expected one line with a token")
        return token

    def _ca(self) -> str:
        if not self._ca_file.is_file():
            raise KubeError(f"CA file {self._ca_file}: there is no such file: expected the cluster's CA as PEM")
        return str(self._ca_file)

    def _late(self, call: str, timeout_s: float) -> TimedOut:
        return TimedOut(f"{call}: no whole answer from the API server {self._url} within {timeout_s:.3g} s")

    def _fault(self, error: requests.RequestException) -> KubeError:
        causes = list(_causes(error))
        texts = [cause.strerror for cause in causes if isinstance(cause, OSError) and cause.strerror]
        why = one_line(texts[-1] if texts else str(causes[-1]))
        if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes) or "X509" in why:
            return KubeError(
                f"TLS with the API server {self._url}: {why}: is {self._ca_file} this cluster's CA, as PEM?"
            )
        return Unreachable(f"the API server {self._url} cannot be reached: {why}")


def _body(response: requests.Response, call: str, max_bytes: int) -> bytes:
    data = bytearray()
    for chunk in response.iter_content(_CHUNK_BYTES):
        data += chunk
        if len(data) > max_bytes:
            raise BrokenAnswer(f"{call}: the answer is larger than {max_bytes} bytes")
    return bytes(data)


@contextlib.contextmanager
def _ending_at(session: requests.Session, timeout_s: float) -> Iterator[None]:
    """Shut the session's connections down after `timeout_s`: requests bounds each read from a socket, not their sum."""
    adapter = _Adapter()
    session.mount("https://", adapter)
    timer = threading.Timer(timeout_s, adapter.shut_down)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        adapter.forget()


class _Adapter(HTTPAdapter):
    """An adapter that keeps a second handle to each of its connections: TLS takes the first one away."""

    def __init__(self) -> None:
        super().__init__(pool_maxsize=1)
        self._handles: list[socket.socket] = []

    def get_connection_with_tls_context(self, *args: Any, **kwargs: Any) -> Any:
        """See `HTTPAdapter`; each connection of the pool leaves a handle."""
        pool = super().get_connection_with_tls_context(*args, **kwargs)
        handles = self._handles

        class Connection(HTTPSConnection):
            def _new_conn(self) -> socket.socket:
                sock = super()._new_conn()
                handles.append(sock.dup())
                return sock

        pool.ConnectionCls = Connection
        return pool

    def shut_down(self) -> None:
        """End what is being read or written, in whatever thread."""
        for handle in self._handles:
            with contextlib.suppress(OSError):
                handle.shutdown(socket.SHUT_RDWR)

    def forget(self) -> None:
        """Close the handles."""
        for handle in self._handles:
            handle.close()


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error and what led to it, innermost last; urllib3 keeps causes in attributes as well."""
    seen: set[int] = set()
    while isinstance(error, BaseException) and id(error) not in seen:
        seen.add(id(error))
        yield error
        inner = getattr(error, "reason", None) or next((a for a in error.args if isinstance(a, BaseException)), None)
        error = inner if isinstance(inner, BaseException) else error.__cause__ or error.__context__


def _retry_after_s(response: requests.Response) -> float | None:
    """Retry-After in seconds; the API server never sends the form with a date."""
    text = response.headers.get("Retry-After", "")
    return float(text) if text.isascii() and text.isdigit() and len(text) < 7 else None
