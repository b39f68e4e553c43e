"""What an activator is told, and the checks of that. The command line makes it."""

from __future__ import annotations

from dataclasses import dataclass

from infscale.activator.addresses import addresses_of
from infscale.errors import UsageError
from infscale.scrape import Target, check_target
from infscale.scrape_url import Url, show_url, split_url

EXAMPLE = "http://vllm.inference.svc:8000"


@dataclass(frozen=True)
class Settings:
    """What an activator is told.

    Attributes:
        upstream: URL of the workload, without a path.
        listen_address: `HOST:PORT`, `[IPV6]:PORT` or `:PORT`.
        hold_s: how long a request is held at most.
        max_held: requests pending at once.
        max_held_bytes: of their bodies together.
        max_body_bytes: of one request.
        max_connections: of clients.
        keep_alive_s: from one comment to the next on a held stream; None: none.
        drain_s: for what is held and under way at the end.
        health_path: of the probe.
        probe_interval_s: from one round of probes to the next.
        connect_timeout_s: for a connection to a replica, and for a whole probe.
        read_timeout_s: for each next byte of an answer.
        ca_file: certificates to trust instead of the system's.
        dns_server: whom to ask instead of those of /etc/resolv.conf.
    """

    upstream: str
    listen_address: str = ":10049"
    hold_s: float = 300.0
    max_held: int = 1000
    max_held_bytes: int = 64 * 2**20
    max_body_bytes: int = 16 * 2**20
    max_connections: int = 10_000
    keep_alive_s: float | None = None
    drain_s: float = 100.0
    health_path: str = "/health"
    probe_interval_s: float = 1.0
    connect_timeout_s: float = 2.0
    read_timeout_s: float = 600.0
    ca_file: str | None = None
    dns_server: str = ""

    def check(self) -> None:
        """Look at everything that can be wrong before the start.

        Raises:
            UsageError: the upstream, the name server, the path or the file cannot be used.
        """
        addresses_of(upstream_url(self.upstream).host, self.dns_server)
        if not self.health_path.startswith("/"):
            raise UsageError(f"--upstream.health-path {self.health_path[:120]!r}: expected a path, as /health")
        split_url(f"http://localhost{self.health_path}")
        if self.ca_file is not None:
            check_target(Target("https://localhost", ca_file=self.ca_file))


def upstream_url(text: str) -> Url:
    """The workload's URL.

    Raises:
        UsageError: it is none, or has a path: each request goes to the path that its client asked for.
    """
    url = split_url(text)
    if url.path != "/":
        raise UsageError(f"--upstream {show_url(text)}: expected no path, as in {EXAMPLE}: requests keep their own")
    return url
