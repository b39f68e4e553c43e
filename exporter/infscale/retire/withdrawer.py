"""Takes a replica out of rotation through its sidecar, and puts it back: `/withdraw`, over the API server's Pod proxy.

It is a lease of 60 s that each pass keeps: a retirement that dies puts the replica back by doing nothing. `look` and
`passes` call this.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from infscale.errors import UsageError
from infscale.kube.cluster import Cluster
from infscale.kube.errors import KubeError, one_line
from infscale.kube.objects import Pod
from infscale.kube.transport import Method
from infscale.retire.command import sidecar_port
from infscale.retire.envelope import WITHDRAW_PATH
from infscale.retire.reader import ANSWER_S, sidecar_scheme
from infscale.retire.rules import Reason, Rule
from infscale.scrape_token import read_token

LEASE_S, RENEW_S = 60, 15.0
"""How long the sidecar keeps the replica out, and how often it is told to: three renewals may be lost."""

_HEADER = "X-Infscale-Token"
_MAX_BYTES = 64 * 1024


class Withdrawer:
    """The lease of one target.

    Args:
        cluster: the API.
        namespace: of the Pods.
        token_file: holds what the sidecars ask for, read anew for each call; None: they refuse everybody.
        clock: monotonic seconds.
    """

    def __init__(
        self, cluster: Cluster, namespace: str, token_file: str | None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._cluster, self._namespace, self._token_file, self._clock = cluster, namespace, token_file, clock
        self._kept: tuple[str, float] | None = None  # the Pod's UID, and when it was last told

    def keep(self, pod: Pod) -> Reason | None:
        """Withdraw a Pod, or renew what is due; why that was not done."""
        if self._kept and self._kept[0] == pod.uid and self._clock() - self._kept[1] < RENEW_S:
            return None
        begin_s = self._clock()
        if failed := self._call(pod, "POST", f"{WITHDRAW_PATH}?lease={LEASE_S}"):
            return failed
        self._kept = (pod.uid, begin_s)
        return None

    def forget(self) -> None:
        """Tell the sidecar again at the next pass: it says that it is not withdrawn."""
        self._kept = None

    def put_back(self, pod: Pod) -> Reason | None:
        """Put a Pod back in rotation; why that was not done (then the lease runs out by itself)."""
        self._kept = None
        return self._call(pod, "DELETE", WITHDRAW_PATH)

    def _call(self, pod: Pod, method: Method, path: str) -> Reason | None:
        port = sidecar_port(pod)
        if port is None:
            why = f"pod {pod.name} has no sidecar (no port named infscale): nothing can take it out of rotation"
            return Reason(Rule.NOT_WITHDRAWN, why)
        if self._token_file is None:
            return Reason(Rule.NOT_WITHDRAWN, "no token: give --withdraw.token-file, the file that the sidecars have")
        try:
            answer = self._cluster.pod_proxy(
                self._namespace,
                pod.name,
                port,
                path,
                scheme=sidecar_scheme(pod),
                method=method,
                headers={_HEADER: read_token(self._token_file)},
                timeout_s=ANSWER_S,
                max_bytes=_MAX_BYTES,
            )
        except (KubeError, UsageError) as error:
            return Reason(Rule.NOT_WITHDRAWN, str(error))
        if answer.status == 200:
            return None
        said = one_line(answer.body[:400].decode("utf-8", "replace"))
        return Reason(Rule.NOT_WITHDRAWN, f"pod {pod.name}: {method} {WITHDRAW_PATH}: HTTP {answer.status}: {said}")
