"""What an HTTP surface must not do: leave its paths, believe what a request says of itself, or read without bounds."""

from __future__ import annotations

import ast
import os
import re
import stat
from pathlib import Path

import pytest

import infscale
from infscale.core.memory import ScaleState
from infscale.retire.persisted import FileStore
from infscale.state_file import write_state
from tests.activator.process import ActivatorProcess
from tests.retire.test_persisted import WHOLE, workload
from tests.security.roles import WITHDRAW_TOKEN, kubelet_address, main_address, role
from tests.security.wire import request, say

TRAVERSALS = (
    "/../../../../etc/passwd", "/..%2f..%2fetc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/metrics/../../etc/passwd",
    "//etc/passwd", "/..\\..\\etc\\passwd", "/%c0%ae%c0%ae/etc/passwd", "/metrics%00.html", "/static/", "/.git/config",
    "/proc/self/environ", "http://localhost/../etc/passwd", "file:///etc/passwd", "/metrics#x", "/api/v1/../../metrics",
    "/%2fmetrics", "/METRICS",
)  # fmt: skip


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory):
    """A sidecar to which everybody may speak."""
    with role("sidecar", tmp_path_factory.mktemp("sidecar")) as process:
        yield process


@pytest.mark.parametrize("address", [main_address, kubelet_address], ids=["main", "kubelet"])
def test_paths_are_taken_as_they_are(sidecar, address):
    """Nothing leads out of the table of paths, and a path that is none is not repeated in the answer."""
    for target in TRAVERSALS:
        said = say(address(sidecar), request("GET", target))
        assert said.status in (400, 404), target
        assert b"root:" not in said.data
        assert target.encode() not in said.data.replace(b"/metrics", b""), target


@pytest.mark.parametrize("host", ["elsewhere", "127.0.0.1:1", "a@b", "<script>", "localhost/../x", ""])
def test_the_host_is_not_believed(sidecar, host):
    """No answer repeats it, redirects to it, or differs by it."""
    for path in ("/", "/nowhere"):
        data = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
        said = say(main_address(sidecar), data)
        assert said.status == (200 if path == "/" else 404)
        assert b"Location" not in said.data
        assert not host or host == "127.0.0.1:1" or host.encode() not in said.data


@pytest.mark.parametrize("field", ["X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override", "_method"])
def test_a_method_cannot_be_overridden(sidecar, field):
    """Neither by a field nor by the query, in either direction."""
    token = f"X-Infscale-Token: {WITHDRAW_TOKEN}"
    for path in ("/withdraw", "/withdraw?_method=POST"):
        assert say(main_address(sidecar), request("GET", path, f"{field}: POST", token)).status == 405
    assert say(main_address(sidecar), request("POST", "/metrics", f"{field}: GET")).status == 405
    assert say(kubelet_address(sidecar), request("GET", "/-/ready")).status == 200


def test_pages_cannot_be_framed_or_sniffed(sidecar):
    """What a browser gets is taken as what it says it is, and loads nothing from elsewhere."""
    said = say(main_address(sidecar), request("GET", "/"))
    assert b"\r\nX-Content-Type-Options: nosniff\r\n" in said.data
    assert b"<script" not in said.body
    assert not re.findall(rb'(?:src|href)="(?:https?:)?//', said.body)


UNBOUNDED = {
    "a request line": b"GET /" + b"a" * 200_000,
    "a header": b"GET / HTTP/1.1\r\nHost: h\r\nX: " + b"a" * 200_000,
    "a header's name": b"GET / HTTP/1.1\r\nHost: h\r\n" + b"X" * 200_000,
    "headers": b"GET / HTTP/1.1\r\nHost: h\r\n" + b"X: y\r\n" * 40_000,
    "blank lines": b"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: " + b"9" * 100 + b"\r\n\r\n",
    "a body": b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1073741824\r\n\r\n" + b"x" * 200_000,
}


@pytest.mark.parametrize("name", UNBOUNDED)
def test_nothing_is_read_without_bounds(sidecar, name):
    """Before the end of what has none there is an answer, and the end of the connection."""
    for address in (main_address(sidecar), kubelet_address(sidecar)):
        said = say(address, UNBOUNDED[name], half_close=False)
        assert said.status in (0, 400, 413, 414, 431)


def test_the_activator_reads_nothing_without_bounds(tmp_path):
    """The same at the listener for clients' requests, and for a body in chunks that does not end."""
    with role("activator", tmp_path, "--max-body-bytes", "100000") as process:
        assert isinstance(process, ActivatorProcess)
        endless = (
            b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
            + b"2710\r\n%s\r\n" % (b"x" * 10_000) * 30
        )
        for name, data in {**UNBOUNDED, "chunks": endless}.items():
            said = say(("127.0.0.1", process.port), data, half_close=False, to_end=False)
            assert said.status in (0, 400, 413), (name, said.data[:200])


_SECRET = re.compile(r"(^|_)(token|password|secret|hash|hashed|fingerprint|credentials?|digest)$")


def test_secrets_are_compared_in_constant_time():
    """Nowhere in infscale is a value with a secret's name compared with another one by `==`, `!=` or `in`."""
    compared, digests = [], 0
    for path in sorted(Path(infscale.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr == "compare_digest":
                digests += 1
            if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.NotEq | ast.In | ast.NotIn):
                sides = [node.left, *node.comparators]
                names = [getattr(side, "attr", getattr(side, "id", "")) for side in sides]
                if any(map(_SECRET.search, names)) and not any(isinstance(side, ast.Constant) for side in sides):
                    compared.append(f"{path.name}:{node.lineno}")
    assert compared == []
    assert digests >= 2  # the password's fingerprint, and the token of /withdraw


def test_files_that_are_written_are_their_owners_alone(tmp_path):
    """A state and a retirement's record are 0600, whatever the umask, and stay so when they are written again."""
    before = os.umask(0)
    try:
        for _ in range(2):
            write_state(tmp_path / "state", ScaleState())
            FileStore(tmp_path / "record").save(workload(), WHOLE)
    finally:
        os.umask(before)
    for path in tmp_path.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
