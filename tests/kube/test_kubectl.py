"""Access through kubectl, what is its own: the program, its options, its words, its end."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from pathlib import Path

import pytest

from infscale.errors import UsageError
from infscale.kube.cluster import RestCluster
from infscale.kube.errors import BrokenAnswer, KubeError, NotAllowed, NotFound, TimedOut, Unreachable
from infscale.kube.kubectl import Kubectl
from infscale.kube.rest import Rest
from infscale.kube.transport import Target
from tests.kube import objects
from tests.kube.wire import Fault

POD = Target("", "v1", "pods", "ml", "a")


def read(transport: Kubectl, timeout_s: float = 20.0):
    """The Pods of the namespace."""
    return RestCluster(Rest(transport, timeout_s=timeout_s, sleep=lambda _: None)).pods("ml", "app=vllm")


@pytest.fixture
def pretender(tmp_path):
    """Makes a program that pretends to be kubectl."""

    def make(script: str) -> str:
        path = tmp_path / "kubectl"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return str(path)

    return make


def test_no_kubectl(monkeypatch):
    """Without kubectl the error says what is missing and what to do."""
    monkeypatch.setenv("PATH", "/nowhere")

    with pytest.raises(KubeError, match=r"^kubectl: there is no kubectl on the PATH: install kubectl, or run in"):
        Kubectl()


def test_context_that_does_not_exist(kubeconfig):
    """A context that the kubeconfig does not have is named in kubectl's words, on one line."""
    with pytest.raises(KubeError, match=r'^kubectl: context "staging" does not exist$'):
        read(Kubectl(kubeconfig=str(kubeconfig), context="staging"))


def test_kubeconfig_that_does_not_exist(kubectl_home, tmp_path):
    """A kubeconfig that is not there is named."""
    with pytest.raises(KubeError, match=r"^kubectl: .*nowhere.*no such file"):
        read(Kubectl(kubeconfig=str(tmp_path / "nowhere")))


def test_certificate_that_is_not_trusted(server, kube_certs, tmp_path, kubectl_home):
    """A CA that did not sign the API server's certificate is said at once, without further tries."""
    config = server.kubeconfig(tmp_path, kube_certs.other_ca)

    with pytest.raises(KubeError, match=r"^kubectl: Unable to connect to the server: .*x509") as caught:
        read(Kubectl(kubeconfig=str(config)))

    assert not isinstance(caught.value, Unreachable)


@pytest.mark.parametrize(
    ("stderr", "error", "text"),
    [
        ("error: You must be logged in to the server (Unauthorized)", NotAllowed, "kubectl: .*Unauthorized.*log in"),
        ("Error from server (NotFound): gone\nE1130 11:22:06.4 1 x.go:1] noise", NotFound, r"\(kubectl: gone\)"),
        ("E1130 11:22:06.4 1 x.go:1] noise\nerror: unknown flag: --raw", KubeError, "^kubectl: unknown flag: --raw$"),
        ("Error from server (Teapot): short and stout", KubeError, r"^kubectl: Error from server \(Teapot\)"),
        ("Error from server: etcdserver: leader changed", KubeError, "HTTP 500: kubectl: etcdserver: leader changed"),
        ("", KubeError, "^kubectl: it failed without a word$"),
        ("the plugin sent Bearer abc.def to nobody", KubeError, r"^kubectl: the plugin sent \*\*\* to nobody$"),
    ],
    ids=["unauthorized", "log line after", "log line before", "unknown reason", "no reason", "silent", "secret"],
)
def test_what_kubectl_says(pretender, stderr, error, text):
    """What kubectl prints becomes the right error, on one line, without its log lines and without secrets."""
    program = pretender(f"cat >&2 <<'E'\n{stderr}\nE\nexit 1")

    with pytest.raises(error, match=text) as caught:
        read(Kubectl(program=program))

    assert "\n" not in str(caught.value)
    assert "noise" not in str(caught.value)


def test_kubectl_that_hangs_is_ended_with_its_children(pretender, tmp_path):
    """A login plugin that waits for a browser is a child of kubectl's: both are gone when the call's time is over."""
    program = pretender(f"sleep 60 & echo $! $$ > {tmp_path}/pids\nwait")

    with pytest.raises(TimedOut, match=r"GET pods in namespace ml: kubectl did not end within 1 s"):
        read(Kubectl(program=program), timeout_s=1.0)

    assert_gone(tmp_path / "pids")


def test_a_kubectl_that_the_system_does_not_run(tmp_path):
    """One for another machine, say: it is named, for a call and for one to a Pod, and nothing is left behind."""
    program = tmp_path / "kubectl"
    program.write_bytes(b"\x7fELF of another kind")
    program.chmod(0o755)
    kubectl = Kubectl(program=str(program))
    before = set(Path(tempfile.gettempdir()).glob("infscale-*"))

    with pytest.raises(KubeError, match=rf"^kubectl: {program} cannot be run: Exec format error$"):
        read(kubectl)
    with pytest.raises(KubeError, match="cannot be run"):
        kubectl.proxy("GET", "/api/v1/namespaces/ml/pods/a:1/proxy/", headers={}, timeout_s=5.0, max_bytes=10)
    assert set(Path(tempfile.gettempdir()).glob("infscale-*")) <= before


def test_kubectl_that_leaves_a_child_behind(pretender, tmp_path):
    """A child that keeps the output open after kubectl ended does not keep the call beyond its time."""
    program = pretender(f"sleep 60 & echo $! > {tmp_path}/pids\nexit 0")

    with pytest.raises(TimedOut):
        read(Kubectl(program=program), timeout_s=1.0)

    assert_gone(tmp_path / "pids")


def test_kubectl_that_prints_without_end(pretender):
    """Output over the bound is refused, and the program ended."""
    with pytest.raises(BrokenAnswer, match="larger than 100000 bytes"):
        read(Kubectl(program=pretender("yes"), max_bytes=100_000))


def test_environment_is_passed_on(pretender):
    """The person's environment is kubectl's."""
    os.environ["INFSCALE_TEST_WORD"] = "hello"
    try:
        with pytest.raises(KubeError, match=r"^kubectl: hello$"):
            read(Kubectl(program=pretender('echo "error: $INFSCALE_TEST_WORD" >&2; exit 1')))
    finally:
        del os.environ["INFSCALE_TEST_WORD"]


def test_options(pretender, tmp_path):
    """Context and kubeconfig go before the command, the path is raw, the query encoded."""
    program = pretender(f'echo "$@" > {tmp_path}/arguments; echo "{{}}"')

    read(Kubectl(program=program, context="prod", kubeconfig="/etc/k"))

    assert (tmp_path / "arguments").read_text() == (
        "--context=prod --kubeconfig=/etc/k get --raw /api/v1/namespaces/ml/pods?limit=500&labelSelector=app%3Dvllm\n"
    )


def test_kubectl_waits_by_itself(server, kubeconfig):
    """A 429 with Retry-After is waited for by kubectl, within the time of the call."""
    server.faults = [Fault("status", status=429, retry_after=1)]

    assert read(Kubectl(kubeconfig=str(kubeconfig))) == []
    assert len(server.calls()) == 2


def test_patch_is_a_merge_patch(server, kubeconfig):
    """Another kind of patch than a merge patch is refused before kubectl runs."""
    server.add(objects.pod("a"))

    with pytest.raises(UsageError, match="expected application/merge-patch"):
        Rest(Kubectl(kubeconfig=str(kubeconfig))).call("PATCH", POD, body={}, content_type="application/json")


def assert_gone(pids: Path) -> None:
    """No process of the file is alive (a zombie that waits for init is not)."""
    for pid in map(int, pids.read_text().split()):
        for _ in range(100):
            stat = Path(f"/proc/{pid}/stat")
            if not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z":
                break
            time.sleep(0.05)
        else:
            os.kill(pid, signal.SIGKILL)
            pytest.fail(f"process {pid} is still there")
