"""Arrivals rebuilt from a real Prometheus: from a day and a half that stands in its storage, and from live sidecars."""

from __future__ import annotations

import json
import math
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate

import click
import pytest
from click.testing import CliRunner

from infscale.errors import InfscaleError, SourceError, UsageError
from infscale_sim.traces.options import trace_of, trace_options
from infscale_sim.traces.prometheus import MOST_STEPS, History, Rebuilt, arrivals, duration_s, means, rebuild
from infscale_sim.traces.prometheus_api import POINTS
from infscale_sim.traces.trace import open_trace
from tests.conftest import DATA
from tests.prometheus_server import Prometheus, prometheus
from tests.raw_server import Call, raw_server
from tests.sidecar_process import sidecar

SCRAPE_S, HOURS, RESTART_HOUR = 30, 36, 10
SCRAPES = HOURS * 3600 // SCRAPE_S
PROMPT, OUTPUT = 300, 80


def finished_by(scrape: int) -> float:
    """Requests of one engine that finished up to a scrape: 2 a second with a wave of 1.5 over 12 hours."""
    at_s = scrape * SCRAPE_S
    turn = 2 * math.pi / 43_200
    return 2 * at_s + 1.5 / turn * (1 - math.cos(turn * at_s))


class Past:
    """What several clusters left in a Prometheus, as OpenMetrics for `promtool`.

    Namespace `ml` has two vLLM engines, the first scraped by two jobs and restarted once, the second with a sidecar for
    the last ten hours; `sg` an SGLang over two ranks; `lc` a llama.cpp; `mix` sidecars of both kinds; `slow` an engine
    scraped every two minutes.
    """

    def __init__(self, end_s: int) -> None:
        self.start_s = end_s - HOURS * 3600
        self.lines: dict[str, list[str]] = {}
        reset = finished_by(RESTART_HOUR * 3600 // SCRAPE_S)
        for labels in ('pod="a",job="pods"', 'pod="a",job="services"', 'pod="b",job="pods"'):
            self._engine("vllm:", f'namespace="ml",engine="0",{labels}', reset if 'pod="a"' in labels else 0.0)
        self._engine("infscale_", 'namespace="ml",workload="vllm",pod="b",job="sidecars"', since=(HOURS - 10) * 3600)
        for rank in ("0", "1"):
            self._engine("sglang:", f'namespace="sg",pod="s",tp_rank="{rank}"')
        self._engine("sglang:", 'namespace="sg",pod="s",tp_rank="0",priority="1"')
        self._engine("llamacpp:", 'namespace="lc",pod="l"')
        self._engine("vllm:", 'namespace="slow",pod="p"', every=4)
        self._engine("infscale_", 'namespace="mix",pod="v"', since=(HOURS - 1) * 3600)
        at_s = range(end_s - 3600, end_s, SCRAPE_S)
        self.lines["infscale_engine_info"] = [
            f'infscale_engine_info{{namespace="mix",pod="l",engine="llama.cpp"}} 1 {when_s}' for when_s in at_s
        ]

    def _engine(self, prefix: str, labels: str, reset: float = 0.0, since: int = 0, every: int = 1) -> None:
        finished = {"vllm:": "request_success", "sglang:": "num_requests", "infscale_": "finished_requests"}.get(prefix)
        for scrape in range(since // SCRAPE_S, SCRAPES + 1, every):
            at_s = self.start_s + scrape * SCRAPE_S
            done = finished_by(scrape)
            done = done - reset if done >= reset else done
            values = {"prompt_tokens": done * PROMPT, "generation_tokens": done * OUTPUT}
            if finished:
                values[finished] = done
            for name, value in values.items():
                self.lines.setdefault(prefix + name, []).append(f"{prefix}{name}_total{{{labels}}} {value:.0f} {at_s}")

    def text(self) -> str:
        """All of it."""
        families = (
            f"# TYPE {name} {'gauge' if name.endswith('_info') else 'counter'}\n" + "\n".join(lines)
            for name, lines in self.lines.items()
        )
        return "\n".join(families) + "\n# EOF\n"


@pytest.fixture(scope="module")
def past(tmp_path_factory) -> Iterator[tuple[Prometheus, Past]]:
    """A Prometheus with that past, and the past."""
    folder = tmp_path_factory.mktemp("past")
    told = Past(int(time.time() - 600) // 300 * 300)
    (folder / "past.om").write_text(told.text())
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "--max-block-duration=128h"]
    made = subprocess.run([*command, "past.om", "data"], cwd=folder, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    with prometheus(folder, []) as server:
        yield server, told


def history(past: tuple[Prometheus, Past], hours: float = HOURS, **settings) -> History:
    """A question about the last so many hours of the past."""
    server, told = past
    return History(server.url, hours * 3600, told.start_s + HOURS * 3600, **settings)


def hourly(rebuilt: Rebuilt) -> list[float]:
    """Requests per hour."""
    found = [0.0] * HOURS
    for level in rebuilt.levels:
        found[int(level.start_s // 3600)] += level.rate * level.seconds
    return found


def truth(engines: int) -> list[float]:
    """What so many engines really finished per hour."""
    per_hour = 3600 // SCRAPE_S
    return [engines * (finished_by((h + 1) * per_hour) - finished_by(h * per_hour)) for h in range(HOURS)]


def test_a_past_of_raw_series(past):
    """A day and a half from vLLM's own counters, in more than one query: each hour is within 2 %, the restart included.

    The engine that two jobs scrape counts once, and the sidecar that came later does not replace the whole.
    """
    rebuilt = rebuild(history(past, selector='namespace="ml"'))

    assert len(rebuilt.levels) == HOURS * 60 > POINTS
    assert hourly(rebuilt) == pytest.approx(truth(2), rel=0.02)
    assert rebuilt.levels[100].prompt_tokens == pytest.approx(PROMPT, rel=0.02)
    assert rebuilt.levels[-1].output_tokens == pytest.approx(OUTPUT, rel=0.02)
    assert "requests in 2,160 steps of 60 s, from vllm:request_success_total" in rebuilt.note


def test_normalised_series_where_they_saw_as_much(past):
    """The series of infscale are taken for the workload that has them; the hours before them count as silence."""
    rebuilt = rebuild(history(past, workload="ml/vllm"))

    assert hourly(rebuilt)[-9:] == pytest.approx(truth(1)[-9:], rel=0.02)
    assert sum(hourly(rebuilt)[:25]) == 0
    assert "from infscale_finished_requests_total; 1,5" in rebuilt.note
    assert "steps without a value count as silence" in rebuilt.note


def test_ranks_are_copies_and_priorities_are_parts(past):
    """SGLang's tensor ranks count once, and the series of one priority not beside that of all."""
    rebuilt = rebuild(history(past, selector='{namespace="sg"}', step_s=300))

    assert hourly(rebuilt) == pytest.approx(truth(1), rel=0.02)
    assert "sglang:num_requests_total" in rebuilt.note


def test_slow_scrapes_take_a_longer_step(past):
    """Where a minute never holds two scrapes, five are tried; a step that was asked for is told to be too short."""
    rebuilt = rebuild(history(past, selector='namespace="slow"'))

    assert rebuilt.levels[0].seconds == 300
    assert hourly(rebuilt) == pytest.approx(truth(1), rel=0.05)
    with pytest.raises(SourceError, match="no two scrapes within 60 s: give a --step of four scrape intervals"):
        rebuild(history(past, selector='namespace="slow"', step_s=60))


def test_as_a_trace(past):
    """`open_trace` makes requests of it: as many as the rates say, the same for a seed, a tenth at a tenth."""
    asked = history(past, hours=6, selector='namespace="ml"')
    trace = open_trace(asked, scale=0.1, seed=3)
    found = list(trace)

    assert (trace.format, trace.seed) == ("prometheus", 3)
    assert trace.note.endswith("from vllm:request_success_total")
    assert len(found) == pytest.approx(sum(truth(2)[-6:]) / 10, rel=0.08)
    assert 0 <= found[0].arrival_s <= found[-1].arrival_s < 6 * 3600
    assert found == list(trace)


@pytest.mark.parametrize(
    ("selector", "words"),
    [
        ('namespace="lc"', "the engine of these series .* counts no requests .llama.cpp does not., so its arrivals"),
        (
            'namespace=~"lc|ml"',
            "there are engines .* that count no requests .llama.cpp.: leave them out with --selector",
        ),
        ('namespace="mix"', "beside infscale_finished_requests_total there are engines .* that count no requests"),
        (
            'namespace="none"',
            'no series with namespace="none" of infscale, vLLM or SGLang in that range: check --range',
        ),
    ],
)
def test_what_cannot_be_rebuilt(past, selector, words):
    """An engine without a counter of requests, one beside others, and no engine at all are refused in one line."""
    with pytest.raises(SourceError, match=words) as caught:
        rebuild(history(past, selector=selector))

    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"step_s": 1e6}, "--step is 1e.06 s: expected 0.1 s or more and at most the range"),
        ({"step_s": 0.01}, "--step is 0.01 s"),
        ({"range_s": 1e9}, "--range has 16,666,667 steps: expected a --step of 5000 s or more"),
        ({"workload": "vllm"}, "--workload: expected NAMESPACE/NAME"),
        ({"workload": 'ml/a"b'}, "--workload: expected NAMESPACE/NAME"),
        ({"selector": "namespace=ml"}, "--selector: expected label matchers"),
        ({"selector": 'a="b"}) or ({c="d"'}, "--selector: expected label matchers"),
        ({"url": "prometheus:9090"}, "expected http:// or https://"),
        ({"url": "http://127.0.0.1:1/?query=up"}, "has a query"),
        ({"url": "http://me:secret@127.0.0.1:1"}, "holds a user name or password"),
        ({"url": "http://127.0.0.1:1"}, "Prometheus at 127.0.0.1:1: .*refused"),
    ],
)
def test_bad_questions(settings, words):
    """What cannot be asked is refused in one line with what was expected, before the server is bothered."""
    asked = {"url": "http://127.0.0.1:1", "range_s": 3600.0, "end_s": 1e9, **settings}

    with pytest.raises(InfscaleError, match=words) as caught:
        rebuild(History(**asked))

    assert "secret" not in str(caught.value)
    assert MOST_STEPS * 60 > 120 * 86_400


NAMES = b'{"status": "success", "data": ["vllm:request_success_total"]}'


def names(call: Call) -> bytes:
    """The answer to a question for names: there is a vLLM, and no sidecar."""
    return NAMES.replace(b'"vllm:request_success_total"', b"") if b"engine_info" in call.request else NAMES


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"<html>", "HTTP 200 and no JSON: expected Prometheus' HTTP API"),
        (b"[1]", "an answer of another kind"),
        (b'{"status": "success", "data": [1]}', "an answer of another kind"),
        (b'{"status": "error", "errorType": "bad_data", "error": "parse\\nerror"}', "bad_data: parse error"),
        (NAMES, "an answer of another kind"),  # to a query too
        (b'{"status": "error", "errorType": "execution", "error": "query processing would load too many samples"}',
         "execution: query processing would load too many samples"),
    ],
)  # fmt: skip
def test_a_server_that_answers_otherwise(answer, words):
    """An answer that is not Prometheus' is an error in one line that names the server."""
    with raw_server(lambda call: call.page(names(call) if answer == NAMES else answer)) as server:
        with pytest.raises(SourceError, match=words) as caught:
            rebuild(History(f"http://127.0.0.1:{server.port}", 3600, 1e9))

        assert f"Prometheus at 127.0.0.1:{server.port}: " in str(caught.value)


def test_a_server_that_hangs():
    """Each query has a time-out."""
    with (
        raw_server(lambda call: call.hang()) as server,
        pytest.raises(SourceError, match=r"Prometheus at .* 0\.2 s"),
    ):
        rebuild(History(f"http://127.0.0.1:{server.port}", 3600, 1e9, timeout_s=0.2))


def test_large_queries_are_asked_in_halves():
    """A server that finds a query too large gets smaller ones, and each stays below Prometheus' 11,000 points."""
    points: list[int] = []

    def answer(call: Call) -> None:
        if "/label/" in call.path:
            return call.page(names(call))
        ends = dict(part.split("=") for part in call.path.partition("?")[2].split("&") if "query" not in part)
        count = int((float(ends["end"]) - float(ends["start"])) / float(ends["step"])) + 1
        points.append(count)
        if count > 300:
            error = {"status": "error", "errorType": "execution", "error": "would load too many samples"}
            return call.page(json.dumps(error).encode(), status="422 Unprocessable Entity")
        values = [[float(ends["start"]) + n * 60, "6"] for n in range(count)]
        data = {"resultType": "matrix", "result": [{"metric": {}, "values": values}]}
        return call.page(json.dumps({"status": "success", "data": data}).encode())

    with raw_server(answer) as server:
        rebuilt = rebuild(History(f"http://127.0.0.1:{server.port}", 86_400, 1e9))

    assert max(points) <= POINTS
    assert [level.rate for level in rebuilt.levels] == [0.1] * 1440


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("5m", 300), ("36h", 129_600), ("1d12h", 129_600), ("7d", 604_800), ("2w", 1_209_600)],
)
def test_durations(text, seconds):
    """Durations are written as for Prometheus."""
    assert duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "7", "d", "1.5d", "7 d", "-7d", "7days", "1h30"])
def test_bad_durations(text):
    """What is no duration is told with an example."""
    with pytest.raises(UsageError, match="expected a number and a unit"):
        duration_s(text)


def test_a_full_engine_shows_what_was_asked_of_it():
    """While an engine is full its queue grows by what does not finish; both together are the arrivals."""
    sent = [10.0, 10, 40, 40, 40, 5, 5, 5, 5, 0]
    inflight, finished = [0.0], []
    for arrived in sent:
        done = min(20.0, inflight[-1] + arrived)
        finished.append(done)
        inflight.append(inflight[-1] + arrived - done)

    assert arrivals(finished, inflight) == sent


def test_what_is_owed_is_paid_back():
    """A gauge that fell before its counter rose makes no negative arrivals, and changes no sum."""
    found = arrivals([0, 8, 5, 5], [8, 0, 0, 0, 0])

    assert found == [0, 0, 5, 5]
    assert list(accumulate(found))[-1] == 10


def test_means_are_taken_over_enough_requests():
    """Lengths are means over at least 200 finished requests, the rest at the end included; the tokens' sum stays."""
    finished = [50.0] * 9
    prompts = [0.0, 10_000] + [5000.0] * 7

    found = means(finished, prompts, [0.0] * 9)

    assert found[:4] == [(100, 1)] * 4
    assert found[4:] == [(100, 1)] * 5
    assert means([0, 0], [0, 0], [0, 0]) == [(1, 1), (1, 1)]


class Engine:
    """A vLLM page whose counters follow a clock: requests come at a rate and take half a second each."""

    TAKES_S = 0.5

    def __init__(self, rate: float, began_s: float) -> None:
        self._rate, self._began_s = rate, began_s

    def answer(self, call: Call) -> None:
        """The page at this moment."""
        age_s = time.time() - self._began_s
        arrived, done = (int(self._rate * max(0.0, one)) for one in (age_s, age_s - self.TAKES_S))
        labels = 'engine="0",model_name="m"'
        lines = [
            "# TYPE vllm:num_requests_running gauge",
            f"vllm:num_requests_running{{{labels}}} {arrived - done}",
            "# TYPE vllm:num_requests_waiting gauge",
            f"vllm:num_requests_waiting{{{labels}}} 0",
            "# TYPE vllm:request_success_total counter",
            f'vllm:request_success_total{{{labels},finished_reason="stop"}} {done - done // 3}',
            f'vllm:request_success_total{{{labels},finished_reason="length"}} {done // 3}',
            "# TYPE vllm:prompt_tokens_total counter",
            f"vllm:prompt_tokens_total{{{labels}}} {done * PROMPT}",
            "# TYPE vllm:generation_tokens_total counter",
            f"vllm:generation_tokens_total{{{labels}}} {done * OUTPUT}",
        ]
        call.page("\n".join([*lines, ""]).encode(), "Content-Type: text/plain; version=0.0.4")


LIVE_S = 8.0


def test_live_sidecars_end_to_end(tmp_path):
    """Two engines at 12 and 28 requests a second, a sidecar each, scraped by a Prometheus: 40 a second come back.

    Within 5 %, from the sidecars' series and from the engines' own; and lengths too.
    """
    began_s = time.time() - 60
    first, second = Engine(12, began_s), Engine(28, began_s)
    with (
        raw_server(first.answer) as one,
        raw_server(second.answer) as two,
        sidecar("--engine-url", one.url(), "--engine.min-interval=0.05") as left,
        sidecar("--engine-url", two.url(), "--engine.min-interval=0.05") as right,
        prometheus(tmp_path, [left.address, right.address, *(f"127.0.0.1:{at.port}" for at in (one, two))]) as server,
    ):
        while len(server.query('{__name__=~"infscale_inflight_requests|vllm:num_requests_running"}')) < 4:
            time.sleep(0.1)  # its first scrape comes some seconds after it is ready
        time.sleep(LIVE_S + 0.5)
        asked = History(server.url, LIVE_S, time.time(), step_s=4.0)
        both = rebuild(asked)
        raw = rebuild(replace(asked, selector=f'instance=~"127.0.0.1:({one.port}|{two.port})"'))

    assert "from infscale_finished_requests_total" in both.note
    assert "from vllm:request_success_total" in raw.note
    for rebuilt in (both, raw):
        assert sum(level.rate * level.seconds for level in rebuilt.levels) / LIVE_S == pytest.approx(40, rel=0.05)
        assert rebuilt.levels[0].prompt_tokens == pytest.approx(PROMPT, rel=0.05)
        assert rebuilt.levels[0].output_tokens == pytest.approx(OUTPUT, rel=0.05)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "no trace"),
        (["--trace", str(DATA / "traces/azure-conversation.yaml"), "--limit", "5"], "synthetic 5 2023"),
        (["--trace", "nope.csv"], "nope.csv: cannot be read"),
        (["--trace", "a.csv", "--prometheus", "http://127.0.0.1:1"], "expected one of them"),
        (["--prometheus", "http://127.0.0.1:1", "--range", "7x"], "'7x' is no duration"),
        (["--prometheus", "http://127.0.0.1:1", "--step", "8d"], "--step is 691200 s"),
        (["--prometheus", "http://127.0.0.1:1", "--workload", "ml/vllm"], "Prometheus at 127.0.0.1:1: "),
    ],
)
def test_flags(arguments, words):
    """The flags name a file or a Prometheus, and what is wrong with them is told."""

    @click.command
    @trace_options
    def command(**flags):
        try:
            trace = trace_of(flags)
        except InfscaleError as error:
            click.echo(str(error))
        else:
            click.echo("no trace" if trace is None else f"{trace.format} {len(list(trace))} {trace.seed}")

    result = CliRunner().invoke(command, arguments)

    assert words in result.output
    assert result.exit_code == 0
