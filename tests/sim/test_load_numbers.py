"""The arithmetic of `infscale load`: percentiles, what counts in a window, and the knee of a sweep."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infscale.errors import UsageError
from infscale_sim.load_client import completions_url, read_event
from infscale_sim.load_record import Asked, Record, Sketch
from infscale_sim.load_run import Load, arrivals_at
from infscale_sim.load_sweep import Level, find_knee

LOAD = Load("m", 10, 20, 60.0, 0)


@given(st.lists(st.floats(1e-4, 1e4), min_size=1, max_size=200), st.floats(0.01, 1))
def test_percentiles_are_right_to_a_hundredth(values, q):
    """Any values: the percentile is that of the sorted list, to 1 %."""
    sketch = Sketch()
    for value in values:
        sketch.add(value)
    exact = sorted(values)[math.ceil(q * len(values)) - 1]
    assert sketch.quantile(q) == pytest.approx(exact, rel=0.0101)
    assert sketch.max == max(values)


def test_memory_of_a_sketch_is_bounded():
    """From 10 us to a day, all times together fall into some 2,300 buckets."""
    sketch = Sketch()
    for power in range(110_000):
        sketch.add(1e-5 * math.exp(power * 0.0002))
    assert len(sketch._buckets) < 2400


def test_nothing_measured_has_no_percentiles():
    """Without a value there is no number, in place of a 0."""
    assert set(Sketch().summary().values()) == {None}


def test_the_window_counts_tokens_of_older_requests_but_not_their_times():
    """After a warm-up: throughput is of all tokens in the window, percentiles of the requests that began in it."""
    record = Record(since_s=10.0, slo_ttft_s=1.0)
    old, new = Asked(9.0, 5, 3), Asked(10.5, 5, 3)
    for asked in (old, new):
        record.begin(asked)
    record.piece(old, 9.5)
    record.piece(old, 11.0)
    record.piece(new, 11.0)
    record.piece(new, 11.25)
    record.end(new, 11.5, None)
    record.cut(old, 12.0)
    assert (record.sent, record.completed, record.unfinished, record.pieces) == (1, 1, 0, 3)
    assert (record.ttft_s.count, record.ttft_s.max, record.gap_s.max, record.total_s.max) == (1, 0.5, 0.25, 1.0)


def test_pieces_of_several_tokens_count_as_the_server_tells():
    """Two pieces that held ten tokens: ten tokens, and the mean gap in place of the gap between pieces."""
    record, asked = Record(0.0), Asked(0.0, 5, 10, told_tokens=10)
    record.begin(asked)
    record.piece(asked, 1.0)
    record.piece(asked, 1.9)
    record.end(asked, 2.0, None)
    assert (record.output_tokens, record.gap_s.count) == (10, 9)
    assert record.gap_s.max == pytest.approx(0.1)


def test_requests_without_a_first_token_are_late_when_their_age_says_so():
    """A queue that only grows breaks the SLO, though those who wait have no TTFT; young ones say nothing."""
    record = Record(0.0, slo_ttft_s=1.0)
    for due_s in (0.0, 0.5, 9.5):
        record.cut(Asked(due_s, 1, 1), 10.0)
    record.end(Asked(1.0, 1, 1), 1.1, "http 503")
    assert (record.late, record.judged, record.late_share) == (3, 3, 1.0)


def test_even_and_random_arrivals_have_their_rate():
    """The k-th even one comes at (k - 0.5) / rate; random ones have the rate in the mean, and repeat for a seed."""
    even = [request.arrival_s for request in itertools.islice(arrivals_at(4, LOAD, poisson=False), 3)]
    assert even == pytest.approx([0.125, 0.375, 0.625])
    random = list(itertools.islice(arrivals_at(50, LOAD, poisson=True), 5000))
    assert random[-1].arrival_s == pytest.approx(100, rel=0.05)
    assert random == list(itertools.islice(arrivals_at(50, LOAD, poisson=True), 5000))


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("http://h:1", "/v1/completions"),
        ("http://h:1/", "/v1/completions"),
        ("http://h:1/v1/", "/v1/completions"),
        ("http://h:1/team/a", "/team/a/v1/completions"),
        ("http://h:1/v1/chat/completions", "/v1/chat/completions"),
        ("http://h:1/v1/completions", "/v1/completions"),
    ],
)
def test_url_of_the_call(url, path):
    """A server, its /v1, or the call itself are all understood."""
    assert completions_url(url).path == path


def test_url_that_is_none():
    """Anything but http and https is refused."""
    with pytest.raises(UsageError, match="scheme"):
        completions_url("ftp://h")


@pytest.mark.parametrize(
    ("payload", "text", "tokens", "ended"),
    [
        (b'{"choices":[{"text":"a","finish_reason":null}]}', True, None, False),
        (b'{"choices":[{"delta":{"role":"assistant","content":""}}]}', False, None, False),
        (b'{"choices":[{"delta":{"content":"a"}}]}', True, None, False),
        (b'{"choices":[{"delta":{"reasoning_content":"a"}}]}', True, None, False),
        (b'{"choices":[{"delta":{},"finish_reason":"stop"}],"usage":null}', False, None, True),
        (b'{"choices":[],"usage":{"completion_tokens":7}}', False, 7, False),
    ],
)
def test_chunks_of_streams(payload, text, tokens, ended):
    """Text counts as a token, a role or an empty piece does not; the reason and the counts are found."""
    event = read_event(payload)
    assert (event.text, event.tokens, event.ended) == (text, tokens, ended)


def level(concurrency: int, tokens_per_s: float, late: float = 0.0, errors: int = 0) -> Level:
    """A level of a sweep."""
    return Level(concurrency, tokens_per_s, 0.1, late, errors)


@pytest.mark.parametrize(
    ("levels", "knee", "target", "says"),
    [
        ([level(1, 100), level(2, 200), level(4, 390), level(8, 395), level(16, 396)], 4, 3, "within 10%"),
        ([level(8, 100), level(16, 200), level(32, 400, late=0.2)], 16, 12, "20% of the first tokens come after 2 s"),
        ([level(8, 100), level(16, 200, errors=3), level(32, 400)], 8, 6, "3 requests failed"),
        ([level(1, 100), level(2, 200)], 2, 1, "sweep further"),
        ([level(1, 100, late=1.0)], None, None, "no knee"),
        ([level(1, 0.0)], None, None, "no token came"),
        ([level(1, 50)], 1, 1, "Target 1"),
    ],
)
def test_knee(levels, knee, target, says):
    """The least level that holds the SLO with nearly the best throughput, and why."""
    found = find_knee(levels, 2.0)
    assert (found.concurrency, found.target) == (knee, target)
    assert any(says in line for line in found.why)
