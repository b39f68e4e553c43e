"""Requests to what `http_targets` leaves out: a listener with a password, the recommender, the activator's page, and
the stand-in engine.

The first three are driven on this thread, as there; the stand-in has its own server, and a loop on a thread of its own.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
import socket
import threading
from functools import cache
from pathlib import Path
from tempfile import gettempdir

import bcrypt

from infscale.activator.page import activator_routes
from infscale.activator.serve import Activator
from infscale.activator.settings import Settings as ActivatorSettings
from infscale.core.grammar import parse_policy
from infscale.evaluator import Evaluator
from infscale.fleet.parse import parse_source
from infscale.fleet.source import FleetSettings, WorkloadName
from infscale.recommender import recommender_routes
from infscale.web.server import Listener
from infscale.web.webconfig import WebConfig
from tests.fuzz import http_targets

CREDENTIALS = base64.b64encode(b"alice:right")
"""The one user and password of `http_locked`."""

_ACCEPTED = re.compile(CREDENTIALS.replace(b"Q=", b"[Q-T]="))  # the last two bits of base64 say nothing

_WORKLOAD = WorkloadName("ml", "vllm")
_STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) [A-Z]")
_REFUSALS = {b"100", b"400", b"401", b"411", b"413", b"414", b"417", b"431", b"501", b"503", b"505"}
"""What whoever has not proved who it is may be answered: 401, what is no request, a busy moment, and 100 for a body."""


@cache
def locked_listener() -> Listener:
    """The main listener of `http_targets`, with a password."""
    hashed = bcrypt.hashpw(b"right", bcrypt.gensalt(4)).decode()
    path = Path(gettempdir()) / "infscale-fuzz-web.yml"
    path.write_text(f"basic_auth_users: {{alice: {hashed}}}\n")
    return Listener("127.0.0.1:0", http_targets.main_listener()._router, web_config=WebConfig(str(path)))


def locked(data: bytes) -> None:
    """Requests to a main listener with a password: what has not brought it is told nothing, whatever went before."""
    said = http_targets.serve(locked_listener(), data)
    opened = [status for status in _STATUS.findall(said) if status not in _REFUSALS]
    assert len(opened) <= len(_ACCEPTED.findall(data)), said[:300]


@cache
def recommender_listener() -> Listener:
    """Every path of a recommender."""
    source = parse_source(
        "static:http://127.0.0.1:1", FleetSettings(workload=_WORKLOAD, spec_replicas=1), cluster=http_targets.no_cluster
    )
    evaluator = Evaluator(source, parse_policy("queue:24"))
    evaluator.evaluate()
    return Listener("127.0.0.1:0", recommender_routes(evaluator))


def recommender(data: bytes) -> None:
    """Requests to a recommender."""
    http_targets.serve(recommender_listener(), data)


@cache
def held_listener() -> Listener:
    """Every path of an activator's main listener."""
    settings = ActivatorSettings("http://127.0.0.1:1", listen_address="127.0.0.1:0")
    return Listener("127.0.0.1:0", activator_routes(Activator(settings), _WORKLOAD, lambda: ""))


def held(data: bytes) -> None:
    """Requests to an activator's main listener."""
    http_targets.serve(held_listener(), data)


@cache
def _stand_in() -> int:
    """The port of a stand-in engine that wants a key and is as quick as it can be."""
    from infscale_sim.engine_connection import Connection
    from infscale_sim.engine_server import Engine, Settings
    from infscale_sim.engine_vllm import vllm
    from infscale_sim.hardware import DEFAULT, load_profile

    settings = Settings(vllm("0.33.0"), "m", load_profile(DEFAULT), slots=8, speed=1000.0)
    listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
    up = threading.Event()

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        engine = Engine(settings, loop)
        server = await loop.create_server(
            lambda: Connection(engine.handle, lambda _: True, lambda _: None), sock=listening
        )
        up.set()
        await server.serve_forever()

    threading.Thread(target=lambda: asyncio.run(serve()), daemon=True).start()
    up.wait()
    port: int = listening.getsockname()[1]
    return port


def stand_in(data: bytes) -> None:
    """Requests to a stand-in engine: it answers, or ends the connection, and is there for the next one."""
    said = b""
    with contextlib.suppress(ConnectionError), socket.create_connection(("127.0.0.1", _stand_in()), timeout=20) as one:
        one.sendall(data)
        one.shutdown(socket.SHUT_WR)
        while piece := one.recv(1 << 20):
            said += piece
            assert len(said) < http_targets.MOST_BYTES
    assert not said or said.startswith(b"HTTP/1.1 "), said[:100]
    with socket.create_connection(("127.0.0.1", _stand_in()), timeout=20) as after:
        after.sendall(b"GET /health HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        assert after.recv(65536).startswith(b"HTTP/1.1 200 ")
