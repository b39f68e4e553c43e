"""`/withdraw` as a retirement meets it: a real sidecar with both listeners, its token in a file, over HTTP."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import bcrypt
import pytest
import requests

from infscale.core.replicas import Phase
from infscale.fleet.parse import parse_source
from infscale.fleet.source import FleetSettings
from tests.raw_server import RawServer
from tests.sidecar_process import LONG_S, Process, sidecar

TOKEN = "s3cret-t0ken"
BUSY = b"""vllm:num_requests_running{model_name="m"} 3
vllm:num_requests_waiting{model_name="m"} 1
process_start_time_seconds 1.7e9
"""


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    """The token's file."""
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n")
    return path


@pytest.fixture
def engine() -> Iterator[RawServer]:
    """A vLLM with 4 in flight."""
    with RawServer(lambda call: call.page(BUSY)) as server:
        yield server


def ask(process: Process, method: str, path: str = "/withdraw", token: str | None = TOKEN, **options: Any):
    """One request to the main listener, or to `address`; the environment's proxies are not for it."""
    address = options.pop("address", process.address)
    headers = {} if token is None else {"X-Infscale-Token": token}
    with requests.Session() as session:
        session.trust_env = False
        return session.request(method, f"http://{address}{path}", headers=headers, timeout=LONG_S, **options)


def until(check: Callable[[], object]) -> None:
    """Wait until it holds."""
    end = time.monotonic() + LONG_S
    while not check():
        assert time.monotonic() < end
        time.sleep(0.05)


def ready(process: Process) -> tuple[int, str]:
    """What the kubelet's readiness probe gets."""
    answer = process.get("/-/ready", kubelet=True)
    return answer.status_code, answer.text


def test_from_rotation_and_back(engine, token_file):
    """Readiness, metrics, JSON and page follow the withdrawal and its end; the sidecar stays alive throughout."""
    with sidecar("--engine-url", engine.url(), "--withdraw.token-file", str(token_file)) as process:
        assert ready(process) == (200, "ready\n")
        assert process.values()["infscale_draining"] == 0

        before_s = time.time()
        told = ask(process, "POST", "/withdraw?lease=120").json()
        assert told["withdrawn"] is True
        assert before_s + 120 <= told["until"] <= time.time() + 120
        status, text = ready(process)
        assert status == 503
        assert text.startswith("withdrawn until 20")
        assert process.get("/-/healthy", kubelet=True).status_code == 200
        assert process.values()["infscale_draining"] == 1
        reading = process.get("/api/v1/reading").json()
        assert (reading["withdrawn"], reading["draining"], reading["complete"]) == (True, True, True)
        assert (reading["withdrawn_until"], reading["inflight"]) == (told["until"], 4)
        assert "withdrawn" in process.get("/").text

        assert ask(process, "DELETE").json() == {"withdrawn": False, "until": None}
        assert ready(process) == (200, "ready\n")
        assert process.values()["infscale_draining"] == 0
        reading = process.get("/api/v1/reading").json()
        assert (reading["withdrawn"], reading["withdrawn_until"], reading["draining"]) == (False, None, False)


def test_a_lease_runs_out_in_a_real_process(engine, token_file):
    """Nobody renews it: the replica is ready again by itself, and the log says that a lease was not renewed."""
    with sidecar("--engine-url", engine.url(), "--withdraw.token-file", str(token_file)) as process:
        ask(process, "POST", "/withdraw?lease=5")
        assert ready(process)[0] == 503
        until(lambda: ready(process)[0] == 200)
        until(lambda: any("lease ran out" in line for line in process.log))


def test_the_kubelet_listener_does_not_offer_it(engine, token_file):
    """It is never authenticated, so nothing can be withdrawn there, with the right token either."""
    with sidecar("--engine-url", engine.url(), "--withdraw.token-file", str(token_file)) as process:
        address = process.get("/-/ready", kubelet=True).url.split("/")[2]
        for method in ("POST", "DELETE", "GET"):
            assert ask(process, method, address=address).status_code == 404
        assert ready(process) == (200, "ready\n")


def test_refusals_and_a_rotated_token(engine, token_file):
    """403 without, with a wrong and with the old token, 405 for other methods, 431 for a header that is too large."""
    with sidecar("--engine-url", engine.url(), "--withdraw.token-file", str(token_file)) as process:
        for token in (None, "", "wrong", TOKEN.upper()):
            assert ask(process, "POST", token=token).status_code == 403
        assert ask(process, "GET").status_code == 405
        assert ask(process, "PUT").headers["Allow"] == "DELETE, POST"
        assert ask(process, "POST", "/withdraw?lease=4").status_code == 400
        assert huge_header(process) == 431
        assert ready(process) == (200, "ready\n")

        token_file.write_text("rotated")
        assert ask(process, "POST").status_code == 403
        assert ask(process, "POST", token="rotated").status_code == 200


def huge_header(process: Process) -> int:
    """The status for a token of 70 kB, which is told before its end is there."""
    host, port = process.address.split(":")
    with socket.create_connection((host, int(port)), timeout=LONG_S) as connection:
        head = b"POST /withdraw HTTP/1.1\r\nHost: x\r\nX-Infscale-Token: "
        connection.sendall(head + b"x" * 70_000)
        response = http.client.HTTPResponse(connection)
        response.begin()
        return response.status


@pytest.mark.parametrize("arguments", [(), ("--withdraw.token-file", "/nowhere/token")], ids=["none", "missing file"])
def test_without_a_usable_token_it_measures_all_the_same(engine, arguments):
    """Withdrawal is then refused, and nothing else is."""
    with sidecar("--engine-url", engine.url(), *arguments) as process:
        assert ask(process, "POST").status_code == 403
        assert ask(process, "DELETE", token="").status_code == 403
        assert process.values()['infscale_inflight_requests{model_name="m"}'] == 4
        assert any("/nowhere/token" in line for line in process.log) == bool(arguments)


def test_with_basic_auth_both_are_needed(engine, token_file, tmp_path):
    """Who may scrape may not withdraw, and the token alone opens nothing."""
    hashed = bcrypt.hashpw(b"right", bcrypt.gensalt(4)).decode()
    web = tmp_path / "web.yml"
    web.write_text(f"basic_auth_users: {{alice: {hashed}}}\n")
    arguments = ("--withdraw.token-file", str(token_file), "--web.config.file", str(web))
    with sidecar("--engine-url", engine.url(), *arguments) as process:
        alice = ("alice", "right")
        assert ask(process, "POST").status_code == 401
        assert ask(process, "POST", token=None, auth=alice).status_code == 403
        assert ready(process) == (200, "ready\n")
        assert ask(process, "POST", auth=alice).status_code == 200
        assert ready(process)[0] == 503
        assert ask(process, "DELETE").status_code == 401
        assert ask(process, "DELETE", auth=alice).status_code == 200


def test_pod_identity_from_the_downward_api(engine, token_file):
    """The variables that the manifests set, infscale's own before them, and the flags before both."""
    environment = {"POD_NAMESPACE": "ml", "POD_NAME": "vllm-0", "INFSCALE_POD_NAME": "vllm-1", "POD_UID": "u-0"}
    with sidecar("--engine-url", engine.url(), "--pod.uid", "u-1", **environment) as process:
        pod = process.get("/api/v1/reading").json()["pod"]
    assert pod == {"namespace": "ml", "name": "vllm-1", "uid": "u-1"}


def test_clients_of_the_engine(engine, token_file):
    """Its own reads are none; another's open connection is, and once it is gone the time of the last sight stands."""
    with sidecar("--engine-url", engine.url(), "--withdraw.token-file", str(token_file)) as process:

        def clients() -> dict[str, Any]:
            found: dict[str, Any] = process.get("/api/v1/reading").json()["client_connections"]
            return found

        assert (clients()["established"], clients()["last_seen_at"]) == (0, None)
        ask(process, "POST")
        with socket.create_connection(("127.0.0.1", engine.port)):
            until(lambda: clients()["established"] == 1)
        until(lambda: clients()["established"] == 0)
        seen = clients()
        assert seen["looked_since"] <= seen["last_seen_at"] <= seen["looked_at"]
        assert abs(seen["looked_at"] - time.time()) < LONG_S
    with sidecar("--engine-url", engine.url(), "--no-connections") as process:
        assert process.get("/api/v1/reading").json()["client_connections"] is None


def test_the_sampler_sees_a_client_between_two_readings(engine, token_file):
    """While withdrawn it looks each second by itself: a client that came and went is in the next reading."""
    with sidecar("--engine-url", engine.url(), "--withdraw.token-file", str(token_file)) as process:
        assert process.get("/api/v1/reading").json()["client_connections"]["last_seen_at"] is None
        ask(process, "POST")
        with socket.create_connection(("127.0.0.1", engine.port)):
            time.sleep(2.5)
        time.sleep(0.2)
        found = process.get("/api/v1/reading").json()["client_connections"]
    assert found["established"] == 0
    assert found["last_seen_at"] is not None


def test_a_fleet_source_leaves_a_withdrawn_replica_out(engine, token_file):
    """Two sidecars, one withdrawn: it is draining to whoever asks, and serves again when it is put back."""
    arguments = ("--engine-url", engine.url(), "--withdraw.token-file", str(token_file))
    with sidecar(*arguments) as staying, sidecar(*arguments) as leaving:
        settings = FleetSettings(timeout_s=LONG_S, spec_replicas=2)
        source = parse_source(f"static:http://{staying.address},http://{leaving.address}", settings, cluster=no_cluster)
        try:
            ask(leaving, "POST")
            phases = {r.name: r.phase for r in source.observe(time.time()).replicas}
            assert sorted(phases.values()) == [Phase.DRAINING, Phase.SERVING]
            ask(leaving, "DELETE")
            assert {r.phase for r in source.observe(time.time()).replicas} == {Phase.SERVING}
        finally:
            source.close()


def no_cluster() -> Any:
    """A static source has none."""
    raise AssertionError


def test_the_token_is_never_told(engine, token_file):
    """Neither in a log line of any level nor on a page, whether it is right, wrong or in a strange place."""
    arguments = ("--withdraw.token-file", str(token_file), "--log.level", "debug", "--web.shutdown-delay", "0")
    with sidecar("--engine-url", engine.url(), *arguments) as process:
        answers = [
            ask(process, "POST").text,
            ask(process, "POST", f"/withdraw?lease={TOKEN}").text,
            ask(process, "POST", token=TOKEN + "x").text,
            ask(process, "PUT").text,
            *(process.get(path).text for path in ("/", "/metrics", "/api/v1/reading", "/nowhere")),
            ready(process)[1],
            ask(process, "DELETE").text,
        ]
        process.popen.terminate()
        assert process.ended() == 0
        log = "".join(process.log)
    assert "withdrawn" in log
    assert TOKEN not in log
    assert all(TOKEN not in answer for answer in answers[:1] + answers[2:])


def test_a_withdrawn_sidecar_stops_and_stays_small(engine, token_file):
    """SIGTERM ends it with 0 while it is withdrawn; a hundred renewals neither grow it nor add threads."""
    arguments = ("--withdraw.token-file", str(token_file), "--web.shutdown-delay", "0")
    with sidecar("--engine-url", engine.url(), *arguments) as process:
        proc = Path(f"/proc/{process.popen.pid}")
        for _ in range(100):
            ask(process, "POST")
        names = [path.read_text().strip() for path in proc.glob("task/*/comm")]
        resident_mb = int((proc / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
        assert len(names) < 60
        assert resident_mb < 45
        process.popen.terminate()
        assert process.ended() == 0


def test_config_check_names_a_token_file_that_is_none(tmp_path, engine):
    """Before it is rolled out, in one line."""
    command = [sys.executable, "-m", "infscale", "sidecar", "--engine-url", engine.url(), "--config.check"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [*command, "--withdraw.token-file", str(tmp_path / "none")],
        capture_output=True,
        text=True,
        timeout=LONG_S,
        env=environment,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"token file {tmp_path / 'none'}: No such file" in done.stderr
    assert done.stdout == ""
