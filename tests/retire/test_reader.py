"""One read of one member over real sockets: where it goes, what bounds it, and what must be the same around it."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from pathlib import Path

import pytest

from infscale.retire import reader
from infscale.retire.member import HELD, IDLE
from infscale.retire.reader import MAX_BYTES, READ_S, MemberReader, Place, page_place
from infscale.retire.record import Frozen, State
from infscale.retire.rules import Reason, Rule
from infscale.retire.target import freeze
from tests.certs import Certs, make_certs
from tests.kube.controller import restart
from tests.raw_server import RawServer, raw_server
from tests.retire.pods import SIDECAR, engine, pod
from tests.retire.rig import Rig
from tests.retire.rig import engine as engine_json

POD = "vllm-00001"
ENGINE_PAGE = b'vllm:num_requests_running{engine="0"} 0\nvllm:num_requests_waiting{engine="0"} 0\n'


def frozen(rig: Rig) -> Frozen:
    """The first Pod, as it would be chosen."""
    found = freeze(rig.cluster().pod("ml", POD), "engine")
    assert isinstance(found, Frozen)
    return found


def read(rig: Rig):
    """One read of it."""
    return MemberReader(rig.cluster(), "ml").read(frozen(rig), rig.cluster().pod("ml", POD)).verdict


def test_through_the_sidecar(rig):
    """Its reading and its page, at the port named infscale; nothing else is asked for."""
    assert read(rig).kind == IDLE
    assert rig.sidecar(POD).calls == ["GET /api/v1/reading", "GET /metrics"]


@pytest.mark.parametrize("path", ["/metrics", "/m/x?y=1", "m"])
def test_where_the_annotations_say(rigs, path):
    """Port and path of the engine's own page; it is read beside the sidecar's word."""
    rig = rigs(annotations={"prometheus.io/port": "8000", "prometheus.io/path": path})
    with raw_server(lambda call: call.page(ENGINE_PAGE)) as server:
        local = {"8000": server.port, "10047": rig.sidecar(POD).server.port}
        rig.api.find_route = lambda pod, port: ("127.0.0.1", local[port])
        found = read(rig)
        asked = [call.path for call in server.calls]

    assert found.kind == IDLE
    assert asked == [path if path.startswith("/") else f"/{path}"]
    assert rig.sidecar(POD).calls == ["GET /api/v1/reading"]


@pytest.fixture(scope="module")
def certs(tmp_path_factory) -> Certs:
    """For what speaks TLS."""
    return make_certs(tmp_path_factory.mktemp("certs"))


def test_over_https_where_the_annotations_say(rigs, certs):
    """The scheme is theirs too."""
    rig = rigs(annotations={"prometheus.io/port": "8443", "prometheus.io/scheme": "https"})
    with raw_server(lambda call: call.page(ENGINE_PAGE), tls=certs.server.server_context()) as server:
        local = {"8443": server.port, "10047": rig.sidecar(POD).server.port}
        rig.api.find_route = lambda pod, port: ("127.0.0.1", local[port])

        assert read(rig).kind == IDLE


@pytest.mark.parametrize(
    "annotations",
    [
        {"prometheus.io/port": "http"},
        {"prometheus.io/port": "0"},
        {"prometheus.io/port": "65536"},
        {"prometheus.io/port": "8000", "prometheus.io/path": "/a b"},
        {"prometheus.io/port": "8000", "prometheus.io/scheme": "ftp"},
    ],
)
def test_annotations_that_cannot_be(rigs, annotations):
    """They hold, and name themselves."""
    found = read(rigs(annotations=annotations))

    assert (found.kind, found.reason.rule) == (HELD, Rule.READ_FAILED)
    assert "annotation prometheus.io/" in found.reason.detail


def test_without_annotations_of_a_port_the_others_do_not_count():
    """A path alone is not the sidecar's."""
    told = pod("a", engine(), SIDECAR, annotations={"prometheus.io/path": "/x"})

    assert page_place(told) == Place(10047, "/metrics", "http")


@pytest.mark.parametrize("path", ["/api/v1/reading", "/metrics"])
@pytest.mark.parametrize(
    "answer",
    [
        lambda call: call.hang(),
        lambda call: call.drip(b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n" + b"x" * 9000, 0.2),
        lambda call: call.reset(),
        lambda call: call.page(b"", status="401 Unauthorized"),
        lambda call: call.page(b"", status="503 Service Unavailable"),
        lambda call: call.page(b"", "Location: /elsewhere", status="302 Found"),
        lambda call: call.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort"),
        lambda call: call.page(b"#" * (MAX_BYTES + 1)),
    ],
    ids=["hang", "drip", "reset", "401", "503", "redirect", "short", "large"],
)
def test_what_goes_wrong_is_held_in_time(rigs, certs, monkeypatch, path, answer):
    """An answer has its time (here a quarter of it) and no more; nothing of it is idle."""
    monkeypatch.setattr(reader, "ANSWER_S", reader.ANSWER_S / 4)
    rig = rigs(certs=certs)
    rig.sidecar(POD).instead(path, answer)
    begin_s = time.monotonic()
    found = read(rig)

    assert (found.kind, found.reason.rule) == (HELD, Rule.READ_FAILED)
    assert time.monotonic() - begin_s < 3 * READ_S


def test_a_read_that_takes_too_long_in_all(rig):
    """Each part in its time, and the sum over 5 s."""
    times, now = iter([0.0, 1.0, 5.0]), rig.cluster().pod("ml", POD)
    found = MemberReader(rig.cluster(), "ml", clock=lambda: next(times)).read(frozen(rig), now).verdict

    assert (found.kind, found.reason.rule) == (HELD, Rule.READ_FAILED)
    assert "over 5 s" in found.reason.detail


def test_a_page_is_not_asked_for_when_the_time_is_over(rig):
    """The sidecar's word came too late: the page's share is not negative."""
    times, now = iter([0.0, 6.0, 6.0]), rig.cluster().pod("ml", POD)
    found = MemberReader(rig.cluster(), "ml", clock=lambda: next(times)).read(frozen(rig), now).verdict

    assert (found.kind, found.reason.rule) == (HELD, Rule.READ_FAILED)
    assert rig.sidecar(POD).calls == ["GET /api/v1/reading"]


def test_a_container_that_no_profile_claims_any_more(rig):
    """Its page would be read as another engine's: it is not read."""
    rig.api.change("pods", POD, lambda p: p["spec"]["containers"][0].update(command=["/start.sh"]))
    found = read(rig)

    assert (found.kind, found.reason.rule) == (HELD, Rule.UNCLAIMED)
    assert rig.sidecar(POD).calls == ["GET /api/v1/reading"]


def moved(rig: Rig, what: str) -> None:
    """Something about the Pod changes."""
    match what:
        case "uid":
            obj = rig.api.get("pods", POD)
            rig.api.remove("pods", POD)
            obj["metadata"].pop("resourceVersion")
            rig.api.add({**obj, "metadata": {**obj["metadata"], "uid": "another"}})
        case "restart":
            restart(rig.api, POD, "engine")
        case "owner":
            rig.api.change("pods", POD, lambda p: p["metadata"]["ownerReferences"][0].update(uid="another"))
        case "ip":
            rig.api.change("pods", POD, lambda p: p["status"].update(podIP="10.0.0.77"))
        case "sidecar":
            state = rig.api.get("pods", POD)["status"]["initContainerStatuses"][0]
            changed = {**state, "containerID": "containerd://x"}
            rig.api.change("pods", POD, lambda p: p["status"].update(initContainerStatuses=[changed]))


@pytest.mark.parametrize("what", ["uid", "restart", "owner", "ip", "sidecar"])
@pytest.mark.parametrize("when", ["before", "during"])
def test_drift(rig, what, when):
    """A Pod that is not the one that was frozen, before the read or while it goes on, holds."""
    target, sidecar = frozen(rig), rig.sidecar(POD)
    if when == "before":
        moved(rig, what)
    else:

        def page(call) -> None:
            moved(rig, what)
            call.page(sidecar.metrics())

        sidecar.instead("/metrics", page)
    found = MemberReader(rig.cluster(), "ml").read(target, rig.cluster().pod("ml", POD)).verdict

    assert found.kind == (IDLE if (what, when) == ("sidecar", "before") else HELD)
    assert found.kind == IDLE or found.reason.rule in (Rule.DRIFTED, Rule.RESTARTED)


EXEC = """\
#!/bin/sh
if [ -e "$0.away" ]; then echo "Unable to connect to the server: EOF" >&2; exit 1; fi
while [ "$1" != -- ]; do shift; done
shift
if [ -e "$0.distroless" ]; then false; else "$@"; fi && exit 0
echo "command terminated with exit code $?" >&2
exit 1
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    """A program that stands for kubectl: what is run in a container runs here; a file beside it lets it fail."""
    script = tmp_path / "kubectl-here"
    script.write_text(EXEC)
    script.chmod(0o755)
    return str(script)


def without_sidecar(rigs, server: RawServer, program: str, **options) -> Rig:
    """A rig without sidecars, whose engines listen at one port of this machine."""
    made: Rig = rigs(sidecar=False, exec_by=program, container=engine_json("--port", str(server.port)), **options)
    return made


@pytest.mark.parametrize("tools", ["curl python", "python"])
def test_by_exec_where_there_is_no_sidecar(rigs, program, tools, request, monkeypatch):
    """The engine's page is read in its own container, by curl or by Python; proxy variables do not apply."""
    if tools == "python":
        request.getfixturevalue("no_curl")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with raw_server(lambda call: call.page(ENGINE_PAGE)) as server:
        found = read(without_sidecar(rigs, server, program))

        assert (found.kind, found.inflight) == (IDLE, 0.0)
        assert [call.path for call in server.calls] == ["/metrics"]


@pytest.fixture
def no_curl(tmp_path: Path, monkeypatch) -> None:
    """The container has Python alone."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sh").symlink_to("/bin/sh")
    (tmp_path / "bin" / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (tmp_path / "bin" / "python3").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


@pytest.mark.parametrize("status", ["500 Oops", "404 Not Found"])
def test_an_exec_that_fails_is_held(rigs, program, status):
    """Whatever the engine answers but a page; the reason says how its command ended."""
    with raw_server(lambda call: call.page(b"x", status=status)) as server:
        found = read(without_sidecar(rigs, server, program))

    assert (found.kind, found.reason.rule) == (HELD, Rule.READ_FAILED)
    assert found.reason.detail == f"exec into pod {POD}: exit 22: no page came"


@pytest.mark.usefixtures("no_curl")
def test_python_follows_no_redirect(rigs, program):
    """The page that an engine sends elsewhere is not its own."""
    with (
        raw_server(lambda call: call.page(ENGINE_PAGE)) as other,
        raw_server(lambda call: call.page(b"", f"Location: {other.url('/')}", status="302 Found")) as server,
    ):
        found = read(without_sidecar(rigs, server, program))

        assert (found.kind, found.reason.rule, other.calls) == (HELD, Rule.READ_FAILED, [])


@pytest.mark.usefixtures("no_curl")
def test_python_ends_in_time(rigs, program, monkeypatch):
    """An engine that drips leaves no process behind in its container: 2 s are for the whole page."""
    ended = threading.Event()
    monkeypatch.setattr(reader, "ANSWER_S", 20.0)

    def drip(call) -> None:
        with contextlib.suppress(OSError):
            call.drip(b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n" + b"x" * 9000, 0.2)
        ended.set()

    with raw_server(drip) as server:
        found = read(without_sidecar(rigs, server, program))

        assert (found.kind, found.reason.rule) == (HELD, Rule.READ_FAILED)
        assert ended.wait(20)


def test_annotations_that_cannot_be_without_a_sidecar(rigs, program):
    """They hold there too, before anything is run in the container."""
    with raw_server(lambda call: call.page(ENGINE_PAGE)) as server:
        found = read(without_sidecar(rigs, server, program, annotations={"prometheus.io/port": "http"}))

        assert (found.kind, server.calls) == (HELD, [])
    assert "annotation prometheus.io/port is 'http'" in found.reason.detail


@pytest.mark.parametrize("how", ["away", "distroless", "another engine"])
def test_without_a_sidecar_clients_that_are_not_seen_hold(rigs, program, how):
    """Exec fails, the image has no shell, or the container is not the one that was claimed: nobody counts clients."""
    with raw_server(lambda call: call.page(ENGINE_PAGE)) as server:
        rig = without_sidecar(rigs, server, program, service="app=none")
        retirer = rig.retirer()
        rig.run(retirer, State.WITHDRAWING)
        if how == "another engine":
            rig.api.change("pods", POD, lambda p: p["spec"]["containers"][0].update(command=["/start.sh"]))
        else:
            Path(f"{program}.{how}").touch()
        held = [rig.step(retirer) for _ in range(2)]
        rig.now_s += 30
        last = rig.step(retirer)

    assert {step.reason for step in held[1:]} == {"client-connections: the engine's client connections cannot be seen"}
    assert (last.state, rig.replicas) == (State.ABORTED, 3)


def test_exec_needs_kubectl(rigs):
    """From within a Pod it is held, and the reason says so."""
    found = read(rigs(sidecar=False))

    assert (found.kind, found.reason.rule) == (HELD, Rule.READ_FAILED)
    assert "kubectl" in found.reason.detail


def test_without_a_sidecar_nothing_is_withdrawn(rigs, program):
    """A Service that sends requests there goes on doing so: aborted, and the rule is named."""
    with raw_server(lambda call: call.page(ENGINE_PAGE)) as server:
        rig = without_sidecar(rigs, server, program)
        retirer = rig.retirer()
        rig.run(retirer, State.WITHDRAWING)
        held = rig.step(retirer)
        rig.now_s += 30
        last = rig.step(retirer)

    assert held.rule is Rule.ENDPOINTS
    assert (last.state, rig.replicas) == (State.ABORTED, 3)


def test_without_a_sidecar_and_out_of_every_service(rigs, program):
    """Nobody sends requests there, no client is connected for 10 s, and its page is idle twice: it leaves."""
    with raw_server(lambda call: call.page(ENGINE_PAGE)) as server:
        rig = without_sidecar(rigs, server, program, service="app=none")
        steps = rig.run(rig.retirer())

    assert (steps[-1].state, rig.replicas) == (State.COMPLETED, 2)
    assert sum(step.rule is Rule.CLIENTS for step in steps) == 10


def test_a_reason_is_one_line(rig):
    """Whatever the Pod answered."""
    rig.sidecar(POD).instead("/metrics", lambda call: call.page(b"a\nb", status="500 Oops"))

    assert "\n" not in str(read(rig).reason)


def test_an_engine_page_leaves_our_own_connection_out(rigs):
    """The API server keeps the connection of our reads open: it does not hold what was found free of clients."""
    rig = rigs(annotations={"prometheus.io/port": "8000"})
    sidecar = rig.sidecar(POD)

    def page(call) -> None:
        sidecar.clients = 1  # ours, from now on
        call.page(ENGINE_PAGE)

    with raw_server(page) as server:
        local = {"8000": lambda pod: server.port, "10047": lambda pod: rig.sidecar(pod).server.port}
        rig.api.find_route = lambda pod, port: ("127.0.0.1", local[port](pod))
        steps = rig.run(rig.retirer())

    assert (steps[-1].state, rig.replicas) == (State.COMPLETED, 2)


def test_place_is_told_as_a_reason():
    """Of a Pod alone, too."""
    assert isinstance(page_place(pod("a", annotations={"prometheus.io/port": "x"})), Reason)
