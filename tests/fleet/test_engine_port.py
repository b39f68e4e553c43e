"""Engines without a sidecar, read directly: a dry run needs no restart of any engine."""

from __future__ import annotations

import pytest

from infscale.core.replicas import Phase
from infscale.engines import PROFILES
from infscale.errors import UsageError
from infscale.fleet.engines import EngineSettings
from infscale.fleet.parse import parse_source
from infscale.fleet.source import FleetSettings
from tests.certs import make_certs
from tests.fleet.peers import answer, peers
from tests.raw_server import Call, RawServer

PATIENT = 20.0


def page(running: float, waiting: float, **more: object) -> bytes:
    """A vLLM page with a few counters."""
    lines = {
        "vllm:num_requests_running": running,
        "vllm:num_requests_waiting": waiting,
        "vllm:generation_tokens_total": 10,
        **more,
    }
    return "".join(f"{name} {value}\n" for name, value in lines.items()).encode()


def http(body: bytes, status: str = "200 OK") -> bytes:
    """A plain answer."""
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def seen(fleet) -> list[tuple[Phase, str, float | None]]:
    """Phase, state and load of each replica."""
    return [(replica.phase, replica.state, replica.inflight) for replica in fleet.replicas]


def test_every_address_is_an_engine(names, tmp_path):
    """With the port of the engines, the addresses of a name are read there: values, loading, no engine, refused."""
    pages = {
        "127.1.0.1": http(page(4, 2)),
        "127.1.0.2": http(b"loading model", "503 Service Unavailable"),
        "127.1.0.3": answer({"no": "page"}),
    }
    names.zone["engines.test"] = list(pages)
    with peers(lambda came_to: pages[came_to]) as port:
        settings = FleetSettings(
            timeout_s=PATIENT,
            engines=EngineSettings(port=port),
            dns_server=names.address,
            resolv_conf=str(tmp_path / "none"),
        )
        source = parse_source("dns:engines.test", settings)
        fleet = source.observe(1000.0)
        source.close()
    assert seen(fleet) == [
        (Phase.SERVING, "ok", 6),
        (Phase.STARTING, "loading", None),
        (Phase.STARTING, "not_an_engine", None),
    ]


def test_what_a_sidecar_remembers_is_remembered_here():
    """A full engine that does not answer shows its last values; one that hangs is stale; one that is gone is silent."""
    shows: list[bytes | None] = [http(page(4, 2))]
    with peers(lambda came_to: shows[0]) as port:
        source = parse_source(f"static:http://127.1.0.1:{port}/metrics", FleetSettings(timeout_s=PATIENT))
        assert seen(source.observe(1000.0)) == [(Phase.SERVING, "ok", 6)]
        assert seen(source.observe(1119.0)) == [(Phase.SERVING, "ok", 6)]
        assert seen(source.observe(1120.0)) == [(Phase.SERVING, "stale", 6)]
        shows[0] = http(page(4, 2, **{"vllm:generation_tokens_total": 11}))
        assert seen(source.observe(1135.0)) == [(Phase.SERVING, "ok", 6)]
        shows[0] = http(b"", "500 Internal Server Error")
        assert seen(source.observe(1150.0)) == [(Phase.SILENT, "unreachable", None)]
        source.close()


def test_full_engine_that_does_not_answer():
    """The port accepts and nothing comes: the last values, as saturated, for fifteen minutes."""
    shows: list[bytes | None] = [http(page(4, 2))]
    with peers(lambda came_to: shows[0]) as port:
        source = parse_source(f"static:http://127.1.0.1:{port}/metrics", FleetSettings(timeout_s=0.6))
        assert seen(source.observe(1000.0)) == [(Phase.SERVING, "ok", 6)]
        shows[0] = None
        assert seen(source.observe(1015.0)) == [(Phase.SERVING, "saturated", 6)]
        assert seen(source.observe(1901.0)) == [(Phase.SILENT, "saturated", None)]
        source.close()


def test_several_engines_of_one_machine():
    """`static` takes engines' pages as they are, on any port and path, beside sidecars."""
    with RawServer(lambda call: call.page(page(1, 0))) as one, RawServer(lambda call: call.page(page(2, 0))) as two:
        source = parse_source(f"static:{one.url()},{two.url('/a/metrics')}", FleetSettings(timeout_s=PATIENT))
        fleet = source.observe(1000.0)
        source.close()
    assert {replica.name: replica.inflight for replica in fleet.replicas} == {
        f"127.0.0.1:{one.port}/metrics": 1,
        f"127.0.0.1:{two.port}/a/metrics": 2,
    }


def test_static_addresses_with_the_port_of_their_engines():
    """An address stands for its machine; the engine's port takes the sidecar's place."""
    with RawServer(lambda call: call.page(page(1, 0))) as one:
        settings = FleetSettings(timeout_s=PATIENT, engines=EngineSettings(port=one.port))
        source = parse_source("static:http://127.0.0.1:10047", settings)
        fleet = source.observe(1000.0)
        source.close()
    assert [(replica.name, replica.inflight) for replica in fleet.replicas] == [(f"127.0.0.1:{one.port}", 1)]
    with pytest.raises(UsageError, match="listed twice"):
        parse_source("static:http://127.0.0.1:1,http://127.0.0.1:2", settings)


def test_token_of_the_engines(tmp_path):
    """An engine that wants its API key gets it, from a file that is read each time; the engine may be told."""

    def does(call: Call) -> None:
        right = call.header("Authorization") == "Bearer key"
        call.page(page(1, 0) if right else b"", status="200 OK" if right else "401 Unauthorized")

    token = tmp_path / "token"
    token.write_text("wrong\n")
    with RawServer(does) as one:
        engines = EngineSettings(profile=PROFILES["vllm"], token_file=str(token))
        source = parse_source(f"static:{one.url()}", FleetSettings(timeout_s=PATIENT, engines=engines))
        assert seen(source.observe(1000.0)) == [(Phase.STARTING, "misconfigured", None)]
        token.write_text("key\n")
        assert seen(source.observe(1015.0)) == [(Phase.SERVING, "ok", 1)]
        source.close()


def test_engines_over_tls(tmp_path):
    """An engine that is listed with https is read with the CA that was told, or with any certificate if so told."""
    certs = make_certs(tmp_path)
    with RawServer(lambda call: call.page(page(1, 0)), tls=certs.server.server_context()) as one:
        for told, expected in (
            (EngineSettings(), (Phase.STARTING, "unreachable", None)),
            (EngineSettings(ca_file=str(certs.ca)), (Phase.SERVING, "ok", 1)),
            (EngineSettings(insecure_skip_verify=True), (Phase.SERVING, "ok", 1)),
        ):
            source = parse_source(f"static:{one.url()}", FleetSettings(timeout_s=PATIENT, engines=told))
            assert seen(source.observe(1000.0)) == [expected]
            source.close()


def test_cpu_and_ttft_of_engines():
    """CPU over the request from two looks; TTFT only for a policy that needs it."""
    used = [100.0]

    def does(call: Call) -> None:
        told = page(
            1,
            0,
            process_cpu_seconds_total=used[0],
            **{
                'vllm:time_to_first_token_seconds_bucket{le="0.5"}': 3,
                'vllm:time_to_first_token_seconds_bucket{le="+Inf"}': 4,
                "vllm:time_to_first_token_seconds_sum": 2,
            },
        )
        call.page(told)

    with RawServer(does) as one:
        for ttft in (True, False):
            settings = FleetSettings(timeout_s=PATIENT, engines=EngineSettings(cpu_request=4.0), ttft=ttft)
            source = parse_source(f"static:{one.url()}", settings)
            used[0] = 100.0
            assert source.observe(1000.0).replicas[0].cpu_ratio is None
            used[0] = 120.0
            (replica,) = source.observe(1010.0).replicas
            source.close()
            assert replica.cpu_ratio == 0.5
            assert [found.counts for found in replica.ttft] == ([(3, 4)] if ttft else [])
