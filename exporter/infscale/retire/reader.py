"""Reads one member, within 5 s and without changing anything: its sidecar over the API server's Pod proxy, or by exec.

    sidecar     `GET /api/v1/reading` at its port, and the page at the `prometheus.io/` annotations' port, path and
                scheme where the Pod has them, else the sidecar's own `/metrics`
    no sidecar  `kubectl exec` into the engine's container: curl or Python reads the engine's page there

The Pod is looked up live before and after: UID, container id, restart count, owner and address must be the same.
`look` calls this; what a read means is `member`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from infscale.drain.connections import Clients, clients_of
from infscale.kube.cluster import Cluster
from infscale.kube.errors import KubeError
from infscale.kube.objects import ExecAnswer, Pod
from infscale.retire.command import Claim, claim, sidecar_port
from infscale.retire.envelope import READING_PATH, Envelope, parse_envelope
from infscale.retire.member import HELD, Verdict, held, judge, judge_load
from infscale.retire.record import Frozen
from infscale.retire.rules import Reason, Rule
from infscale.retire.series import Series, read_series
from infscale.retire.target import drift

MAX_BYTES = 8 * 2**20
ANSWER_S, READ_S = 2.0, 5.0
"""For one answer of a member, and for a read with both looks at the Pod."""

_PORT, _PATH, _SCHEME = "prometheus.io/port", "prometheus.io/path", "prometheus.io/scheme"
_LEGAL_PATH = re.compile(r"/[!-~]*")

_PAGE_BY_EXEC = """\
if command -v curl >/dev/null 2>&1; then exec curl -sf -m 2 --noproxy '*' "$1"; fi
exec python3 -I -c 'import signal, sys, urllib.request as u
signal.alarm(2)
class Stay(u.HTTPRedirectHandler):
    redirect_request = lambda *_: None
o = u.build_opener(u.ProxyHandler({}), Stay)
sys.stdout.buffer.write(o.open(sys.argv[1]).read())' "$1"
"""
"""One read of the page, in the engine's own container: 2 s in all, no proxy, no redirect, no file written."""

_TABLES_BY_EXEC = ("sh", "-c", "cat /proc/net/tcp; echo; cat /proc/net/tcp6 2>/dev/null || true")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a page of a Pod is."""

    port: int
    path: str
    scheme: str


@dataclass(frozen=True, slots=True)
class Read:
    """One read of a member.

    Attributes:
        pod: as it was last seen.
        verdict: what the read says.
        envelope: what its sidecar says, or why that is not known; None where there is no sidecar.
    """

    pod: Pod
    verdict: Verdict
    envelope: Envelope | Reason | None

    @property
    def reaches_engine(self) -> bool:
        """Whether the page was read at the engine's own port over the proxy, so that a connection of ours is there."""
        place = page_place(self.pod)
        own = sidecar_port(self.pod)
        return own is not None and isinstance(place, Place) and place.port != own


class MemberReader:
    """Reads members. From any thread.

    Args:
        cluster: the API.
        namespace: of the Pods.
        clock: monotonic seconds, for the budgets.
    """

    def __init__(self, cluster: Cluster, namespace: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._cluster, self._namespace, self._clock = cluster, namespace, clock

    def envelope(self, pod: Pod) -> Envelope | Reason | None:
        """The sidecar's word; None where the Pod has no sidecar."""
        port = sidecar_port(pod)
        if port is None:
            return None
        body = self._get(pod, Place(port, READING_PATH, sidecar_scheme(pod)), ANSWER_S)
        return body if isinstance(body, Reason) else parse_envelope(body)

    def load(self, pod: Pod, found: Claim) -> Verdict:
        """What a replica has in flight, to compare it with others before one is chosen; no page is read."""
        envelope = self.envelope(pod)
        if envelope is None:
            page = self._page_by_exec(pod, found, ANSWER_S)
            return judge(found.engine, pod.uid, None, page)
        return Verdict(HELD, envelope) if isinstance(envelope, Reason) else judge_load(found.engine, pod.uid, envelope)

    def read(self, frozen: Frozen, before: Pod) -> Read:
        """One read of a member.

        Args:
            frozen: who it was when it was chosen.
            before: the Pod as it is now.
        """
        begin_s = self._clock()
        if moved := drift(frozen, before):
            return Read(before, Verdict(HELD, moved), moved)
        envelope = self.envelope(before)
        found = claim(before)
        if isinstance(found, Verdict):
            return Read(before, found, envelope)
        page = self._page(before, found, envelope is not None, min(ANSWER_S, self._left_s(begin_s)))
        after = self._cluster.pod(self._namespace, frozen.name)
        if moved := drift(frozen, after) or _changed(before, after):
            return Read(after, Verdict(HELD, moved), envelope)
        if self._left_s(begin_s) <= 0:
            late = held(Rule.READ_FAILED, f"the read of pod {frozen.name} took over {READ_S:g} s")
            return Read(after, late, envelope)
        return Read(after, judge(found.engine, before.uid, envelope, page), envelope)

    def clients_by_exec(self, pod: Pod, found: Claim) -> Clients | None:
        """The clients of an engine without a sidecar, seen from its own container; None where they cannot be."""
        try:
            answer = self._exec(pod, found, _TABLES_BY_EXEC, ANSWER_S)
        except KubeError:
            return None
        return clients_of([answer.stdout.decode("ascii", "replace")], found.port) if answer.code == 0 else None

    def _left_s(self, begin_s: float) -> float:
        return READ_S - (self._clock() - begin_s)

    def _page(self, pod: Pod, found: Claim, has_sidecar: bool, timeout_s: float) -> Series | Reason:
        if not has_sidecar:
            return self._page_by_exec(pod, found, timeout_s)
        place = page_place(pod)
        body = place if isinstance(place, Reason) else self._get(pod, place, timeout_s)
        return body if isinstance(body, Reason) else read_series(body, found.engine)

    def _get(self, pod: Pod, place: Place, timeout_s: float) -> bytes | Reason:
        where = f"{place.scheme}://{pod.name}:{place.port}{place.path}"
        if timeout_s <= 0:
            return Reason(Rule.READ_FAILED, f"{where}: no time was left to read it")
        try:
            answer = self._cluster.pod_proxy(
                self._namespace,
                pod.name,
                place.port,
                place.path,
                scheme=place.scheme,
                timeout_s=timeout_s,
                max_bytes=MAX_BYTES,
            )
        except KubeError as error:
            return Reason(Rule.READ_FAILED, f"{where}: {error}")
        if answer.status != 200:
            return Reason(Rule.READ_FAILED, f"{where}: HTTP {answer.status}: expected 200")
        return answer.body

    def _page_by_exec(self, pod: Pod, found: Claim, timeout_s: float) -> Series | Reason:
        place = page_place(pod)
        if isinstance(place, Reason):
            return place
        port, path, scheme = (place.port, place.path, place.scheme) if place.port else (found.port, "/metrics", "http")
        command = ("sh", "-c", _PAGE_BY_EXEC, "sh", f"{scheme}://127.0.0.1:{port}{path}")
        try:
            answer = self._exec(pod, found, command, timeout_s)
        except KubeError as error:
            return Reason(Rule.READ_FAILED, f"exec into pod {pod.name}: {error}")
        if answer.code != 0:
            complaint = " ".join(answer.stderr.split())[:200] or "no page came"
            return Reason(Rule.READ_FAILED, f"exec into pod {pod.name}: exit {answer.code}: {complaint}")
        return read_series(answer.stdout, found.engine)

    def _exec(self, pod: Pod, found: Claim, command: Sequence[str], timeout_s: float) -> ExecAnswer:
        container = found.container.name
        return self._cluster.exec(
            self._namespace, pod.name, container, command, timeout_s=timeout_s, max_bytes=MAX_BYTES
        )


def page_place(pod: Pod) -> Place | Reason:
    """Where the Pod's page is: by its annotations where it has them, else the sidecar's `/metrics`.

    The port is 0 where neither tells it.
    """
    port, path = pod.annotations.get(_PORT), pod.annotations.get(_PATH, "/metrics")
    scheme = pod.annotations.get(_SCHEME, "http")
    if port is None:
        return Place(sidecar_port(pod) or 0, "/metrics", "http")
    path = path if path.startswith("/") else f"/{path}"
    if not (port.isascii() and port.isdigit() and 1 <= int(port) <= 65535):
        return _illegal(pod, _PORT, port, "a port from 1 to 65535")
    if not _LEGAL_PATH.fullmatch(path):
        return _illegal(pod, _PATH, path, "a path without blanks")
    if scheme not in ("http", "https"):
        return _illegal(pod, _SCHEME, scheme, "http or https")
    return Place(int(port), path, scheme)


def _illegal(pod: Pod, name: str, value: str, expected: str) -> Reason:
    return Reason(Rule.READ_FAILED, f"pod {pod.name}: annotation {name} is {value[:60]!r}: expected {expected}")


def sidecar_scheme(pod: Pod) -> str:
    """The scheme of its sidecar: https where the annotations say so of the sidecar's own port."""
    place = page_place(pod)
    return place.scheme if isinstance(place, Place) and place.port == sidecar_port(pod) else "http"


def _changed(before: Pod, after: Pod) -> Reason | None:
    """What the read itself saw change, where nothing of it was frozen yet (a container that was starting)."""
    ids = [tuple((c.name, c.container_id) for c in pod.containers) for pod in (before, after)]
    if ids[0] != ids[1] or before.ip != after.ip:
        return Reason(Rule.DRIFTED, f"pod {before.name} changed while it was read")
    return None
