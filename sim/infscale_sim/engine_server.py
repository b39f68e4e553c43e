"""The stand-in engine: a batch on the wall clock, its streams, its pages and its answers. `engine_process` runs it.

One asyncio loop does everything. A tick brings the batch up to now and feeds the streams; it is timed to the batch's
next event, so a token goes out when its decode step ends. Where steps are shorter than FEED_S (`--speed`), a stream
gets several tokens in one chunk, as vLLM's do when their reader is slow.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import time
from dataclasses import dataclass

from infscale.errors import UsageError
from infscale.web.message import Request, Response, text_response
from infscale_sim import engine_api as api
from infscale_sim.engine_batch import NEVER_S, Batch, Sequence, StepBatch
from infscale_sim.engine_connection import Connection
from infscale_sim.engine_dialect import Dialect, State
from infscale_sim.engine_faults import ERROR, FREEZE, HANG, STALL, read_faults
from infscale_sim.engine_fixed import FixedBatch
from infscale_sim.engine_stats import Stats
from infscale_sim.hardware import Hardware

FEED_S = 0.005
_TICK_S = 0.001


@dataclass(frozen=True)
class Settings:
    """How the engine is set.

    Attributes:
        dialect: whose server it stands for.
        model: the name that it serves.
        hardware: what it runs on.
        slots: sequences at once.
        speed: seconds of the engine's clock in a second of the wall's.
        first_token_s, inter_token_s: latencies instead of the hardware's; both or neither.
        api_key: what clients must bring; empty: nothing.
        faults: that are on from the start.
    """

    dialect: Dialect
    model: str
    hardware: Hardware
    slots: int
    speed: float = 1.0
    first_token_s: float | None = None
    inter_token_s: float | None = None
    api_key: str = ""
    faults: frozenset[str] = frozenset()


class Engine:
    """Answers requests, as `Connection`'s handler.

    Attributes:
        batch: who waits and runs.
        draining: whether it was told to end and finishes what it has.
        emptied: called whenever a request ended and none is left.
    """

    def __init__(self, settings: Settings, loop: asyncio.AbstractEventLoop) -> None:
        self._settings, self._loop = settings, loop
        self._dialect = settings.dialect
        self.batch = _batch(settings)
        self.draining = False
        self.emptied: asyncio.Event = asyncio.Event()
        self.emptied.set()
        self._faults: frozenset[str] = frozenset()
        self._frozen: dict[str, float] = {}
        self._origin_s, self._start_unix_s = loop.time(), time.time()
        self._stalled_at_s: float | None = None
        self._answers: dict[Sequence, _Answer] = {}
        self._woken: dict[_Answer, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._fed_s = 0.0
        self._number = 0
        self.set_faults(settings.faults)

    def now_s(self) -> float:
        """Return the engine's clock; it stands still while the engine is stalled."""
        if self._stalled_at_s is not None:
            return self._stalled_at_s
        return (self._loop.time() - self._origin_s) * self._settings.speed

    def set_faults(self, faults: frozenset[str]) -> None:
        """Turn on these faults, and all others off."""
        if FREEZE in faults - self._faults:
            page = self._dialect.new_page()
            self._dialect.write(page, self._state())
            self._frozen = page.gauges
        elif FREEZE not in faults:
            self._frozen = {}
        self._faults = faults
        self.stall(STALL in faults)

    def stall(self, on: bool) -> None:
        """Stop the engine's clock, or let it go on from where it stood."""
        if on and self._stalled_at_s is None:
            self._stalled_at_s = self.now_s()
        elif not on and self._stalled_at_s is not None:
            self._origin_s = self._loop.time() - self._stalled_at_s / self._settings.speed
            self._stalled_at_s = None
        self._tick()

    def hang(self) -> None:
        """Hang for good, as llama.cpp does on SIGTERM: no token, no metrics page, /health 200."""
        self._faults |= {HANG, STALL}
        self.stall(True)

    def handle(self, request: Request, connection: Connection) -> None:
        """Answer a request, now or when its tokens are there."""
        path = request.path
        if not self._may(request):
            connection.answer(api.error_response(401, "Unauthorized"))
        elif path in ("/v1/completions", "/v1/chat/completions"):
            self._complete(request, connection)
        elif path == "/fault":
            connection.answer(self._fault(request))
        elif request.method not in ("GET", "HEAD"):
            connection.answer(api.error_response(404, "Not Found"))
        elif path == "/metrics":
            self._metrics(connection)
        elif path == "/health":
            down = self.draining and self._dialect.health_falls
            connection.answer(Response(503 if down else 200, b"" if down else self._dialect.health_body, api.JSON))
        elif path == "/v1/models":
            model, owner = self._settings.model, self._dialect.owner
            listing = api.models_response(model, owner, int(self._start_unix_s), self.batch.kv_tokens)
            connection.answer(listing)
        else:
            connection.answer(api.error_response(404, "Not Found"))

    def _may(self, request: Request) -> bool:
        key = self._settings.api_key
        if not key or request.path == "/fault" or self._dialect.open_paths(request.path):
            return True
        given = request.headers.get("authorization", "").removeprefix("Bearer ") or request.headers.get("x-api-key", "")
        return hmac.compare_digest(given.encode("latin-1"), key.encode("latin-1"))

    def _fault(self, request: Request) -> Response:
        if not _is_loopback(request.client):
            return api.error_response(403, "faults are set from the machine itself (a loopback address)")
        if request.method != "POST":
            return api.json_response(200, {"faults": sorted(self._faults)})
        try:
            self.set_faults(read_faults(request.body))
        except UsageError as error:
            return api.error_response(400, str(error))
        return api.json_response(200, {"faults": sorted(self._faults)})

    def _metrics(self, connection: Connection) -> None:
        if HANG in self._faults:
            return  # the client's own time-out ends it
        if ERROR in self._faults:
            connection.answer(text_response(500, "Internal Server Error"))
            return
        page = self._dialect.new_page(faults=self._faults, frozen=self._frozen)
        self._dialect.write(page, self._state())
        connection.answer(Response(200, page.text().encode(), self._dialect.content_type))

    def _state(self) -> State:
        now_s = self.now_s()
        self.batch.advance(now_s)
        busy_s, running_s = self.batch.busy(now_s)
        hardware = self._settings.hardware
        cpu_s = hardware.cpu_idle * now_s + hardware.cpu_busy * busy_s + hardware.cpu_per_running * running_s
        return State(self._settings.model, self.batch, cpu_s / self._settings.speed, self._start_unix_s)

    def _complete(self, request: Request, connection: Connection) -> None:
        try:
            if request.method != "POST":
                raise api.ApiError(405, "Method Not Allowed")
            call = api.read_call(request.body, chat=request.path == "/v1/chat/completions")
            self._check(call)
        except api.ApiError as error:
            connection.answer(api.error_response(error.status, str(error)))
            return
        self._number += 1
        answer = _Answer(self, call, connection, api.Writer(call, self._number, self._settings.model, int(time.time())))
        self._answers[answer.sequence] = answer
        self.emptied.clear()
        self.batch.submit(answer.sequence, self.now_s())
        self._tick()

    def _check(self, call: api.Call) -> None:
        if self.draining and not self._dialect.drains_open:
            raise api.ApiError(503, "the engine is shutting down")
        if self._dialect.checks_model and call.model not in ("", self._settings.model):
            raise api.ApiError(404, f"The model `{call.model[:200]}` does not exist.")
        wanted, room = call.prompt_tokens + call.output_tokens, self.batch.kv_tokens
        if wanted > room:
            raise api.ApiError(400, f"prompt and output are {wanted} tokens, the KV cache holds {room}")

    def wake(self, answer: _Answer) -> None:
        """Feed a stream in this tick, because it has its first or last token."""
        self._woken[answer] = None

    def drop(self, answer: _Answer) -> None:
        """Take out a request whose client left."""
        self.batch.cancel(answer.sequence, self.now_s())
        self._woken.pop(answer, None)
        self.forget(answer)
        self._tick()

    def forget(self, answer: _Answer) -> None:
        """A request has its answer, or nobody to take it."""
        self._answers.pop(answer.sequence, None)
        if not self._answers:
            self.emptied.set()

    def _tick(self) -> None:
        """Bring the batch up to now, feed the streams, and come back when there is something new."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.batch.advance(self.now_s())
        now_s = self._loop.time()
        answers = list(self._woken)
        self._woken.clear()
        if now_s - self._fed_s >= FEED_S:
            self._fed_s = now_s
            answers += [self._answers[sequence] for sequence in self.batch.running]
        for answer in answers:
            answer.feed()
        next_s = self.batch.next_event_s()
        if next_s < NEVER_S and self._stalled_at_s is None:
            at_s = self._origin_s + next_s / self._settings.speed
            self._timer = self._loop.call_at(max(at_s, now_s + _TICK_S), self._tick)


class _Answer:
    """One request's way back to its client."""

    def __init__(self, engine: Engine, call: api.Call, connection: Connection, writer: api.Writer) -> None:
        self._engine, self._stream = engine, call.stream
        self._connection, self._writer = connection, writer
        self._begun = False
        self.sequence = Sequence(
            call.prompt_tokens,
            call.output_tokens,
            lambda: engine.wake(self),
            streaming=call.stream,
            reason=call.reason,
        )
        connection.gone = lambda: engine.drop(self)

    def feed(self) -> None:
        """Send what is new; the whole answer if the client wants no stream."""
        done = self.sequence.done
        if not self._stream:
            if done:
                self._engine.forget(self)
                self._connection.answer(self._writer.whole())
            return
        if self._connection.slow and not done:
            return
        piece = self._writer.more(self._engine.batch.tokens(self.sequence))
        if piece and not self._begun:
            self._begun = True
            self._connection.begin_stream()
        if done:
            self._engine.forget(self)
            self._connection.send(piece + self._writer.end())
            self._connection.end_stream()
        elif piece:
            self._connection.send(piece)


def _batch(settings: Settings) -> Batch:
    stats = Stats(settings.dialect.bounds, settings.speed)
    if settings.first_token_s is None or settings.inter_token_s is None:
        return StepBatch(settings.slots, settings.hardware, stats)
    tokens = settings.hardware.kv_tokens
    return FixedBatch(settings.slots, tokens, settings.first_token_s, settings.inter_token_s, stats)


def _is_loopback(client: str) -> bool:
    try:
        address = ipaddress.ip_address(client.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)
