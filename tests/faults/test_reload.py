"""SIGHUP: the sidecar and the recommender read their configuration again, and keep the former one if it is wrong."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from infscale.errors import UsageError
from infscale.reload import Reloader
from tests.faults.rig import COUNTED, SLOW_LOOK, is_well, until
from tests.metrics.test_exposition import check_with_promtool
from tests.raw_server import RawServer
from tests.recommender_process import Recommender
from tests.sidecar_process import Process, sidecar

GOOD = "infscale_config_last_reload_successful"
AT = "infscale_config_last_reload_success_timestamp_seconds"
OWN_ENGINE = b"mine_active 3\nmine_queue 2\n"
PROFILE = "profiles:\n- name: mine\n  running: {running}\n  waiting: mine_queue\n"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The file of --config.file."""
    return tmp_path / "infscale.yaml"


def write(config: Path, text: str) -> None:
    """Replace it at once, as a mounted ConfigMap is."""
    new = config.with_suffix(".new")
    new.write_text(text)
    new.rename(config)


def reloaded(process: Process, *, well: bool) -> str:
    """Ask for a reload and wait for it; its one log line."""
    seen = len(process.log)
    process.popen.send_signal(signal.SIGHUP)
    words = "configuration read anew" if well else "configuration cannot be used, the former one stays"

    def said() -> list[str]:
        return [line for line in process.log[seen:] if words in line]

    until(said)
    assert process.values()[GOOD] == well
    return said()[0]


def test_sidecar_learns_an_engine(config):
    """A profile that comes, is renamed and goes, without a restart; what takes one is told by its flag."""
    with RawServer(lambda call: call.page(OWN_ENGINE)) as engine:
        url = f"engine-url: {engine.url()}\n"
        write(config, url)
        with sidecar("--config.file", str(config), "--engine.min-interval=0.001") as process:
            began_s = process.values()[AT]
            assert (process.state(), process.values()[GOOD]) == ("not_an_engine", 1)

            write(config, url + PROFILE.format(running="mine_active"))
            assert "takes_a_restart" not in reloaded(process, well=True)
            until(lambda: process.values().get('infscale_inflight_requests{model_name=""}') == 5)
            assert process.values()[AT] > began_s

            write(config, url + "capacity: 7\nmodel-name: m\n" + PROFILE.format(running="mine_running"))
            assert 'takes_a_restart="--capacity, --model-name"' in reloaded(process, well=True)
            until(lambda: process.state() == "misconfigured")
            assert "infscale_capacity_requests" not in process.values()
            check_with_promtool(process.get("/metrics").content)


MISTAKES: dict[str, tuple[str, str]] = {
    "no YAML": ("a: [", "infscale.yaml"),
    "a key": ("engine-ur: x\n", "engine-ur"),
    "a value": ("capacity: many\n", "capacity"),
    "a profile": ("profiles:\n- name: mine\n", "profiles[0]"),
    "nothing": ("", "infscale.yaml"),
}


def test_sidecar_keeps_what_it_has(config):
    """Whatever is wrong with the new file: one line says what, the gauge is 0, numbers go on; then it is read again."""
    with RawServer(lambda call: call.page(OWN_ENGINE)) as engine:
        write(config, PROFILE.format(running="mine_active"))
        flags = ("--engine-url", engine.url(), "--config.file", str(config), "--engine.min-interval=0.001")
        with sidecar(*flags) as process:
            at_s = process.values()[AT]
            for text, said in MISTAKES.values():
                write(config, text)
                line = reloaded(process, well=False)
                assert said in line, (text, line)
                assert process.values()['infscale_inflight_requests{model_name=""}'] == 5
                assert process.values()[AT] == at_s
            config.unlink()
            assert "No such file" in reloaded(process, well=False)
            write(config, "{}\n")
            reloaded(process, well=True)
            until(lambda: process.state() == "not_an_engine")
            assert "Traceback" not in "".join(process.log)


def test_files_that_are_named(config, tmp_path):
    """A web config file and a token file that cannot be used any more are told too, and served is on as before."""
    web, token = tmp_path / "web.yaml", tmp_path / "token"
    web.write_text("http_server_config: {headers: {X-Frame-Options: deny}}\n")
    token.write_text("secret-one\n")
    with RawServer(lambda call: call.page(OWN_ENGINE)) as engine:
        flags = ("--engine-url", engine.url(), "--web.config.file", str(web), "--engine.token-file", str(token))
        with sidecar(*flags) as process:
            reloaded(process, well=True)
            web.write_text("basic_auth_users: {a: not-a-hash}\n")
            assert "basic_auth_users.a" in reloaded(process, well=False)
            assert process.get("/metrics").headers["X-Frame-Options"] == "deny"
            web.write_text("{}\n")
            token.write_text("secret two\n")
            assert "holds no token" in reloaded(process, well=False)
            token.write_text("secret-two\n")
            reloaded(process, well=True)
            assert "secret" not in "".join(process.log)


def test_recommender_takes_another_policy(pair, config, tmp_path):
    """From the file or from --policy.file; the count follows at once, and a wrong one leaves the former."""
    policy = tmp_path / "policy.yaml"
    policy.write_text("metrics: {queue: 4}\nmax: 20\n")
    write(config, f"policy.file: {policy}\n")
    with Recommender(pair.static, *COUNTED, SLOW_LOOK, "--config.file", str(config)) as process:
        process.until(is_well)
        policy.write_text("metrics: {queue: 2}\nmax: 20\n")
        reloaded(process, well=True)
        found = process.until(lambda one: one["desired"] == 4)
        assert found["hpa"] == 4
        policy.write_text("metrics: {queue: none}\n")
        assert str(policy) in reloaded(process, well=False)
        assert process.evaluations(2)["desired"] == 4
        write(config, "policy: ttft:1\n")
        assert "restart the process" in reloaded(process, well=False)
        write(config, "policy: queue:4,max=3\nstale-after: 60\n")
        assert "takes_a_restart=--stale-after" in reloaded(process, well=True)
        process.until(lambda one: one["desired"] == 3 and one["reason"] == "max")
        assert process.stop() == 0


def test_recommender_learns_an_engine(config):
    """With --fleet.engine-port it is the recommender that reads the engines' pages: by the new profile at once."""
    with RawServer(lambda call: call.page(OWN_ENGINE)) as engine:
        write(config, "{}\n")
        source = f"--fleet.source=static:{engine.url()}"
        counted = ("--workload=ml/vllm", "--spec-replicas=1", "--policy=queue:1,max=5")
        with Recommender(source, *counted, SLOW_LOOK, "--config.file", str(config)) as process:
            process.until(lambda one: one["evaluated_at"])
            assert process.recommendation()["replicas"]["serving"] == 0
            write(config, PROFILE.format(running="mine_active"))
            reloaded(process, well=True)
            assert process.until(lambda one: one["replicas"]["serving"] == 1)["inflight"] == 5


def test_command_line_and_environment_still_win(config):
    """As at the start: flag over environment over file."""
    with RawServer(lambda call: call.page(OWN_ENGINE)) as engine:
        write(config, "engine: vllm\ncapacity: 1\n")
        flags = ("--engine-url", engine.url(), "--capacity=3", "--engine.min-interval=0.001")
        with sidecar(*flags, INFSCALE_ENGINE="sglang", INFSCALE_CONFIG_FILE=str(config)) as process:
            write(config, "engine: mine\ncapacity: 2\n" + PROFILE.format(running="mine_active"))
            assert "takes_a_restart" not in reloaded(process, well=True)
            found = process.get("/api/v1/reading").json()
            assert found["inflight"] is None
            assert "sglang" in found["message"]  # the environment's word


def test_many_signals_and_an_end(config):
    """A hundred signals in a row are taken one after the other; the process ends by SIGTERM as ever."""
    with RawServer(lambda call: call.page(OWN_ENGINE)) as engine:
        write(config, PROFILE.format(running="mine_active"))
        flags = ("--engine-url", engine.url(), "--config.file", str(config), "--web.shutdown-delay=0.1")
        with sidecar(*flags) as process:
            for _ in range(100):
                process.popen.send_signal(signal.SIGHUP)
            reloaded(process, well=True)
            assert process.state() == "ok"
            process.popen.send_signal(signal.SIGTERM)
            assert process.ended() == 0


EARLY = """
import importlib.abc, os, runpy, signal, sys

class Hangup(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name in ("click", "infscale.cli.sidecar", "infscale.cli.recommender", "infscale.reload"):
            os.kill(os.getpid(), signal.SIGHUP)

sys.meta_path.insert(0, Hangup())
runpy.run_module("infscale", run_name="__main__")
"""
"""`python -m infscale` that gets a SIGHUP when the command line, the command and the reload begin to be imported."""


@pytest.mark.parametrize("role", ["sidecar", "recommender"])
def test_signals_before_it_is_ready(role, config):
    """A SIGHUP in the first moments of a start does not end the process: it reloads once it is ready to."""

    class Early(Process):
        program = ("-c", EARLY, role)

    sources = {
        "sidecar": ("--engine-url=http://127.0.0.1:1/metrics",),
        "recommender": ("--fleet.source=static:http://127.0.0.1:1", "--workload=ml/vllm", "--spec-replicas=1"),
    }
    write(config, "log.level: info\n" if role == "sidecar" else "policy: queue:4,max=5\n")
    with Early(*sources[role], "--config.file", str(config), "--web.shutdown-delay=0.1") as process:
        until(lambda: [line for line in process.log if "configuration read anew" in line])
        reloaded(process, well=True)
        process.popen.send_signal(signal.SIGTERM)
        assert process.ended() == 0


def reloader_that(does: Callable[[], list[str]]) -> Reloader:
    """One whose clock says 7, then 9."""
    times = iter([7.0, 9.0])
    return Reloader(does, wall_clock=lambda: next(times))


def shown(reloader: Reloader) -> list[float]:
    """Its two gauges."""
    return [family.samples[0].value for family in reloader.families(reloader.snapshot())]


def test_gauges(caplog):
    """At the start the configuration is good; a failed reload keeps the time of the last good one; a bug is one too."""

    def wrong() -> list[str]:
        raise UsageError("x.yaml: no")

    def bug() -> list[str]:
        raise KeyError("x")

    assert shown(reloader_that(list)) == [1, 7]
    for does, after in ((wrong, [0, 7]), (bug, [0, 7]), (list, [1, 9])):
        reloader = reloader_that(does)
        reloader.reload()
        assert shown(reloader) == after
    assert "x.yaml: no" in [getattr(record, "error", "") for record in caplog.records]
    assert reloader_that(list).stop(1.0)


def test_signal_before_the_start_counts():
    """One that comes between taking the signal over and the first listener is not lost and does not end the process."""
    called: list[float] = []

    def call() -> list[str]:
        called.append(time.monotonic())
        return []

    reloader = reloader_that(call)
    former = signal.getsignal(signal.SIGHUP)
    try:
        reloader.install()
        os.kill(os.getpid(), signal.SIGHUP)
        reloader.start()
        until(lambda: called)
        assert reloader.stop(30.0)
    finally:
        signal.signal(signal.SIGHUP, former)
