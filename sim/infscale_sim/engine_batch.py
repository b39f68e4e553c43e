"""The batch of the stand-in engine: who waits, who runs, how many tokens each has.

`engine_server` owns one and moves it with `advance`; nothing here knows of sockets or of the wall clock, so the tests
drive it with times of their own. `StepBatch` follows the hardware: prompts are computed one after the other and stop
decoding meanwhile, then every running sequence gets one token per decode step. `engine_fixed` has latencies that the
user set instead.

Cost is per step and per finished sequence, not per token: between two ends the running set is the same, so a step adds
one to a counter and the running set's size to the context.
"""

from __future__ import annotations

import heapq
import math
from abc import ABC, abstractmethod
from collections.abc import Callable

from infscale_sim.engine_stats import Stats
from infscale_sim.hardware import Hardware

NEVER_S = math.inf


class Sequence:
    """One request in the batch.

    Attributes:
        prompt_tokens: of the prompt.
        output_tokens: how many it will get.
        streaming: whether its client reads a stream; a label of SGLang's.
        reason: what ends it, `length` or `stop`.
        wake: called with no argument whenever it has more tokens than its owner was told of, or is done.
        arrived_s, admitted_s, first_s, done_s: on the engine's clock; infinite until it happens.
    """

    def __init__(
        self, prompt_tokens: int, output_tokens: int, wake: Callable[[], None], *, streaming: bool, reason: str
    ) -> None:
        self.prompt_tokens, self.output_tokens = prompt_tokens, output_tokens
        self.streaming, self.reason, self.wake = streaming, reason, wake
        self.arrived_s = self.admitted_s = self.first_s = self.done_s = NEVER_S
        self.begun_s = 0.0  # of a StepBatch: when it (last) began to decode, or was preempted
        self.start_step = 0  # of a StepBatch: the step count when it (last) began to decode
        self.kept_tokens = 0  # of a StepBatch: generated before it was preempted
        self.counted_tokens = 0  # of a FixedBatch: what the counters have of it

    @property
    def kv_tokens(self) -> int:
        """Room that it needs at its end."""
        return self.prompt_tokens + self.output_tokens

    @property
    def done(self) -> bool:
        """Whether it has all its tokens."""
        return self.done_s < NEVER_S


class Batch(ABC):
    """Waiting and running sequences, slots and KV room; first come, first served.

    Attributes:
        slots: most sequences at once.
        waiting, running: in order of arrival and of admission; the values mean nothing.
        stats: counters and histograms, told of everything that happens here.
    """

    def __init__(self, slots: int, kv_tokens: int, stats: Stats) -> None:
        self.slots, self.kv_tokens, self.stats = slots, kv_tokens, stats
        self.waiting: dict[Sequence, None] = {}
        self.running: dict[Sequence, None] = {}
        self._busy_s = self._running_s = self._changed_s = 0.0

    @abstractmethod
    def advance(self, now_s: float) -> None:
        """Let happen what happens until `now_s`; calls never go back in time."""

    @abstractmethod
    def next_event_s(self) -> float:
        """When an owner has to be woken at the latest: the next first token, end or step. `NEVER_S` when idle."""

    @abstractmethod
    def tokens(self, sequence: Sequence) -> int:
        """Return how many tokens a sequence has as of the last `advance`."""

    @abstractmethod
    def context_tokens(self) -> int:
        """Return the KV tokens in use as of the last `advance`."""

    @abstractmethod
    def _fits(self, sequence: Sequence) -> bool:
        """Whether the KV cache has room for its prompt and output."""

    @abstractmethod
    def _dropped(self, sequence: Sequence) -> None:
        """A running sequence left before its end."""

    @property
    def kv_ratio(self) -> float:
        """Use of the KV cache, 0 to 1."""
        return min(1.0, self.context_tokens() / self.kv_tokens)

    def submit(self, sequence: Sequence, now_s: float) -> None:
        """Queue a sequence; it is admitted at once when the engine is idle."""
        self.advance(now_s)
        sequence.arrived_s = now_s
        self.waiting[sequence] = None
        self.advance(now_s)

    def cancel(self, sequence: Sequence, now_s: float) -> None:
        """Take out a sequence whose client left; its slot and room are free from now on."""
        self.advance(now_s)
        if self.waiting.pop(sequence, self) is None:
            return
        if sequence in self.running:
            self._dropped(sequence)
            self._leave(sequence, now_s)
            self.stats.aborted += 1
            self.advance(now_s)

    def busy(self, now_s: float) -> tuple[float, float]:
        """Return for how long anything ran, and the sum of that over the sequences, seconds of the engine's clock."""
        self._account(now_s)
        return self._busy_s, self._running_s

    def _account(self, now_s: float) -> None:
        """Add up the time since the running set last changed."""
        elapsed_s = now_s - self._changed_s
        self._busy_s += elapsed_s if self.running else 0.0
        self._running_s += elapsed_s * len(self.running)
        self._changed_s = now_s

    def _admit(self, now_s: float) -> Sequence | None:
        """Move the first waiting sequence to the running ones, if there is a slot and room for it."""
        first = next(iter(self.waiting), None)
        if first is None or len(self.running) >= self.slots or not self._fits(first):
            return None
        del self.waiting[first]
        self._account(now_s)
        self.running[first] = None
        if first.admitted_s == NEVER_S:
            first.admitted_s = now_s
            self.stats.admitted(first)
        return first

    def _leave(self, sequence: Sequence, now_s: float) -> None:
        self._account(now_s)
        del self.running[sequence]

    def _finish(self, sequence: Sequence, now_s: float) -> None:
        sequence.done_s = now_s
        self._leave(sequence, now_s)
        self.stats.finished(sequence)
        sequence.wake()


class StepBatch(Batch):
    """Sequences on a replica of known hardware: `prefill: stall`, one prompt at a time, then steps over all."""

    def __init__(self, slots: int, hardware: Hardware, stats: Stats) -> None:
        super().__init__(slots, hardware.kv_tokens, stats)
        self._prefill_token_s = hardware.prefill_token_s
        self._weights_step_s, self._token_step_s = hardware.weights_step_s, hardware.token_step_s
        self._now_s = 0.0
        self._phase_end_s = NEVER_S  # of the prompt or step under way; NEVER_S: the engine is idle
        self._prefilling: Sequence | None = None
        self._unstarted: dict[Sequence, None] = {}  # admitted, their prompts not yet computed
        self._decoding: dict[Sequence, None] = {}
        self._context_tokens = 0  # of the decoding sequences
        self._steps = 0
        self._last_step_s = 0.0
        self._since_step: dict[Sequence, None] = {}  # first token after the last step: their gap is shorter
        self._ends: list[tuple[int, int, Sequence]] = []  # heap: step at which it has all, order, sequence
        self._order = 0

    def advance(self, now_s: float) -> None:
        """Complete every prompt and step that ends until `now_s`."""
        while True:
            if self._phase_end_s == NEVER_S and not self._begin_phase(now_s):
                return
            if self._phase_end_s > now_s:
                return
            self._now_s, self._phase_end_s = self._phase_end_s, NEVER_S
            if self._prefilling is not None:
                self._end_prefill(self._prefilling)
            else:
                self._end_step()

    def _begin_phase(self, now_s: float) -> bool:
        """Choose what to do next; False when there is nothing to do at all."""
        if not self.running and not self.waiting:
            self._now_s = now_s  # idle until now: time passes without steps
        while (admitted := self._admit(self._now_s)) is not None:
            self._unstarted[admitted] = None
        if self._unstarted:
            self._prefilling = next(iter(self._unstarted))
            del self._unstarted[self._prefilling]
            tokens = self._prefilling.prompt_tokens + self._prefilling.kept_tokens
            self._phase_end_s = self._now_s + tokens * self._prefill_token_s
        elif self._decoding:
            while self._context_tokens + len(self._decoding) > self.kv_tokens:
                self._preempt()
            self._phase_end_s = self._now_s + self._weights_step_s + self._context_tokens * self._token_step_s
        return bool(self.running)

    def _end_prefill(self, sequence: Sequence) -> None:
        """The first token comes with the prompt."""
        self._prefilling = None
        if sequence not in self.running:
            return  # its client left meanwhile
        sequence.start_step = self._steps
        if sequence.first_s == NEVER_S:
            sequence.first_s = self._now_s
            self.stats.first_token(sequence)
        else:
            self.stats.tokens(1, self._now_s - sequence.begun_s)
        sequence.begun_s = self._now_s
        left = sequence.output_tokens - sequence.kept_tokens - 1
        if not left:
            self._finish(sequence, self._now_s)
            return
        self._decoding[sequence] = self._since_step[sequence] = None
        self._context_tokens += sequence.prompt_tokens + sequence.kept_tokens + 1
        self._order += 1
        heapq.heappush(self._ends, (self._steps + left, self._order, sequence))
        sequence.wake()

    def _preempt(self) -> None:
        """Put the youngest back before the queue; what it has is computed again with its prompt.

        As vLLM does: v1/core/sched/scheduler.py preempts `self.running.pop()` when a token finds no block.
        """
        youngest = next(reversed(self._decoding))
        kept_tokens = self.tokens(youngest)
        self._dropped(youngest)
        self._leave(youngest, self._now_s)
        youngest.kept_tokens, youngest.begun_s = kept_tokens, self._now_s
        self.waiting = {youngest: None, **self.waiting}
        self.stats.preemptions += 1

    def _fits(self, sequence: Sequence) -> bool:
        pending = sum(one.prompt_tokens + one.kept_tokens + 1 for one in self._unstarted)
        return self._context_tokens + pending + sequence.kv_tokens <= self.kv_tokens

    def _end_step(self) -> None:
        """Every decoding sequence has one token more."""
        self._steps += 1
        self._context_tokens += len(self._decoding)
        for sequence in self._since_step:
            self.stats.tokens(1, self._now_s - sequence.begun_s)
        self.stats.tokens(len(self._decoding) - len(self._since_step), self._now_s - self._last_step_s)
        self.stats.step(len(self._decoding))
        self._since_step.clear()
        self._last_step_s = self._now_s
        while self._ends and self._ends[0][0] <= self._steps:
            sequence = heapq.heappop(self._ends)[2]
            if sequence in self._decoding and self.tokens(sequence) == sequence.output_tokens:
                self._dropped(sequence)
                self._finish(sequence, self._now_s)

    def _dropped(self, sequence: Sequence) -> None:
        self._unstarted.pop(sequence, None)
        self._since_step.pop(sequence, None)
        if sequence in self._decoding:
            self._context_tokens -= sequence.prompt_tokens + self.tokens(sequence)
            del self._decoding[sequence]

    def next_event_s(self) -> float:
        """Return the end of the prompt or step under way."""
        return self._phase_end_s

    def tokens(self, sequence: Sequence) -> int:
        """Return one for the prompt and one for each step since."""
        if sequence.done:
            return sequence.output_tokens
        return sequence.kept_tokens + (1 + self._steps - sequence.start_step if sequence in self._decoding else 0)

    def context_tokens(self) -> int:
        """Return prompts and outputs of the decoding sequences, and the prompt under way."""
        under_way = self._prefilling
        return self._context_tokens + (under_way.prompt_tokens + under_way.kept_tokens if under_way else 0)
