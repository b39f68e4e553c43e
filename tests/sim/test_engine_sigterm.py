"""How the stand-in engine ends: abort, drain, hang, as the engine it stands for."""

from __future__ import annotations

import signal
import threading
import time
from typing import Any

import pytest
import requests

from .engine_processes import LONG_S, EngineProcess, engine, eventually

FIXED = ("--time-to-first-token", "0.2", "--inter-token-latency", "0.05")
LONG = ("--time-to-first-token", "0.05", "--inter-token-latency", "1")


class Client:
    """One stream in a thread.

    Attributes:
        text: what came.
        failed: whether the connection was cut.
    """

    def __init__(self, process: EngineProcess, tokens: int) -> None:
        self.text, self.failed = "", False
        self._url, self._tokens = f"{process.url}/v1/completions", tokens
        self._session = requests.Session()
        self._session.trust_env = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        body: dict[str, Any] = {"prompt": "a b", "max_tokens": self._tokens, "stream": True}
        try:
            with self._session.post(self._url, json=body, stream=True, timeout=LONG_S) as response:
                for piece in response.iter_content(None):
                    self.text += piece.decode()
        except requests.RequestException:
            self.failed = True
        finally:
            self._session.close()

    @property
    def begun(self) -> bool:
        """Whether a token came."""
        return "token" in self.text

    def wait(self) -> None:
        """Until it ends."""
        self._thread.join(LONG_S)
        assert not self._thread.is_alive()


def stopping(process: EngineProcess) -> bool:
    """Whether it says that it has the signal."""
    return any("stopping" in line for line in process.log)


@pytest.mark.parametrize(
    "arguments", [(), ("--dialect", "llama.cpp"), ("--dialect", "sglang", "--on-sigterm", "abort")]
)
def test_abort_cuts_streams_and_ends(arguments):
    """Streams are cut and the process ends at once: vLLM without a shutdown time-out, and llama.cpp."""
    with engine(*LONG, *arguments) as process:
        client = Client(process, 1000)
        assert eventually(lambda: client.begun)
        process.signal()
        assert process.ended() == 0
        client.wait()
    assert client.failed
    assert "[DONE]" not in client.text


def test_vllm_drains_within_its_time():
    """With --shutdown-timeout: new requests 503, health 200, gauges fall, running ones finish, then it ends."""
    with engine(*FIXED, "--shutdown-timeout", "30") as process:
        client = Client(process, 40)
        assert eventually(lambda: client.begun)
        process.signal()
        assert eventually(lambda: stopping(process))
        assert process.post("/v1/completions", {"prompt": "x"}).status_code == 503
        assert process.get("/health").status_code == 200
        assert process.value("vllm:num_requests_running") == 1
        assert process.ended() == 0
        client.wait()
    assert (client.failed, client.text.count(" token")) == (False, 40)
    assert client.text.endswith("data: [DONE]\n\n")


def test_vllms_drain_has_an_end():
    """What is not finished within the time-out is aborted."""
    with engine(*LONG, "--shutdown-timeout", "0.3") as process:
        client = Client(process, 1000)
        assert eventually(lambda: client.begun)
        process.signal()
        assert process.ended() == 0
        client.wait()
    assert client.failed


def test_sglang_drains_without_limit_and_accepts_on():
    """SGLang: health 503, new requests still accepted and answered, ends when none is left."""
    with engine(*FIXED, "--dialect", "sglang") as process:
        client = Client(process, 30)
        assert eventually(lambda: client.begun)
        process.signal()
        assert eventually(lambda: process.get("/health").status_code == 503)
        late = Client(process, 5)
        late.wait()
        assert late.text.count(" token") == 5
        assert process.popen.poll() is None
        assert process.ended() == 0
        client.wait()
    assert client.text.count(" token") == 30


def test_an_idle_engine_ends_at_once():
    """Nothing in flight: a drain ends without waiting."""
    with engine("--on-sigterm", "drain") as process:
        process.signal()
        assert process.ended() == 0


def test_hang_until_a_second_signal():
    """As llama.cpp may: /health 200, /metrics without answer, streams without a token; the second signal ends it."""
    with engine(*FIXED, "--dialect", "llama.cpp", "--on-sigterm", "hang") as process:
        client = Client(process, 1000)
        assert eventually(lambda: client.begun)
        process.signal()
        assert eventually(lambda: stopping(process))
        with pytest.raises(requests.Timeout):
            process.get("/metrics", timeout=0.3)
        before = client.text
        time.sleep(0.2)
        assert client.text == before
        assert process.get("/health").json() == {"status": "ok"}
        assert process.popen.poll() is None
        process.signal()
        assert process.ended() == 128 + signal.SIGTERM
        client.wait()


def test_a_second_signal_ends_a_drain():
    """Whoever asks twice does not wait."""
    with engine(*LONG, "--on-sigterm", "drain") as process:
        client = Client(process, 1000)
        assert eventually(lambda: client.begun)
        process.signal()
        assert eventually(lambda: stopping(process))
        assert process.post("/v1/completions", {"prompt": "x"}).status_code == 503
        process.signal()
        assert process.ended() == 128 + signal.SIGTERM
        client.wait()


def test_ctrl_c_aborts():
    """SIGINT, for a person at a terminal, does not drain."""
    with engine(*LONG, "--dialect", "sglang") as process:
        client = Client(process, 1000)
        assert eventually(lambda: client.begun)
        process.signal(signal.SIGINT)
        assert process.ended() == 0
        client.wait()
