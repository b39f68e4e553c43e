"""Secrets that come by other ways than in `test_secrets`, each planted and sought in everything that is told.

A TLS key, kubectl's token, the environment, tokens of the commands that end at once, a token for peers.
"""

from __future__ import annotations

import ssl
from functools import partial
from pathlib import Path

import pytest

from tests.activator.rig import until
from tests.certs import make_certs
from tests.kube import objects
from tests.kube.apiserver import ApiServer
from tests.raw_server import RawServer
from tests.recommender_process import Recommender
from tests.security.roles import (
    AUTHORIZATION,
    ENGINE_TOKEN,
    ROLES,
    WITHDRAW_TOKEN,
    kubelet_address,
    main_address,
    role,
    token_file,
    web_config,
)
from tests.security.test_secrets import (
    ACCOUNT_TOKEN,
    API_KEY,
    FLEET_TOKEN,
    REPEATS,
    USER_INFO,
    Repeating,
    assert_kept,
    ended,
    pages,
    told_by,
)
from tests.security.wire import request, say


def assert_not_in(secret: str, *texts: str) -> None:
    """No line of a long secret, and no eight characters in a row of a short one."""
    whole = "\n".join(texts)
    for line in secret.split():
        assert line[:24] not in whole, line
        assert line[-24:] not in whole, line


def test_a_tls_key(tmp_path):
    """The key is on no page and in no log: while it is good, once it is damaged, and where it is no key at all."""
    certs = make_certs(tmp_path)
    key = Path(certs.server.key).read_text()
    body = "".join(key.splitlines(keepends=True)[1:-1])
    lines = ["tls_server_config:", f"  cert_file: {certs.server.cert}", f"  key_file: {certs.server.key}"]
    tls = ssl.create_default_context(cafile=certs.ca)
    with role("sidecar", tmp_path, "--web.config.file", web_config(tmp_path, *lines), "--log.level=debug") as process:
        told = [
            say(main_address(process), request("GET", path, AUTHORIZATION), tls=tls).data.decode()
            for path in ("/", "/metrics", "/api/v1/reading", "/nowhere")
        ]
        for damaged in (key[:-200], body, key.replace("\n", "", 1), f"{key}{body}"[1:], "x" + body):
            Path(certs.server.key).write_text(damaged)
            (tmp_path / "web.yml").write_text((tmp_path / "web.yml").read_text() + "\n")
            seen = len(process.log)
            while not any("web config file" in line for line in process.log[seen:]):
                told.append(say(main_address(process), request("GET", "/", AUTHORIZATION), tls=tls).data.decode())
        told.append(ended(process))
    assert "cannot be used" in told[-1]
    assert_not_in(body, *told)


@pytest.mark.parametrize("wrong", [None, "token", "role"])
def test_a_token_of_kubectl(wrong, tmp_path, capsys, monkeypatch):
    """In a kubeconfig: no command over the API server tells it, whether it is taken, refused, or forbidden much."""
    monkeypatch.setenv("INFSCALE_DEBUG", "1")
    monkeypatch.setenv("HOME", str(tmp_path))
    certs = make_certs(tmp_path)
    with ApiServer(certs.server, token=ACCOUNT_TOKEN) as server:
        server.add(objects.deployment(replicas=1))
        config = server.kubeconfig(tmp_path, certs.ca)
        if wrong == "token":
            server.token = "another"
        if wrong == "role":
            server.role = []
        withdraw = ("--withdraw.token-file", token_file(tmp_path, "w", WITHDRAW_TOKEN))
        there = ("-n", "ml", "--deployment", "vllm", "--kube.config", str(config), *withdraw)
        kept = f"--state={tmp_path / 'state'}"
        told = [
            told_by(capsys, "kube", *there, kept, "--policy=queue:4,max=9", "--apply", "--retire")[0],
            told_by(capsys, "retire", *there, "--dry-run")[0],
        ]
        assert server.requests
    assert all(told)
    assert_kept(*told)


COMMANDS = {
    "parse": ("parse", "{url}", "--engine.token-file", "{token}"),
    "decide": ("decide", "{url}", "--policy=queue:4", "--engine.token-file", "{token}"),
    "drain": ("drain", "--url", "{url}", "--dry-run", "--grace=30", "--engine.token-file", "{token}"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_token_of_a_command(name, tmp_path, capsys, monkeypatch):
    """The server repeats it in every answer; what is printed has it not, in a bug's traceback neither."""
    monkeypatch.setenv("INFSCALE_DEBUG", "1")
    repeating, token = Repeating(), token_file(tmp_path, "e", ENGINE_TOKEN)
    told = []
    with RawServer(repeating) as server:
        words = [word.format(url=server.url(), token=token) for word in COMMANDS[name]]
        for repeating.answer in REPEATS[:: 4 if name == "drain" else 1]:  # a drain takes more than a second
            told.append(told_by(capsys, *words)[0])
        assert repeating.header == f"Bearer {ENGINE_TOKEN}", told
        (tmp_path / "e").write_text(f"{ENGINE_TOKEN} and more\n")
        told.append(told_by(capsys, *words)[0])
    assert "holds no token" in told[-1]
    assert_kept(*told)


def test_a_key_of_load(tmp_path, capsys):
    """`infscale load` sends a key to a server that repeats it and refuses; neither the report nor an error tells it."""
    repeating, told = Repeating(), []
    with RawServer(repeating) as server:
        key = ("--api-key-file", token_file(tmp_path, "k", API_KEY))
        for repeating.answer in REPEATS:
            words = ("load", f"http://127.0.0.1:{server.port}", "--rate=20", "--duration=0.2", "--model=m", "--json")
            told.append(told_by(capsys, *words, *key)[0])
    assert repeating.header == f"Bearer {API_KEY}", told
    assert all(told)
    assert_kept(*told)


@pytest.mark.parametrize("name", ROLES)
def test_the_environment(name, tmp_path, monkeypatch):
    """What a Pod's environment holds besides, a proxy's password among it, is neither used nor shown."""
    for variable in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(variable, f"http://u:{USER_INFO}@127.0.0.1:1")
    monkeypatch.setenv("OPENAI_API_KEY", API_KEY)
    monkeypatch.setenv("INFSCALE_SECRET", API_KEY)
    monkeypatch.setenv("INFSCALE_DEBUG", "1")
    with role(name, tmp_path, "--web.config.file", web_config(tmp_path), "--log.level=debug") as process:
        told = pages(process)
        if name == "sidecar":
            assert any('infscale_engine_state{state="ok"} 1' in text for text in told)  # read past the proxy
        told.append(say(kubelet_address(process), request("POST", "/drain/report", body=b"{")).data.decode())
        told.append(ended(process))
    assert_kept(*told)


def test_a_token_for_peers(tmp_path):
    """What a recommender brings to its peers over TLS, which repeat it; over plain HTTP it brings none."""
    certs = make_certs(tmp_path)
    repeating, plainly = Repeating(), Repeating()
    with RawServer(repeating, tls=certs.server.server_context()) as peer, RawServer(plainly) as plain:
        source = f"--fleet.source=static:https://127.0.0.1:{peer.port},http://127.0.0.1:{plain.port}"
        flags = [source, "--fleet.token-file", token_file(tmp_path, "f", FLEET_TOKEN), "--fleet.ca-file", str(certs.ca)]
        flags += ["--workload=ml/vllm", "--spec-replicas=2", "--policy=queue:24", "--interval=0.05"]
        flags += ["--log.level=debug"]
        with Recommender(*flags, "--web.config.file", web_config(tmp_path)) as process:
            told = []
            for repeating.answer in REPEATS:
                until(partial(repeating.reached, repeating.asked + 2))
                told += pages(process)
            told.append(ended(process))
    assert repeating.header == f"Bearer {FLEET_TOKEN}"
    assert (plainly.asked > 0, plainly.header) == (True, "")
    assert_kept(*told)


FILES = {
    "config": ("sidecar", "--config.check", "--config.file"),
    "policy": ("recommender", "--fleet.source=single", "--config.check", "--policy.file"),
}


def test_a_web_config_file_in_another_place(tmp_path, capsys):
    """Given as the configuration, the policy or a token by mistake, it is refused without a word of its hashes."""
    path = web_config(tmp_path)
    told = [told_by(capsys, *words, path)[0] for words in FILES.values()]
    token = ("sidecar", "--engine-url=http://127.0.0.1:1/", "--config.check", "--engine.token-file", path)
    told.append(told_by(capsys, *token)[0])
    assert all(told)
    assert_kept(*told)
