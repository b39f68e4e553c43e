"""The recommender's flags: what cannot be used is one line that says so, and a check changes nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from infscale.cli import run
from tests.certs import make_certs
from tests.kube import objects
from tests.kube.apiserver import ApiServer
from tests.sidecar_process import LONG_S

SOURCE = "--fleet.source=static:http://127.0.0.1:1"
KUBE = "--fleet.source=kubernetes:deployment/ml/vllm"
POLICY = "--policy=queue:4"

BAD: dict[str, tuple[list[str], list[str]]] = {
    "no source": ([POLICY], ["--fleet.source", "infscale recommender --help"]),
    "no policy": ([SOURCE], ["--policy"]),
    "unknown source": (["--fleet.source=consul:x", POLICY], ["consul", "kubernetes:KIND/NAMESPACE/NAME"]),
    "single": (["--fleet.source=single", POLICY], ["only a sidecar"]),
    "kind": (["--fleet.source=kubernetes:deploymnt/ml/vllm", POLICY], ["'deploymnt'", "statefulset"]),
    "half a workload": (["--fleet.source=kubernetes:vllm", POLICY], ["KIND/NAMESPACE/NAME"]),
    "policy": ([SOURCE, "--policy=queue:4,min=9,max=3"], ["min", "max"]),
    "two policies": ([SOURCE, POLICY, "--policy.file=x.yaml"], ["--policy.file and --policy"]),
    "workload": ([SOURCE, POLICY, "--workload=vllm"], ["NAMESPACE/NAME", "'vllm'"]),
    "apply without a cluster": ([SOURCE, POLICY, "--apply"], ["--apply needs --fleet.source kubernetes:"]),
    "apply up": ([KUBE, POLICY, "--apply=up"], ["'up'", "both", "down"]),
    "interval": ([SOURCE, POLICY, "--interval=0"], ["--interval", "above 0"]),
    "no folder": ([SOURCE, POLICY, "--state=/nowhere/at/all/state.json"], ["/nowhere/at/all", "writable folder"]),
    "not a folder": ([SOURCE, POLICY, "--state=/dev/null/state.json"], ["/dev/null/state.json"]),
    "web configuration": ([SOURCE, POLICY, "--web.config.file=/nowhere.yml"], ["/nowhere.yml"]),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_flags_are_one_line_and_exit_2(name, capsys):
    """What, where and what was expected; nothing else, and nothing has started."""
    arguments, said = BAD[name]
    assert run(["recommender", *arguments]) == 2
    out, error = capsys.readouterr()
    assert (out, error.count("\n")) == ("", 1)
    assert error.startswith("infscale: ")
    for words in said:
        assert words in error


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ([], "dry run"),
        (["--apply"], "applied (both)"),
        (["--apply", "--config.check"], "applied (both)"),
        (["--apply=down"], "applied (down)"),
    ],
)
def test_check_reads_the_flags_and_touches_nothing(how, said, tmp_path, capsys):
    """Neither the API is asked nor the state file written; a damaged one stays where it is."""
    state = tmp_path / "state.json"
    state.write_text("damaged")
    arguments = [KUBE, POLICY, f"--kube.config={tmp_path / 'none'}", f"--state={state}", "--config.check"]
    assert run(["recommender", *arguments, *how]) == 0
    assert capsys.readouterr() == (f"configuration is fine: kubernetes:deployment/ml/vllm, {said}\n", "")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("state.json", "damaged")]


def test_what_a_manifest_says_stays_one_line(tmp_path, capsys):
    """A warning shows control sequences and line breaks of a manifest as text."""
    path = tmp_path / "hpa.yaml"
    path.write_text(
        "{apiVersion: keda.sh/v1alpha1, kind: ScaledObject, spec: {scaleTargetRef: {name: vllm}, triggers: ["
        '{type: "kaf\\e[31m\\nka"}, {type: metrics-api, metadata: {url: "http://a/api/v1/load", targetValue: "24"}}]}}'
    )
    assert run(["recommender", SOURCE, f"--from-manifest={path}", "--config.check"]) == 0
    words = "spec.triggers[0]: no equivalent for a trigger of type kaf\\x1b[31m ka"
    assert capsys.readouterr().err == f"infscale: {words}\n"


def test_apply_from_the_environment_and_a_file(tmp_path, monkeypatch, capsys):
    """The same names as everywhere."""
    base = ["recommender", KUBE, POLICY, "--config.check"]
    monkeypatch.setenv("INFSCALE_APPLY", "down")
    assert run(base) == 0
    monkeypatch.delenv("INFSCALE_APPLY")
    config = tmp_path / "recommender.yaml"
    config.write_text("apply: both\nfleet.sidecar-port: 9000\n")
    assert run([*base, f"--config.file={config}"]) == 0
    assert [line.rpartition(", ")[2] for line in capsys.readouterr().out.splitlines()] == [
        "applied (down)",
        "applied (both)",
    ]


@pytest.mark.parametrize(
    ("owner", "how", "said"),
    [
        (objects.hpa("mine"), "--apply", "HorizontalPodAutoscaler ml/mine"),
        (objects.scaled_object("so"), "--apply", "ScaledObject ml/so"),
        (objects.hpa("mine"), "--apply=down", "HorizontalPodAutoscaler ml/mine"),
    ],
)
def test_apply_beside_an_autoscaler_is_refused(owner, how, said, tmp_path, monkeypatch, capsys):
    """At the start, with its name, one line and exit 2; no Lease is taken and no state begun."""
    certs = make_certs(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    with ApiServer(certs.server, token="t0ken") as api:
        api.add(objects.deployment())
        api.add(owner)
        config = api.kubeconfig(tmp_path, certs.ca)
        state = Path(tmp_path / "state.json")
        assert run(["recommender", KUBE, POLICY, how, f"--kube.config={config}", f"--state={state}"]) == 2
        assert {request.method for request in api.calls()} == {"GET"}
    error = capsys.readouterr().err
    assert (error.count("\n"), state.exists()) == (1, False)
    assert said in error


def test_taken_port_scales_nothing(tmp_path):
    """A process that cannot be reached does not decide either."""
    certs = make_certs(tmp_path)
    with ApiServer(certs.server, token="t0ken") as api:
        api.add(objects.deployment())
        config = api.kubeconfig(tmp_path, certs.ca)
        done = subprocess.run(
            [
                *(sys.executable, "-m", "infscale", "recommender", KUBE, POLICY, "--apply", f"--kube.config={config}"),
                *(f"--web.listen-address=127.0.0.1:{api.port}", "--kubelet.listen-address=127.0.0.1:0"),
            ],
            capture_output=True,
            text=True,
            timeout=LONG_S,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "HOME": str(tmp_path)},
            check=False,
        )
        assert {request.method for request in api.calls()} == {"GET"}
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert f"127.0.0.1:{api.port}" in done.stderr


SIDECAR = ["sidecar", "--engine-url=http://127.0.0.1:1/metrics"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([POLICY], "--fleet.source"),
        (["--fleet.source=single"], "--policy"),
        (["--fleet.source=single", POLICY, "--state=/nowhere/state.json"], "/nowhere"),
        (["--fleet.source=single", POLICY, "--fleet.speakers=0"], "--fleet.speakers"),
    ],
)
def test_bad_fleet_flags_of_a_sidecar(arguments, said, capsys):
    """The same for a sidecar that evaluates."""
    assert run([*SIDECAR, *arguments]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert said in error


def test_check_of_a_sidecar_touches_nothing(tmp_path, capsys):
    """Its state file is not begun either."""
    state = tmp_path / "state.json"
    assert run([*SIDECAR, "--fleet.source=single", POLICY, f"--state={state}", "--config.check"]) == 0
    assert not state.exists()
