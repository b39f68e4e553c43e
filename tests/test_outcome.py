"""What an HTTP answer means: the state, the failure's kind, and the flag to set in the message."""

import pytest

from infscale.engines import PROFILES
from infscale.outcome import outcome
from infscale.reading import ReadFailure, Reading
from infscale.scrape import Page, ScrapeFailure

IDLE = b"vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n"


def page(status: int, body: bytes = b"") -> Page:
    """An HTTP answer."""
    return Page(status=status, content_type="text/plain", body=body, duration_s=0.01)


@pytest.mark.parametrize(
    ("engine", "status", "body", "state", "said"),
    [
        ("vllm", 404, b"", "misconfigured", "/metrics"),
        ("sglang", 404, b"", "misconfigured", "--enable-metrics"),
        ("llama.cpp", 501, b"{}", "misconfigured", "--metrics"),
        ("llama.cpp", 401, b"", "misconfigured", "--engine.token-file"),
        ("llama.cpp", 400, b"", "unreachable", "autoload=false"),
        ("llama.cpp", 503, b'{"error":{"message":"Loading model","code":503}}', "loading", "loading"),
        ("vllm", 503, b"overloaded", "unreachable", "503"),
        ("vllm", 500, b"", "unreachable", "500"),
        ("", 404, b"", "misconfigured", "SGLang --enable-metrics"),
        ("", 501, b"", "misconfigured", "llama-server --metrics"),
        ("", 401, b"", "misconfigured", "--engine.token-file"),
        ("", 302, b"", "unreachable", "302"),
    ],
)
def test_http_errors_are_states_with_a_hint(engine: str, status: int, body: bytes, state: str, said: str) -> None:
    """Each status is the state of the table, and the message names the flag to set."""
    got = outcome(page(status, body), profile=PROFILES.get(engine), source="http://127.0.0.1:8000/metrics")
    assert isinstance(got, ReadFailure)
    assert (got.state, got.reason) == (state, "http")
    assert said in got.message
    assert "127.0.0.1:8000" in got.message


def test_time_out_on_an_open_port_is_saturated() -> None:
    """A full llama.cpp does not answer its own page: the message says which flag helps."""
    answer = ScrapeFailure(kind="timeout", message="127.0.0.1:8080: no answer in 2 s", connected=True, duration_s=2.0)
    got = outcome(answer, profile=PROFILES["llama.cpp"], source="x")
    assert isinstance(got, ReadFailure)
    assert got.state == "saturated"
    assert "--threads-http" in got.message


def test_full_accept_queue_beside_us_is_saturated() -> None:
    """On the loopback address nothing but a full queue makes a connection time out."""
    answer = ScrapeFailure(kind="timeout", message="no connection in 2 s", connected=False, duration_s=2.0)
    assert outcome(answer, source="http://127.0.0.1:8000/metrics").state == "saturated"
    assert outcome(answer, source="http://10.0.0.7:8000/metrics").state == "unreachable"


@pytest.mark.parametrize("kind", ["refused", "reset", "tls", "too_large", "http", "timeout"])
def test_transport_failures_are_unreachable(kind: str) -> None:
    """Everything else gives no values and keeps its kind for the failure counter."""
    answer = ScrapeFailure(kind=kind, message="why", connected=False, duration_s=0.1)
    got = outcome(answer, source="x")
    assert isinstance(got, ReadFailure)
    assert (got.state, got.reason) == ("unreachable", kind)


def test_good_page_is_a_reading() -> None:
    """200 with an engine's page."""
    got = outcome(page(200, IDLE), source="x")
    assert isinstance(got, Reading)
    assert got.inflight == 0


@pytest.mark.parametrize("body", [IDLE + b"\xff\xfe", b"\x80"])
def test_bytes_that_are_not_utf8_are_unusable(body: bytes) -> None:
    """A page that is not text is no measurement."""
    got = outcome(page(200, body), source="x")
    assert isinstance(got, ReadFailure)
    assert (got.state, got.reason) == ("unreachable", "unusable")


def test_binary_answer_is_not_an_engine() -> None:
    """NUL bytes are no metrics page."""
    got = outcome(page(200, b"\x00\x01"), source="x")
    assert isinstance(got, ReadFailure)
    assert got.state == "not_an_engine"
