"""What the stand-in engine counts: totals and histograms, told of by the batch and read by the metrics page.

Durations come on the engine's clock and are kept in seconds of the wall clock (divided by `--speed`), as a client's
watch or a Prometheus sees them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from infscale_sim.engine_batch import Sequence

_ITERATION_TOKENS = (1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0)


@dataclass(frozen=True)
class Bounds:
    """Upper bounds of an engine's histograms, seconds, without +Inf; empty where it has no such histogram."""

    first_token: tuple[float, ...] = ()
    inter_token: tuple[float, ...] = ()
    queue: tuple[float, ...] = ()
    whole: tuple[float, ...] = ()


class Histogram:
    """Counts per bucket, not cumulated, and the sum.

    Attributes:
        bounds: upper bounds, inclusive, without +Inf.
        counts: one more than bounds; the last is above all.
        sum: of the values.
    """

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count a value, `times` times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    def __bool__(self) -> bool:
        """Whether any value was counted."""
        return any(self.counts)

    @property
    def count(self) -> int:
        """How many values were counted."""
        return sum(self.counts)

    def __add__(self, other: Histogram) -> Histogram:
        """Return both together; they have the same bounds."""
        both = Histogram(self.bounds)
        both.counts = [one + two for one, two in zip(self.counts, other.counts, strict=True)]
        both.sum = self.sum + other.sum
        return both


class Stats:
    """Everything since the start. Engines count the same thing at different moments, so both moments are here.

    Attributes:
        prompt_tokens: counted when a prompt is computed (vLLM, llama.cpp).
        generation_tokens: counted token by token (vLLM).
        prompt_tokens_done, generation_tokens_done: counted at a request's end (SGLang, llama.cpp), by `streaming`.
        finished_requests: requests by (reason, streaming).
        aborted: requests whose client left while they ran.
        preemptions: sequences put back for want of KV room.
        steps, step_sequences: decode steps, and the sum of their batch sizes.
        prefill_s, decode_s: time from admission to the first token, and from there to the end, over all requests.
        iteration_tokens: tokens per engine step, prompts and outputs.
        first_token_s, whole_s: from arrival to the first token and to the last, by `streaming`.
        inter_token_s, queue_s: from a token to the next; from arrival to a slot.
    """

    def __init__(self, bounds: Bounds, speed: float) -> None:
        self._speed = speed
        self.prompt_tokens = self.generation_tokens = 0
        self.prompt_tokens_done: Counter[bool] = Counter()
        self.generation_tokens_done: Counter[bool] = Counter()
        self.finished_requests: Counter[tuple[str, bool]] = Counter()
        self.aborted = self.preemptions = self.steps = self.step_sequences = 0
        self.prefill_s = self.decode_s = 0.0
        self.iteration_tokens = Histogram(_ITERATION_TOKENS)
        self.first_token_s = {streaming: Histogram(bounds.first_token) for streaming in (True, False)}
        self.whole_s = {streaming: Histogram(bounds.whole) for streaming in (True, False)}
        self.inter_token_s = Histogram(bounds.inter_token)
        self.queue_s = Histogram(bounds.queue)

    def admitted(self, sequence: Sequence) -> None:
        """Count the time that a sequence waited for its slot."""
        self.queue_s.observe((sequence.admitted_s - sequence.arrived_s) / self._speed)

    def first_token(self, sequence: Sequence) -> None:
        """Count a computed prompt and its first token."""
        self.prompt_tokens += sequence.prompt_tokens
        self.generation_tokens += 1
        self.prefill_s += (sequence.first_s - sequence.admitted_s) / self._speed
        self.iteration_tokens.observe(sequence.prompt_tokens + 1)
        self.first_token_s[sequence.streaming].observe((sequence.first_s - sequence.arrived_s) / self._speed)

    def tokens(self, count: int, gap_s: float) -> None:
        """Count `count` further tokens, each `gap_s` after the one before it."""
        if count > 0:
            self.generation_tokens += count
            self.inter_token_s.observe(gap_s / self._speed, count)

    def step(self, sequences: int) -> None:
        """Count one decode step over so many sequences."""
        if sequences > 0:
            self.steps += 1
            self.step_sequences += sequences
            self.iteration_tokens.observe(sequences)

    def finished(self, sequence: Sequence) -> None:
        """Count a sequence that has all its tokens."""
        self.finished_requests[sequence.reason, sequence.streaming] += 1
        self.prompt_tokens_done[sequence.streaming] += sequence.prompt_tokens
        self.generation_tokens_done[sequence.streaming] += sequence.output_tokens
        self.decode_s += (sequence.done_s - sequence.first_s) / self._speed
        self.whole_s[sequence.streaming].observe((sequence.done_s - sequence.arrived_s) / self._speed)
