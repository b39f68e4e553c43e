"""A batch with latencies that the user set: one time to the first token, one from each token to the next.

What `infscale sim-engine --time-to-first-token S --inter-token-latency S` runs, for tests and demos that want round
numbers: the times run from a request's admission to a slot, whatever else runs.
"""

from __future__ import annotations

import heapq

from infscale_sim.engine_batch import NEVER_S, Batch, Sequence
from infscale_sim.engine_stats import Stats


class FixedBatch(Batch):
    """Sequences that do not slow each other down; slots and KV room still bound how many run."""

    def __init__(self, slots: int, kv_tokens: int, first_s: float, each_s: float, stats: Stats) -> None:
        super().__init__(slots, kv_tokens, stats)
        self._first_s, self._each_s = first_s, each_s
        self._now_s = 0.0
        self._events: list[tuple[float, int, Sequence]] = []  # heap: when, order, whose first token or end
        self._order = 0

    def advance(self, now_s: float) -> None:
        """Let the first tokens and ends until `now_s` happen, each admitting the next at its own time."""
        self._admit_all(max(self._now_s, now_s) if not self._events else self._now_s)
        while self._events and self._events[0][0] <= now_s:
            self._now_s, _, sequence = heapq.heappop(self._events)
            if sequence not in self.running:
                continue  # its client left
            if sequence.first_s == NEVER_S:
                self._first_token(sequence)
            else:
                self._count(sequence, sequence.output_tokens)
                self._finish(sequence, self._now_s)
            self._admit_all(self._now_s)
        self._now_s = now_s
        self._admit_all(now_s)
        for sequence in self.running:
            self._count(sequence, self.tokens(sequence))

    def _admit_all(self, now_s: float) -> None:
        while (admitted := self._admit(now_s)) is not None:
            self._at(now_s + self._first_s, admitted)

    def _at(self, when_s: float, sequence: Sequence) -> None:
        self._order += 1
        heapq.heappush(self._events, (when_s, self._order, sequence))

    def _first_token(self, sequence: Sequence) -> None:
        sequence.first_s = self._now_s
        sequence.counted_tokens = 1
        self.stats.first_token(sequence)
        self._at(self._now_s + (sequence.output_tokens - 1) * self._each_s, sequence)
        sequence.wake()

    def _count(self, sequence: Sequence, tokens: int) -> None:
        new = tokens - sequence.counted_tokens
        if new > 0:
            sequence.counted_tokens = tokens
            self.stats.tokens(new, self._each_s)
            self.stats.step(new)

    def _fits(self, sequence: Sequence) -> bool:
        return sum(one.kv_tokens for one in self.running) + sequence.kv_tokens <= self.kv_tokens

    def _dropped(self, sequence: Sequence) -> None:
        """Its event stays in the heap and finds nobody."""

    def next_event_s(self) -> float:
        """Return the next first token or end, or the next token of the running sequence that has one soonest."""
        soonest_s = self._events[0][0] if self._events else NEVER_S
        return min([soonest_s, *map(self._next_token_s, self.running)])

    def _next_token_s(self, sequence: Sequence) -> float:
        if sequence.first_s == NEVER_S:
            return NEVER_S
        return sequence.first_s + self.tokens(sequence) * self._each_s

    def tokens(self, sequence: Sequence) -> int:
        """Return one at the first time, and one for each interval since."""
        if sequence.done:
            return sequence.output_tokens
        if sequence.first_s == NEVER_S:
            return 0
        if self._each_s == 0:
            return sequence.output_tokens
        # 1e-9: a token due exactly now counts, whatever the last bit of a division says.
        return min(sequence.output_tokens, 1 + int((self._now_s - sequence.first_s) / self._each_s + 1e-9))

    def context_tokens(self) -> int:
        """Return prompts and outputs of the running sequences."""
        return sum(sequence.prompt_tokens + self.tokens(sequence) for sequence in self.running)
