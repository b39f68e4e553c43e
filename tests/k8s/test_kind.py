"""k8s/kind.sh, run whole: its own commands, with the API server stand-in for a cluster, and what the guide says of it.

The script runs as it is, in a folder that looks like the repository. `infscale` and most of `kubectl` are real. What
takes a cluster (`apply`, `rollout`, `wait`) kubectl is asked where no server is: a command line that it takes fails for
want of a connection alone, once a `-k` is built. `kind` and `docker` are written down, and `sleep` moves the clock.
With `--apply` infscale takes a Pod's way to the API, which spares dozens of kubectls, and prints the same.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

from infscale.cli import cli
from tests import recommender_process
from tests.certs import make_certs
from tests.k8s.manifests import K8S, ROOT, build, containers, of_kind, pods
from tests.kube.apiserver import ApiServer
from tests.kube.controller import follow_replicas
from tests.raw_server import Call, RawServer

SCRIPT, GUIDE = K8S / "kind.sh", ROOT / "docs/kind.md"
SPACE = "infscale-sim"
START_S = 1_800_000_000

STUBS = {
    "bin/kind": """\
echo "kind $*" >>"$WALK/calls"
[ "$1 $2" != "get kubeconfig" ] || cat "$WALK/config"
""",
    "bin/docker": 'echo "docker $*" >>"$WALK/calls"\n',
    "bin/sleep": 'echo $(($(cat "$WALK/clock") + $1)) >"$WALK/later" && mv "$WALK/later" "$WALK/clock"\n',
    "bin/kubectl": """\
command=$1
[ "$1" != -n ] || command=$3
case "$command $*" in *--raw*|"get "*deployment*|"get "*"-o name") exec "$KUBECTL" "$@" ;; esac
echo "kubectl $*" >>"$WALK/calls"
case "$*" in
    "apply -k k8s/examples/sim-load") touch "$WALK/load" ;;
    "delete -k k8s/examples/sim-load") rm "$WALK/load" ;;
    "apply -k k8s/examples/sim-hpa") touch "$WALK/hpa" ;;
esac
told=$WALK/told
if "$KUBECTL" --server=http://127.0.0.1:1 "$@" >"$told" 2>&1 || ! grep -q "127.0.0.1:1.* refused" "$told"; then
    echo "kubectl $*: $(cat "$told")" >>"$WALK/faults"
fi
""",
    ".venv/bin/infscale": """\
echo "infscale $*" >>"$WALK/calls"
set -- "$@" --now "$(cat "$WALK/clock")"
case "$*" in
    *--apply*)
        export KUBERNETES_SERVICE_HOST=$API_HOST KUBERNETES_SERVICE_PORT=$API_PORT
        exec "$PYTHON" "$IN_A_POD" "$WALK" "$@"
        ;;
    *) PATH=$REAL_PATH exec "$PYTHON" -m infscale "$@" ;;
esac
""",
}
"""Programs that stand in for what the script calls; `$WALK` is the folder of a `Walk`."""


@dataclass(frozen=True)
class Walk:
    """A script that has run.

    Attributes:
        status: its exit status.
        output: what it and its commands printed.
        calls: the command lines, of those that were written down.
        faults: those of kubectl that it would not have taken.
    """

    status: int
    output: str
    calls: list[str]
    faults: str


def cluster(folder: Path) -> Iterator[Mapping[str, str]]:
    """The stand-in with the Deployment of examples/sim; gives the environment of a script that talks to it."""
    certs = make_certs(folder)
    clock = folder / "clock"
    clock.write_text(f"{START_S}\n")
    with ApiServer(certs.server, token="t0ken", clock=lambda: float(clock.read_text())) as server:
        deployments = of_kind(build("examples/sim"), "Deployment")
        (deployment,) = [one for one in deployments if one["metadata"]["name"] == "sim"]
        server.add({**deployment, "spec": {**deployment["spec"], "replicas": 1}, "status": {}})
        (scaler,) = of_kind(build("examples/sim-hpa"), "HorizontalPodAutoscaler")

        def meet_hpa() -> None:
            if (folder / "hpa").exists() and not server.list("horizontalpodautoscalers", namespace=SPACE):
                server.add(scaler)

        server.hook = meet_hpa
        follow_replicas(
            server, "deployments", "sim", namespace=SPACE, gone_after_s=5, ip=lambda number: f"127.0.1.{number}"
        )

        def page(call: Call) -> None:
            here = call.connection.getsockname()[0]
            there = [one["status"]["podIP"] for one in server.list("pods", namespace=SPACE)]
            share = 12 // len(there) if (folder / "load").exists() and here in there else 0
            if call.path == "/metrics":
                call.page(f'infscale_inflight_requests{{model_name="sim"}} {share}\n'.encode())
                return
            told = {"state": "ok", "inflight": share, "running": min(share, 2), "waiting": share - min(share, 2)}
            call.page(json.dumps({**told, "draining": False, "engines": [{"engine": "vllm"}]}).encode())

        with RawServer(page, host="0.0.0.0") as sidecars:
            server.find_route = lambda pod, port: (
                (server.get("pods", pod, SPACE)["status"]["podIP"], sidecars.port) if port == "10047" else None
            )
            shutil.copy(server.kubeconfig(folder, certs.ca), folder / "config")
            (folder / "token").write_text("t0ken")
            shutil.copy(certs.ca, folder / "ca.crt")
            yield {"WALK": str(folder), "API_HOST": server.host, "API_PORT": str(server.port)}


def walk(folder: Path, environment: Mapping[str, str], *arguments: str) -> Walk:
    """Run the script."""
    for name, text in STUBS.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/usr/bin/env bash\nset -eu\n{text}")
        path.chmod(0o755)
    (folder / "k8s").mkdir(exist_ok=True)
    shutil.copy(SCRIPT, folder / "k8s/kind.sh")
    for name in ("examples", "components", "engines", "base"):
        if not (folder / "k8s" / name).exists():
            (folder / "k8s" / name).symlink_to(K8S / name)
    kubectl = shutil.which("kubectl")
    assert kubectl
    done = subprocess.run(
        ["bash", str(folder / "k8s/kind.sh"), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=300,
        env={
            **os.environ,
            **environment,
            "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(folder),
            "PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "KUBECTL": kubectl,
            "REAL_PATH": os.environ["PATH"],
            "IN_A_POD": str(recommender_process.__file__),
        },
    )
    faults = folder / "faults"
    calls = (folder / "calls").read_text().splitlines()
    return Walk(done.returncode, done.stdout, calls, faults.read_text() if faults.exists() else "")


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walk]:
    """The whole walk, once for this file."""
    folder = tmp_path_factory.mktemp("walk")
    for environment in cluster(folder):
        yield walk(folder, environment)


def lines_of(mark: str) -> list[str]:
    """What stands behind a mark in the script's comments."""
    return [line.partition(mark)[2].strip() for line in SCRIPT.read_text().splitlines() if line.startswith(f"# {mark}")]


def test_the_walk_is_walked(walked: Walk) -> None:
    """Each command is one that its program takes, each manifest builds, and the script comes to its end."""
    assert walked.faults == ""
    assert walked.status == 0, walked.output
    assert "== Done." in walked.output
    kinds = re.compile(
        r"kind ((get|delete|create) clusters?|get kubeconfig|load docker-image \S+)( --name \S+)?( --wait \d+s)?"
    )
    assert all(kinds.fullmatch(call) for call in walked.calls if call.startswith("kind "))
    images = {one["image"] for _, _, spec in pods(build("examples/sim")) for one in containers(spec)}
    assert {f"kind load docker-image {image} --name infscale" for image in images} <= set(walked.calls)


def test_what_is_expected_is_printed(walked: Walk) -> None:
    """Every line behind `expect:` is one that infscale printed, word for word and in this order."""
    expected, printed = lines_of("expect:"), iter(walked.output.splitlines())
    assert len(expected) >= 8
    for line in expected:
        assert line in printed, f"not printed, or not in this order: {line}"


def test_it_refuses_to_be_the_second_writer(walked: Walk) -> None:
    """Beside the HPA of examples/sim-hpa the step fails, with the HPA's name."""
    refusal = f"HorizontalPodAutoscaler {SPACE}/sim scales deployment {SPACE}/sim, and two writers would fight"
    assert refusal in walked.output


def test_delete(tmp_path: Path) -> None:
    """`kind.sh delete` takes the cluster away, and does no more."""
    (tmp_path / "calls").touch()
    done = walk(tmp_path, {"WALK": str(tmp_path)}, "delete")
    assert (done.status, done.calls) == (0, ["kind delete cluster --name infscale"])


BY_HAND = {
    "kind delete cluster --name infscale",  # `k8s/kind.sh delete`
    f"kubectl -n {SPACE} get pods -l infscale.dev/workload=sim --watch",
    f"kubectl -n {SPACE} port-forward deployment/infscale-recommender 10047",
    f"kubectl -n {SPACE} logs -l infscale.dev/workload=sim -c infscale --tail 20 --prefix",
}
"""Commands of the guide that a script has no use for: they go on until they are stopped, or are to look around."""


def fences(language: str) -> list[str]:
    """The guide's blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)


def test_the_guide_has_the_scripts_commands(walked: Walk) -> None:
    """Each command of the guide is one that the script runs, or one to run by hand, which its program takes."""
    did = {re.sub(r"/\S+/sim\.json", "sim.json", call) for call in walked.calls}
    told = [shlex.join(shlex.split(line, comments=True)) for block in fences("sh") for line in block.splitlines()]
    told = [line.removeprefix(".venv/bin/") for line in told if not line.startswith("sleep ")]
    watching = f"infscale kube -n {SPACE} --deployment sim --target 4 --max 3 --down-window 20 --state sim.json --apply"
    others = set(told) - did - BY_HAND - {f"{watching} --watch", "docker build -t infscale:0.1.0 ."}
    assert others == {f"kubectl -n {SPACE} get pods"}, "the script asks for those of the engine alone"
    for command in BY_HAND & set(told):
        if command.startswith("kubectl "):
            asked = ["kubectl", "--server=http://127.0.0.1:1", *command.split()[1:]]
            done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=60)
            assert "127.0.0.1:1" in done.stderr, done.stderr
            assert "refused" in done.stderr, done.stderr
    kube = cli.get_command(click.Context(cli), "kube")
    assert kube
    for command in told:
        if command.startswith("infscale kube"):
            kube.make_context("kube", command.split()[2:])


def test_the_guide_shows_what_is_printed(walked: Walk) -> None:
    """Its outputs of infscale are the script's, but for a Pod's name and what is measured."""

    def row(line: str) -> str:
        """A line without the widths of its columns; of a Pod's row only up to what waits."""
        words = line.split()
        return " ".join(["POD", *words[1:7]] if words and words[0].startswith("sim-") else words)

    printed = {row(line) for line in walked.output.splitlines()}
    shown = [line for block in fences("text") if block.startswith("deployment ") for line in block.splitlines()]
    assert len(shown) >= 7
    assert [line for line in shown if row(line) not in printed] == []
