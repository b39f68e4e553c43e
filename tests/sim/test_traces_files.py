"""Trace files: every format, errors that name the line, scaling, and a memory that does not grow."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infscale.errors import UsageError
from infscale_sim.traces.files import MAX_LINE_BYTES
from infscale_sim.traces.trace import open_trace
from infscale_sim.traffic import Request, Requests

CSV = "arrival_s,prompt_tokens,output_tokens\n0,10,1\n0.5,20,2\n0.5,30,3\n"
AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n2023-11-17 00:00:00,12,1\n"
)
MOONCAKE = (
    '{"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47]}\n'
    '\n{"timestamp": 30535, "input_length": 6472, "output_length": 26, "hash_ids": [46]}\n'
)
BURSTGPT = (
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,ChatGPT,472,18,490,Conversation log\n45,GPT-4,1087,0,1087,API log\n118,GPT-4,417,276,693,Conversation log\n"
)
RATES = "start_s,seconds,requests_per_second,mean_prompt_tokens,mean_output_tokens\n"
SERVEGEN = "t_s,rate_rps,active_clients,mean_input_tokens,mean_output_tokens\n"


@pytest.fixture
def write(tmp_path: Path):
    """Writes a trace and gives its path."""

    def to_file(text: str | bytes, name: str = "trace.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return to_file


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("csv", CSV, [(0, 10, 1), (0.5, 20, 2), (0.5, 30, 3)]),
        ("csv", "\ufeff" + CSV.replace("\n", "\r\n"), [(0, 10, 1), (0.5, 20, 2), (0.5, 30, 3)]),
        ("csv", 'id,output_tokens,"arrival_s",prompt_tokens\n"a,b",7.0,1e1,8\n\n', [(10, 8, 7)]),
        ("azure", AZURE, [(0, 374, 44), (4.314579, 396, 109), (20653.31941, 12, 1)]),
        ("mooncake", MOONCAKE, [(0, 6955, 52), (3.053, 6472, 26)]),
        ("burstgpt", BURSTGPT, [(0, 472, 18), (113, 417, 276)]),
    ],
    ids=["ours", "a BOM and CRLF", "quotes, other columns", "azure", "mooncake", "burstgpt"],
)
def test_format_is_found_out(write, kind, text, expected):
    """Each format with one request a row is known by its first line, and starts as it is documented to."""
    trace = open_trace(write(text))

    assert (trace.format, trace.seed) == (kind, None)
    assert [(pytest.approx(time_s, abs=1e-4), *rest) for time_s, *rest in trace] == expected


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 0, "an empty file"),
        ("a,b\n1,2\n", 1, "begins no trace: expected arrival_s,prompt_tokens,output_tokens or start_s"),
        (CSV.splitlines()[0], 0, "no request in it"),
        (CSV + "1,2\n", 5, "2 values: expected 3"),
        (CSV + "x,2,3\n", 5, "arrival_s is 'x': expected a number from 0"),
        (CSV + "nan,2,3\n", 5, "arrival_s is 'nan'"),
        (CSV + "-1,2,3\n", 5, "arrival_s is '-1'"),
        (CSV + "1796027770,2,3\n", 5, "arrival_s is '1796027770': expected a number from 0 to 316,224,000"),
        (CSV + "0.25,2,3\n", 5, "arrival_s goes back by 0.25 s: expected rows in order of arrival (sort it)"),
        (CSV + "1,0,3\n", 5, "prompt_tokens is '0': expected a whole number of tokens, 1 or more"),
        (CSV + "1,2,\n", 5, "output_tokens is ''"),
        (CSV + "1,2,3.5\n", 5, "output_tokens is '3.5'"),
        (CSV + "1,2,inf\n", 5, "output_tokens is 'inf'"),
        (CSV + "1,2,²\n", 5, "output_tokens is '²'"),
        (CSV + f"1,{'9' * 5000},3\n", 5, "prompt_tokens is '9999999999999999999999999999999999999...'"),
        (CSV + '1,"2\n', 5, "values: expected 3"),
        (CSV.encode() + b"1,\xff,3\n", 0, "not UTF-8"),
        (CSV.encode() + b"1,\0,3\n", 5, "a binary file"),
        (CSV + "1," + "2" * MAX_LINE_BYTES, 5, "more than 1 MiB"),
        (CSV + f"1,{'2' * 200_000},3", 5, "not CSV: field larger than field limit"),
        (AZURE + "yesterday,2,3\n", 5, "TIMESTAMP is 'yesterday': expected a date like the first"),
        (AZURE + "2023-11-18 00:00:00+00:00,2,3\n", 5, "TIMESTAMP is '2023-11-18 00:00:00+00:00'"),
        (AZURE + "2023-11-16 00:00:00,2,3\n", 5, "TIMESTAMP is '2023-11-16 00:00:00'|goes back"),
        (MOONCAKE + "{", 4, "not JSON: '{': expected an object a line"),
        (MOONCAKE + "[1]", 4, "'[1]': expected an object with timestamp, input_length, output_length"),
        (MOONCAKE + "[" * 100_000, 4, "not JSON"),
        (MOONCAKE + '{"timestamp": 1, "input_length": 2}', 4, "expected an object with timestamp"),
        (MOONCAKE + '{"timestamp": true, "input_length": 2, "output_length": 2}', 4, "timestamp is 'True'"),
        (MOONCAKE + '{"timestamp": 4e4, "input_length": [2], "output_length": 2}', 4, "input_length is '[2]'"),
        (BURSTGPT + "x,a,1,1,2,b\n", 5, "Timestamp is 'x'"),
        (RATES + "0,60,1,100,10\n30,60,1,100,10\n", 3, "starts at 30 s, before the row above ends at 60 s"),
        (RATES + "0,0,1,100,10\n", 2, "seconds is 0"),
        (RATES + "0,60,1,0,10\n", 2, "mean_prompt_tokens is 0 where the rate is above 0: expected 1 or more"),
        (RATES + "0,60,fast,100,10\n", 2, "requests_per_second is 'fast'"),
        (RATES + "0,60,0,,\n", 0, "no request in it"),
        (SERVEGEN + "0,1,1,100,10\n", 2, "a single row"),
        (SERVEGEN + "0,1,1,100,10\n0,1,1,100,10\n", 3, "t_s is 0: expected more than the 0 above"),
        ("minute,total_tokens_per_s\n0,many\n", 2, "total_tokens_per_s is 'many'"),
    ],
)
def test_bad_rows_are_told_by_line(write, text, line, words):
    """What cannot be used is told in one line: the file, the line, what stands there and what was expected."""
    path = write(text)

    with pytest.raises(UsageError) as caught:
        list(open_trace(path))

    message = str(caught.value)
    assert message.startswith(f"{path}:{line}: " if line else f"{path}: ")
    assert any(word in message for word in words.split("|"))
    assert "\n" not in message
    assert len(message) < len(str(path)) + 300


def test_missing_file(tmp_path):
    """A file that is not there, and a folder, are told as such."""
    with pytest.raises(UsageError, match=r"nope\.csv: cannot be read: No such file"):
        open_trace(tmp_path / "nope.csv")
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        open_trace(tmp_path)


@pytest.mark.parametrize(("scale", "limit"), [(0, None), (-1, None), (float("nan"), None), (1e9, None), (1, 0)])
def test_bad_scale_and_limit(write, scale, limit):
    """A scale that is no positive number, and a limit below 1, are refused before anything is read."""
    with pytest.raises(UsageError, match="expected"):
        open_trace(write(CSV), scale=scale, limit=limit)


def rows(count: int) -> str:
    """A CSV trace with a request every tenth of a second, each with a length of its own."""
    return CSV.splitlines()[0] + "\n" + "".join(f"{n / 10},{n + 1},{n % 9 + 1}\n" for n in range(count))


@pytest.mark.parametrize("scale", [0.1, 0.5, 1.5, 3])
def test_scale_gives_so_many_times_the_requests(write, scale):
    """Thinned or multiplied, in order, with lengths of the trace; the same for a seed, and other for another."""
    path = write(rows(4000))
    whole = list(open_trace(path))

    trace = open_trace(path, scale=scale, seed=7)
    found = list(trace)

    assert len(found) == pytest.approx(4000 * scale, rel=0.1 if scale < 1 else 0.03)
    assert found == sorted(found, key=lambda request: request.arrival_s)
    assert {request[1:] for request in found} <= {request[1:] for request in whole}
    assert set(found) <= set(whole) if scale < 1 else set(found) >= set(whole)
    assert trace.seed == 7
    assert list(trace) == found
    assert list(open_trace(path, scale=scale, seed=8)) != found


def test_copies_come_before_the_next_request(write):
    """A request and its copies lie between its own time and the next one's: bursts stay bursts, no batch is made."""
    found = list(open_trace(write(rows(100)), scale=4))

    assert len(found) == 400
    for request in found[:-4]:
        own_s = (request.prompt_tokens - 1) / 10
        assert own_s <= request.arrival_s <= own_s + 0.1 + 1e-9
    assert len({request.arrival_s for request in found[:-4]}) == 396


def test_limit_takes_the_first(write):
    """A limit takes the first requests, after the scale, and reads no further: the broken row behind is not met."""
    path = write(rows(10) + "broken\n")

    assert [request.prompt_tokens for request in open_trace(path, limit=10)] == list(range(1, 11))
    assert len(list(open_trace(path, scale=2, limit=5))) == 5


def test_thinned_to_nothing_is_told(write):
    """A scale that leaves no request is an error that says so."""
    with pytest.raises(UsageError, match="no request in it at scale 1e-06"):
        list(open_trace(write(CSV), scale=1e-6))


def test_a_long_trace_stays_on_disk(write):
    """A walk over 20,000 requests, scaled or not, never holds more than a few of them."""
    path = write(rows(20_000))
    peaks = []
    for scale in (1, 1.5):
        tracemalloc.start()
        count = sum(1 for _ in open_trace(path, scale=scale))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert count >= 20_000

    assert max(peaks) < 300_000


def test_requests_of_the_simulator_take_a_trace(write):
    """The simulator's arrays take a trace as it is."""
    requests = Requests.of(open_trace(write(CSV)))

    assert list(requests.arrival_s) == [0, 0.5, 0.5]
    assert list(requests.output_tokens) == [1, 2, 3]


def test_rates_become_poisson_arrivals(write):
    """Each stretch has its requests and mean lengths, a gap between stretches none, and a low rate what it should."""
    stretches = "0,600,10,1000,100\n600,600,0,,\n2000,600,4,50,500\n"
    low = "".join(f"{2600 + n},1,0.01,5,5\n" for n in range(20_000))
    trace = open_trace(write(RATES + stretches + low))

    found = list(trace)

    assert (trace.format, trace.seed) == ("rates", 0)
    first, second, last = (
        [request for request in found if start <= request.arrival_s < end]
        for start, end in ((0, 600), (2000, 2600), (2600, 22_600))
    )
    assert len(first) + len(second) + len(last) == len(found)
    assert len(first) == pytest.approx(6000, rel=0.05)
    assert len(second) == pytest.approx(2400, rel=0.08)
    assert len(last) == pytest.approx(200, rel=0.3)
    assert mean(first, 1) == pytest.approx(1000, rel=0.06)
    assert mean(first, 2) == pytest.approx(100, rel=0.05)
    assert mean(second, 2) == pytest.approx(500, rel=0.07)
    assert list(trace) == found
    assert len(list(open_trace(write(RATES + stretches), scale=0.5))) == pytest.approx(4200, rel=0.08)


def test_servegen_rates_hold_until_the_next_row(write):
    """The last row of ServeGen's rates holds as long as the one before; a row of silence has no mean."""
    trace = open_trace(write(SERVEGEN + "0,2,9,100,10\n600,0,0,0,0\n1200,1,9,100,10\n"))

    times = [request.arrival_s for request in trace]

    assert trace.format == "servegen"
    assert sum(time_s < 600 for time_s in times) == pytest.approx(1200, rel=0.12)
    assert not any(600 <= time_s < 1200 for time_s in times)
    assert sum(1200 <= time_s < 1800 for time_s in times) == pytest.approx(600, rel=0.16)
    assert max(times) < 1800


def test_burstgpt_minutes_have_its_tokens(write):
    """Minutes that tell tokens per second become requests of 734 tokens on the mean; silent minutes are silent."""
    minutes = "".join(f"{n},{0 if n % 2 else 734}\n" for n in range(60))
    found = list(open_trace(write("minute,total_tokens_per_s\n" + minutes)))

    assert all(int(request.arrival_s // 60) % 2 == 0 for request in found)
    assert len(found) == pytest.approx(1800, rel=0.1)
    assert sum(request[1] + request[2] for request in found) == pytest.approx(734 * 1800, rel=0.12)


def mean(requests: list[Request], column: int) -> float:
    """Of one column."""
    return sum(request[column] for request in requests) / len(requests)


@given(
    st.lists(st.tuples(st.floats(0, 1e6), st.integers(1, 10**6), st.integers(1, 10**6)), min_size=1, max_size=30),
    st.sampled_from(["csv", "jsonl"]),
)
def test_what_is_written_is_read(tmp_path_factory, wanted, form):
    """Any requests in order come back as they were written, in both kinds of lines."""
    wanted = sorted(wanted)
    path = tmp_path_factory.mktemp("traces") / f"trace.{form}"
    if form == "csv":
        lines = [CSV.splitlines()[0], *(f"{time_s!r},{prompt},{output}" for time_s, prompt, output in wanted)]
    else:
        names = ("timestamp", "input_length", "output_length")
        lines = [json.dumps(dict(zip(names, (t * 1000, p, o), strict=True))) for t, p, o in wanted]
    path.write_text("\n".join(lines))

    start_s = 0 if form == "csv" else wanted[0][0]
    found = list(open_trace(path))
    assert [request[1:] for request in found] == [request[1:] for request in wanted]
    assert [request.arrival_s for request in found] == pytest.approx([time_s - start_s for time_s, *_ in wanted])
