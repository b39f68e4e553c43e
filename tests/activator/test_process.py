"""`infscale activator` as a process: from zero over the API server stand-in, its pages, its stop, and bad input."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from infscale.cli import run
from tests.activator.process import ActivatorProcess, PodActivator
from tests.activator.rig import EVENT, Asker, Client, Replica, free_port, refused, until
from tests.kube import objects
from tests.metrics.test_exposition import check_with_promtool
from tests.sidecar_process import LONG_S

COLD_START_S = 0.8
LABELS = 'workload="vllm",workload_namespace="ml"'


def test_five_requests_at_zero(server, account):
    """The first one wakes the workload, all five are answered in their order, and each waits for the cold start."""
    port = free_port()
    server.add(objects.deployment(replicas=0))
    woken = threading.Event()
    engine: list[subprocess.Popen[bytes]] = []

    def cold_start() -> None:
        """The engine comes up a while after the workload asks for it: the stand-in engine, one request at a time."""
        woken.wait(LONG_S)
        time.sleep(COLD_START_S)
        flags = ("--max-num-seqs=1", "--time-to-first-token=0.05", "--inter-token-latency=0.001", f"--port={port}")
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-m", "infscale", "sim-engine", *flags, "--log.level=error"]
        engine.append(subprocess.Popen(command, env=environment))

    def look() -> None:
        if server.get("deployments", "vllm")["spec"]["replicas"] == 1:
            woken.set()

    server.hook = look
    starting = threading.Thread(target=cold_start)
    starting.start()
    scale = "--scale=kubernetes:deployment/ml/vllm"
    with PodActivator(account, server.host, server.port, f"http://127.0.0.1:{port}", scale) as process:
        assert process.held()["wake"] == "the first request that has to wait wakes it"
        body = b'{"prompt": "one two", "max_tokens": 4, "stream": true}'
        askers = []
        for number in range(5):
            askers.append(Asker(process.port, body=body, headers={"Content-Type": "application/json"}))
            while process.held()["held"] != number + 1:
                time.sleep(0.005)
        assert process.values()[f"infscale_pending_requests{{{LABELS}}}"] == 5
        try:
            assert [asker.answered().status for asker in askers] == [200] * 5
        finally:
            starting.join(LONG_S)
            engine[0].kill()
            engine[0].wait()
        assert all(b"[DONE]" in asker.body for asker in askers)
        assert [asker.done_s for asker in askers] == sorted(asker.done_s for asker in askers)
        assert all(asker.took_s >= COLD_START_S for asker in askers)
        assert [request.body["spec"]["replicas"] for request in server.calls("PUT")] == [1]
        values = process.values()
        assert values[f"infscale_pending_requests{{{LABELS}}}"] == 0
        assert values[f'infscale_held_requests_total{{outcome="released",{LABELS}}}'] == 5
        assert values[f"infscale_hold_duration_seconds_sum{{{LABELS}}}"] >= 5 * COLD_START_S
        assert 'wake result="deployment ml/vllm: from 0 to 1 replicas"' in "".join(process.log)


def test_only_through_the_metric(server):
    """With `--scale none` nobody is asked to scale: the number alone tells."""
    server.add(objects.deployment(replicas=0))
    with ActivatorProcess(f"http://127.0.0.1:{free_port()}") as process, Client(process.port) as client:
        client.post()
        until(lambda: process.values()[f"infscale_pending_requests{{{LABELS}}}"] == 1)
        assert server.calls() == []
        assert process.held()["wake"] is None


def test_pages():
    """Metrics that promtool has nothing against, JSON, a page for a person; probes on the other port."""
    with Replica() as replica, ActivatorProcess(replica.url, "--max-held=7") as process:
        until(lambda: process.held()["endpoints"] == [{"address": "127.0.0.1", "ready": True, "outstanding": 0}])
        check_with_promtool(process.get("/metrics").content)
        values = process.values()
        assert values[f"infscale_pending_requests_limit{{{LABELS}}}"] == 7
        for outcome in ("released", "timed_out", "full", "left", "stopped"):
            assert values[f'infscale_held_requests_total{{outcome="{outcome}",{LABELS}}}'] == 0
        assert process.held()["workload"] == {"namespace": "ml", "name": "vllm"}
        page = process.get("/").text
        assert "infscale activator ml/vllm" in page
        assert "passing on" in page
        assert process.get("/-/healthy", kubelet=True).status_code == 200
        assert process.get("/-/ready", kubelet=True).status_code == 200


def test_sigterm():
    """Not ready at once; a held request is still counted on the page, and served to its end; exit 0."""
    port = free_port()
    with ActivatorProcess(f"http://127.0.0.1:{port}") as process:
        held = Asker(process.port)
        while process.held()["held"] != 1:
            time.sleep(0.005)
        process.stop()
        until(lambda: refused(process.port))
        assert process.get("/-/ready", kubelet=True).status_code == 503
        assert process.values()[f"infscale_pending_requests{{{LABELS}}}"] == 1
        with Replica(lambda answer: answer.stream(), port=port):
            assert held.answered().status == 200
            assert held.body.count(EVENT) == 3
            assert process.ended() == 0


def test_sigterm_has_a_bound():
    """After `--drain-timeout` what is still held gets 503, and the process ends."""
    with ActivatorProcess(f"http://127.0.0.1:{free_port()}", "--drain-timeout=0.2") as process:
        held = Asker(process.port)
        until(lambda: process.held()["held"] == 1)
        process.stop()
        assert held.answered().status == 503
        assert process.ended() == 0


def test_second_sigterm_ends_at_once():
    """Who asks twice does not wait for what is held."""
    upstream = f"http://127.0.0.1:{free_port()}"
    with ActivatorProcess(upstream, "--drain-timeout=1000") as process, Client(process.port) as client:
        client.post()
        until(lambda: process.held()["held"] == 1)
        process.stop()
        until(lambda: refused(process.port))
        process.stop()
        assert process.ended() == 128 + signal.SIGTERM


def test_https_towards_the_replica(kube_certs):
    """A certificate is checked against the name of the upstream; without trust nothing is ready."""
    with Replica() as replica:
        replica.socket = kube_certs.server.server_context().wrap_socket(replica.socket, server_side=True)
        url = f"https://localhost:{replica.port}"
        with ActivatorProcess(url, f"--upstream.ca-file={kube_certs.ca}") as process:
            assert process.post(data=b"{}").status_code == 200
        with ActivatorProcess(url, "--hold-timeout=0.5") as process:
            assert process.post(data=b"{}").status_code == 503


BAD = {
    "no upstream": (["--workload=ml/vllm"], "--upstream"),
    "no workload": (["--upstream=http://vllm:8000"], "--workload"),
    "half a workload": (["--upstream=http://vllm:8000", "--workload=vllm"], "--workload: expected NAMESPACE/NAME"),
    "a path": (["--upstream=http://vllm:8000/v1", "--workload=ml/vllm"], "expected no path"),
    "no URL": (["--upstream=vllm:8000", "--workload=ml/vllm"], "has no scheme"),
    "a scale": (["--upstream=http://vllm:8000", "--workload=ml/vllm", "--scale=keda"], "--scale: expected none or"),
    "a kind": (
        ["--upstream=http://vllm:8000", "--workload=ml/vllm", "--scale=kubernetes:pods/ml/vllm"],
        "workload kind 'pods'",
    ),
    "a probe": (
        ["--upstream=http://vllm:8000", "--workload=ml/vllm", "--upstream.health-path=health"],
        "expected a path, as /health",
    ),
    "a name server": (
        ["--upstream=http://vllm:8000", "--workload=ml/vllm", "--upstream.dns-server=dns.test"],
        "name server 'dns.test'",
    ),
    "a CA file": (
        ["--upstream=https://vllm:8000", "--workload=ml/vllm", "--upstream.ca-file=/nowhere"],
        "CA file /nowhere",
    ),
    "an address": (
        ["--upstream=http://127.0.0.1:1", "--workload=ml/vllm", "--listen-address=192.0.2.1:1"],
        "--listen-address: cannot listen on 192.0.2.1:1",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name, capsys):
    """Exit 2, and one line that says what is wrong and what was expected."""
    arguments, says = BAD[name]
    assert (
        run(["activator", "--web.listen-address=127.0.0.1:0", "--kubelet.listen-address=127.0.0.1:0", *arguments]) == 2
    )
    said = capsys.readouterr().err
    assert len(said.strip().splitlines()) == 1
    assert says in said


def test_beside_keda(server, kubeconfig, capsys):
    """A workload that KEDA scales is refused at the start, in one line."""
    server.add(objects.deployment(replicas=0))
    server.add(objects.scaled_object())
    flags = ["--upstream=http://127.0.0.1:1", "--workload=ml/vllm", "--listen-address=127.0.0.1:0"]
    assert run(["activator", *flags, "--scale=kubernetes:deployment/ml/vllm", f"--kube.config={kubeconfig}"]) == 2
    assert "ScaledObject ml/vllm" in capsys.readouterr().err


def test_without_aiohttp(monkeypatch, capsys):
    """The command says in one line what to install."""
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    assert run(["activator", "--upstream=http://vllm:8000", "--workload=ml/vllm"]) == 2
    assert capsys.readouterr().err == "infscale: the activator needs aiohttp: pip install 'infscale[activator]'\n"


def test_the_check_of_the_configuration(capsys):
    """`--config.check` says that all is well, and starts nothing."""
    assert run(["activator", "--upstream=http://vllm:8000", "--workload=ml/vllm", "--config.check"]) == 0
    assert capsys.readouterr().out == "configuration is fine: http://vllm:8000, scale none\n"


def test_flags_from_the_environment(monkeypatch, capsys):
    """Each flag can be given there."""
    for name, value in {"UPSTREAM": "http://vllm:8000", "WORKLOAD": "ml/vllm", "MAX_HELD": "0"}.items():
        monkeypatch.setenv(f"INFSCALE_{name}", value)
    assert run(["activator", "--config.check"]) == 2
    assert "--max-held" in capsys.readouterr().err


def test_more_connections_than_it_may_have():
    """One over the bound is answered 503 at once and ended; the others stay."""
    upstream = f"http://127.0.0.1:{free_port()}"
    with ActivatorProcess(upstream, "--max-connections=3") as process, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(Client(process.port)) for _ in range(3)]
        for client in clients:
            client.post()
        until(lambda: process.held()["held"] == 3)
        over = stack.enter_context(Client(process.port))
        over.post()
        status, headers, _ = over.answer()
        assert (status, headers["retry-after"], headers["connection"]) == (503, "5", "close")
        assert process.held()["held"] == 3
