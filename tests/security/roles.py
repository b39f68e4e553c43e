"""The roles as processes, with secrets in every place where they take one.

Every secret is a word of its own that means nothing, so that a leak says which it was, and no part is found by chance.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator
from pathlib import Path

import bcrypt

from tests.activator.process import ActivatorProcess
from tests.raw_server import RawServer
from tests.recommender_process import Recommender
from tests.sidecar_process import Process

PASSWORD = "kV7xQz2mJw9pRt4b"
WITHDRAW_TOKEN = "Hn3fYc8sLd6gUe1k"
ENGINE_TOKEN = "Wb5rTj0vXa7qMz9h"
HASH = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
BASIC = "Basic " + base64.b64encode(f"alice:{PASSWORD}".encode()).decode()
AUTHORIZATION = f"Authorization: {BASIC}"

PAGE = b"""vllm:num_requests_running{model_name="the-model"} 0
vllm:num_requests_waiting{model_name="the-model"} 0
vllm:generation_tokens_total{model_name="the-model"} 7
"""
QUICK = ("--web.shutdown-delay", "0")
ROLES = ("sidecar", "recommender", "activator")


def web_config(folder: Path, *lines: str) -> str:
    """A web config file with alice's hash and further lines; its path."""
    path = folder / "web.yml"
    path.write_text("\n".join([f"basic_auth_users: {{alice: {HASH}}}", *lines, ""]))
    return str(path)


def token_file(folder: Path, name: str, token: str) -> str:
    """A file with a token; its path."""
    path = folder / name
    path.write_text(token + "\n")
    return str(path)


def main_address(process: Process) -> tuple[str, int]:
    """Of the main listener."""
    host, _, port = process.address.partition(":")
    return host, int(port)


def kubelet_address(process: Process) -> tuple[str, int]:
    """Of the kubelet listener."""
    return "127.0.0.1", process._ports[1]


@contextlib.contextmanager
def role(name: str, folder: Path, *arguments: str, page: bytes = PAGE) -> Iterator[Process]:
    """One of ROLES beside an engine with a page; the sidecar evaluates its workload, so that it has every path."""
    with RawServer(lambda call: call.page(page)) as engine:
        withdraw = token_file(folder, "withdraw-token", WITHDRAW_TOKEN)
        if name == "sidecar":
            flags = ["--engine-url", engine.url(), "--fleet.source", "single", "--policy", "queue:24"]
            flags += ["--withdraw.token-file", withdraw, "--engine.token-file", token_file(folder, "e", ENGINE_TOKEN)]
            process = Process(*flags, *QUICK, *arguments)
        elif name == "recommender":
            flags = ["--fleet.source", f"static:http://127.0.0.1:{engine.port}", "--policy", "queue:24"]
            process = Recommender(*flags, *arguments)
        else:
            process = ActivatorProcess(f"http://127.0.0.1:{engine.port}", *arguments)
        with process:
            yield process
