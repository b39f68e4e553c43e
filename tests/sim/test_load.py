"""`infscale load` as a process against stand-in engines and against servers that misbehave."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator

import pytest
import requests
from click.testing import CliRunner

from infscale.cli import cli
from infscale.errors import SourceError, UsageError
from infscale_sim.load_client import Client
from infscale_sim.load_record import Record
from infscale_sim.load_run import Load, Runner

from ..raw_server import Call, raw_server
from .engine_processes import LONG_S, EngineProcess, command_line, engine, environment, eventually

FIXED = ("--max-num-seqs", "2", "--time-to-first-token", "0.1", "--inter-token-latency", "0.01")
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
TOKEN = b'data: {"choices":[{"index":0,"text":"a","finish_reason":null}]}\n\n'
END = b'data: {"choices":[{"index":0,"text":"","finish_reason":"length"}]}\n\ndata: [DONE]\n\n'


def chunk(*parts: bytes) -> bytes:
    """One HTTP chunk of parts."""
    data = b"".join(parts)
    return b"%x\r\n%b\r\n" % (len(data), data)


def load(url: str, *arguments: str, **variables: str) -> tuple[int, str, str]:
    """Run to the end: exit code, standard output, standard error."""
    done = subprocess.run(
        command_line("load", url, *arguments),
        capture_output=True,
        text=True,
        timeout=LONG_S,
        env=environment(**variables),
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def measured(url: str, *arguments: str, **variables: str) -> dict:
    """The result of a run in JSON, with nothing beside it."""
    code, out, err = load(url, *arguments, "--json", **variables)
    assert err == ""
    return {**json.loads(out), "exit": code}


@pytest.fixture(scope="module")
def fixed() -> Iterator[EngineProcess]:
    """One engine of two slots, for the tests that leave it as it was."""
    with engine(*FIXED) as process:
        yield process


def test_two_slots_under_eight_clients_show_a_queue_of_eight():
    """Batch 2, concurrency 8: running 2, waiting 6 on the page, and target 4 decides 2 replicas."""
    with engine(*FIXED, "--inter-token-latency", "0.05") as process:
        run = subprocess.Popen(
            command_line("load", process.url, "--concurrency", "8", "--duration", "20", "--json"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        assert eventually(lambda: process.value("vllm:num_requests_waiting") == 6)
        assert process.value("vllm:num_requests_running") == 2
        decision = subprocess.run(
            [*command_line("decide", f"{process.url}/metrics"), "--policy", "queue:4,max=9", "--format", "json"],
            capture_output=True,
            text=True,
            timeout=LONG_S,
            env=environment(),
            check=False,
        )
        run.send_signal(signal.SIGINT)
        out, err = run.communicate(timeout=LONG_S)
    assert re.search(r'"desired": 2\b', decision.stdout), decision
    assert (run.returncode, err) == (128 + signal.SIGINT, "")
    found = json.loads(out)
    assert found["interrupted"] is True
    assert found["requests"]["sent"] >= 8
    assert found["requests"]["failed"] == 0


def test_closed_loop_measures_what_the_engine_does():
    """Fixed latencies: the percentiles are those, throughput is slots over the time of a request, within the run."""
    with engine(*FIXED, "--max-num-seqs", "4") as process:
        found = measured(process.url, "--concurrency", "4", "--duration", "2", "--output-tokens", "11")
        told = process.value("vllm:prompt_tokens_total") / process.value("vllm:time_to_first_token_seconds_count")
    assert found["exit"] == 0
    # Never faster than the engine; a busy machine adds to it.
    assert 0.09 < found["ttft_s"]["p50"] < 0.18
    assert 0.008 < found["inter_token_s"]["p50"] < 0.018
    assert 0.19 < found["total_s"]["p50"] < 0.36
    assert 4 * 11 / 0.36 < found["output_tokens_per_s"] < 4 * 11 / 0.19
    assert found["errors"] == {}
    assert told == 128  # a word is a token
    requests_ = found["requests"]
    assert requests_["sent"] == requests_["completed"] + requests_["failed"] + requests_["unfinished"]


def test_open_loop_sends_at_its_rate(fixed):
    """Even arrivals at 20/s for 2 s: 40 requests, whether they are answered or not."""
    even = measured(fixed.url, "--rate", "20", "--arrivals", "even", "--duration", "2", "--output-tokens", "5")
    assert even["requests"]["sent"] == pytest.approx(40, abs=1)
    assert even["requests"]["unfinished"] > 0
    assert even["requests"]["failed"] == 0


def test_trace_is_sent_as_it_is(tmp_path):
    """Each row is a request of its size at its time; the run ends with the last answer."""
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n0,10,3\n0.2,20,4\n0.4,30,5\n")
    with engine(*FIXED) as process:
        found = measured(process.url + "/v1/chat/completions", "--trace", str(trace))
        prompt, output = (process.value(f"vllm:{kind}_tokens_total") for kind in ("prompt", "generation"))
    assert found["requests"] == {"sent": 3, "completed": 3, "failed": 0, "unfinished": 0}
    assert (prompt, output, found["prompt_tokens"], found["output_tokens"]) == (60, 12, 60, 12)
    assert 0.4 < found["duration_s"] < 10


def test_bad_trace_is_one_line(tmp_path, fixed):
    """A row that cannot be used ends the run with the file and line."""
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n0,10,3\n0.1,ten,4\n")
    code, _, err = load(fixed.url, "--trace", str(trace))
    assert code == 2
    assert "trace.csv:3" in err
    assert err.count("\n") == 1


def test_sweep_finds_the_knee():
    """4 slots: throughput grows to 4 at once and no further; the target is three quarters of that."""
    latencies = ("--time-to-first-token", "0.02", "--inter-token-latency", "0.02")
    with engine(*latencies, "--max-num-seqs", "4") as process:
        code, out, _ = load(process.url, "--sweep", "1,2,4,8", "--duration", "1.2", "--output-tokens", "11")
        found = measured(
            process.url, "--sweep", "4,8", "--duration", "1.2", "--output-tokens", "11", "--slo-ttft", "0.15"
        )
    assert code == 0
    assert "target per replica: 3 (policy queue:3)" in out
    assert (found["knee"], found["target"]) == (4, 3)
    assert [level["concurrency"] for level in found["levels"]] == [4, 8]
    assert any("after 0.15 s" in line for line in found["why"])


def test_an_endless_list_of_models_ends():
    """A server that sends on and on is told in one line, before the time for it is over."""

    def serve(call: Call) -> None:
        call.send(b"HTTP/1.1 200 OK\r\n\r\n")
        call.forever(b"[" * 65536)

    async def run(url: str) -> None:
        await Client(url).models()

    with raw_server(serve) as server, pytest.raises(SourceError, match="bad answer"):
        asyncio.run(run(server.url("")))


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", "http 503"),
        (HEAD + chunk(TOKEN), "cut"),
        (HEAD + chunk(TOKEN) + b"0\r\n\r\n", "cut"),
        (HEAD + chunk(b"data: nonsense\n\n") + b"0\r\n\r\n", "bad answer"),
        (HEAD + b"zzz\r\n", "bad answer"),
        (HEAD + chunk(b'data: {"choices":[],"usage":{"completion_tokens":"7"}}\n\n'), "bad answer"),
        (HEAD + chunk(b'data: {"choices":[],"usage":{"completion_tokens":-1}}\n\n'), "bad answer"),
        (HEAD + chunk(b'data: {"error": {"message": "no"}}\n\n'), "error in the stream"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}", "not a stream"),
        (b"SSH-2.0-x\r\n\r\n", "bad answer"),
        (b"", "closed"),
        (None, "timed out"),
    ],
)
def test_errors_are_counted_by_kind(answer, kind):
    """What goes wrong is counted under a few words, and the run goes on to its end."""

    def serve(call: Call) -> None:
        if answer is None:
            call.hang()
        call.send(answer or b"")

    async def run(url: str) -> Record:
        runner = Runner(Client(url), Load("m", 5, 5, 0.3, 0), asyncio.Event(), slo_ttft_s=1.0)
        await runner.closed(1, 0.5)
        return runner.record

    with raw_server(serve) as server:
        record = asyncio.run(run(server.url("")))
    assert set(record.errors) == {kind}
    assert record.errors[kind] + record.unfinished == record.sent
    assert record.completed == 0


def test_a_server_that_is_not_there():
    """Nothing listens: one line without a model to ask for, `refused` with one."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        url = f"http://127.0.0.1:{held.getsockname()[1]}"
    code, _, err = load(url, "--concurrency", "1")
    assert code == 1
    assert "refused" in err
    assert err.count("\n") == 1
    found = measured(url, "--model", "m", "--concurrency", "2", "--duration", "0.5")
    assert (found["exit"], list(found["errors"])) == (1, ["refused"])


@pytest.mark.parametrize(("flags", "fewer"), [((), False), (("--keep-alive",), True)])
def test_a_connection_for_each_request_unless_told(flags, fewer):
    """kube-proxy balances connections: each request has its own, unless --keep-alive; proxies never apply."""
    answered = []

    def serve(call: Call) -> None:
        while True:
            want = int(call.header("Content-Length") or 0)
            have = call.request.partition(b"\r\n\r\n")[2]
            while len(have) < want:
                have += call.connection.recv(65536)
            answered.append(call.header("Connection"))
            call.send(HEAD, chunk(TOKEN, TOKEN), chunk(END), b"0\r\n\r\n")
            call.request = b""
            call.read_request()
            if not call.request:
                return

    with raw_server(serve) as server:
        proxy = dict.fromkeys(("http_proxy", "HTTP_PROXY", "all_proxy"), "http://127.0.0.1:1")
        found = measured(
            server.url(""), "--model", "m", "--rate", "20", "--duration", "0.8", *flags, "--arrivals", "even", **proxy
        )
        connections = len(server.calls)
    assert found["errors"] == {}
    assert found["requests"]["completed"] >= 10
    assert (connections < len(answered)) is fewer
    assert set(answered) == {None if fewer else "close"}


def test_progress_is_for_terminals_only(fixed):
    """On a terminal a line that is drawn again and again; else nothing but the result."""
    master, slave = pty.openpty()
    with os.fdopen(master, "rb", buffering=0) as terminal:
        run = subprocess.Popen(
            command_line("load", fixed.url, "--concurrency", "1", "--duration", "1"),
            stdout=subprocess.PIPE,
            stderr=slave,
            env=environment(),
        )
        os.close(slave)
        out, _ = run.communicate(timeout=LONG_S)
        shown = b""
        while True:
            try:
                data = terminal.read(65536)
            except OSError:  # what Linux says when the other side is gone
                break
            shown += data
    assert b"[####" in shown
    assert b"under way 1" in shown
    assert b"first token" in out
    assert load(fixed.url, "--concurrency", "1", "--duration", "0.3")[2] == ""


def test_api_key_comes_from_a_file(tmp_path):
    """The key is sent to the server and shown nowhere."""
    key = tmp_path / "key"
    key.write_text("top-secret\n")
    with engine(*FIXED, "--api-key-file", str(key)) as process:
        found = measured(process.url, "--api-key-file", str(key), "--concurrency", "1", "--duration", "0.5")
        code, out, err = load(process.url, "--concurrency", "1")
    assert found["requests"]["failed"] == 0
    assert (code, "http 401" in err) == (1, True)
    assert "top-secret" not in json.dumps(found) + out + err


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--concurrency", "1", "--rate", "2"],
        ["--sweep", "4,2"],
        ["--rate", "0"],
        ["--trace", "absent.csv"],
        ["--concurrency", "1", "--timeout", "0"],
    ],
)
def test_bad_flags_are_one_line(arguments):
    """What to run is told exactly once and in range, else it is a usage error."""
    result = CliRunner().invoke(cli, ["load", "http://127.0.0.1:9", *arguments])
    assert result.exit_code == 2 or isinstance(result.exception, UsageError)


def free(process: EngineProcess) -> bool:
    """Whether nothing is in flight."""
    return process.value("vllm:num_requests_running") + process.value("vllm:num_requests_waiting") == 0


def test_the_end_of_a_run_frees_the_server():
    """Requests under way at the end are cut, and the engine's slots are free at once."""
    with engine("--time-to-first-token", "0.05", "--inter-token-latency", "5") as process:
        found = measured(process.url, "--concurrency", "6", "--duration", "0.5")
        assert eventually(lambda: free(process))
    assert found["requests"]["unfinished"] == 6
    assert found["exit"] == 0


def test_requests_library_reads_the_stream_too():
    """The stand-in's stream is one that another HTTP client understands: requests, line by line."""
    with engine(*FIXED) as process, requests.Session() as session:
        session.trust_env = False
        start_s = time.monotonic()
        with session.post(
            f"{process.url}/v1/completions", json={"prompt": "a", "stream": True}, stream=True, timeout=LONG_S
        ) as response:
            lines = [line for line in response.iter_lines() if line]
    texts = [json.loads(line.removeprefix(b"data: "))["choices"] for line in lines[:-1]]
    # Tokens that are late go out together.
    assert "".join(choice[0]["text"] for choice in texts if choice).count("token") == 16
    assert lines[-1] == b"data: [DONE]"
    assert time.monotonic() - start_s > 0.2
