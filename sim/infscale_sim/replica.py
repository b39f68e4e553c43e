"""One replica as a queue, event by event and exact: `Replica` with prefill that stops decode.

Time goes by in decode steps: every running sequence advances by one token, and a step takes as long as reading the
weights and the context of all of them. Between two events the running set is fixed and its context grows by one token
per sequence and step, so g steps take g*(m + b*n*g/2), a quadratic in closed form. The clock counts steps; a sequence
leaves at a known value of it (a heap). A request is admitted at the first step boundary at or after its arrival.

`infscale_sim.cluster` calls `submit` and `advance` for each request, so this is the hot loop: plain lists, integers and
local variables. `infscale_sim.chunked` is the same with chunked prefill.
"""

from __future__ import annotations

import math
from collections import deque
from heapq import heapify, heappop, heappush

from infscale_sim.book import NEVER, Book, Gauges
from infscale_sim.hardware import Hardware

SHIFT = 32
ID = (1 << SHIFT) - 1
EPSILON = 1e-9
"""Of a step: an arrival at a boundary, but for rounding, is admitted at it and not a step later."""


class Replica:
    """A queue before a batch of slots; prefill stops decode, one prompt after the other.

    What is certain is done ahead of time: where a slot and room are free, the prefill of an arrival is booked at once
    from the boundary at which it will start, and the state is that of the boundary after it, `at_s`.

    Attributes:
        queue: requests without a slot or room, first in, first out.
        outstanding: requests that are here, whether they wait or run.
        next_s: when the next of them leaves, or may be admitted from the queue.
        firsts: where it is a list, it receives each request that gets its first token.
    """

    def __init__(self, hardware: Hardware, book: Book, number: int, created_s: float, ready_s: float) -> None:
        self.prompt, self.output = book.prompt, book.output
        self.first_s, self.done_s = book.first_s, book.done_s
        self.number, self.created_s, self.ready_s = number, created_s, ready_s
        self.weights_step_s, self.token_step_s = hardware.weights_step_s, hardware.token_step_s
        self.prefill_token_s = hardware.prefill_token_s
        self.slots, self.kv_tokens = hardware.slots, hardware.kv_tokens
        self.at_s = ready_s
        self.clock = 0  # steps until `at_s`
        self.context = 0  # tokens of context of the running sequences at `at_s`
        self.running: list[int] = []  # a heap of (last step << 32 | request)
        self.leaving: deque[int] = deque()  # have left by `at_s`, but not by now
        self.queue: deque[int] = deque()
        self.generated_before: dict[int, int] = {}  # tokens of preempted requests
        self.readmitted_s: dict[int, float] = {}  # when preempted requests run again
        self.outstanding = 0
        self.next_s = NEVER
        self.firsts: list[int] | None = None
        self.generated = self.prompted = 0
        # Sums over all requests, from which `gauges` has the integrals.
        self.started_s = self.ended_s = self.idle_s = 0.0

    def submit(self, request: int, now_s: float) -> float:
        """Take a request that arrives now; `advance` was called for now. Returns `next_s`."""
        running = self.running
        self.outstanding += 1
        if self.queue or len(running) >= self.slots:
            self.queue.append(request)
            return self.next_s
        at_s = self.at_s
        if now_s > at_s:
            if running:
                self._step_to(now_s)
                at_s = self.at_s
            else:
                self.idle_s += now_s - at_s
                at_s = now_s
        prompt, output = self.prompt[request], self.output[request]
        if self.context + prompt + output > self.kv_tokens:
            self.queue.append(request)
            return self._plan()
        self.started_s += at_s
        self.at_s = self.first_s[request] = at_s = at_s + prompt * self.prefill_token_s
        self.prompted += prompt
        self.generated += 1
        if self.firsts is not None:
            self.firsts.append(request)
        if output > 1:
            self.context += prompt + 1
            heappush(running, (self.clock + output - 1) << SHIFT | request)
        else:
            self._leave(request)
        return self._plan()

    def advance(self, now_s: float) -> float:
        """Let all happen that does by now. Returns `next_s`, which is later than now."""
        done_s, prompt, output = self.done_s, self.prompt, self.output
        while self.next_s <= now_s:
            leaving = self.leaving
            if leaving:
                while leaving and done_s[leaving[0]] <= now_s:
                    leaving.popleft()
                    self.outstanding -= 1
                self._plan()
                continue
            running = self.running
            batch = len(running)
            steps = self._steps_until_event()
            self.at_s = at_s = self.next_s
            self.clock = clock = self.clock + steps
            self.context += batch * steps
            self.generated += batch * steps
            after = (clock + 1) << SHIFT
            while running and running[0] < after:
                request = heappop(running) & ID
                done_s[request] = at_s
                self.context -= prompt[request] + output[request]
                self.ended_s += at_s
                self.outstanding -= 1
            if self.queue:
                self._admit()
            while self.context + len(running) > self.kv_tokens:
                self._preempt()
            self._plan()
        return self.next_s

    def _plan(self) -> float:
        """Set and return `next_s`."""
        running = self.running
        if self.leaving:
            self.next_s = next_s = self.done_s[self.leaving[0]]
        elif running:
            batch, context = len(running), self.context
            steps = (running[0] >> SHIFT) - self.clock
            if context + batch * steps > self.kv_tokens:
                steps = self._steps_until_event()
            step_s = self.weights_step_s + self.token_step_s * (context + 0.5 * batch * (steps - 1))
            self.next_s = next_s = self.at_s + steps * step_s
        else:
            self.next_s = next_s = NEVER
        return next_s

    def _steps_until_event(self) -> int:
        """Steps until the first sequence leaves, or until the next step would not find room for its tokens."""
        batch = len(self.running)
        steps = (self.running[0] >> SHIFT) - self.clock
        if self.context + batch * steps > self.kv_tokens:
            steps = max(0, (self.kv_tokens - self.context) // batch)
        return steps

    def _step_to(self, now_s: float) -> None:
        """Go to the first boundary at or after now; the event at `next_s` is not before it."""
        running = self.running
        batch = len(running)
        passed_s = now_s - self.at_s
        growth_s = self.token_step_s * batch
        first_step_s = self.weights_step_s + self.token_step_s * (self.context - 0.5 * batch)
        root = math.sqrt(first_step_s * first_step_s + 2 * growth_s * passed_s)
        steps = math.ceil(2 * passed_s / (first_step_s + root) - EPSILON)
        last = (running[0] >> SHIFT) - self.clock
        if steps > last:
            steps = last
        self.at_s += steps * (first_step_s + 0.5 * growth_s * steps)
        self.clock += steps
        self.context += batch * steps
        self.generated += batch * steps
        if steps == last:
            self._complete_ahead()

    def _complete_ahead(self) -> None:
        """Let those leave that have their last token at `at_s`, later than now or not."""
        running = self.running
        after = (self.clock + 1) << SHIFT
        while running and running[0] < after:
            request = heappop(running) & ID
            self.context -= self.prompt[request] + self.output[request]
            self._leave(request)

    def _leave(self, request: int) -> None:
        """The request has its last token at `at_s`, which may be later than now."""
        self.done_s[request] = self.at_s
        self.ended_s += self.at_s
        self.leaving.append(request)

    def _admit(self) -> None:
        """Prefill what waits, one after the other, as far as there are slots and room for prompt and output."""
        queue, running = self.queue, self.running
        while queue and len(running) < self.slots:
            request = queue[0]
            prompt, output = self.prompt[request], self.output[request]
            if self.context + prompt + output > self.kv_tokens:
                return
            queue.popleft()
            self.started_s += self.at_s
            before = self.generated_before.pop(request, 0) if self.generated_before else 0
            self.at_s += (prompt + before) * self.prefill_token_s
            if before:
                self.readmitted_s[request] = self.at_s
            else:
                self.first_s[request] = self.at_s
                self.prompted += prompt
                if self.firsts is not None:
                    self.firsts.append(request)
            self.generated += 1
            if output - before > 1:
                self.context += prompt + before + 1
                heappush(running, (self.clock + output - before - 1) << SHIFT | request)
            else:
                self._leave(request)

    def _preempt(self) -> None:
        """Put the sequence that was admitted last back before the queue; its context is computed again later.

        As vLLM does: v1/core/sched/scheduler.py, `schedule` preempts `self.running.pop()` when a token finds no block,
        and `_preempt_request` prepends it to the waiting requests with nothing computed.
        """
        running = self.running
        key = max(running, key=lambda key: self._admitted(key & ID))
        running.remove(key)
        heapify(running)
        request = key & ID
        generated = self.output[request] - ((key >> SHIFT) - self.clock)
        self.context -= self.prompt[request] + generated
        self.generated_before[request] = generated
        self.ended_s += self.at_s
        self.queue.appendleft(request)

    def _admitted(self, request: int) -> float:
        """A number that rises from one admission to the next."""
        return self.readmitted_s.get(request, self.first_s[request])

    def gauges(self, now_s: float) -> Gauges:
        """What the metrics page says now; `advance` was called for now.

        Where a prefill is booked ahead, tokens are those of the boundary at which it starts: at most one step more.
        """
        running, ahead, start_later = self.running, [], []
        if self.at_s > now_s:
            here = [*self.leaving, *(key & ID for key in running)]
            ahead = [request for request in here if self.first_s[request] > now_s]
            starts = [self.first_s[request] - self.prompt[request] * self.prefill_token_s for request in ahead]
            start_later = [start_s for start_s in starts if start_s > now_s]
        batch = len(running)
        steps = self._steps_by(now_s) if running and now_s > self.at_s else 0
        run = batch + len(self.leaving) - len(start_later)
        ended_s = self.ended_s - sum([self.done_s[request] for request in self.leaving])
        idle_s = self.idle_s + (max(0.0, now_s - self.at_s) if not running else 0.0)
        return Gauges(
            running=run,
            waiting=len(self.queue) + len(start_later),
            kv=min(1.0, (self.context + batch * steps) / self.kv_tokens),
            generation_tokens=self.generated + batch * steps - len(ahead),
            prompt_tokens=self.prompted - sum([self.prompt[request] for request in ahead]),
            running_s=ended_s + run * now_s - (self.started_s - sum(start_later)),
            busy_s=now_s - self.ready_s - idle_s,
        )

    def _steps_by(self, now_s: float) -> int:
        """Whole steps since `at_s`, which is before now."""
        batch, passed_s = len(self.running), now_s - self.at_s
        first_step_s = self.weights_step_s + self.token_step_s * (self.context - 0.5 * batch)
        root = math.sqrt(first_step_s**2 + 2 * self.token_step_s * batch * passed_s)
        return math.floor(2 * passed_s / (first_step_s + root) + EPSILON)

    def withdraw(self) -> list[int]:
        """Give up all requests that are here, for a replica that is cut off; it is empty then."""
        here = [*self.leaving, *(key & ID for key in self.running), *self.queue]
        self.running.clear()
        self.leaving.clear()
        self.queue.clear()
        self.outstanding = self.context = 0
        self.next_s = NEVER
        return here
