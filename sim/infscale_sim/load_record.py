"""What a load run measured: counts, errors by kind, and percentiles in bounded memory. `load_run` fills it.

Percentiles come from buckets that grow by 1 %, so they are right to 1 % whatever the length of the run: a time from
10 us to a day falls into one of some 2,300.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

_GROWTH = math.log(1.01)
_LEAST_S = 1e-5


class Sketch:
    """A distribution of seconds.

    Attributes:
        count, sum, max: of the values.
    """

    def __init__(self) -> None:
        self.count = 0
        self.sum = self.max = 0.0
        self._buckets: Counter[int] = Counter()

    def add(self, value_s: float, times: int = 1) -> None:
        """Count a value."""
        self.count += times
        self.sum += value_s * times
        self.max = max(self.max, value_s)
        self._buckets[math.ceil(math.log(max(value_s, _LEAST_S) / _LEAST_S) / _GROWTH)] += times

    def merge(self, other: Sketch) -> None:
        """Count the values of another."""
        self.count += other.count
        self.sum += other.sum
        self.max = max(self.max, other.max)
        self._buckets.update(other._buckets)

    def quantile(self, q: float) -> float | None:
        """Return the value that a share `q` of the values does not exceed, to 1 %; None without values."""
        rank = math.ceil(q * self.count)
        for bucket in sorted(self._buckets):
            rank -= self._buckets[bucket]
            if rank <= 0:
                return min(self.max, _LEAST_S * math.exp(bucket * _GROWTH))
        return None

    def summary(self) -> dict[str, float | None]:
        """Return mean, percentiles and maximum, seconds; None without values."""
        if not self.count:
            return dict.fromkeys(("mean", "p50", "p90", "p95", "p99", "max"))
        quantiles = {f"p{q * 100:.0f}": self.quantile(q) for q in (0.5, 0.9, 0.95, 0.99)}
        return {"mean": self.sum / self.count, **quantiles, "max": self.max}


@dataclass
class Asked:
    """One request under way. Times on the loop's clock.

    Attributes:
        due_s: when it was to be sent; times count from here, so that a late client does not look like a fast server.
        prompt_tokens, output_tokens: as asked for; the server's own count replaces the second at the end.
        first_s, last_s: when the first and the latest piece of the answer came.
        pieces: chunks with text so far.
        told_tokens: the server's count of generated tokens, None until it tells.
        gaps: between the pieces.
    """

    due_s: float
    prompt_tokens: int
    output_tokens: int
    first_s: float | None = None
    last_s: float = 0.0
    pieces: int = 0
    told_tokens: int | None = None
    gaps: Sketch = field(default_factory=Sketch)


@dataclass
class Record:
    """The sum of a run, from `since_s` on: what was sent before counts only with the tokens that come after.

    Attributes:
        since_s: on the loop's clock.
        slo_ttft_s: what counts as late; infinite: nothing does.
        sent, completed, unfinished: requests; unfinished ones were under way at the end.
        errors: requests that failed, by kind.
        late: requests whose first token came, or must come, after `slo_ttft_s`.
        judged: requests of which that is known, failed ones included.
        pieces: chunks with text.
        prompt_tokens: of the completed requests.
    """

    since_s: float
    slo_ttft_s: float = math.inf
    sent: int = 0
    completed: int = 0
    unfinished: int = 0
    late: int = 0
    judged: int = 0
    pieces: int = 0
    prompt_tokens: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    ttft_s: Sketch = field(default_factory=Sketch)
    gap_s: Sketch = field(default_factory=Sketch)
    total_s: Sketch = field(default_factory=Sketch)
    _told_tokens: int = 0
    _told_pieces: int = 0

    def begin(self, asked: Asked) -> None:
        """A request is sent."""
        self.sent += asked.due_s >= self.since_s

    def piece(self, asked: Asked, now_s: float) -> None:
        """A piece of an answer came."""
        self.pieces += now_s >= self.since_s
        if asked.first_s is None:
            asked.first_s = now_s
            if asked.due_s >= self.since_s:
                self.ttft_s.add(now_s - asked.due_s)
                self._judge(late=now_s - asked.due_s > self.slo_ttft_s)
        else:
            asked.gaps.add(now_s - asked.last_s)
        asked.last_s = now_s
        asked.pieces += 1

    def end(self, asked: Asked, now_s: float, error: str | None) -> None:
        """A request has its whole answer, or failed."""
        if error is None and asked.told_tokens is not None and asked.pieces:
            self._told_tokens += asked.told_tokens
            self._told_pieces += asked.pieces
        if asked.due_s < self.since_s:
            return
        self._gaps(asked)
        if error is not None:
            self.errors[error] += 1
            if asked.first_s is None:
                self._judge(late=True)
            return
        self.completed += 1
        self.prompt_tokens += asked.prompt_tokens
        self.total_s.add(now_s - asked.due_s)

    def cut(self, asked: Asked, now_s: float) -> None:
        """A request was under way when the run ended."""
        if asked.due_s < self.since_s:
            # It is older than the window: without a first token by now it is late if its age says so.
            if asked.first_s is None and now_s - asked.due_s > self.slo_ttft_s:
                self._judge(late=True)
            return
        self.unfinished += 1
        self._gaps(asked)
        if asked.first_s is None and now_s - asked.due_s > self.slo_ttft_s:
            self._judge(late=True)

    @property
    def output_tokens(self) -> int:
        """Generated tokens: pieces, times the tokens per piece where servers told (several may come in one)."""
        return round(self.pieces * (self._told_tokens / self._told_pieces if self._told_pieces else 1.0))

    @property
    def late_share(self) -> float:
        """The share of the judged requests that were late, 0 to 1; 0 without any."""
        return self.late / self.judged if self.judged else 0.0

    def _judge(self, *, late: bool) -> None:
        self.judged += 1
        self.late += late

    def _gaps(self, asked: Asked) -> None:
        """Count the gaps between tokens: as they came, or their mean where pieces held several tokens."""
        tokens = asked.told_tokens or 0
        if tokens > asked.pieces and asked.first_s is not None:
            self.gap_s.add((asked.last_s - asked.first_s) / (tokens - 1), tokens - 1)
        else:
            self.gap_s.merge(asked.gaps)
