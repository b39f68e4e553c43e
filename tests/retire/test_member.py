"""The verdict on one read of a member, from what its sidecar says and what its page shows."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from infscale.retire.envelope import Envelope, parse_envelope
from infscale.retire.member import HELD, IDLE, REFUSED, Verdict, judge, judge_load
from infscale.retire.rules import Reason, Rule
from infscale.retire.series import read_series
from tests.retire.sidecars import PAGE, FakeSidecar

VLLM = """\
vllm:num_requests_running{{engine="0"}} {running}
vllm:num_requests_waiting{{engine="0"}} {waiting}
vllm:generation_tokens_total{{engine="0"}} {tokens}
process_start_time_seconds 1000
"""
FRESH = 'vllm:generation_tokens_total{engine="0"} 0\nprocess_start_time_seconds 1000\n'
UID = "uid-1"


@pytest.fixture
def sidecar():
    """A sidecar's word, to be changed."""
    made = FakeSidecar(lambda: 5000.0)
    yield made
    made.close()


def vllm(running: object = 0, waiting: object = 0, tokens: object = 7) -> bytes:
    """An engine's page."""
    return VLLM.format(running=running, waiting=waiting, tokens=tokens).encode()


def said(sidecar: FakeSidecar, **fields: Any) -> Envelope:
    """The envelope with these fields."""
    envelope = parse_envelope(json.dumps({**sidecar.reading(), **fields}).encode())
    assert isinstance(envelope, Envelope), envelope
    return envelope


def verdict(page: bytes, envelope: Envelope | Reason | None = None, engine: str = "vllm") -> Verdict:
    """The verdict on a page."""
    return judge(engine, UID, envelope, read_series(page, engine))


@pytest.mark.parametrize("page", [vllm(), vllm("0.0", "0e0"), FRESH.encode()])
def test_an_idle_engine(sidecar, page):
    """All gauges there and 0, or a fresh engine: idle, with its counters and start; with and without a sidecar."""
    alone, both = verdict(page), verdict(page, said(sidecar))

    assert (alone.kind, both.kind) == (IDLE, IDLE)
    assert alone.started_at_s in (1000.0, None)
    assert alone.engine_read_at_s is None


def test_an_idle_sidecar_page(sidecar):
    """The sidecar's own page, with the time of its read of the engine."""
    found = verdict(sidecar.metrics(), said(sidecar))

    assert (found.kind, found.engine_read_at_s, found.started_at_s) == (IDLE, 5000.0, 1000.0)


@pytest.mark.parametrize("page", [vllm(tokens=7), PAGE.format(inflight=0, tokens=7, up=1, down=0).encode()])
def test_counters_tell_reads_apart(sidecar, page):
    """The same counters give the same digest, others another."""
    other = page.replace(b"} 7", b"} 8")

    assert verdict(page, said(sidecar)).counters == verdict(page, said(sidecar)).counters
    assert verdict(page, said(sidecar)).counters != verdict(other, said(sidecar)).counters


@pytest.mark.parametrize("page", [vllm(1), vllm(0, 1), vllm("1e-7")])
def test_still_serving_is_held(sidecar, page):
    """Anything above 0 is a request."""
    found = verdict(page, said(sidecar, inflight=1))

    assert (found.kind, found.reason.rule) == (HELD, Rule.SERVING)


@pytest.mark.parametrize(
    "page",
    [
        vllm("NaN"),
        vllm("+Inf"),
        vllm(-1, 1),
        vllm("x"),
        b'vllm:num_requests_running{engine="0"} 0\n',
        b'vllm:generation_tokens_total{engine="0"} 9\n',
    ],
)
def test_unusable_and_missing_gauges_are_held(page):
    """The absence of a measurement is no measurement of absence."""
    found = verdict(page)

    assert (found.kind, found.reason.rule) == (HELD, Rule.INCOMPLETE)


def test_unusable_is_told_before_missing(sidecar):
    """A page with both, and a sidecar over two engines with one each."""
    page = verdict(b'vllm:num_requests_running{engine="0"} NaN\n')
    first = {**sidecar.reading()["engines"][0], "state": "misconfigured", "message": "no waiting"}
    second = {**first, "state": "unreachable", "message": "running is nan"}
    both = verdict(vllm(), said(sidecar, complete=False, inflight=None, engines=[first, second]))

    assert "nan" in page.reason.detail
    assert both.reason.detail == "unreachable: running is nan"


@pytest.mark.parametrize("page", [b"<html>", b"", b'{"a": 1}', b"\xff\xfe", b"infscale_up {"])
def test_no_metrics_is_held(page):
    """HTML, JSON, nothing, bytes, a page that breaks the format."""
    found = verdict(page)

    assert (found.kind, found.reason.rule) == (HELD, Rule.READ_FAILED)


def test_a_failed_read_is_held(sidecar):
    """Of the page, or of the sidecar."""
    failed = Reason(Rule.READ_FAILED, "timed out")

    assert judge("vllm", UID, said(sidecar), failed) == Verdict(HELD, failed)
    assert judge("vllm", UID, failed, read_series(vllm(), "vllm")) == Verdict(HELD, failed)


@pytest.mark.parametrize(
    "page",
    [
        vllm(1),
        vllm("NaN"),
        vllm(-1),
        b'vllm:num_requests_running{engine="0"} 0\n',
        PAGE.format(inflight=2, tokens=1, up=1, down=0).encode(),
        PAGE.format(inflight="NaN", tokens=1, up=1, down=0).encode(),
        PAGE.format(inflight=0, tokens=1, up=0, down=1).encode(),
        PAGE.format(inflight=0, tokens=1, up=1, down=1).encode(),
        b'infscale_up 1\ninfscale_engine_state{state="ok"} 1\n',
        b'infscale_up 1\ninfscale_inflight_requests{model_name="m"} 0\n',
        b'infscale_inflight_requests{model_name="m"} 0\n',
        PAGE.format(inflight=0, tokens=1, up=1, down=0)
        .replace('waiting_requests{model_name="m"} 0', "waiting_requests 4")
        .encode(),
    ],
)
def test_a_false_claim_is_refused(sidecar, page):
    """A sidecar that says idle over a series that is not 0, missing or unusable."""
    found = verdict(page, said(sidecar))

    assert (found.kind, found.reason.rule) == (REFUSED, Rule.FALSE_CLAIM)


@pytest.mark.parametrize("fields", [{"complete": False}, {"complete": False, "inflight": None}])
def test_an_incomplete_envelope_is_held(sidecar, fields):
    """However idle the page looks."""
    found = verdict(vllm(), said(sidecar, state="unreachable", message="refused", **fields))

    assert (found.kind, found.reason) == (HELD, Reason(Rule.INCOMPLETE, "unreachable: refused"))


def test_a_complete_envelope_without_a_number_is_held(sidecar):
    """It claims nothing."""
    found = verdict(vllm(), said(sidecar, inflight=None))

    assert (found.kind, found.reason.rule) == (HELD, Rule.INCOMPLETE)


@pytest.mark.parametrize(
    ("fields", "kind", "rule"),
    [
        ({"role": "prefill"}, REFUSED, Rule.ROLE),
        ({"role": "decode"}, REFUSED, Rule.ROLE),
        ({"engine": "sglang"}, HELD, Rule.DISAGREE),
        ({"engine": "my-engine"}, HELD, Rule.UNCLAIMED),
    ],
)
def test_what_the_sidecar_knows_of_its_engine(sidecar, fields, kind, rule):
    """Its role and its name count beside the command."""
    envelope = said(sidecar, engines=[{**sidecar.reading()["engines"][0], **fields}])

    for found in (verdict(vllm(), envelope), judge_load("vllm", UID, envelope)):
        assert (found.kind, found.reason.rule) == (kind, rule)


def test_several_ports_are_ranks(sidecar):
    """A vLLM whose sidecar reads two ports."""
    one = sidecar.reading()["engines"][0]
    found = verdict(vllm(), said(sidecar, engines=[one, {**one, "port": 8001}]))

    assert (found.kind, found.reason.rule) == (REFUSED, Rule.ROLE)


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_a_role_on_the_page_is_refused(role):
    """SGLang's `engine_type`."""
    page = f'sglang:num_running_reqs{{engine_type="{role}"}} 0\nsglang:num_queue_reqs{{engine_type="{role}"}} 0\n'

    assert verdict(page.encode(), engine="sglang").reason.rule is Rule.ROLE


def test_an_answer_of_another_pod_is_held(sidecar):
    """The sidecar tells its Pod's UID."""
    found = verdict(vllm(), said(sidecar, pod={"namespace": "ml", "name": "x", "uid": "uid-2"}))

    assert (found.kind, found.reason.rule) == (HELD, Rule.DRIFTED)


def test_the_page_of_another_engine_is_held():
    """A command that runs vLLM beside a page of SGLang's."""
    found = verdict(b"sglang:num_running_reqs 0\nsglang:num_queue_reqs 0\n")

    assert found.kind == HELD


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"[" * 100_000,
        b"{}",
        b'{"complete": 1}',
        b'{"complete": true, "withdrawn": true, "inflight": true, "engines": [{}]}',
        b'{"complete": true, "withdrawn": true, "inflight": 0, "engines": []}',
        b'{"complete": true, "withdrawn": true, "inflight": 0, "engines": [1]}',
        b'{"complete": true, "withdrawn": true, "inflight": 0, "engines": [{}], "client_connections": {}}',
        b'{"complete": true, "withdrawn": true, "inflight": 0, "engines": [{"role": 5}]}',
    ],
)
def test_what_is_no_envelope(body):
    """Anything else than what the sidecar says is a failed read."""
    found = parse_envelope(body)

    assert isinstance(found, Reason)
    assert found.rule is Rule.READ_FAILED


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-1", "1" + "0" * 400, "true", '"0"'])
@pytest.mark.parametrize("field", ["inflight", "read_at", "port", "started_at", "established", "looked_since"])
def test_a_number_that_cannot_be_is_no_envelope(sidecar, field, number):
    """What is unusable is not taken for 0, wherever it stands, and the field is named."""
    text = json.dumps({"port": 1, "started_at": 1, **sidecar.reading()})
    found = parse_envelope(re.sub(rf'("{field}": )[^,}}]+', rf"\g<1>{number}", text).encode())

    assert isinstance(found, Reason)
    assert f"{field}: expected a number, 0 or more" in found.detail


@pytest.mark.parametrize(
    ("fields", "kind", "inflight"),
    [
        ({}, IDLE, 0.0),
        ({"inflight": 3}, HELD, 3.0),
        ({"complete": False}, HELD, None),
        ({"inflight": None}, HELD, None),
    ],
)
def test_load(sidecar, fields, kind, inflight):
    """What replicas are compared by."""
    found = judge_load("vllm", UID, said(sidecar, **fields))

    assert (found.kind, found.inflight) == (kind, inflight)
