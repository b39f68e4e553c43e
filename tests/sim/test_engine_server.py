"""The stand-in engine over real sockets: OpenAI's API and streams, gauges, faults, keys, bounds."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator

import pytest
import requests
from click.testing import CliRunner

from infscale.cli import cli
from infscale.errors import InfscaleError
from infscale.normalise import read_page
from infscale.reading import ReadFailure, Reading
from infscale.web.message import Request, Response
from infscale_sim import engine_connection
from infscale_sim.engine_connection import Connection

from .engine_processes import LONG_S, EngineProcess, engine, eventually

FIXED = ("--max-num-seqs", "2", "--time-to-first-token", "0.1", "--inter-token-latency", "0.02")
SLOW = ("--max-num-seqs", "2", "--time-to-first-token", "0.05", "--inter-token-latency", "0.5")


@pytest.fixture(scope="module")
def quick() -> Iterator[EngineProcess]:
    """One engine for the tests that leave it as it was."""
    with engine("--model", "tiny", "--speed", "20") as process:
        yield process


def completion(**more: object) -> dict[str, object]:
    """A small request."""
    return {"prompt": "one two three", "max_tokens": 4, **more}


@contextlib.contextmanager
def streams(process: EngineProcess, count: int, tokens: int = 1000) -> Iterator[list[socket.socket]]:
    """So many streams that nobody reads."""
    body = json.dumps(completion(max_tokens=tokens, stream=True)).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_connection(("127.0.0.1", process.port))) for _ in range(count)]
        for each in sockets:
            each.settimeout(LONG_S)
            each.sendall(head + body)
        yield sockets


def reading(process: EngineProcess) -> Reading:
    """What infscale reads from its page now."""
    found = read_page(process.get("/metrics").text)
    assert isinstance(found, Reading), found
    return found


def events(response: requests.Response) -> list[dict]:
    """The chunks of a stream, whose lines are those of the documented format to the byte."""
    assert response.headers["Content-Type"].startswith("text/event-stream")
    *blocks, rest = response.content.split(b"\n\n")
    assert rest == b""
    assert all(block.startswith(b"data: ") and b"\n" not in block for block in blocks)
    assert blocks.pop() == b"data: [DONE]"
    return [json.loads(block[6:]) for block in blocks]


def test_stream_of_a_completion(quick):
    """Text in chunks, a last one with the reason, no usage where it was not asked for, [DONE]."""
    chunks = events(quick.post("/v1/completions", completion(stream=True, model="tiny")))
    choices = [chunk["choices"][0] for chunk in chunks]
    assert "".join(choice["text"] for choice in choices).split() == ["token"] * 4
    assert [choice["finish_reason"] for choice in choices] == [None] * (len(choices) - 1) + ["length"]
    assert {(chunk["object"], chunk["model"], chunk["id"]) for chunk in chunks} == {
        ("text_completion", "tiny", chunks[0]["id"])
    }
    assert all("usage" not in chunk for chunk in chunks)


def test_stream_of_a_chat(quick):
    """The role first, then pieces of content, the reason, and the token counts in a last chunk without choices."""
    value = {"messages": [{"role": "user", "content": [{"type": "text", "text": "hello you"}]}], "stream": True}
    value |= {"max_completion_tokens": 3, "stream_options": {"include_usage": True}}
    *chunks, last = events(quick.post("/v1/chat/completions", value))
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert deltas[-1] == {}
    assert "".join(delta["content"] for delta in deltas[1:-1]) == " token" * 3
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert (last["choices"], last["usage"]) == (
        [],
        {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5},
    )


def test_answers_in_one_piece(quick):
    """Without `stream`: the whole text with its token counts; a chat without a limit ends by itself."""
    value = quick.post("/v1/completions", completion(prompt=[1, 2, 3, 4, 5])).json()
    assert (value["choices"][0]["text"], value["choices"][0]["finish_reason"]) == (" token" * 4, "length")
    assert value["usage"] == {"prompt_tokens": 5, "completion_tokens": 4, "total_tokens": 9}
    value = quick.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}).json()
    assert (value["object"], value["choices"][0]["finish_reason"]) == ("chat.completion", "stop")
    assert value["choices"][0]["message"]["role"] == "assistant"


def test_tokens_come_one_by_one():
    """At real speed a stream brings each token when it is made, not all at the end."""
    with engine("--time-to-first-token", "0.1", "--inter-token-latency", "0.1") as process:
        response = process.post("/v1/completions", completion(stream=True), stream=True)
        times = [time.monotonic() for line in response.iter_lines(chunk_size=1) if b"token" in line]
    assert len(times) == 4
    assert times[-1] - times[0] > 0.2


@pytest.mark.parametrize(
    ("path", "body", "status", "says"),
    [
        ("/v1/completions", b"{", 400, "not JSON"),
        ("/v1/completions", b"[" * 100_000, 400, "not JSON"),
        ("/v1/completions", b"[]", 400, "object"),
        ("/v1/completions", b"{}", 400, "prompt"),
        ("/v1/completions", b'{"prompt": "x", "max_tokens": 0}', 400, "max_tokens"),
        ("/v1/completions", b'{"prompt": "x", "max_tokens": true}', 400, "max_tokens"),
        ("/v1/completions", b'{"prompt": "x", "max_tokens": 500000}', 400, "KV cache"),
        ("/v1/completions", b'{"prompt": "x", "n": 2}', 400, "n other than 1"),
        ("/v1/completions", b'{"prompt": "x", "model": "other"}', 404, "other"),
        ("/v1/completions", b'{"prompt": ["a", "b"]}', 400, "prompt"),
        ("/v1/completions", b'{"prompt": "x", "stream_options": 1}', 400, "stream_options"),
        ("/v1/chat/completions", b'{"messages": []}', 400, "messages"),
        ("/v1/chat/completions", b'{"messages": [{"content": "x"}]}', 400, "role"),
        ("/v1/chat/completions", b'{"messages": [{"role": "user", "content": 3}]}', 400, "content"),
        ("/v1/embeddings", b"{}", 404, "Not Found"),
        ("/fault", b'{"faults": ["none"]}', 400, "no such fault 'none'"),
        ("/fault", b'{"faults": "nan"}', 400, "faults"),
        ("/v1/completions", b"x" * 2_000_000, 413, "larger"),
    ],
)
def test_bad_requests_are_refused(quick, path, body, status, says):
    """What cannot be answered is refused with its status and what is wrong; the engine goes on."""
    answer = quick.session.post(quick.url + path, data=body, timeout=LONG_S)
    assert answer.status_code == status
    assert says in answer.text
    assert quick.get("/health").status_code == 200


def test_listing_and_probe(quick):
    """`/v1/models` names the model, `/health` is good, HEAD has no body, other paths are 404."""
    assert [entry["id"] for entry in quick.get("/v1/models").json()["data"]] == ["tiny"]
    assert quick.session.head(quick.url + "/health", timeout=LONG_S).status_code == 200
    assert quick.get("/nothing").status_code == 404
    assert quick.get("/v1/completions").status_code == 405


def test_requests_of_one_connection_are_answered_in_order(quick):
    """Two requests sent at once on one connection, and one in pieces, get their answers; Connection: close closes."""
    one = b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"
    last = b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", quick.port)) as client:
        client.settimeout(LONG_S)
        client.sendall(one + one + last[:20])
        time.sleep(0.05)
        client.sendall(last[20:])
        data = b"".join(iter(lambda: client.recv(65536), b""))
    assert data.count(b"HTTP/1.1 200 OK") == 3


@pytest.mark.parametrize("data", [b"\x16\x03\x01\0\xee\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"GET /" + b"a" * 70_000])
def test_what_is_no_request_is_refused_and_ended(quick, data):
    """A head that breaks the rules is answered 4xx and the connection ends."""
    with socket.create_connection(("127.0.0.1", quick.port)) as client:
        client.settimeout(LONG_S)
        client.sendall(data)
        assert client.recv(65536).startswith(b"HTTP/1.1 4")
        with contextlib.suppress(ConnectionResetError):
            while client.recv(65536):
                pass


def test_a_stream_to_http_10_ends_with_the_connection(quick):
    """A client of HTTP/1.0 gets the stream without chunks, and the end of the connection."""
    body = json.dumps(completion(stream=True)).encode()
    head = f"POST /v1/completions HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", quick.port)) as client:
        client.settimeout(LONG_S)
        client.sendall(head.encode() + body)
        data = b"".join(iter(lambda: client.recv(65536), b""))
    assert data.endswith(b"data: [DONE]\n\n")
    assert b"chunked" not in data


@pytest.mark.parametrize("dialect", ["vllm", "sglang", "llama.cpp"])
def test_gauges_are_true_at_every_moment(dialect):
    """8 streams on 2 slots: 2 run, 6 wait; a client that leaves frees its slot at once; all gone: 0."""
    with engine(*SLOW, "--dialect", dialect) as process:
        with streams(process, 8) as sockets:
            assert eventually(lambda: reading(process).inflight == 8)
            assert (reading(process).running, reading(process).waiting) == (2, 6)
            sockets[0].recv(65536)
            sockets[0].close()
            sockets[5].close()
            assert eventually(lambda: reading(process).inflight == 6)
            assert (reading(process).running, reading(process).waiting) == (2, 4)
        assert eventually(lambda: reading(process).inflight == 0)


def test_vllms_counters_move_while_tokens_come():
    """Prompt tokens count with the first token, generated ones one by one, requests at their end."""
    with engine(*FIXED) as process, streams(process, 1, tokens=100):
        assert eventually(lambda: process.value("vllm:generation_tokens_total") > 3)
        assert process.value("vllm:prompt_tokens_total") == 3
        assert process.value("vllm:time_to_first_token_seconds_sum") == pytest.approx(0.1, rel=0.01)
        assert process.value("vllm:request_success_total") == 0


def test_speed_compresses_time():
    """At 100 times the speed, answers of 5 s of the engine's time come in 50 ms, and the page agrees with the watch."""
    with engine("--speed", "100") as process:
        start_s = time.monotonic()
        process.post("/v1/completions", completion(max_tokens=700))
        took_s = time.monotonic() - start_s
        told_s = process.value("vllm:e2e_request_latency_seconds_sum")
    assert 0.03 < told_s <= took_s < 3


def test_hundreds_of_streams_at_once():
    """300 streams, more than the slots: each gets every token and its end."""
    with engine("--speed", "20") as process, streams(process, 300, tokens=50) as sockets:
        for client in sockets:
            data = b""
            while not data.endswith(b"0\r\n\r\n"):
                data += client.recv(65536)
            assert data.count(b" token") == 50
        assert reading(process).inflight == 0
        assert process.value("vllm:generation_tokens_total") == 300 * 50


def test_a_reader_that_takes_nothing_does_not_fill_the_memory():
    """A stream that nobody reads waits; its tokens are counted all the same, and other clients are served."""
    with engine("--speed", "1000") as process, streams(process, 1, tokens=300_000) as sockets:
        assert eventually(lambda: process.value("vllm:generation_tokens_total") > 50_000)
        assert process.post("/v1/completions", completion()).status_code == 200
        assert sockets[0].recv(100).startswith(b"HTTP/1.1 200")


def test_a_client_that_was_slow_and_then_idles_is_let_go(monkeypatch):
    """The time between two requests counts for it too: the end of a long answer that it took late is no reprieve."""
    monkeypatch.setattr(engine_connection, "IDLE_S", 0.5)

    def answer(_request: Request, connection: Connection) -> None:
        connection.answer(Response(200, b"x" * 20_000_000))

    async def serve() -> tuple[int, bytes]:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Connection(answer, lambda _: True, lambda _: None), "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await asyncio.sleep(0.1)
        head = await reader.readuntil(b"\r\n\r\n")
        body = await reader.readexactly(20_000_000)
        async with asyncio.timeout(LONG_S):
            after = await reader.read()
        writer.close()
        server.close()
        return len(head) > 0 and len(body), after

    assert asyncio.run(serve()) == (20_000_000, b"")


def test_more_connections_than_it_may_have_are_refused():
    """A process that may open 256 files holds 64 connections; each further one is told 503, and the engine lives."""
    with engine(most_files=256) as process:
        with contextlib.ExitStack() as stack:
            address = ("127.0.0.1", process.port)
            clients = [stack.enter_context(socket.create_connection(address)) for _ in range(200)]
            for client in clients[64:]:
                client.settimeout(LONG_S)
                assert client.recv(100).startswith(b"HTTP/1.1 503")
        assert eventually(lambda: process.get("/health").status_code == 200)
        assert not any("Too many open files" in line for line in process.log)


def test_faults_switch_at_run_time():
    """Each fault shows on the page as in the field, infscale says what it is, and the page heals."""
    with engine(*SLOW, "--fault", "drop-gauges") as process, streams(process, 3):
        assert eventually(lambda: process.value("vllm:generation_tokens_total") > 0)  # until then it may be fresh
        assert isinstance(read_page(process.get("/metrics").text), ReadFailure)
        process.faults("nan")
        assert isinstance(read_page(process.get("/metrics").text), ReadFailure)
        process.faults("error-500")
        assert process.get("/metrics").status_code == 500
        process.faults("hang-metrics")
        with pytest.raises(requests.Timeout):
            process.get("/metrics", timeout=0.3)
        assert process.get("/health").status_code == 200
        process.faults()
        assert eventually(lambda: reading(process).inflight == 3)


def test_frozen_gauges_thaw():
    """`freeze-gauges` keeps 3 in flight after their clients left; without it the page is true again."""
    with engine(*SLOW) as process:
        with streams(process, 3):
            assert eventually(lambda: reading(process).inflight == 3)
            process.faults("freeze-gauges")
        time.sleep(0.1)
        assert reading(process).inflight == 3
        process.faults()
        assert eventually(lambda: reading(process).inflight == 0)


def test_a_stalled_engine_stands_still_and_goes_on():
    """`stall`: /health is 200, requests run and no counter moves; after it, tokens come on."""
    with engine(*FIXED) as process, streams(process, 1):
        assert eventually(lambda: process.value("vllm:generation_tokens_total") > 1)
        process.faults("stall")
        before = process.value("vllm:generation_tokens_total")
        time.sleep(0.2)
        assert process.value("vllm:generation_tokens_total") == before
        assert reading(process).inflight == 1
        assert process.get("/health").status_code == 200
        process.faults()
        assert eventually(lambda: process.value("vllm:generation_tokens_total") > before)


@pytest.mark.parametrize(
    ("dialect", "guarded", "open_"),
    [
        ("vllm", ["/v1/models"], ["/metrics", "/health"]),
        ("sglang", ["/v1/models"], ["/metrics", "/health"]),
        ("llama.cpp", ["/v1/models", "/metrics"], ["/health"]),
    ],
)
def test_api_key_guards_what_the_engine_guards(dialect, guarded, open_, tmp_path):
    """Without the key 401 on the engine's guarded paths only; with it 200."""
    file = tmp_path / "key"
    file.write_text("secret-1\n")
    with engine("--dialect", dialect, "--api-key-file", str(file)) as process:
        assert [process.get(path).status_code for path in guarded] == [401] * len(guarded)
        assert [process.get(path).status_code for path in open_] == [200] * len(open_)
        key = {"Authorization": "Bearer secret-1"}
        assert [process.get(path, headers=key).status_code for path in guarded] == [200] * len(guarded)
        assert process.post("/v1/completions", completion()).status_code == 401
        assert process.post("/v1/completions", completion(), headers=key).status_code == 200
    assert "secret-1" not in "".join(process.log)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--version", "new"], "--version 'new'"),
        (["--profile", "h100-8"], "h100-8b"),
        (["--shutdown-timeout", "3", "--on-sigterm", "abort"], "--shutdown-timeout"),
        (["--api-key-file", "EMPTY"], "holds no key"),
        (["--host", "192.0.2.1"], "192.0.2.1"),
        (["--speed", "0"], "--speed"),
    ],
)
def test_bad_flags_are_one_line(arguments, says, tmp_path):
    """A flag that cannot be used ends the command with what was expected."""
    empty = tmp_path / "empty"
    empty.touch()
    given = [str(empty) if each == "EMPTY" else each for each in arguments]
    result = CliRunner().invoke(cli, ["sim-engine", "--port", "0", *given])
    text = result.output + (str(result.exception) if isinstance(result.exception, InfscaleError) else "")
    assert result.exit_code != 0
    assert says in text


def test_threads_of_requests_share_the_slots(quick):
    """Clients that come and go leave nothing behind: nothing in flight at the end."""
    threads = [
        threading.Thread(target=quick.post, args=("/v1/completions", completion(max_tokens=20))) for _ in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG_S)
    assert reading(quick).inflight == 0
