"""A page in headless Chromium, driven over its debugging pipe: no driver and no network between the test and it.

The protocol: JSON messages that end in a NUL, on the browser's file descriptors 3 (to it) and 4 (from it).
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, Self

NAMES = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
    *("--remote-debugging-pipe", "about:blank"),
)
_LIMIT_S = 40.0
"""For an answer; the first takes seconds on a busy machine."""


def chromium() -> str | None:
    """The browser on the PATH, if there is one."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """Chromium with one page. Use as a context manager."""

    def __init__(self, folder: Path) -> None:
        program = chromium()
        assert program is not None
        to_browser, self.to_browser = os.pipe()
        self.from_browser, from_browser = os.pipe()
        redirect = f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}'
        self.process = subprocess.Popen(
            ["bash", "-c", redirect, program, *_FLAGS, f"--user-data-dir={folder}"],
            pass_fds=(to_browser, from_browser), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_browser)
        os.close(from_browser)
        self.buffer, self.number, self.session = b"", 0, None
        self.complaints: list[str] = []
        self.requested: list[str] = []

    def __enter__(self) -> Self:
        try:
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Runtime", "Log", "Page", "Network"):
                self.call(f"{domain}.enable")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.to_browser)
        os.close(self.from_browser)

    def open(self, path: Path, *, width: int, dark: bool) -> None:
        """Show a file in a window of that many pixels; what it complains of from here on is in `complaints`."""
        self.complaints.clear()
        self.requested.clear()
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.call("Page.navigate", url=path.as_uri())
        deadline_s = time.monotonic() + _LIMIT_S
        while self.run("location.href + ' ' + document.readyState") != f"{path.as_uri()} complete":
            assert time.monotonic() < deadline_s, "the page was not loaded in time"

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def point(self, x: float, y: float) -> None:
        """Move the pointer."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command of the protocol and its result; events on the way are looked at."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to_browser, json.dumps(message).encode() + b"\0")
        deadline_s = time.monotonic() + _LIMIT_S
        while (answer := self._read(deadline_s)).get("id") != self.number:
            self._note(answer)
        assert "error" not in answer, f"{method}: {answer['error']}"
        result: dict[str, Any] = answer["result"]
        return result

    def _note(self, event: dict[str, Any]) -> None:
        method, params = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.complaints.append(str(params["exceptionDetails"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(params["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.complaints.append(str(params["args"]))
        elif method == "Network.requestWillBeSent":
            self.requested.append(params["request"]["url"])

    def _read(self, deadline_s: float) -> dict[str, Any]:
        while b"\0" not in self.buffer:
            left_s = deadline_s - time.monotonic()
            there, _, _ = select.select([self.from_browser], [], [], max(0.0, left_s))
            assert there, "no answer from the browser in time"
            chunk = os.read(self.from_browser, 1 << 16)
            assert chunk, "the browser ended"
            self.buffer += chunk
        message, _, self.buffer = self.buffer.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        return answer
