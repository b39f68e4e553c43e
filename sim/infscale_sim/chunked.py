"""One replica with chunked prefill: prompt tokens share each step with decode, within a budget of tokens.

A step with prompt tokens takes as long as its decode and its prompt tokens together. Steps without any are taken in
closed form as in `infscale_sim.replica`, so the cost grows with requests and their chunks, not with seconds.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush

from infscale_sim.book import Book, Gauges
from infscale_sim.hardware import Hardware
from infscale_sim.replica import ID, SHIFT, Replica


class ChunkedReplica(Replica):
    """A `Replica` whose boundaries are looked at one by one while there are prompts to compute.

    Only the step under way is done ahead: until `at_s` the state is that of its end, and `next_s` is `at_s`.

    Attributes:
        prefilling: [request, prompt tokens left] in the order of admission.
        reserved: tokens of all of these prompts.
    """

    def __init__(self, hardware: Hardware, book: Book, number: int, created_s: float, ready_s: float) -> None:
        super().__init__(hardware, book, number, created_s, ready_s)
        self.step_tokens = hardware.step_tokens
        self.prefilling: deque[list[int]] = deque()
        self.reserved = 0
        self.admissions = 0
        self.admission: dict[int, int] = {}  # the number of that of each running or prefilling request

    def submit(self, request: int, now_s: float) -> float:
        """Take a request that arrives now; `advance` was called for now. Returns `next_s`."""
        self.outstanding += 1
        waits = bool(self.queue) or self.at_s > now_s or len(self.running) >= self.slots
        self.queue.append(request)
        if waits:
            return self.next_s
        if self.running:
            self._step_to(now_s)
        else:
            self.idle_s += now_s - self.at_s
            self.at_s = now_s
        self.next_s = self.at_s
        return self.advance(now_s)

    def advance(self, now_s: float) -> float:
        """Let all happen that does by now. Returns `next_s`, which is later than now."""
        while self.next_s <= now_s:
            if self.next_s > self.at_s:
                steps, batch = self._steps_until_event(), len(self.running)
                self.at_s = self.next_s
                self.clock += steps
                self.context += batch * steps
                self.generated += batch * steps
            self._complete()
            self._admit()
            while self.running and self.context + self.reserved + len(self.running) > self.kv_tokens:
                self._preempt()
            if self.prefilling:
                self._mixed_step()
                self.next_s = self.at_s
            else:
                self._plan()
        return self.next_s

    def _complete_ahead(self) -> None:
        """Nothing: `advance` completes at the boundary."""

    def _complete(self) -> None:
        running = self.running
        after = (self.clock + 1) << SHIFT
        while running and running[0] < after:
            request = heappop(running) & ID
            self.done_s[request] = self.at_s
            self.context -= self.prompt[request] + self.output[request]
            self.ended_s += self.at_s
            self.outstanding -= 1
            del self.admission[request]

    def _admit(self) -> None:
        """Take up what waits, as far as there are slots and room for prompt and output."""
        while self.queue and len(self.running) + len(self.prefilling) < self.slots:
            request = self.queue[0]
            prompt, output = self.prompt[request], self.output[request]
            if self.context + self.reserved + prompt + output > self.kv_tokens:
                return
            self.queue.popleft()
            self.started_s += self.at_s
            self.admissions += 1
            self.admission[request] = self.admissions
            tokens = prompt + self.generated_before.get(request, 0)
            self.prefilling.append([request, tokens])
            self.reserved += tokens

    def _mixed_step(self) -> None:
        """One step of decode with as many prompt tokens as the budget has room for."""
        batch = len(self.running)
        room = self.step_tokens - batch
        computed = 0
        finished = []
        for entry in self.prefilling:
            chunk = min(entry[1], room - computed)
            entry[1] -= chunk
            computed += chunk
            if entry[1] == 0:
                finished.append(entry[0])
            if computed == room:
                break
        if batch:
            self.at_s += self.weights_step_s + self.token_step_s * self.context
        self.at_s += computed * self.prefill_token_s
        self.clock += 1
        self.context += batch
        self.generated += batch
        for request in finished:
            self.prefilling.popleft()
            self._run(request)

    def _run(self, request: int) -> None:
        """The prompt is computed at `at_s`, and with it comes a token."""
        prompt = self.prompt[request]
        before = self.generated_before.pop(request, 0)
        if not before:
            self.first_s[request] = self.at_s
            self.prompted += prompt
            if self.firsts is not None:
                self.firsts.append(request)
        self.reserved -= prompt + before
        self.context += prompt + before + 1
        self.generated += 1
        heappush(self.running, (self.clock + self.output[request] - before - 1) << SHIFT | request)

    def _preempt(self) -> None:
        if not self.prefilling:
            super()._preempt()
            return
        request, _ = self.prefilling.pop()
        self.reserved -= self.prompt[request] + self.generated_before.get(request, 0)
        self.ended_s += self.at_s
        self.queue.appendleft(request)

    def _admitted(self, request: int) -> float:
        return self.admission[request]

    def gauges(self, now_s: float) -> Gauges:
        """What the metrics page says now; `advance` was called for now. Tokens are at most one step ahead."""
        batch = len(self.running)
        steps = self._steps_by(now_s) if batch and now_s > self.at_s else 0
        run = batch + len(self.prefilling)
        return Gauges(
            running=run,
            waiting=len(self.queue),
            kv=min(1.0, (self.context + self.reserved + batch * steps) / self.kv_tokens),
            generation_tokens=self.generated + batch * steps,
            prompt_tokens=self.prompted,
            running_s=self.ended_s + run * now_s - self.started_s,
            busy_s=now_s - self.ready_s - self.idle_s - (max(0.0, now_s - self.at_s) if not run else 0.0),
        )

    def withdraw(self) -> list[int]:
        """Give up all requests that are here, for a replica that is cut off; it is empty then."""
        here = [*super().withdraw(), *(request for request, _ in self.prefilling)]
        self.prefilling.clear()
        self.reserved = 0
        return here
