"""The stand-in engine under `infscale load` against the simulator's replica under the same clients."""

from __future__ import annotations

import json
import math
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from infscale_sim.book import Book
from infscale_sim.hardware import load_profile
from infscale_sim.replica import Replica

from .engine_processes import LONG_S, command_line, engine, environment

SPEED = 0.25
"""Slower than real, so that what the client and a busy machine add is small beside what is measured."""
RUN_S = 6.0
OUTPUT_TOKENS = 40
CLIENTS = {1: 4000, 4: 1000, 16: 250}
"""Prompt tokens by requests at once: first tokens come after 0.3 to 0.7 s."""


def simulated(clients: int, prompt_tokens: int) -> tuple[float, int]:
    """Mean TTFT and generated tokens of clients that each ask again when they have their answer; engine's seconds."""
    book = Book([], [], [], [], [])
    arrivals, prompts, outputs, firsts, dones = (
        getattr(book, name) for name in ("arrival_s", "prompt", "output", "first_s", "done_s")
    )
    replica, end_s, now_s, asked = Replica(load_profile("h100-8b"), book, 0, 0.0, 0.0), RUN_S * SPEED, 0.0, clients
    while now_s < end_s:
        for _ in range(asked):
            for values, value in ((arrivals, now_s), (prompts, prompt_tokens), (outputs, OUTPUT_TOKENS)):
                values.append(value)
            firsts.append(math.inf)
            dones.append(math.inf)
            replica.submit(len(arrivals) - 1, now_s)
        before = replica.outstanding
        now_s = min(end_s, replica.next_s)
        replica.advance(now_s)
        asked = before - replica.outstanding
    waits_s = [first_s - at_s for first_s, at_s in zip(firsts, arrivals, strict=True) if first_s <= end_s]
    return sum(waits_s) / len(waits_s), replica.gauges(end_s).generation_tokens


def measured(clients: int) -> tuple[float, int]:
    """The same of an engine and a load generator, processes both; seconds of the wall clock."""
    with engine("--speed", str(SPEED)) as process:
        sizes = ("--prompt-tokens", str(CLIENTS[clients]), "--output-tokens", str(OUTPUT_TOKENS))
        run = ("--concurrency", str(clients), "--duration", str(RUN_S), "--json")
        done = subprocess.run(
            command_line("load", process.url, *sizes, *run),
            capture_output=True,
            text=True,
            timeout=LONG_S,
            env=environment(),
            check=True,
        )
    found = json.loads(done.stdout)
    return found["ttft_s"]["mean"], found["output_tokens"]


def test_first_tokens_and_throughput_are_those_of_simulate():
    """At 1, 4 and 16 requests at once, TTFT and tokens are within 10 % of the simulator's."""
    with ThreadPoolExecutor() as pool:
        found = dict(zip(CLIENTS, pool.map(measured, CLIENTS), strict=True))
    for clients, prompt_tokens in CLIENTS.items():
        ttft_s, tokens = simulated(clients, prompt_tokens)
        assert found[clients][0] == pytest.approx(ttft_s / SPEED, rel=0.1), clients
        assert found[clients][1] == pytest.approx(tokens, rel=0.1), clients
