"""The API server as a person reaches it: through kubectl, with their kubeconfig, context and login plugins.

A call is one process. What kubectl offers for a raw path decides how:

    GET      kubectl get --raw PATH
    POST     kubectl create --raw PATH -f -
    PUT      kubectl replace --raw PATH -f -
    DELETE   kubectl delete --raw PATH -f -
    PATCH    kubectl patch --namespace=NS --type=merge --output=json --patch-file=/dev/stdin RESOURCE.VERSION.GROUP NAME
             (there is no --raw: kubectl asks for the API's resources and for the object first, so it needs get as well)
    proxy    `kubectl_proxy`, since --raw tells no status and sends no header
    exec     kubectl exec --namespace=NS --container=C NAME -- COMMAND

kubectl itself waits and tries again when it meets 429 with Retry-After, within the time of the call. It tells no HTTP
status, but the reason of the Status object, from which the status follows. The environment is passed through: proxy
variables are the person's wish here. Tried with kubectl 1.32.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import IO
from urllib.parse import urlencode

from infscale.errors import UsageError
from infscale.kube.errors import BrokenAnswer, KubeError, TimedOut, Unreachable, one_line
from infscale.kube.kubectl_proxy import MAX_STDERR_BYTES, NOT_THE_NETWORK, KubectlProxy, start
from infscale.kube.objects import ExecAnswer
from infscale.kube.transport import MAX_ANSWER_BYTES, MERGE_PATCH, Answer, Method, Target
from infscale.scrape_wire import Deadline

_COMMANDS = {"GET": "get", "POST": "create", "PUT": "replace", "DELETE": "delete"}
_STATUS_OF_REASON = {
    "BadRequest": 400, "Unauthorized": 401, "Forbidden": 403, "NotFound": 404, "MethodNotAllowed": 405,
    "NotAcceptable": 406, "Conflict": 409, "AlreadyExists": 409, "Gone": 410, "Expired": 410,
    "RequestEntityTooLarge": 413, "UnsupportedMediaType": 415, "Invalid": 422, "TooManyRequests": 429,
    "InternalError": 500, "ServiceUnavailable": 503, "Timeout": 504, "ServerTimeout": 500,
}  # fmt: skip
"""Source: apimachinery pkg/apis/meta/v1/types.go, the StatusReason constants."""

_SAID = re.compile(r"^Error from server(?: \((?P<reason>\w+)\))?: (?P<message>.*)", re.DOTALL)
_INVALID = re.compile(r"^The .{1,400}? is invalid: ")
_LOG_LINE = re.compile(r"^[IWEF]\d{4} ")
_NO_CONNECTION = (
    "Unable to connect to the server",
    "The connection to the server",
    "unexpected EOF",
    "connection reset",
)
_ENDED = re.compile(r"^command terminated with exit code (\d{1,3})$")


class Kubectl:
    """A transport through kubectl.

    Args:
        context: of the kubeconfig; empty for its current one.
        kubeconfig: the file; empty for kubectl's own choice (`KUBECONFIG`, `~/.kube/config`).
        program: kubectl, by name or path.
        max_bytes: of one answer.

    Raises:
        KubeError: there is no kubectl.
    """

    def __init__(
        self, *, context: str = "", kubeconfig: str = "", program: str = "kubectl", max_bytes: int = MAX_ANSWER_BYTES
    ) -> None:
        path = shutil.which(program)
        if path is None:
            raise KubeError(f"kubectl: there is no {program} on the PATH: install kubectl, or run in the cluster")
        self._command = [path]
        self._command += [f"--context={context}"] if context else []
        self._command += [f"--kubeconfig={kubeconfig}"] if kubeconfig else []
        self._max_bytes = max_bytes
        self._proxy = KubectlProxy(self._command)

    def request(
        self,
        method: Method,
        target: Target,
        *,
        query: Mapping[str, str],
        body: bytes,
        content_type: str,
        timeout_s: float,
    ) -> Answer:
        """See `Transport.request`."""
        if method == "PATCH":
            arguments = _patch(target, content_type)
        else:
            url = target.path + ("?" + urlencode(query) if query else "")
            arguments = [_COMMANDS[method], "--raw", url, *(["-f", "-"] if body else [])]
        try:
            code, output, complaint = self._run(arguments, body, timeout_s, self._max_bytes)
        except TimeoutError:
            raise TimedOut(f"{method} {target}: kubectl did not end within {timeout_s:.3g} s") from None
        if code == 0:
            return Answer(201 if method == "POST" else 200, output)
        return _answer(complaint)

    def proxy(
        self, method: Method, path: str, *, headers: Mapping[str, str], timeout_s: float, max_bytes: int
    ) -> Answer:
        """See `Transport.proxy`."""
        deadline = Deadline(time.monotonic, timeout_s)
        return self._proxy.request(method, path, headers=headers, deadline=deadline, max_bytes=max_bytes)

    def exec(
        self, namespace: str, name: str, container: str, command: Sequence[str], *, timeout_s: float, max_bytes: int
    ) -> ExecAnswer | Answer:
        """See `Transport.exec`. A command that fails and a kubectl that does are told apart by kubectl's last line."""
        arguments = ["exec", f"--namespace={namespace}", f"--container={container}", name, "--", *command]
        try:
            code, output, complaint = self._run(arguments, b"", timeout_s, max_bytes)
        except TimeoutError:
            raise TimedOut(f"exec in pod {namespace}/{name}: it did not end within {timeout_s:.3g} s") from None
        said, _, last = complaint.rstrip("\n").rpartition("\n")
        ended = _ENDED.match(last)
        if code == 0 or ended:
            return ExecAnswer(int(ended[1]) if ended else 0, output, said if ended else complaint)
        return _answer(complaint)

    def _run(self, arguments: list[str], body: bytes, timeout_s: float, max_bytes: int) -> tuple[int, bytes, str]:
        """Exit code, standard output and standard error. Raises TimeoutError."""
        deadline = time.monotonic() + timeout_s
        with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stderr:
            stdin.write(body)
            stdin.seek(0)
            process = start([*self._command, *arguments], stdin=stdin, stderr=stderr)
            assert process.stdout is not None  # noqa: S101 (it is a pipe)
            with process.stdout as stdout:
                try:
                    output = _read(stdout, deadline, max_bytes)
                    process.wait(max(0.0, deadline - time.monotonic()))
                except BaseException as error:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                    if isinstance(error, subprocess.TimeoutExpired):
                        raise TimeoutError from None
                    raise
            stderr.seek(0)
            return process.returncode, output, stderr.read(MAX_STDERR_BYTES).decode("utf-8", "replace")


def _read(stdout: IO[bytes], deadline: float, max_bytes: int) -> bytes:
    data = bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(stdout, selectors.EVENT_READ)
        while True:
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not selector.select(left_s):
                raise TimeoutError
            chunk = os.read(stdout.fileno(), 65536)
            if not chunk:
                return bytes(data)
            data += chunk
            if len(data) > max_bytes:
                raise BrokenAnswer(f"kubectl: the answer is larger than {max_bytes} bytes")


def _patch(target: Target, content_type: str) -> list[str]:
    if content_type != MERGE_PATCH:
        raise UsageError(f"PATCH {target} with {content_type}: expected {MERGE_PATCH}")
    resource = f"{target.plural}.{target.version}.{target.group}" if target.group else target.plural
    options = [f"--namespace={target.namespace}", "--type=merge", "--output=json", "--patch-file=/dev/stdin"]
    options += [f"--subresource={target.subresource}"] if target.subresource else []
    return ["patch", *options, "--", resource, target.name]


def _answer(complaint: str) -> Answer:
    """The answer that kubectl got, from what it printed; an error where it got none."""
    lines = [line for line in complaint.splitlines() if line.strip() and not _LOG_LINE.match(line)]
    text = "\n".join(lines) or complaint
    if "(Unauthorized)" in text:
        return _status(401, text)
    if _INVALID.match(text):
        return _status(422, text)
    said = _SAID.match(text)
    if said and (said["reason"] or "") in ("", *_STATUS_OF_REASON):
        return _status(_STATUS_OF_REASON.get(said["reason"] or "InternalError", 500), said["message"])
    words = one_line(text.removeprefix("error: ").removeprefix("Error: ")) or "it failed without a word"
    if any(sign in text for sign in _NO_CONNECTION) and not any(sign in text for sign in NOT_THE_NETWORK):
        raise Unreachable(f"kubectl: {words}")
    raise KubeError(f"kubectl: {words}")


def _status(status: int, message: str) -> Answer:
    return Answer(status, json.dumps({"kind": "Status", "message": f"kubectl: {one_line(message)}"}).encode())
