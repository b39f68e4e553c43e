"""`infscale kube` as a person runs it: through kubectl, against the stand-in, with Pods on real sockets."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from infscale.cli import run
from infscale.core.memory import ScaleState
from infscale.core.state import Recommendation, State
from infscale.state_file import write_state
from tests.kube import objects
from tests.kube.street import START_S, Street
from tests.kube.wire import Fault

RIGHTS = [
    ("apps", "deployments", "get"),
    ("apps", "deployments/scale", "get", "update"),
    ("", "pods", "list", "get", "patch"),
    ("", "pods/proxy", "get"),
    ("autoscaling", "horizontalpodautoscalers", "list"),
    ("keda.sh", "scaledobjects", "list"),
    ("coordination.k8s.io", "leases", "get", "create", "update"),
]
PUT = "/apis/apps/v1/namespaces/ml/deployments/vllm/scale"


@pytest.fixture
def street(server):
    """One replica whose engine has nothing to do."""
    with Street(server) as made:
        yield made


@pytest.fixture
def kube(kubeconfig, capsys, tmp_path):
    """Runs `infscale kube` on ml/vllm; gives exit status, standard output, standard error."""

    def call(*arguments, now_s=START_S, plain=("--target", "4", "--max", "3", "--port", "8000")):
        words = ["kube", "-n", "ml", "--deployment", "vllm", "--kube.config", str(kubeconfig), *plain]
        status = run([*words, "--now", str(now_s), *map(str, arguments)])
        out, err = capsys.readouterr()
        return status, out, err

    return call


def test_the_loop(street, kube, tmp_path):
    """Load makes 1 to 3, is stabilised at 3 when it ends, and 20 s of zero make 1."""
    state = tmp_path / "state.json"

    def step(after_s, load):
        street.now_s, street.load = START_S + after_s, load
        options = ("--down-window", 20, "--state", state, "--apply")
        status, out, err = kube(*options, now_s=street.now_s)
        assert (status, err) == (0, "")
        return street.replicas, out

    replicas, out = step(0, 12)
    assert (replicas, out.splitlines()[-1]) == (3, "scaled deployment ml/vllm from 1 to 3")
    assert out.splitlines()[0] == "deployment ml/vllm: spec.replicas 1, pods 1, ready with metrics 1"
    replicas, out = step(15, 12)
    assert (replicas, out.splitlines()[0]) == (3, "deployment ml/vllm: spec.replicas 3, pods 3, ready with metrics 3")
    replicas, out = step(34.9, 0)
    assert replicas == 3
    assert out.splitlines()[-1].endswith("current 3 -> desired 3 (none; stabilised)")
    replicas, out = step(35, 0)
    assert (replicas, out.splitlines()[-1]) == (1, "scaled deployment ml/vllm from 3 to 1")


def test_what_a_person_sees(street, kube):
    """The workload, a row for each Pod, the decision, its steps, and that nothing is changed without --apply."""
    street.load = 12

    status, out, err = kube("--explain")

    assert (status, err) == (0, "")
    assert out == (
        "deployment ml/vllm: spec.replicas 1, pods 1, ready with metrics 1\n"
        "POD         READY  ENGINE  STATE  INFLIGHT  RUNNING  WAITING  KV  TOKENS/S  CPU\n"
        "vllm-00001  yes    vllm    ok           12        2       10   -         -    -\n"
        "queue:4 (min 1, max 3): current 1 -> desired 3 (up; metric)\n"
        "  1. queue: 12 over 4 per replica at a count of 1 is a ratio of 3, proposes 3\n"
        "  2. 3: no recent proposal holds it\n"
        "  3. 3: DesiredWithinRange\n"
        "would scale deployment ml/vllm from 1 to 3: nothing is changed without --apply\n"
    )
    assert street.replicas == 1
    assert {call.method for call in street.server.calls()} == {"GET"}


def test_the_current_count_is_the_specs(street, kube):
    """What the Deployment asks for counts, not how many Pods there are."""
    street.server.hook = lambda: None
    street.server.change("deployments", "vllm", lambda d: d["spec"].update(replicas=2))

    _, out, _ = kube()

    assert out.startswith("deployment ml/vllm: spec.replicas 2, pods 1, ready with metrics 1\n")
    assert "current 2 -> desired" in out


def test_rates_between_two_runs(street, kube, tmp_path):
    """Tokens per second are measured between two runs with one state."""
    street.load = 1
    kube("--state", tmp_path / "s")
    street.tokens += 90

    _, out, _ = kube("--state", tmp_path / "s", now_s=START_S + 10)

    assert out.splitlines()[2].split()[-2] == "10"


@pytest.mark.parametrize(
    ("sidecar", "annotations", "options", "port", "engine"),
    [
        (True, {}, (), "10047", "sglang"),
        (True, {"prometheus.io/port": "10047", "prometheus.io/path": "/metrics"}, (), "10047", "sglang"),
        (True, {"prometheus.io/port": "8000"}, (), "8000", "vllm"),
        (False, {"prometheus.io/port": "8000", "prometheus.io/scheme": "http"}, (), "8000", "vllm"),
        (True, {"prometheus.io/port": "1"}, ("--port", "http"), "8000", "vllm"),
    ],
    ids=["named port", "annotated sidecar", "annotated engine", "no sidecar", "told"],
)
def test_where_a_pod_is_read(server, kube, sidecar, annotations, options, port, engine):
    """--port, else the Pods' prometheus.io/ annotations, else the sidecar's port, which is asked for its reading."""
    with Street(server, sidecar=sidecar, annotations=annotations) as street:
        street.load = 5

        status, out, err = kube(*options, plain=("--target", "4", "--max", "3"))

    assert (status, err, set(street.asked)) == (0, "", {port})
    assert out.splitlines()[2].split()[:6] == ["vllm-00001", "yes", engine, "ok", "5", "2"]


@pytest.mark.parametrize(
    ("annotations", "text"),
    [
        ({"prometheus.io/port": "http-metrics"}, "no port is named 'http-metrics' (named are: http)"),
        ({"prometheus.io/port": "70000"}, "no port is named '70000'"),
        ({"prometheus.io/port": "0"}, "give a number from 1 to 65535, or a name that the Pods have"),
        ({"prometheus.io/port": "8000", "prometheus.io/path": "/a b"}, "annotation prometheus.io/path of pod ml/"),
        ({"prometheus.io/port": "8000", "prometheus.io/scheme": "ftp"}, "'ftp': expected http or https"),
    ],
)
def test_annotations_that_cannot_be(server, kube, annotations, text):
    """They are named; a Pod that has them is one that cannot be read, and no mistake of the command's."""
    with Street(server, annotations=annotations) as street:
        status, out, err = kube(plain=("--target", "4", "--max", "3"))
        asked = list(street.asked)

    assert (status, out, asked, len(err.splitlines())) == (1, "", [], 1)
    assert text in err


def test_no_sidecar_in_the_pods(server, kube):
    """Without a sidecar, an annotation or --port it is said what to do."""
    with Street(server):
        status, out, err = kube(plain=("--target", "4", "--max", "3"))

    assert (status, out) == (1, "")
    assert err == (
        "infscale: deployment ml/vllm: no sidecar in the Pods (pod ml/vllm-00001: no port is named 'infscale' (named"
        " are: http)): add infscale's sidecar, or read the engines themselves with --port 8000 --path /metrics\n"
    )


@pytest.mark.parametrize(
    ("lacks", "text"),
    [
        (("apps", "deployments"), r"not allowed to get deployments vllm in namespace ml: .* verbs: [get]"),
        (("", "pods"), r"not allowed to list pods in namespace ml: .* resources: [pods], verbs: [list]"),
        (("", "pods/proxy"), r"not allowed to get pods/proxy vllm-00001 .* resources: [pods/proxy], verbs: [get]"),
        (("apps", "deployments/scale"), r"not allowed to get deployments/scale .* verbs: [get, update]"),
        (("coordination.k8s.io", "leases"), r"not allowed to get leases .* verbs: [get, create, update]"),
        (("autoscaling", "horizontalpodautoscalers"), r"not allowed to list horizontalpodautoscalers .*verbs: [list]"),
    ],
    ids=lambda value: value[1] if isinstance(value, tuple) else "",
)
def test_no_permission(server, street, kube, tmp_path, lacks, text):
    """Each right that is missing is named with its verb; nothing is scaled."""
    street.load = 12
    server.role = [objects.role_rule(*rule) for rule in RIGHTS if rule[:2] != lacks]

    status, _, err = kube("--state", tmp_path / "s", "--apply")

    before, _, after = text.partition(" .*")
    assert (status, street.replicas) == (1, 1)
    assert before in err
    assert after.strip() in err
    assert "Traceback" not in err


def test_these_rights_are_enough(server, street, kube, tmp_path):
    """With just the rights that the guide names it scales."""
    street.load = 12
    server.role = [objects.role_rule(*rule) for rule in RIGHTS]

    assert kube("--state", tmp_path / "s", "--apply")[0] == 0
    assert street.replicas == 3


def test_no_such_workload(server, kube):
    """A Deployment that is not there is named; with --apply too."""
    for options in ((), ("--state", "x", "--apply")):
        status, out, err = kube(*options)

        assert (status, out) == (1, "")
        assert err.startswith("infscale: GET deployments vllm in namespace ml: there is none (")
        assert err.endswith("check the name and the namespace\n")
        assert len(err.splitlines()) == 1


def test_kubectl_absent(kube, monkeypatch):
    """Without kubectl it says to install it, or to run in the cluster."""
    monkeypatch.setenv("PATH", "/nowhere")

    assert kube() == (
        1,
        "",
        "infscale: kubectl: there is no kubectl on the PATH: install kubectl, or run in the cluster\n",
    )


def test_api_down(server, kube):
    """An API server that is down is named with its address."""
    server.close()

    status, out, err = kube()

    assert (status, out, len(err.splitlines())) == (1, "", 1)
    assert f"{server.host}:{server.port} was refused" in err


def test_token_expired(server, street, kube):
    """A token that is not accepted any more says to log in again."""
    server.token = "another"

    status, out, err = kube()

    assert (status, out, len(err.splitlines())) == (1, "", 1)
    assert "does not accept our credentials" in err
    assert "log in again" in err


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--apply",), "--apply needs --state FILE"),
        (("--watch",), "--now is for one decision"),
        (("--deployment", "Vllm!"), "--deployment: expected a name"),
        (("--port", "0"), "--port: expected a number from 1 to 65535"),
        (("--port", "http/2"), "--port: expected a number from 1 to 65535, or the name of a port"),
        (("--path", "metrics"), "--path: expected a path as /metrics"),
        (("--metric", "cpu"), "it needs --state FILE and --cpu-request CORES"),
        (("--engine", "vlm"), "vlm"),
        (("--target", "0"), "--target"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_usage(kube, options, text):
    """What cannot be meant is refused before anything is asked, with the flag."""
    status, out, err = kube(*options)

    assert (status, out, len(err.splitlines())) == (2, "", 1)
    assert text in err


def test_no_target_and_no_namespace(capsys):
    """What is missing is named."""
    assert run(["kube", "-n", "ml", "--deployment", "vllm"]) == 2
    assert "--target" in capsys.readouterr().err
    assert run(["kube", "--deployment", "vllm", "--target", "4"]) == 2
    assert "--namespace" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("{", "damaged"),
        ("", "empty"),
        ('{"kind": "Pod"}', "not a state of infscale"),
        ('{"format": "infscale-state", "version": 999}', "version"),
    ],
)
def test_state_that_cannot_be_used(server, street, kube, tmp_path, content, text):
    """A state file that is damaged, foreign or of a later version is refused with its name, and left as it is."""
    street.load, state = 12, tmp_path / "state.json"
    state.write_text(content)

    status, out, err = kube("--state", state, "--apply")

    assert (status, out, state.read_text(), street.replicas) == (2, "", content, 1)
    assert err.startswith(f"infscale: {state}")
    assert text in err


def test_state_from_the_future(street, kube, tmp_path):
    """Entries of a later time: with --apply refused, else left out with a warning, and the file stays as it is."""
    state = tmp_path / "state.json"
    write_state(state, ScaleState(hpa=State(recommendations=(Recommendation(3, START_S + 60),))))
    before = state.read_text()

    status, _, err = kube("--state", state)
    refused, out, why = kube("--state", state, "--apply")

    assert (status, refused, out, state.read_text()) == (0, 2, "", before)
    assert "1 entries lie in the future" in err
    assert "1 entries lie in the future" in why


@pytest.mark.parametrize("other", [objects.hpa(), objects.scaled_object()], ids=["HPA", "ScaledObject"])
def test_another_autoscaler(server, street, kube, tmp_path, other):
    """Beside an HPA or a ScaledObject --apply is refused with its name; a dry run is not."""
    street.load = 12
    server.add(other)

    status, out, err = kube("--state", tmp_path / "s", "--apply")

    assert (status, out, street.replicas) == (2, "", 1)
    assert f"{other['kind']} ml/vllm scales deployment ml/vllm, and two writers would fight" in err
    assert kube()[0] == 0


def test_a_conflict_is_tried_anew(server, street, kube, tmp_path):
    """A write that meets another's is not forced: it is read anew and decided anew."""
    street.load = 12
    labels = iter([{"a": "b"}])

    def rival():
        if server.requests[-1].path == PUT and (label := next(labels, None)):
            server.change("deployments", "vllm", lambda d: d["metadata"].update(labels=label))

    server.before_write = rival

    status, out, err = kube("--state", tmp_path / "s", "--apply")

    assert (status, err, street.replicas) == (0, "", 3)
    assert out.endswith("scaled deployment ml/vllm from 1 to 3\n")
    assert len([call for call in server.calls("PUT") if call.path == PUT]) == 2


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda s: s.quiet.add("vllm-00001"), "pod ml/vllm-00001: nothing answers the API server on port 8000"),
        (lambda s: s.pages.update({"vllm-00001": ("200 OK", b"<html>")}), "pod ml/vllm-00001"),
        (lambda s: s.pages.update({"vllm-00001": ("404 Not Found", b"")}), "HTTP 404"),
        (lambda s: s.pages.update({"vllm-00001": ("200 OK", b"vllm:num_requests_running NaN\n")}), "pod ml/vllm-00001"),
    ],
    ids=["refuses", "html", "404", "NaN"],
)
def test_a_pod_that_cannot_be_read(server, kube, tmp_path, change, text):
    """A Pod without a value is named, its row says so, and nothing is scaled on it."""
    with Street(server, replicas=2) as street:
        change(street)
        street.quiet.add("vllm-00002")

        status, out, err = kube("--state", tmp_path / "s", "--apply", "--down-window", "0")

    assert (status, street.replicas) == (1, 2)
    assert "spec.replicas 2, pods 2, ready with metrics 0" in out
    assert out.splitlines()[3].split()[:4] == ["vllm-00002", "yes", "-", "unreachable"]
    assert text in err
    assert "nothing to decide by" in err or len(err.splitlines()) == 2


@pytest.mark.parametrize("path", ["/deployments/vllm", "/pods"])
def test_a_read_that_fails(server, street, kube, tmp_path, path):
    """When the API fails nothing is scaled, whatever was known before."""
    street.load = 12
    server.faults = [Fault("html", path=path, status=200, times=99)]

    status, out, err = kube("--state", tmp_path / "s", "--apply")

    assert (status, out, street.replicas) == (1, "", 1)
    assert "is not JSON" in err
    assert server.calls("PUT") == []


def test_no_pods(server, kube):
    """A Deployment at 0 has no rows; the minimum brings it back."""
    with Street(server, replicas=0):
        status, out, _ = kube()

    assert status == 0
    assert out.splitlines()[0] == "deployment ml/vllm: spec.replicas 0, pods 0, ready with metrics 0"


def test_watch(server, street, kubeconfig, tmp_path):
    """--watch looks each period, goes on through a fault, ends with Ctrl-C, and gives the Lease back."""
    street.now_s, street.load = time.time(), 12
    command = [sys.executable, "-m", "infscale", "kube", "-n", "ml", "--deployment", "vllm", "--target", "4"]
    command += ["--max", "3", "--port", "8000", "--kube.config", str(kubeconfig), "--state", str(tmp_path / "s")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [*command, "--apply", "--watch", "--interval", "0.1"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        seen = [next(line for line in lines if line.startswith("scaled"))]
        server.faults = [Fault("html", path="/deployments/vllm", status=200)]
        seen += [next(line for line in lines if "spec.replicas 3, pods 3" in line) for _ in range(3)]
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=50)
    finally:
        process.kill()
        process.wait()

    assert seen[0] == "scaled deployment ml/vllm from 1 to 3\n"
    assert process.returncode == 0
    assert "nothing is decided or scaled for now: " in err
    assert server.get("leases", "infscale-deployments.apps-vllm")["spec"]["holderIdentity"] is None
    assert json.loads((tmp_path / "s").read_text())
