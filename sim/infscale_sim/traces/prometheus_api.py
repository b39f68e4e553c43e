"""Prometheus' HTTP API as far as traces need it: names of series, and one series over time, in bounded reads.

Called by `prometheus`. Each read has a time-out and a limit in bytes, and follows no proxy (`infscale.scrape`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from infscale.errors import SourceError, UsageError
from infscale.scrape import Page, Target, check_target, fetch, split_url

MAX_BYTES = 16 * 2**20

POINTS = 2_000
"""Of one query. Prometheus refuses more than 11,000, and 50 million samples in memory at a time (its default
`query.max-samples`): 2,000 windows over the counters of 1,000 replicas stay below."""

LEAST_POINTS = 50
"""A query of fewer points that is still too large for the server is an error."""


class TooLargeError(SourceError):
    """The server has found the query to take too many samples or too much time."""


class Api:
    """A server's API.

    Args:
        url: of the server, or of what speaks its HTTP API below that path.
        timeout_s: for each read, in seconds.
        token_file: holds what is sent as `Authorization: Bearer`.
        ca_file: certificates (PEM) to trust.

    Raises:
        UsageError: one of these cannot be used.
    """

    def __init__(
        self, url: str, timeout_s: float, *, token_file: str | None = None, ca_file: str | None = None
    ) -> None:
        split = split_url(url)
        if "?" in split.path:
            example = "http://prometheus.monitoring.svc:9090"
            raise UsageError(f"the Prometheus URL of {split.place} has a query: expected as in {example}")
        self.place = split.place
        self._url, self._timeout_s, self._files = url.rstrip("/"), timeout_s, (token_file, ca_file)
        check_target(self._target("/api/v1/query", {}))

    def names(self, match: str, start_s: float, end_s: float) -> list[str]:
        """The metrics that have series which match, in a time between two instants (Unix seconds).

        Raises:
            SourceError: there is no answer, or none that can be used.
        """
        when = {"start": f"{start_s:.3f}", "end": f"{end_s:.3f}"}
        data = self._data("/api/v1/label/__name__/values", {"match[]": match, **when})
        if not isinstance(data, list) or not all(isinstance(name, str) for name in data):
            raise self._no_answer()
        return data

    def values(self, query: str, start_s: float, step_s: float, count: int) -> list[float | None]:
        """The values at `start_s`, `start_s + step_s` and so on, of an expression that gives one series.

        None where it has no value. A part that the server finds too large is asked for in halves.

        Raises:
            SourceError: there is no answer, or none that can be used.
        """
        found: list[float | None] = []
        points = POINTS
        while len(found) < count:
            wanted = min(points, count - len(found))
            try:
                found += self._part(query, start_s + len(found) * step_s, step_s, wanted)
            except TooLargeError:
                if wanted <= LEAST_POINTS:
                    raise
                points = max(LEAST_POINTS, wanted // 2)
        return found

    def _part(self, query: str, start_s: float, step_s: float, count: int) -> list[float | None]:
        # Half a step more: the last instant must not be lost to a rounded millisecond.
        end_s = start_s + (count - 0.5) * step_s
        when = {"start": f"{start_s:.3f}", "end": f"{end_s:.3f}", "step": f"{step_s:.3f}"}
        data = self._data("/api/v1/query_range", {"query": query, **when})
        values: list[float | None] = [None] * count
        try:
            if data["resultType"] != "matrix" or len(data["result"]) > 1:
                raise TypeError
            for series in data["result"]:
                for time_s, text in series["values"]:
                    value = float(text)
                    if math.isfinite(value):
                        values[round((float(time_s) - start_s) / step_s)] = value
        except (TypeError, KeyError, IndexError, ValueError, AttributeError):
            raise self._no_answer() from None
        return values

    def _data(self, path: str, parameters: Mapping[str, str]) -> Any:
        answer = fetch(self._target(path, parameters))
        if not isinstance(answer, Page):
            raise SourceError(f"Prometheus at {self.place}: {answer.message}")
        try:
            value = json.loads(answer.body)
        except (ValueError, RecursionError):
            raise SourceError(
                f"Prometheus at {self.place}: HTTP {answer.status} and no JSON: expected Prometheus' HTTP API"
            ) from None
        if not isinstance(value, dict) or value.get("status") not in ("success", "error"):
            raise self._no_answer()
        if value["status"] == "error":
            text = " ".join(str(value.get("error")).split())[:300]
            large = answer.status in (503, 504) or "too many samples" in text or "exceeded maximum" in text
            kind = TooLargeError if large else SourceError
            raise kind(f"Prometheus at {self.place}: {value.get('errorType')}: {text}")
        return value.get("data")

    def _no_answer(self) -> SourceError:
        return SourceError(f"Prometheus at {self.place}: an answer of another kind: expected Prometheus' HTTP API")

    def _target(self, path: str, parameters: Mapping[str, str]) -> Target:
        token_file, ca_file = self._files
        return Target(
            f"{self._url}{path}?{urlencode(parameters)}",
            timeout_s=self._timeout_s,
            max_bytes=MAX_BYTES,
            token_file=token_file,
            ca_file=ca_file,
            accept="application/json",
        )
