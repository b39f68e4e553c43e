"""Runs load against a server: closed loop (so many clients, each asks again) or open loop (requests at given times).

Everything is on one asyncio loop. A run ends after its time, at the end of its arrivals, or on Ctrl-C; what is
under way then is cut, which frees its slot at the server, and counted as unfinished.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from typing import Any

from infscale_sim.load_client import Client, Event, RequestFailedError
from infscale_sim.load_record import Asked, Record
from infscale_sim.traffic import Request

MAX_IN_FLIGHT = 20_000
"""Of an open loop; one more is counted as the error `not sent`."""
_PAUSE_S = 0.1
_TEXT = (
    "time year people way day man thing woman life child world school state family student group country problem hand "
    "part place case week company system program question work government number night point home water room mother"
)


@dataclass(frozen=True)
class Load:
    """What each request is.

    Attributes:
        model: to ask for.
        prompt_tokens, output_tokens: of a request where its arrival does not say.
        timeout_s: for one whole request.
        seed: of the prompts' words and of random arrivals.
    """

    model: str
    prompt_tokens: int
    output_tokens: int
    timeout_s: float
    seed: int


class Runner:
    """One run.

    Attributes:
        record: what was measured so far.
        in_flight: requests under way.
        start_s: when it began, on the loop's clock.
    """

    def __init__(
        self, client: Client, load: Load, stop: asyncio.Event, *, slo_ttft_s: float, warm_up_s: float = 0.0
    ) -> None:
        """Begin a run.

        Args:
            client: of the server.
            load: what to send.
            stop: ends the run when it is set.
            slo_ttft_s: what is late; infinite: nothing.
            warm_up_s: what is sent before is not measured.
        """
        self._client, self._load = client, load
        self._loop = asyncio.get_running_loop()
        self.start_s = self._loop.time()
        self.record = Record(self.start_s + warm_up_s, slo_ttft_s)
        self.in_flight = 0
        self._stop = stop
        self._random = random.Random(load.seed)  # noqa: S311 (words, not secrets)
        self._words = _TEXT.split()
        self._tasks: set[asyncio.Task[object]] = set()

    async def closed(self, concurrency: int, duration_s: float) -> None:
        """Keep `concurrency` requests under way for a time."""
        for _ in range(concurrency):
            self._spawn(self._ask_again_and_again())
        await self._wait(duration_s)
        await self._end()

    async def open(self, arrivals: Iterator[Request], duration_s: float | None) -> None:
        """Send requests when they are due; without a time to end, until the last has its answer."""
        feeding = self._spawn(self._feed(arrivals))
        stopping = asyncio.create_task(self._wait(duration_s))
        await asyncio.wait({feeding, stopping}, return_when=asyncio.FIRST_COMPLETED)
        while duration_s is None and self._tasks and not stopping.done():
            await asyncio.wait({*self._tasks, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if duration_s is None:
            stopping.cancel()
        await asyncio.wait({stopping})
        await self._end()
        if feeding.done() and not feeding.cancelled():
            feeding.result()  # a fault in the trace

    async def _wait(self, duration_s: float | None) -> None:
        try:
            async with asyncio.timeout(duration_s):
                await self._stop.wait()
        except TimeoutError:
            pass

    async def _end(self) -> None:
        """Cut what is under way."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _feed(self, arrivals: Iterator[Request]) -> None:
        for arrival in arrivals:
            due_s = self.start_s + arrival.arrival_s
            if (early_s := due_s - self._loop.time()) > 0:
                await asyncio.sleep(early_s)
            asked = Asked(due_s, arrival.prompt_tokens, arrival.output_tokens)
            if self.in_flight >= MAX_IN_FLIGHT:
                self.record.begin(asked)
                self.record.end(asked, due_s, "not sent")
                continue
            self._spawn(self._ask(asked))

    async def _ask_again_and_again(self) -> None:
        load = self._load
        while True:
            asked = Asked(self._loop.time(), load.prompt_tokens, load.output_tokens)
            if not await self._ask(asked):
                await asyncio.sleep(_PAUSE_S)  # a server that refuses at once must not make this loop spin

    async def _ask(self, asked: Asked) -> bool:
        """Send one request; whether it got its whole answer."""
        record = self.record

        def tell(event: Event) -> None:
            """Record a piece of the answer, and how many tokens the engine says it has."""
            if event.text:
                record.piece(asked, self._loop.time())
            if event.tokens is not None:
                asked.told_tokens = event.tokens

        record.begin(asked)
        self.in_flight += 1
        error: str | None = None
        try:
            async with asyncio.timeout(self._load.timeout_s):
                await self._client.stream(self._fields(asked), tell)
        except asyncio.CancelledError:
            record.cut(asked, self._loop.time())
            raise
        except TimeoutError:
            error = "timed out"
        except RequestFailedError as failure:
            error = str(failure)
        finally:
            self.in_flight -= 1
        record.end(asked, self._loop.time(), error)
        return error is None

    def _fields(self, asked: Asked) -> dict[str, Any]:
        """A request's body: random words, about a token each, so that no prefix cache helps."""
        text = " ".join(self._random.choices(self._words, k=asked.prompt_tokens))
        prompt = {"messages": [{"role": "user", "content": text}]} if self._client.chat else {"prompt": text}
        # ignore_eos (vLLM, SGLang, llama.cpp): the answer is as long as asked for.
        return {"model": self._load.model, "max_tokens": asked.output_tokens, "ignore_eos": True, **prompt}

    def _spawn(self, work: Coroutine[Any, Any, object]) -> asyncio.Task[object]:
        task: asyncio.Task[object] = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def arrivals_at(rate: float, load: Load, *, poisson: bool) -> Iterator[Request]:
    """Yield endless arrivals at `rate` a second: evenly, the k-th at (k - 0.5) / rate, or as a Poisson process."""
    source = random.Random(load.seed + 1)  # noqa: S311 (arrival times, not secrets)
    at_s = 0.0 if poisson else -0.5 / rate
    while True:
        at_s += source.expovariate(rate) if poisson else 1 / rate
        yield Request(at_s, load.prompt_tokens, load.output_tokens)
