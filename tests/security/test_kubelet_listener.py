"""The kubelet listener, which is never authenticated: what it tells to anybody, and what anybody can change there."""

from __future__ import annotations

import dataclasses
import json
import re
import time

import pytest

from infscale.drain.report import DrainReport
from tests.security.roles import AUTHORIZATION, PAGE, WITHDRAW_TOKEN, kubelet_address, main_address, role, web_config
from tests.security.test_slow import threads
from tests.security.test_unauthenticated import METHODS, STRANGE
from tests.security.wire import request, say

PATHS = ("/-/healthy", "/-/ready", "/drain", "/drain/report")
OF_THE_MAIN = ("/", "/metrics", "/api/v1/reading", "/api/v1/recommendation", "/api/v1/load", "/withdraw")
REPORT = json.dumps({"outcome": "deadline", "seconds": 25.0, "inflight": 5, "grace_s": 3600.0, "deadline_s": 25.0})


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory):
    """A sidecar with a password on its main listener."""
    folder = tmp_path_factory.mktemp("sidecar")
    with role("sidecar", folder, "--web.config.file", web_config(folder), "--log.level", "debug") as process:
        yield process


def told(process, path: str) -> str:
    """A page of the main listener."""
    said = say(main_address(process), request("GET", path, AUTHORIZATION))
    assert said.status == 200
    return said.body.decode()


def lasting(process) -> dict[str, str]:
    """What the sidecar publishes, without what time alone changes and without the drain metrics.

    The workload's series are left out: an evaluation, the first or the next, may come between two looks.
    """
    samples = [line.rpartition(" ") for line in told(process, "/metrics").splitlines() if not line.startswith("#")]
    own = re.compile(r"process_|python_|infscale_(drain|scrape_duration|reading_timestamp|evaluation_|replica_seconds)")
    own_or_evaluated = {name for name, _, _ in samples if own.match(name) or "workload_namespace=" in name}
    own_or_evaluated.discard("infscale_draining")
    return {name: value for name, _, value in samples if name not in own_or_evaluated}


def test_it_gives_nothing_away(sidecar):
    """Two words for the probes; nothing of the engine, the Pod or the configuration, on any path, with any method."""
    for path in (*PATHS, *OF_THE_MAIN, *STRANGE):
        for method in METHODS:
            if (method, path) in (("GET", "/drain"), ("HEAD", "/drain")):
                continue  # waits for the engine; its answer is a drain's report
            said = say(kubelet_address(sidecar), request(method, path, f"X-Infscale-Token: {WITHDRAW_TOKEN}"))
            if path in ("/-/healthy", "/-/ready") and method in ("GET", "HEAD"):
                assert said.status == 200
                assert said.body in (b"healthy\n", b"ready\n", b"")
            elif path in PATHS:
                assert said.status == (400 if (method, path) == ("POST", "/drain/report") else 405), (method, path)
            else:
                assert said.status == 404, (method, path)
            for secret in (b"the-model", b"vllm", b"Server:", b"127.0.0.1", b"/etc"):
                assert secret not in said.data, (method, path)


def test_it_changes_nothing_but_the_drain_metrics(sidecar):
    """Reports of drains that never were, and a withdrawal with the right token: only the drains' own series move."""
    before, reading = lasting(sidecar), json.loads(told(sidecar, "/api/v1/reading"))
    address = kubelet_address(sidecar)
    for body in (REPORT, json.dumps({"event": "started"}), json.dumps({"outcome": "idle"})):
        assert say(address, request("POST", "/drain/report", body=body.encode())).status == 200
    for method in ("POST", "DELETE"):
        asked = request(method, "/withdraw?lease=300", f"X-Infscale-Token: {WITHDRAW_TOKEN}")
        assert say(address, asked).status == 404
    assert lasting(sidecar) == before
    after = json.loads(told(sidecar, "/api/v1/reading"))
    for key in ("draining", "withdrawn", "withdrawn_until", "inflight", "pod", "state"):
        assert after.get(key) == reading.get(key)
    assert say(address, request("GET", "/-/ready")).body == b"ready\n"
    assert 'infscale_drains_total{outcome="deadline"} 1.0' in told(sidecar, "/metrics")


def test_a_drain_for_whoever_asks_ends_and_marks_nothing(sidecar):
    """By GET and by HEAD, with what a withdrawal would need: it waits, tells how it went, and all is as before."""
    before, reading = lasting(sidecar), json.loads(told(sidecar, "/api/v1/reading"))
    asked = "/drain?lease=300&grace=1&terminating=true"
    said = say(kubelet_address(sidecar), request("HEAD", asked) + request("GET", "/-/ready"))
    assert said.statuses == [200]
    said = say(kubelet_address(sidecar), request("GET", asked, f"X-Infscale-Token: {WITHDRAW_TOKEN}"))
    assert said.status == 200
    assert json.loads(said.body).keys() == {field.name for field in dataclasses.fields(DrainReport)}
    for secret in (b"the-model", b"127.0.0.1", WITHDRAW_TOKEN.encode()):
        assert secret not in said.data
    assert lasting(sidecar) == before
    after = json.loads(told(sidecar, "/api/v1/reading"))
    for key in ("draining", "withdrawn", "withdrawn_until", "inflight", "pod", "state"):
        assert after.get(key) == reading.get(key)
    assert say(kubelet_address(sidecar), request("GET", "/-/ready")).body == b"ready\n"


def test_a_flood_of_reports_is_bounded(tmp_path):
    """Three hundred reports of an engine that was left busy, each to be looked after for two minutes: 64 threads."""
    busy = PAGE.replace(b"} 0", b"} 5")
    with role("sidecar", tmp_path, page=busy) as process:
        before = threads(process)
        for _ in range(300):
            said = say(kubelet_address(process), request("POST", "/drain/report", body=REPORT.encode()))
            assert said.status == 200
        assert 64 <= threads(process) - before < 64 + 10
        assert any("not looked after" in line for line in process.log)


@pytest.mark.parametrize(
    "lease", ["301", "1e9", "inf", "nan", "-60", "0", "4.999", "0x40", "60,60", "60;60", "", "9" * 5000]
)
def test_a_lease_that_is_none(sidecar, lease):
    """A lease beyond its bounds is refused, and the replica stays as it is."""
    asked = request("POST", f"/withdraw?lease={lease}", AUTHORIZATION, f"X-Infscale-Token: {WITHDRAW_TOKEN}")
    said = say(main_address(sidecar), asked)
    assert said.status == 400
    assert b"lease is" in said.body
    assert len(said.body) < 200
    assert say(kubelet_address(sidecar), request("GET", "/-/ready")).status == 200


@pytest.mark.parametrize(
    "lines",
    [
        (),
        ("X-Infscale-Token:",),
        (f"X-Infscale-Token: {WITHDRAW_TOKEN[:-1]}",),
        (f"X-Infscale-Token: {WITHDRAW_TOKEN}\xa0",),
        (f"X-Infscale-Token: {WITHDRAW_TOKEN}, {WITHDRAW_TOKEN}",),
        (f"X-Infscale-Token: {WITHDRAW_TOKEN}", f"X-Infscale-Token: {WITHDRAW_TOKEN}"),
        (f"X-Infscale-Token: Bearer {WITHDRAW_TOKEN}",),
        (f"X-Infscale_Token: {WITHDRAW_TOKEN}",),
        (f"Cookie: X-Infscale-Token={WITHDRAW_TOKEN}",),
    ],
)
def test_a_token_that_is_none(sidecar, lines):
    """Without the one header with the one token there is no withdrawal, with the password neither; nor by a query."""
    for query in ("", f"?token={WITHDRAW_TOKEN}", f"?X-Infscale-Token={WITHDRAW_TOKEN}"):
        for method in ("POST", "DELETE"):
            data = request(method, f"/withdraw{query}", AUTHORIZATION, *lines)
            assert say(main_address(sidecar), data).status == 403
    override = request(
        "GET", "/withdraw", AUTHORIZATION, "X-HTTP-Method-Override: POST", f"X-Infscale-Token: {WITHDRAW_TOKEN}"
    )
    assert say(main_address(sidecar), override).status == 405
    assert say(kubelet_address(sidecar), request("GET", "/-/ready")).status == 200


def test_a_replayed_withdrawal_is_a_renewal_and_no_more(sidecar):
    """Who recorded a withdrawal can make it again, for one lease, and put it back: the token is all that counts."""
    asked = request("POST", "/withdraw?lease=60", AUTHORIZATION, f"X-Infscale-Token: {WITHDRAW_TOKEN}")
    untils = [json.loads(say(main_address(sidecar), asked).body)["until"] for _ in range(3)]
    assert untils[-1] - time.time() < 61
    back = request("DELETE", "/withdraw", AUTHORIZATION, f"X-Infscale-Token: {WITHDRAW_TOKEN}")
    for _ in range(2):
        assert json.loads(say(main_address(sidecar), back).body) == {"withdrawn": False, "until": None}
    assert say(kubelet_address(sidecar), request("GET", "/-/ready")).status == 200
