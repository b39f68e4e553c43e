"""docs/upgrades.md: a recommender reads sidecars of other versions; what is unknown is ignored, missing is not 0."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infscale.core.replicas import Phase, Replica
from infscale.fleet.parse import parse_source
from infscale.fleet.peer import sighting_of
from infscale.fleet.source import FleetSettings, WorkloadName
from infscale.retire.envelope import Envelope, parse_envelope
from infscale.retire.rules import Reason, Rule
from infscale.scrape import Page
from tests.prometheus_server import Prometheus
from tests.raw_server import RawServer
from tests.recommender_process import Recommender
from tests.sidecar_process import LONG_S, sidecar

ENGINE = """\
vllm:num_requests_running{engine="0",model_name="m"} 20
vllm:num_requests_waiting{engine="0",model_name="m"} 40
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.5
vllm:prompt_tokens_total{engine="0",model_name="m"} 1000
vllm:generation_tokens_total{engine="0",model_name="m"} 900
"""
"""60 requests in flight: three replicas at a target of 24."""

NEEDED = {"inflight"}
"""The one field without which a replica is silent."""

FIRST = ("state", "message", "inflight", "running", "waiting", "engines")
"""What a sidecar must have told from the first version on."""


@pytest.fixture(scope="module")
def today() -> Iterator[tuple[dict[str, Any], str]]:
    """The reading and the metrics page of a sidecar of this version."""
    engine = RawServer(lambda call: call.page(ENGINE.encode(), "Content-Type: text/plain"))
    with sidecar("--engine-url", engine.url()) as process:
        yield process.get("/api/v1/reading").json(), process.get("/metrics").text
    engine.close()


def later(reading: dict[str, Any]) -> dict[str, Any]:
    """The reading as a version after this one may have it: fields more, everywhere, of every type."""
    more: dict[str, Any] = {"of_tomorrow": {"deep": [1, None]}, "another": 7, "third": None}
    engines = [{**engine, **more} for engine in reading["engines"]]
    models = [{**model, **more} for model in reading["models"]]
    return {**reading, **more, "engines": engines, "models": models, "pod": {**reading["pod"], **more}}


def earlier(reading: dict[str, Any]) -> dict[str, Any]:
    """The reading as the first versions may have had it."""
    kept = {name: value for name, value in reading.items() if name in FIRST}
    first = ("url", "engine", "state", "message")
    kept["engines"] = [{name: engine[name] for name in first} for engine in reading["engines"]]
    return kept


def as_page(reading: object) -> Page:
    """A reading as the answer of a sidecar."""
    return Page(200, "application/json", json.dumps(reading).encode(), 0.01)


@pytest.mark.parametrize("version", [later, earlier], ids=["later", "earlier"])
def test_recommender_reads_readings_of_other_versions(version, today):
    """A running recommender recommends for such sidecars what it does for its own version's."""
    told = json.dumps(version(today[0])).encode()
    server = RawServer(lambda call: call.page(told, "Content-Type: application/json"))
    flags = ("--fleet.source", f"static:{server.url('')}", "--workload", "ml/vllm", "--spec-replicas", "1")
    try:
        with Recommender(*flags, "--policy", "queue:24,max=8") as recommender:
            found = recommender.until(lambda one: one.get("desired") is not None)
    finally:
        server.close()

    assert (found["desired"], found["silent"], found["direction"]) == (3, [], "up")


def test_each_field_but_one_may_be_missing(today):
    """A reading without any one of its fields has the same requests in flight; without `inflight` it is silent."""
    reading = today[0]
    for name in reading:
        seen = sighting_of("a", as_page({key: value for key, value in reading.items() if key != name})).replica
        expected = (Phase.SILENT, None) if name in NEEDED else (Phase.SERVING, 60)
        assert (seen.phase, seen.inflight) == expected, name


def test_state_of_tomorrow(today):
    """A state that this version does not know changes nothing: with a value it serves, without one it is silent."""
    assert sighting_of("a", as_page({**today[0], "state": "pondering"})).replica.phase is Phase.SERVING
    assert sighting_of("a", as_page({**today[0], "state": "pondering", "inflight": None})).replica.phase is Phase.SILENT


def test_retirement_reads_other_versions(today):
    """A later reading is read as today's; one that does not tell whether it is complete holds the retirement."""
    found = parse_envelope(json.dumps(later(today[0])).encode())
    assert isinstance(found, Envelope)
    assert found == parse_envelope(json.dumps(today[0]).encode())

    held = parse_envelope(json.dumps(earlier(today[0])).encode())
    assert isinstance(held, Reason)
    assert held.rule is Rule.READ_FAILED


def later_page(page: str) -> str:
    """The metrics page as a version after this one may have it: series and labels more."""
    more = '# TYPE infscale_of_tomorrow gauge\ninfscale_of_tomorrow{shape="round"} 3\n'
    return page.replace("infscale_inflight_requests{", 'infscale_inflight_requests{zone="a",') + more


def earlier_page(page: str) -> str:
    """The metrics page as the first versions may have had it: what is in flight, and whether it was read."""
    kept = ("infscale_inflight_requests", "infscale_up")
    return "".join(line + "\n" for line in page.splitlines() if line.startswith(kept))


@pytest.mark.parametrize("version", [later_page, earlier_page], ids=["later", "earlier"])
def test_prometheus_source_reads_pages_of_other_versions(version, today, tmp_path):
    """What a real Prometheus scraped from such a sidecar is a replica that serves, with its requests."""
    with scraped(version(today[1]), tmp_path) as url:
        seen = first_seen(url)

    assert [(replica.phase, replica.inflight) for replica in seen] == [(Phase.SERVING, 60)]


@contextlib.contextmanager
def scraped(page: str, folder: Path) -> Iterator[str]:
    """The address of a Prometheus that scrapes a page as the one sidecar of ml/vllm."""
    sidecars = RawServer(lambda call: call.page(page.encode(), "Content-Type: text/plain; version=0.0.4"))
    labels = {"namespace": "ml", "workload": "vllm", "pod": "vllm-0"}
    target = {"targets": [f"127.0.0.1:{sidecars.port}"], "labels": labels}
    config = {
        "global": {"scrape_interval": "250ms", "scrape_timeout": "250ms"},
        "scrape_configs": [{"job_name": "infscale", "static_configs": [target]}],
    }
    server = Prometheus(folder, config)
    try:
        server.wait_ready()
        yield server.url
    finally:
        server.close()
        sidecars.close()


def first_seen(url: str) -> tuple[Replica, ...]:
    """The replicas of ml/vllm, as soon as there are any."""
    source = parse_source(f"prometheus:{url}", FleetSettings(workload=WorkloadName("ml", "vllm"), spec_replicas=1))
    end_s = time.monotonic() + LONG_S
    try:
        while not (replicas := source.observe(time.time()).replicas):
            assert time.monotonic() < end_s
            time.sleep(0.1)
    finally:
        source.close()
    return replicas
