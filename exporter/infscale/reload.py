"""SIGHUP: the sidecar and the recommender read their configuration again, and keep the former one if that fails.

What is read and put in force is the role's business (`infscale.cli.reloading`); here are the signal, the one log line,
and the two gauges that exporters have for it (Prometheus: `prometheus_config_last_reload_successful`, and its time).
"""

from __future__ import annotations

import logging
import queue
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType

from prometheus_client import Metric as Family

from infscale.errors import InfscaleError
from infscale.metrics.catalogue import in_group
from infscale.metrics.contract import RELOAD
from infscale.metrics.families import Families

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LastReload:
    """How the last reload went, and when one last went well: at first the start of the process, Unix seconds."""

    successful: bool
    success_at_s: float

    def same_as(self, other: LastReload | None) -> bool:
        """Whether both make the same page."""
        return self == other


class Reloader:
    """Reloads on SIGHUP, on a thread of its own, one after the other. Also the collector of its gauges.

    Args:
        reload: reads the configuration and puts it in force; returns the flags whose new values take a restart. Raises
            InfscaleError where any of it cannot be used: then nothing may have changed.
        wall_clock: Unix seconds.
    """

    def __init__(self, reload: Callable[[], Sequence[str]], *, wall_clock: Callable[[], float] = time.time) -> None:
        self._reload, self._wall_clock = reload, wall_clock
        self._last = LastReload(True, wall_clock())
        # A signal may come within the handler of the one before, and this queue alone takes a put within a put.
        self._asked: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def install(self) -> None:
        """Take SIGHUP over, which `infscale.__main__` held back; what came before `start` is done then. Main thread."""
        signal.signal(signal.SIGHUP, self._on_signal)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})

    def start(self) -> None:
        """Begin to reload when asked."""
        self._thread = threading.Thread(target=self._run, name="reload", daemon=True)
        self._thread.start()

    def stop(self, drain_s: float) -> bool:
        """End after the reload under way; see `infscale.web.lifecycle.Stoppable`."""
        self._asked.put(False)
        if self._thread is not None:
            self._thread.join(drain_s)
        return self._thread is None or not self._thread.is_alive()

    def reload(self) -> None:
        """One reload, now. Never raises: one that fails is logged and shown, and the former configuration stays."""
        try:
            waiting = self._reload()
        except InfscaleError as error:
            self._failed(str(error))
        except Exception as error:
            log.exception("reload failed: this is a bug in infscale")
            self._failed(f"{type(error).__name__}: {error}")
        else:
            self._last = LastReload(True, self._wall_clock())
            log.info("configuration read anew", extra={"takes_a_restart": ", ".join(waiting)} if waiting else {})

    def snapshot(self) -> LastReload:
        """See `infscale.metrics.render.Collector`."""
        return self._last

    def families(self, snapshot: LastReload) -> list[Family]:
        """The two gauges."""
        families = Families(in_group(RELOAD))
        families.add("infscale_config_last_reload_successful", float(snapshot.successful))
        families.add("infscale_config_last_reload_success_timestamp_seconds", snapshot.success_at_s)
        return families.built()

    def collect(self) -> list[Family]:
        """The families of this instant."""
        return self.families(self.snapshot())

    def _failed(self, why: str) -> None:
        self._last = LastReload(False, self._last.success_at_s)
        log.error("configuration cannot be used, the former one stays", extra={"error": why})

    def _run(self) -> None:
        while self._asked.get():
            self.reload()

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._asked.put(True)
