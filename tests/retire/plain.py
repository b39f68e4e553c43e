"""A way to the API server stand-in without TLS: a whole retirement is a hundred calls, and a handshake each is felt."""

from __future__ import annotations

import http.client
from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

from infscale.kube.errors import BrokenAnswer, KubeError, TimedOut, Unreachable
from infscale.kube.kubectl import Kubectl
from infscale.kube.objects import ExecAnswer
from infscale.kube.transport import MAX_ANSWER_BYTES, Answer, Method, Target
from tests.kube.apiserver import ApiServer


class Plain:
    """A transport over HTTP, as `infscale.kube.transport.Transport` has it; a connection for each call.

    Args:
        api: the stand-in.
        exec_by: a program that is run as kubectl for exec; empty: exec is refused, as it is within a Pod.
    """

    def __init__(self, api: ApiServer, exec_by: str = "") -> None:
        self._api, self._exec_by = api, exec_by

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
        path = target.path + ("?" + urlencode(query) if query else "")
        return self._call(method, path, body, {"Content-Type": content_type}, timeout_s, MAX_ANSWER_BYTES)

    def proxy(
        self, method: Method, path: str, *, headers: Mapping[str, str], timeout_s: float, max_bytes: int
    ) -> Answer:
        """See `Transport.proxy`."""
        return self._call(method, path, b"", headers, timeout_s, max_bytes)

    def exec(
        self, namespace: str, name: str, container: str, command: Sequence[str], *, timeout_s: float, max_bytes: int
    ) -> ExecAnswer | Answer:
        """See `Transport.exec`."""
        if not self._exec_by:
            raise KubeError("exec needs kubectl's access")
        return Kubectl(program=self._exec_by).exec(
            namespace, name, container, command, timeout_s=timeout_s, max_bytes=max_bytes
        )

    def _call(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str], timeout_s: float, max_bytes: int
    ) -> Answer:
        connection = http.client.HTTPConnection(self._api.host, self._api.port, timeout=timeout_s)
        try:
            own = {"Authorization": f"Bearer {self._api.token}"}
            connection.request(method, path, body=body or None, headers={**headers, **own})
            response = connection.getresponse()
            data = response.read(max_bytes + 1)
        except TimeoutError:
            raise TimedOut(f"{method} {path}: no whole answer in {timeout_s:.3g} s") from None
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(f"{method} {path}: {error!r}") from None
        finally:
            connection.close()
        if len(data) > max_bytes:
            raise BrokenAnswer(f"{method} {path}: the answer is larger than {max_bytes} bytes")
        return Answer(response.status, data)
