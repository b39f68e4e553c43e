"""The stand-in engine's batch: the hardware's physics to the digit, on a clock of the tests' own."""

from __future__ import annotations

import dataclasses
import functools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infscale_sim.book import Book
from infscale_sim.engine_batch import Batch, Sequence, StepBatch
from infscale_sim.engine_fixed import FixedBatch
from infscale_sim.engine_stats import Bounds, Stats
from infscale_sim.hardware import load_profile
from infscale_sim.replica import Replica

HARDWARE = load_profile("h100-8b")
FAR_S = 1e6


def sequence(prompt: int, output: int) -> Sequence:
    """A request that nobody waits for."""
    return Sequence(prompt, output, lambda: None, streaming=True, reason="length")


def step_batch(slots: int = 64, kv_tokens: int | None = None) -> StepBatch:
    """A batch on one H100."""
    batch = StepBatch(slots, HARDWARE, Stats(Bounds((1.0,), (1.0,), (1.0,), (1.0,)), 1.0))
    batch.kv_tokens = kv_tokens or batch.kv_tokens
    return batch


def test_first_token_comes_with_the_prompt_and_each_further_with_a_step():
    """A request alone: the prompt at 24,750 tokens/s, then steps of weights and context over the bandwidth."""
    batch, one = step_batch(), sequence(2475, 3)
    batch.submit(one, 5.0)
    batch.advance(FAR_S)
    assert one.first_s == pytest.approx(5.1)
    assert one.done_s == pytest.approx(5.1 + HARDWARE.decode_step_s(1, 2476) + HARDWARE.decode_step_s(1, 2477))


def test_a_full_batch_has_the_throughput_of_the_hardware():
    """64 sequences of 1,000 tokens of context: 10.4 ms a step, 6,154 tokens/s."""
    batch = step_batch()
    for _ in range(64):
        batch.submit(sequence(995, 11), 0.0)
    batch.advance(64 * 995 * HARDWARE.prefill_token_s)
    start_s, tokens = batch.next_event_s(), batch.stats.generation_tokens
    while batch.running:
        last_s = batch.next_event_s()
        batch.advance(last_s)
    assert (batch.stats.generation_tokens - tokens) / (last_s - start_s) == pytest.approx(6154, rel=0.12)


@given(
    st.lists(st.tuples(st.floats(0, 0.2), st.integers(1, 3000), st.integers(1, 300)), min_size=1, max_size=60),
    st.integers(1, 8),
)
def test_batch_is_the_simulators_replica(gaps, slots):
    """Any arrivals: first and last token of each request come when `simulate`'s replica has them."""
    arrivals, now_s = [], 0.0
    for gap_s, prompt, output in gaps:
        now_s += gap_s
        arrivals.append((now_s, prompt, output))
    prompts, outputs = [row[1] for row in arrivals], [row[2] for row in arrivals]
    book = Book([row[0] for row in arrivals], prompts, outputs, [math.inf] * len(arrivals), [math.inf] * len(arrivals))
    replica = Replica(dataclasses.replace(HARDWARE, slots=slots), book, 0, 0.0, 0.0)
    batch, sequences = step_batch(slots), []
    for number, (at_s, prompt, output) in enumerate(arrivals):
        replica.advance(at_s)
        replica.submit(number, at_s)
        sequences.append(sequence(prompt, output))
        batch.submit(sequences[-1], at_s)
    replica.advance(FAR_S)
    batch.advance(FAR_S)

    assert [one.first_s for one in sequences] == pytest.approx(list(book.first_s), abs=1e-6)
    assert [one.done_s for one in sequences] == pytest.approx(list(book.done_s), abs=1e-6)


@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(1, 40), st.integers(0, 3)), min_size=1, max_size=40),
    st.integers(1, 6),
    st.booleans(),
)
def test_tokens_are_conserved_when_room_is_short_and_clients_leave(requests, slots, fixed):
    """Every request ends once, with all its tokens or when its client leaves; counters agree; room never ends."""
    stats = Stats(Bounds((1.0,), (1.0,), (1.0,), (1.0,)), 1.0)
    batch: Batch = FixedBatch(slots, 120, 0.05, 0.01, stats) if fixed else StepBatch(slots, HARDWARE, stats)
    batch.kv_tokens = 120
    woken: list[Sequence] = []
    left, sequences, had = set(), [], 0
    for number, (prompt, output, leaves) in enumerate(requests):
        one = sequence(prompt, output)
        one.wake = functools.partial(woken.append, one)
        sequences.append(one)
        batch.submit(one, number * 0.01)
        if leaves == 3:
            had += batch.tokens(one)
            batch.cancel(one, number * 0.01 + 0.001)
            left |= {one} - ({one} if one.done else set())
        assert batch.kv_ratio <= 1
        assert len(batch.running) <= slots
    batch.advance(FAR_S)

    done = [one for one in sequences if one.done]
    assert set(done) | left == set(sequences)
    assert not batch.running
    assert not batch.waiting
    assert stats.generation_tokens_done.total() == sum(one.output_tokens for one in done)
    assert stats.finished_requests.total() == len(done)
    assert batch.context_tokens() == 0
    assert {one for one in woken if one.done} == set(done)
    assert sum(one.output_tokens for one in done) <= stats.generation_tokens
    if not left:
        assert stats.generation_tokens == sum(one.output_tokens for one in done)
        assert stats.inter_token_s.count == stats.generation_tokens - len(done)


def test_short_room_preempts_the_youngest_and_it_ends_all_the_same():
    """When the next step finds no room, the youngest is put back, computed again later, and gets all its tokens."""
    batch = step_batch(kv_tokens=150)
    old, young = sequence(40, 60), sequence(40, 60)
    batch.submit(old, 0.0)
    batch.submit(young, 0.0)
    batch.advance(FAR_S)
    assert batch.stats.preemptions >= 1
    assert old.done_s < young.done_s < FAR_S
    assert batch.stats.generation_tokens == 120


def test_fixed_latencies_do_not_depend_on_the_load():
    """First token and gaps are as told, from the slot on; the third of three waits for one of two slots."""
    batch = FixedBatch(2, 10_000, 0.5, 0.1, Stats(Bounds((1.0,), (1.0,), (1.0,), (1.0,)), 1.0))
    one, two, three = sequence(10, 6), sequence(10, 11), sequence(10, 1)
    for each in (one, two, three):
        batch.submit(each, 1.0)
    batch.advance(1.75)
    assert (len(batch.running), len(batch.waiting)) == (2, 1)
    assert batch.tokens(one) == 3
    batch.advance(FAR_S)
    assert (one.first_s, one.done_s, two.done_s) == pytest.approx((1.5, 2.0, 2.5))
    assert (three.admitted_s, three.done_s) == pytest.approx((2.0, 2.5))
