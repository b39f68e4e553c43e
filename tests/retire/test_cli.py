"""`infscale retire` as a person runs it: through the real kubectl, on the wall clock."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from infscale import cli
from infscale.cli import retire
from infscale.retire.persisted import ANNOTATION
from tests.kube import objects
from tests.retire.rig import Rig


@pytest.fixture
def live(rigs, tmp_path, monkeypatch) -> Rig:
    """A rig on the wall clock, and a kubectl that knows it."""
    rig: Rig = rigs(gone_after_s=0.0)
    rig.api.token = ""  # kubectl sends none over plain HTTP
    rig.live(time.time())
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": rig.api.url}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}],
        "current-context": "c",
    }
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.setattr(retire, "PASS_S", 0.1)
    return rig


def run(*arguments: str, token: Path | None = None) -> int:
    """Run the command."""
    words = ["retire", "-n", "ml", "--deployment", "vllm", *arguments]
    return cli.run([*words, "--withdraw.token-file", str(token)] if token else words)


def test_a_replica_leaves(live, tmp_path, capsys):
    """A line for each state, with the Pod; exit 0."""
    status = run(token=tmp_path / "token")
    out = capsys.readouterr().out

    assert status == 0, out
    assert [
        state for state in ("Admitted", "Withdrawing", "Draining", "Deleting", "Settling", "Completed") if state in out
    ]
    assert "vllm-00001" in out
    assert live.replicas == 2


def test_dry_run_changes_nothing(live, capsys):
    """It says who would leave; as JSON too."""
    text, json_status = run("--dry-run"), run("--dry-run", "--json")
    lines = capsys.readouterr().out.splitlines()

    assert (text, json_status) == (0, 0)
    assert "would retire  vllm-00001  of deployment ml/vllm, 3 replicas" in lines[0]
    assert json.loads(lines[1])["pod"] == "vllm-00001"
    assert {call.method for call in live.api.calls()} == {"GET"}
    assert ANNOTATION not in live.api.get("deployments", "vllm")["metadata"].get("annotations", {})


def test_refused(live, capsys):
    """An autoscaler that scales down: exit 1, the reason, and a second run says that it needs --retry."""
    live.api.add(objects.hpa())
    first, second, dry = run(), run(), run("--dry-run")
    lines = capsys.readouterr().out.splitlines()

    assert (first, second, dry) == (1, 1, 1)
    assert "autoscaler-scales-down" in lines[1]
    assert "needs-retry" in lines[2]
    assert "refused" in lines[3]


def test_held_to_the_end(live, tmp_path, capsys):
    """A retirement that was left while it deleted, long ago, and is held still: exit 1, and it can go on."""
    live.sidecar("vllm-00001").inflight = 1
    assert run("--state", str(tmp_path / "s.json"), token=tmp_path / "wrong") == 2
    pod = live.api.get("pods", "vllm-00001")
    member = {"name": "vllm-00001", "uid": pod["metadata"]["uid"], "container": "engine", "ip": "10.0.0.1"}
    member |= {"container_id": pod["status"]["containerStatuses"][0]["containerID"]}
    member |= {"owner_uid": pod["metadata"]["ownerReferences"][0]["uid"]}
    record = {"kind": "infscale retirement", "version": 1, "workload": "deployment ml/vllm", "state": "Deleting"}
    record |= {"workload_uid": live.api.get("deployments", "vllm")["metadata"]["uid"], "reason": ""}
    record |= {"started_s": 1.0, "since_s": 1.0, "members": [member], "idle": None, "cut": None}
    (tmp_path / "s.json").write_text(json.dumps(record))
    capsys.readouterr()
    status = run("--state", str(tmp_path / "s.json"), token=tmp_path / "token")
    lines = capsys.readouterr().out.splitlines()

    assert status == 1
    assert "held to the end" in lines[-1]
    assert live.replicas == 3


@pytest.mark.parametrize(
    "arguments",
    [
        ["retire"],
        ["retire", "-n", "ml"],
        ["retire", "--deployment", "vllm"],
        ["retire", "-n", "ml", "--deployment", "a", "--statefulset", "b"],
        ["retire", "-n", "ml", "--deployment", "a", "--rotation", "envoy:http://x"],
        ["retire", "-n", "ml", "--deployment", "a", "--withdraw.token-file", "/none"],
    ],
)
def test_bad_usage(arguments, capsys):
    """Exit 2, and one line that says what is expected."""
    assert cli.run(arguments) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_no_such_workload(live, capsys):
    """Exit 1 and a line, at once."""
    assert cli.run(["retire", "-n", "ml", "--deployment", "other"]) == 1
    assert "there is none" in capsys.readouterr().err


def test_a_damaged_state_file(live, tmp_path, capsys):
    """Exit 2 and a line that names it."""
    (tmp_path / "s.json").write_text("{}")

    assert run("--state", str(tmp_path / "s.json")) == 2
    assert "s.json: not the state of a retirement" in capsys.readouterr().err


RIGHTS = [
    {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "patch"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "patch"]},
    {"apiGroups": ["autoscaling"], "resources": ["horizontalpodautoscalers"], "verbs": ["list"]},
    {"apiGroups": ["keda.sh"], "resources": ["scaledobjects"], "verbs": ["list"]},
]


@pytest.mark.parametrize(
    ("role", "missing"),
    [
        ([], "get deployments"),
        ([{**RIGHTS[0], "verbs": ["get"]}, *RIGHTS[1:]], "patch deployments"),
        ([RIGHTS[0], {**RIGHTS[1], "verbs": ["get"]}, *RIGHTS[2:]], "list pods"),
    ],
    ids=["get", "patch", "list"],
)
def test_a_right_that_is_missing_is_named_at_once(live, tmp_path, capsys, role, missing):
    """Waiting gives no rights: it ends with one line that names the verb, and nothing is changed."""
    live.api.role = role
    status = run(token=tmp_path / "token")
    err = capsys.readouterr().err

    assert status == 1
    verb, resource = missing.split()
    assert verb in err
    assert resource in err
    assert err.count("\n") == 1
    assert live.replicas == 3


def test_no_kubectl(live, monkeypatch, capsys):
    """It says what to install."""
    monkeypatch.setenv("PATH", "/nowhere")

    assert run() == 1
    assert "kubectl" in capsys.readouterr().err


def test_the_api_is_down(live, capsys):
    """It says that nobody answers, and ends."""
    live.api.close()
    status = run()
    err = capsys.readouterr().err

    assert status == 1
    assert "refused" in err


def test_the_token_has_expired(live, capsys):
    """The API server does not know the caller: one line that says so."""
    live.api.token = "another"
    status = run()
    err = capsys.readouterr().err

    assert status == 1
    assert "401" in err or "Unauthorized" in err or "logged in" in err
