"""The seam between what is asked of the Kubernetes API and how it gets there: one REST call in, one answer out.

`incluster.InCluster` (a Pod's service account) and `kubectl.Kubectl` (a person's kubeconfig) are the two ways. Both
hand over the answer as it came; `rest.Rest` reads it, tries again where that is safe, and turns refusals into errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol
from urllib.parse import quote

if TYPE_CHECKING:
    from infscale.kube.objects import ExecAnswer

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
"""Content types of a body; the second is what PATCH takes (RFC 7396)."""

MAX_ANSWER_BYTES = 32 * 2**20
"""Of one answer. A page of 500 Pods with everything that admission controllers add is about 10 MiB."""

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]


@dataclass(frozen=True, slots=True)
class Target:
    """What a call is about: a collection, an object, or a subresource of one.

    Attributes:
        group: the API group; empty for the core group.
        version: its version, as `v1`.
        plural: the resource, as `deployments`.
        namespace: where.
        name: of the object; empty for the whole collection.
        subresource: as `scale`.
    """

    group: str
    version: str
    plural: str
    namespace: str
    name: str = ""
    subresource: str = ""

    @property
    def path(self) -> str:
        """The path of the URL."""
        root = ["apis", self.group] if self.group else ["api"]
        parts = [*root, self.version, "namespaces", self.namespace, self.plural, self.name]
        return "".join("/" + quote(part, safe=":") for part in parts if part) + (
            "/" + quote(self.subresource) if self.subresource else ""
        )

    @property
    def resource(self) -> str:
        """The resource as a Role names it: `deployments/scale`."""
        return f"{self.plural}/{self.subresource.split('/')[0]}" if self.subresource else self.plural

    def __str__(self) -> str:
        name = f" {self.name}" if self.name else ""
        return f"{self.resource}{name} in namespace {self.namespace}"


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back.

    Attributes:
        status: the HTTP status.
        body: as it came, at most MAX_ANSWER_BYTES.
        retry_after_s: what a 429 or 503 asks for; None where it does not.
    """

    status: int
    body: bytes
    retry_after_s: float | None = None


class Transport(Protocol):
    """One way to the API server. May be used from several threads."""

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
        """One call, never repeated.

        Args:
            method: of HTTP.
            target: gives the path.
            query: parameters of the URL, not yet encoded.
            body: what is sent; empty for nothing.
            content_type: of the body.
            timeout_s: from the start to the last byte of the answer.

        Returns:
            The answer, whatever its status.

        Raises:
            Unreachable: no connection, or it broke before the answer was whole.
            TimedOut: the answer was not there in time.
            BrokenAnswer: it is larger than MAX_ANSWER_BYTES.
            KubeError: anything else that keeps the call from being made, as a certificate that is not trusted.
        """
        ...

    def proxy(
        self, method: Method, path: str, *, headers: Mapping[str, str], timeout_s: float, max_bytes: int
    ) -> Answer:
        """One call to a Pod through the API server, never repeated; no body is sent.

        Args:
            method: of HTTP.
            path: of the Pod's proxy at the API server, with the query.
            headers: for the Pod; ours for the API server are added, and win.
            timeout_s: from the start to the last byte of the answer.
            max_bytes: of the answer's body.

        Returns:
            The answer, whatever its status, the Pod's own or the API server's.

        Raises:
            Unreachable, TimedOut, BrokenAnswer, KubeError: as `request`.
        """
        ...

    def exec(
        self, namespace: str, name: str, container: str, command: Sequence[str], *, timeout_s: float, max_bytes: int
    ) -> ExecAnswer | Answer:
        """Run a command in a container of a Pod, without a terminal and without input.

        Returns:
            What it came to; or the API server's answer where it refuses.

        Raises:
            KubeError: this form of access cannot do it; or as `request`.
        """
        ...
