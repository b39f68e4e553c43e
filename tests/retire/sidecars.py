"""A sidecar as a retirement sees it: `/api/v1/reading`, `/metrics`, `/withdraw` on a real socket; all can be wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from infscale.withdraw import HEADER, Withdrawal
from tests.raw_server import Call, RawServer

TOKEN = "retire-t0ken"

PAGE = """\
# TYPE infscale_inflight_requests gauge
infscale_inflight_requests{{model_name="m"}} {inflight}
infscale_running_requests{{model_name="m"}} {inflight}
infscale_waiting_requests{{model_name="m"}} 0
infscale_generation_tokens_total{{model_name="m"}} {tokens}
infscale_up {up}
infscale_engine_state{{state="ok"}} {up}
infscale_engine_state{{state="unreachable"}} {down}
"""


class FakeSidecar:
    """One Pod's sidecar.

    Attributes:
        inflight, tokens: what the engine shows.
        clients: connections of the engine's clients.
        withdrawal: the real lease, on the test's clock.
        said: fields of `/api/v1/reading` that are to be otherwise.
        page: the page, if it is to be otherwise.
        tokens_a_read: the tokens that come to it from one look at its page to the next.
        calls: method and path of each call.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.inflight: float = 0
        self.tokens, self.clients = 100, 0
        self.withdrawal = Withdrawal(clock, clock)
        self.said: dict[str, Any] = {}
        self.page: bytes | None = None
        self.tokens_a_read = 0
        self._instead: dict[str, Callable[[Call], object]] = {}
        self.calls: list[str] = []
        self.uid: str | None = None
        self._clock, self._looked_since = clock, clock() - 3600
        self._last_seen: float | None = None
        self.server = RawServer(self._serve)

    @property
    def withdrawn(self) -> bool:
        """Whether it fails its readiness on request."""
        return self.withdrawal.active()

    def reading(self) -> dict[str, Any]:
        """What `/api/v1/reading` says."""
        now_s = self._clock()
        if self.clients:
            self._last_seen = now_s
        engine = {"url": "http://127.0.0.1:8000/metrics", "port": 8000, "engine": "vllm", "role": None}
        clients = {"established": self.clients, "queued": 0, "last_seen_at": self._last_seen}
        return {
            "state": "ok",
            "message": "",
            "complete": True,
            "inflight": self.inflight,
            "withdrawn": self.withdrawn,
            "withdrawn_until": self.withdrawal.until_s(),
            "draining": self.withdrawn,
            "read_at": now_s,
            "pod": {"namespace": "ml", "name": None, "uid": self.uid},
            "engines": [{**engine, "started_at": 1000.0, "state": "ok", "message": ""}],
            "client_connections": {**clients, "looked_since": self._looked_since, "looked_at": now_s},
            **self.said,
        }

    def metrics(self) -> bytes:
        """What `/metrics` says."""
        self.tokens += self.tokens_a_read
        return PAGE.format(inflight=self.inflight, tokens=self.tokens, up=1, down=0).encode()

    def instead(self, path: str, answer: Callable[[Call], object]) -> None:
        """Do something else with the calls of a path."""
        self._instead[path] = answer

    def close(self) -> None:
        """Stop it."""
        self.server.close()

    def _serve(self, call: Call) -> None:
        method, path = call.request.split(b" ")[0].decode(), call.path.partition("?")[0]
        self.calls.append(f"{method} {call.path}")
        if path in self._instead:
            self._instead[path](call)
        elif path == "/api/v1/reading":
            call.page(json.dumps(self.reading()).encode())
        elif path == "/metrics":
            call.page(self.metrics() if self.page is None else self.page)
        elif path == "/withdraw":
            self._withdraw(call, method)
        else:
            call.page(b"not found", status="404 Not Found")

    def _withdraw(self, call: Call, method: str) -> None:
        if call.header(HEADER) != TOKEN:
            call.page(b"not allowed", status="403 Forbidden")
        elif method == "POST":
            until = self.withdrawal.renew(float(call.path.partition("lease=")[2]))
            call.page(json.dumps({"withdrawn": True, "until": until}).encode())
        else:
            self.withdrawal.end()
            call.page(b'{"withdrawn": false, "until": null}')
