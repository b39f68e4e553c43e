"""What the hook costs in the engine's container: processor time at its start, and memory."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from pathlib import Path

import pytest

from infscale.drain.bundle import zip_application
from tests.certs import Certs, make_certs
from tests.drain.matrix import BY_NAME
from tests.test_imports import PYTHONS

MEMORY_BYTES = {"idle": 20_000_000, "self-signed TLS": 25_000_000}
START_S = 0.15


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Certs:
    """Certificates, good and bad."""
    return make_certs(tmp_path_factory.mktemp("certs"))


def peak_bytes(pid: int) -> int:
    """The most memory that a process has had resident; 0 once it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)


def cpu_s(pid: int) -> float:
    """Processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_cost(certs, tmp_path):
    """On each Python the hook settles within 0.15 s of processor time (thrice that when busy), and stays small."""
    path = tmp_path / "infscale-drain.pyz"
    path.write_bytes(zip_application())
    with contextlib.ExitStack() as stack:
        hooks = {}
        for name in MEMORY_BYTES:
            url = stack.enter_context(BY_NAME[name].serve(certs))
            told = ("--url", url, "--grace", "15", "--no-connections", "--report-file", "", "--sidecar-url", "")
            for version, python in PYTHONS.items():
                command = [python, "-I", "-S", "-B", path, *told]
                hooks[name, version] = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(3.5)
        starts = {key: cpu_s(hook.pid) for key, hook in hooks.items()}
        peaks = dict.fromkeys(hooks, 0)
        while any(hook.poll() is None for hook in hooks.values()):
            peaks.update({key: peak for key, hook in hooks.items() if (peak := peak_bytes(hook.pid))})
            time.sleep(0.2)
        ends = {key: (hook.communicate(timeout=30)[1], hook.returncode) for key, hook in hooks.items()}

    assert set(ends.values()) == {(b"", 0)}
    assert {key: spent for key, spent in starts.items() if spent > 3 * START_S} == {}
    assert {key: peak for key, peak in peaks.items() if peak > MEMORY_BYTES[key[0]]} == {}
