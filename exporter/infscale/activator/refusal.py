"""What an activator answers itself, where no replica does: an error as OpenAI's API has it, with what to do."""

from __future__ import annotations

import json

from aiohttp import web

SERVER = "infscale"
"""The field `Server` where no replica gave one; else aiohttp would name itself and Python, with their versions."""

RETRY_AFTER_S = 5
"""Said with each 503. A cold start takes longer, but then the next try is held again."""

_TYPES = {
    400: "invalid_request_error",
    408: "timeout_error",
    413: "invalid_request_error",
    501: "invalid_request_error",
}


class Refusal(Exception):
    """A request that is not passed on, or has no answer.

    Attributes:
        status: of the answer.
        close: whether the connection is to end with it.
    """

    def __init__(self, status: int, message: str, *, close: bool = False) -> None:
        self.status, self.close = status, close
        super().__init__(message)

    def body(self) -> bytes:
        """The error as JSON, on one line."""
        kind = _TYPES.get(self.status, "service_unavailable_error")
        return json.dumps({"error": {"message": str(self), "type": kind, "code": self.status}}).encode()

    def response(self) -> web.Response:
        """The whole answer."""
        headers = {"Server": SERVER, **({"Retry-After": str(RETRY_AFTER_S)} if self.status == 503 else {})}
        answer = web.Response(
            status=self.status, body=self.body() + b"\n", content_type="application/json", headers=headers
        )
        if self.close:
            answer.force_close()
        return answer
