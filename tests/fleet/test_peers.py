"""The sources `static` and `dns` over five real sidecars, one of which dies while it is asked."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from infscale.core.grammar import parse_policy
from infscale.core.replicas import Buckets, Fleet, Phase, Replica
from infscale.evaluator import Evaluator
from infscale.fleet.parse import parse_source
from infscale.fleet.source import FleetSettings, Source
from tests.certs import make_certs
from tests.fleet.crew import ADDRESSES, Crew
from tests.fleet.peers import reading
from tests.raw_server import Call, RawServer
from tests.sidecar_process import LONG_S

SERVING, SILENT, STARTING = Phase.SERVING, Phase.SILENT, Phase.STARTING
PATIENT = 20.0
"""For one look on a machine that may be busy."""


@pytest.fixture(params=["static", "dns"])
def source(request, crew, names, tmp_path) -> Iterator[Source]:
    """Both sources that ask peers, over the same five."""
    names.zone["peers.test"] = list(ADDRESSES)
    text = f"dns:peers.test:{crew.port}"
    if request.param == "static":
        text = "static:" + ",".join(f"http://{place}" for place in crew.places)
    settings = FleetSettings(
        timeout_s=PATIENT, dns_server=names.address, resolv_conf=str(tmp_path / "none"), spec_replicas=5
    )
    found = parse_source(text, settings)
    yield found
    found.close()


def phases(fleet: Fleet) -> list[Phase]:
    """The replicas' phases, by name."""
    return [replica.phase for replica in fleet.replicas]


def while_asked(source: Source, crew: Crew, number: int, does: Callable[[], object]) -> Fleet:
    """One look, in whose middle something happens: when the peer has been asked and has not answered."""
    engine = crew.engines[number]
    engine.hold.set()
    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(source.observe, 1000.0)
        assert engine.asked.wait(LONG_S)
        does()
        engine.release()
        return looking.result(LONG_S)


def test_five_sidecars(source, crew):
    """Each replica with all that a decision needs, and the count that was given."""
    crew.engines[1].running, crew.engines[1].waiting = 20, 30
    fleet = source.observe(1000.0)
    assert (fleet.now_s, fleet.spec_replicas, fleet.failure) == (1000.0, 5, "")
    assert [replica.inflight for replica in fleet.replicas] == [4, 50, 4, 4, 4]
    assert sorted(source.names()) == [replica.name for replica in fleet.replicas]
    assert fleet.replicas[0] == Replica(
        name=fleet.replicas[0].name,
        phase=SERVING,
        running=3,
        waiting=1,
        inflight=4,
        kv=0.5,
        prompt_tokens=1000,
        generation_tokens=500,
        ttft=(Buckets((0.5, 1.0, float("inf")), (6, 9, 10)),),
    )


def test_member_killed_mid_cycle(source, crew):
    """A sidecar that dies while it is asked is silent and keeps its place; the four others count; then it is back."""
    assert phases(source.observe(985.0)) == [SERVING] * 5
    fleet = while_asked(source, crew, 2, lambda: crew.kill(2))
    assert phases(fleet) == [SERVING, SERVING, SILENT, SERVING, SERVING]
    assert (fleet.replicas[2].inflight, fleet.replicas[2].state, fleet.failure) == (None, "unreachable", "")
    assert phases(source.observe(1015.0)) == phases(fleet)
    crew.restore()
    assert phases(source.observe(1030.0)) == [SERVING] * 5


def test_engine_that_is_gone_behind_its_sidecar(source, crew):
    """The sidecar answers that there is no value: silent, with the engine's state."""
    source.observe(985.0)
    crew.engines[4].running = -1
    fleet = source.observe(1000.0)
    assert phases(fleet) == [SERVING] * 4 + [SILENT]
    assert fleet.replicas[4].state == "unreachable"


def test_peer_that_never_was_good(crew, tmp_path):
    """Where nothing ever answered a replica is starting: capacity on the way, no hole."""
    crew.kill(3)
    source = parse_source(
        "static:" + ",".join(f"http://{place}" for place in crew.places), FleetSettings(timeout_s=PATIENT)
    )
    fleet = source.observe(1000.0)
    source.close()
    assert phases(fleet) == [SERVING, SERVING, SERVING, STARTING, SERVING]
    assert fleet.spec_replicas is None


def dns(crew: Crew, names, tmp_path, **settings) -> Source:
    """The source `dns` alone."""
    return parse_source(
        f"dns:peers.test:{crew.port}",
        FleetSettings(timeout_s=PATIENT, dns_server=names.address, resolv_conf=str(tmp_path / "none"), **settings),
    )


def test_peer_that_left_the_name(crew, names, tmp_path):
    """An address that is gone from the name is silent and is not read: it may be another's by now.

    It is so for ten minutes that pass (tests/fleet/test_members.py), not for a wall clock that is set forward.
    """
    source = dns(crew, names, tmp_path)
    names.zone["peers.test"] = list(ADDRESSES)
    assert phases(source.observe(1000.0)) == [SERVING] * 5
    names.zone["peers.test"] = list(ADDRESSES[:4])
    assert phases(source.observe(1015.0)) == [SERVING] * 4 + [SILENT]
    assert phases(source.observe(1015.0 + 86_400)) == [SERVING] * 4 + [SILENT]


def test_replica_that_was_scaled_away(crew, names, tmp_path):
    """Where the count is known, it is not missed."""
    source = dns(crew, names, tmp_path, spec_replicas=4)
    names.zone["peers.test"] = list(ADDRESSES)
    source.observe(1000.0)
    names.zone["peers.test"] = list(ADDRESSES[:4])
    assert phases(source.observe(1015.0)) == [SERVING] * 4


def test_address_swapped_for_a_dead_one(crew, names, tmp_path):
    """A busy replica leaves the name and one that never answered stands in its stead: nothing scales down on it.

    With no window that could hold the count: what that replica had in flight is not known to be gone.
    """
    crew.kill(4)
    for engine in crew.engines[:3]:
        engine.waiting = 9
    source = dns(crew, names, tmp_path, spec_replicas=3)
    clock = SimpleNamespace(now_s=1000.0)
    evaluator = Evaluator(source, parse_policy("queue:12,downwindow=0"), wall_clock=lambda: clock.now_s)
    names.zone["peers.test"] = list(ADDRESSES[:3])
    assert evaluator.evaluate().recommended == 3
    names.zone["peers.test"] = [*ADDRESSES[:2], ADDRESSES[4]]
    for clock.now_s in (1015.0, 1600.0):
        view = evaluator.evaluate()
        assert (view.recommended, view.silent_names, view.replicas.starting) == (3, (ADDRESSES[2],), 1)
    crew.restore()  # the replacement answers, and there is less to do
    clock.now_s = 1610.0
    assert (evaluator.evaluate().recommended, evaluator.view().replicas.silent) == (1, 0)
    evaluator.stop(LONG_S)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [("nxdomain", "no such name (NXDOMAIN): peers.test"), ("servfail", "answers SERVFAIL")],
)
def test_name_that_fails(crew, names, tmp_path, wrong, says):
    """The failure has words, and everyone who was known is silent: nothing scales down on it."""
    source = dns(crew, names, tmp_path, spec_replicas=5)
    names.zone["peers.test"] = list(ADDRESSES)
    source.observe(1000.0)
    names.zone["peers.test"] = wrong
    fleet = source.observe(1015.0)
    assert says in fleet.failure
    assert phases(fleet) == [SILENT] * 5
    names.zone["peers.test"] = list(ADDRESSES)
    fleet = source.observe(1030.0)
    assert (fleet.failure, phases(fleet)) == ("", [SERVING] * 5)


def test_name_that_has_never_resolved(names, crew, tmp_path):
    """A wrong name from the start: a failure, and nobody is known."""
    fleet = dns(crew, names, tmp_path).observe(1000.0)
    assert fleet.failure.startswith("no such name")
    assert fleet.replicas == ()


def test_service_without_pods(names, crew, tmp_path):
    """A name without an address is no failure."""
    names.zone["peers.test"] = []
    fleet = dns(crew, names, tmp_path).observe(1000.0)
    assert (fleet.failure, fleet.replicas) == ("", ())


def test_peers_over_tls(tmp_path):
    """A listed URL may be https, with a CA of one's own and a token; without the CA nothing is asked."""
    certs = make_certs(tmp_path)
    token = tmp_path / "token"
    token.write_text("t0ken")
    body = json.dumps(reading()).encode()

    def does(call: Call) -> None:
        call.page(body, status="200 OK" if call.header("Authorization") == "Bearer t0ken" else "401 Unauthorized")

    with RawServer(does, tls=certs.server.server_context()) as server:
        found = {}
        for ca_file in (str(certs.ca), None):
            source = parse_source(
                f"static:{server.url('')}", FleetSettings(timeout_s=PATIENT, ca_file=ca_file, token_file=str(token))
            )
            found[ca_file] = phases(source.observe(1000.0))
            source.close()
    assert found == {str(certs.ca): [SERVING], None: [STARTING]}


def test_proxy_variables_never_apply(crew, monkeypatch):
    """Peers are asked directly, whatever the environment says."""
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    source = parse_source(f"static:http://{crew.places[0]},http://localhost:1", FleetSettings(timeout_s=PATIENT))
    fleet = source.observe(1000.0)
    source.close()
    assert phases(fleet) == [SERVING, STARTING]
