"""A secret planted in every place that takes one is on no page, in no log line and in no error, whatever goes wrong."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

import pytest

from infscale.cli import run
from infscale.cli.options import envvar_of
from tests.activator.process import ActivatorProcess
from tests.activator.rig import until
from tests.certs import make_certs
from tests.kube import objects
from tests.kube.apiserver import ApiServer
from tests.raw_server import Call, RawServer
from tests.recommender_process import PodRecommender, Recommender
from tests.security.roles import (
    AUTHORIZATION,
    BASIC,
    ENGINE_TOKEN,
    HASH,
    PASSWORD,
    QUICK,
    WITHDRAW_TOKEN,
    kubelet_address,
    main_address,
    token_file,
    web_config,
)
from tests.security.wire import request, say
from tests.sidecar_process import LONG_S, Process

FLEET_TOKEN = "Pd2kNs6yGw8cFv3x"
ACCOUNT_TOKEN = "Jq9zBh4tRm1eLu7s"
USER_INFO = "Xc6wKp0jVy5nDg2a"
API_KEY = "Tf8uZr3bHx7mQe4v"

SECRETS = {
    *(PASSWORD, WITHDRAW_TOKEN, ENGINE_TOKEN, FLEET_TOKEN, ACCOUNT_TOKEN, USER_INFO, API_KEY),
    *(HASH, HASH[-31:], BASIC.split()[1]),
}
_PART = 8
"""So many characters of a secret in a row are a leak too: a cut must not leave its beginning."""

PAGES = (
    "/",
    "/metrics",
    "/api/v1/reading",
    "/api/v1/recommendation",
    "/api/v1/load",
    "/api/v1/held",
    "/nowhere",
    "/%00",
)


def assert_kept(*texts: str) -> None:
    """No secret, and no part of one, is in any of the texts."""
    whole = "\n".join(texts)
    for secret in SECRETS:
        for at in range(len(secret) - _PART + 1):
            found = whole.find(secret[at : at + _PART])
            assert found < 0, f"{secret}: {whole[max(0, found - 200) :][:400]}"


def pages(process: Process) -> list[str]:
    """Everything that the two listeners of a role tell those who have the password."""
    told = [say(main_address(process), request("GET", path, AUTHORIZATION)).data for path in PAGES]
    told += [
        say(kubelet_address(process), request("GET", path)).data for path in ("/-/ready", "/-/healthy", "/nowhere")
    ]
    return [data.decode("latin-1") for data in told]


def ended(process: Process) -> str:
    """Stop a role; its whole log."""
    process.popen.terminate()
    process.ended()
    return "".join(process.log)


def until_logged(process: Process, words: str) -> str:
    """Ask for pages until a line is in the log; the last of them."""
    end_s = time.monotonic() + LONG_S
    while not any(words in line for line in process.log):
        assert time.monotonic() < end_s
        time.sleep(0.1)
        told = "".join(pages(process))
    return told


REPEATS: list[Callable[[bytes], bytes]] = [
    lambda said: said + b"\r\n\r\n",
    lambda said: b"x" * 24 + said,
    lambda said: b"HTTP/1.1 200" + said + b"\r\n\r\n",
    lambda said: b"HTTP/1.1 200 OK\r\n" + said + b"\r\n\r\n",
    lambda said: b"HTTP/1.1 200 OK\r\n" + b"x" * 90 + said + b"\r\n\r\n",
    lambda said: b"HTTP/1.1 200 OK\r\nContent-Length: " + said + b"\r\n\r\n",
    lambda said: b"HTTP/1.1 200 OK\r\nTransfer-Encoding: " + said + b"\r\n\r\n",
    lambda said: b"HTTP/1.1 200 OK\r\nContent-Encoding: " + said + b"\r\n\r\n",
    lambda said: b"HTTP/1.1 200 OK\r\nContent-Type: " + said + b"\r\nContent-Length: 1\r\n\r\nx",
    lambda said: b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + said + b"\r\n",
    lambda said: b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na" + said + b"\r\n",
    lambda said: b"HTTP/1.1 302 Found\r\nLocation: http://elsewhere/" + said.split()[-1] + b"\r\n\r\n",
    lambda said: b"HTTP/1.1 302 Found\r\nLocation: http://u:" + said.split()[-1] + b"@elsewhere/\r\n\r\n",
    lambda said: b"HTTP/1.1 302 Found\r\nLocation: ftp://" + said.split()[-1] + b"/\r\n\r\n",
    lambda said: b"HTTP/1.1 302 Found\r\nLocation: " + said + b"\r\n\r\n",
    lambda said: b"HTTP/1.1 401 " + said + b"\r\nContent-Length: 40\r\n\r\n" + said.ljust(40),
    lambda said: b"HTTP/1.1 500 " + said + b"\r\nWWW-Authenticate: " + said + b"\r\n\r\n<html>" + said,
    lambda said: b"HTTP/1.1 503 x\r\n\r\nloading " + said,
]
"""Answers of a server that repeats what it was sent as `Authorization`, each where something is wrong with it."""


class Repeating:
    """Answers each request with one of REPEATS.

    Attributes:
        answer: which.
        asked: how many requests there were.
        header: of the last.
    """

    def __init__(self) -> None:
        self.answer = REPEATS[0]
        self.asked, self.header = 0, ""

    def reached(self, count: int) -> bool:
        """Whether there were so many requests."""
        return self.asked >= count

    def __call__(self, call: Call) -> None:
        """Answer one."""
        self.header = call.header("Authorization") or ""
        self.asked += 1
        call.send(self.answer(self.header.encode()))


def test_sidecar(tmp_path):
    """The engine's token, the withdraw token, the password and its hash; the engine repeats its token all the time."""
    repeating = Repeating()
    with RawServer(repeating) as engine:
        flags = ["--engine-url", engine.url(), "--engine.token-file", token_file(tmp_path, "e", ENGINE_TOKEN)]
        flags += ["--withdraw.token-file", token_file(tmp_path, "w", WITHDRAW_TOKEN)]
        flags += ["--web.config.file", web_config(tmp_path), "--engine.min-interval", "0.001", "--log.level", "debug"]
        with Process(*flags, *QUICK) as process:
            told = []
            for repeating.answer in REPEATS:
                told += pages(process)
            for lines in (
                (),
                (f"X-Infscale-Token: {WITHDRAW_TOKEN}",),
                (f"X-Infscale-Token: {WITHDRAW_TOKEN}x",),
                (f"X-Infscale-Token: {WITHDRAW_TOKEN}", f"X-Infscale-Token: {WITHDRAW_TOKEN}"),
            ):
                for method in ("POST", "DELETE", "PUT"):
                    asked = request(method, "/withdraw?lease=1", AUTHORIZATION, *lines)
                    told.append(say(main_address(process), asked).data.decode())
                    told.append(say(main_address(process), request(method, "/withdraw", *lines)).data.decode())
            (tmp_path / "w").write_text(f"{WITHDRAW_TOKEN} and more\n")
            told.append(say(main_address(process), request("POST", "/withdraw", AUTHORIZATION)).data.decode())
            (tmp_path / "web.yml").write_text(f"basic_auth_users: 'alice:{PASSWORD}'\n")
            (tmp_path / "e").write_text(f"{ENGINE_TOKEN} and more\n")
            told.append(until_logged(process, "web config file cannot be used"))
            told.append(ended(process))
        assert repeating.asked >= 2 * len(REPEATS)
        assert repeating.header == f"Bearer {ENGINE_TOKEN}"
        assert "level=info" in told[-1]
        assert_kept(*told)


def test_recommender_and_prometheus(tmp_path):
    """Prometheus, or what stands before it, repeats the bearer token in every error."""
    repeating = Repeating()
    with RawServer(repeating) as server:
        flags = ["--fleet.source", f"prometheus:http://127.0.0.1:{server.port}", "--workload", "ml/vllm"]
        flags += ["--fleet.token-file", token_file(tmp_path, "f", FLEET_TOKEN), "--policy", "queue:24"]
        flags += ["--interval", "0.05", "--web.config.file", web_config(tmp_path), "--log.level", "debug"]
        with Recommender(*flags) as process:
            told = []
            for repeating.answer in REPEATS:
                enough = repeating.asked + 2  # the first of them is evaluated when the second one asks
                until(partial(repeating.reached, enough))
                told += pages(process)
            told.append(ended(process))
        assert repeating.header == f"Bearer {FLEET_TOKEN}"
        assert_kept(*told)


@pytest.mark.parametrize("status", [401, 403])
def test_recommender_in_a_pod(status, tmp_path):
    """The API server refuses the service account's token, or everything with it."""
    certs = make_certs(tmp_path)
    account = tmp_path / "account"
    account.mkdir()
    token_file(account, "token", ACCOUNT_TOKEN)
    (account / "ca.crt").write_bytes(certs.ca.read_bytes())
    with ApiServer(certs.server, token=ACCOUNT_TOKEN if status != 401 else "another") as server:
        server.add(objects.deployment(replicas=1))
        if status == 403:
            server.role = []
        flags = ["--fleet.source", "kubernetes:deployment/ml/vllm", "--policy", "queue:24", "--log.level", "debug"]
        with PodRecommender(account, server.host, server.port, *flags) as process:
            process.until(lambda found: found.get("evaluated_at") or found.get("error"))
            told = [*pages(process), ended(process)]
        assert server.requests
    assert_kept(*told)


def test_activator(tmp_path):
    """What a client sends goes to the replica and nowhere else, whatever comes of the request."""
    with RawServer(lambda call: call.page(b"no", status="401 Unauthorized")) as replica:
        flags = ["--web.config.file", web_config(tmp_path), "--hold-timeout", "0.2", "--log.level", "debug"]
        with ActivatorProcess(f"http://127.0.0.1:{replica.port}", *flags) as process:
            told = [*pages(process)]
            key = f"Authorization: Bearer {API_KEY}"
            for line in (key, f"x-api-key: {API_KEY}", f"Cookie: {API_KEY}", f"{API_KEY}", f"X: {API_KEY}\x00"):
                data = request("POST", f"/v1/completions?api_key={API_KEY}", line, body=API_KEY.encode())
                said = say(("127.0.0.1", process.port), data, half_close=False)
                if said.status == 503:  # an error over a line that is none shows that line, to whom it came from
                    told.append(said.data.decode())
            told += [*pages(process), ended(process)]
    shown = "".join(told)
    assert "no replica was ready" in shown
    assert_kept(*told)


COMMANDS = [
    ("sidecar", "--engine-url", f"http://u:{USER_INFO}@127.0.0.1:1/metrics"),
    ("sidecar", "--engine-url", f"http://{USER_INFO}@[::1/metrics"),
    ("sidecar", "--engine-url", "http://127.0.0.1:1/", "--fleet.source", f"static:http://u:{USER_INFO}@h:1"),
    (
        "recommender",
        "--fleet.source",
        f"prometheus:http://u:{USER_INFO}@h:9090",
        "--workload",
        "a/b",
        "--policy",
        "queue:2",
    ),
    ("recommender", "--fleet.source", "single", "--activator-url", f"http://u:{USER_INFO}@h", "--policy", "queue:2"),
    ("activator", "--upstream", f"http://u:{USER_INFO}@h:8000", "--workload", "a/b"),
    ("parse", f"http://u:{USER_INFO}@127.0.0.1:1/metrics"),
    ("drain", "--url", f"http://u:{USER_INFO}@127.0.0.1:1/metrics"),
]


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda arguments: f"{arguments[0]}-{arguments[-1][:9]}")
def test_user_and_password_in_a_url(arguments, capsys, monkeypatch):
    """A URL with a password is refused, and the error hides it; by the flag and by its variable."""
    error, code = told_by(capsys, *arguments)
    assert code == 2
    assert_kept(error)
    place = next(at for at, word in enumerate(arguments) if USER_INFO in word)
    if arguments[place - 1].startswith("--"):
        monkeypatch.setenv(envvar_of(arguments[place - 1]), arguments[place])
        error, code = told_by(capsys, *arguments[: place - 1], *arguments[place + 1 :])
        assert code == 2
        assert_kept(error)


@pytest.mark.parametrize(
    "text",
    [
        f"basic_auth_users: alice:{PASSWORD}",
        f"basic_auth_users: [alice, {PASSWORD}]",
        f"basic_auth_users: {{alice: {PASSWORD}}}",
        f"basic_auth_users: {{alice: [{PASSWORD}]}}",
        # A hash is another in each process, and so would a test's name be.
        pytest.param(f"basic_auth_users: {{'alice:{PASSWORD}': {HASH}}}", id="in a name"),
        pytest.param(f"basic_auth_users: {{alice: {HASH}x}}", id="a hash and more"),
        f"basic_auth_users: {{alice: '{PASSWORD}}}",
        f"basic_auth_users:\n  alice: {PASSWORD}: x\n",
        f"tls_server_config: {{key: {PASSWORD}, cert: x}}",
        *(
            f"basic_auth_users:\n  alice: {tag}{PASSWORD}\n"
            for tag in ("!!int ", "!!timestamp ", "!!binary é", "!", "*", "&")
        ),
        *(f"a: &{PASSWORD} 1\nb: {mark}{PASSWORD} 1\n" for mark in "&*"),
        f"basic_auth_users:\n  alice: !{PASSWORD}!x 1\n",
        f"alice:{PASSWORD}\n",
    ],
)
def test_a_web_config_file_that_is_wrong(text, tmp_path, capsys):
    """A password where a hash should be, or a key in the file itself: told without it, by `check-config` as well."""
    path = tmp_path / "web.yml"
    path.write_text(text)
    flags = "--engine-url", "http://127.0.0.1:1/", "--web.config.file", str(path), "--config.check"
    for command in (("sidecar", *flags), ("check-config", str(path))):
        error, code = told_by(capsys, *command)
        assert code == 2
        assert_kept(error)


def test_a_configuration_file_that_is_wrong(tmp_path, capsys):
    """A URL with a password in the configuration file is refused as on the command line."""
    path = tmp_path / "infscale.yaml"
    for url in (f"http://u:{USER_INFO}@h/", f"[http://u:{USER_INFO}@h/]", f"ftp://u:{USER_INFO}@h", f"u:{USER_INFO}@h"):
        path.write_text(f"engine-url: {url}\n")
        error, code = told_by(capsys, "sidecar", "--config.file", str(path), "--config.check")
        assert code == 2
        assert_kept(error)


def test_stand_in_with_an_api_key(tmp_path):
    """The stand-in refuses without its key, and tells it neither there nor in its log."""
    key = token_file(tmp_path, "key", API_KEY)

    command = [sys.executable, "-m", "infscale", "sim-engine", "--port", "0", "--api-key-file", key]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=environment
    ) as popen:
        assert popen.stderr is not None
        log = popen.stderr.readline()
        port = int(log.rpartition("port=")[2].split()[0])
        told = [
            say(("127.0.0.1", port), request("GET", path, *lines)).data.decode()
            for path in ("/metrics", "/v1/models", "/health", "/nowhere")
            for lines in ((), (f"Authorization: Bearer {API_KEY}x",), (f"x-api-key: {API_KEY[:-1]}",))
        ]
        popen.terminate()
        log += popen.stderr.read()
    assert any(" 401 " in text for text in told)
    assert_kept(log, *told)


def told_by(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, int]:
    """Everything that a command prints, and its exit code; it is one that ends at once."""
    code = run(list(arguments))
    printed = capsys.readouterr()
    return printed.out + printed.err, code
