"""What a drain is told, and the instants that follow from the grace period: here and nowhere else.

Called by `infscale drain`, by the preStop hook and by the sidecar's `/drain`; `infscale.drain.run` carries it out.

Runs on Python 3.9 (it travels in the drain bundle).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Optional, Tuple

from infscale.engines import PROFILES
from infscale.engines.profile import Profile
from infscale.errors import UsageError
from infscale.scrape_url import add_query, split_url

MIN_GRACE_S, MAX_GRACE_S = 15.0, 3600.0
"""The grace periods that a drain accepts."""

SETTLE_S = 5.0
"""Requests that were routed just before the delete land in this time: endpoints take some seconds to reach every
proxy (Kubernetes, "Termination of Pods"). Nothing is read meanwhile."""

LATEST_RETURN_S = 2.0
"""The drain has returned this long after the exit reserve began: one read that begins just before may still end."""

MIN_WINDOW_S = 10.0
"""Seconds of the grace period that must be left for settling and reading, beside the exit reserve."""

BY_CONNECTIONS, RETURN = "connections", "return"
ON_HTTP_ERROR = (BY_CONNECTIONS, RETURN)
"""What to do when the engine answers no metrics page: go by its clients' connections, or return."""

_LOOPBACK = re.compile(r"127(\.[0-9]+){3}|localhost|::1")


@dataclass(frozen=True)
class Schedule:
    """The instants of one drain, in seconds since its start.

    Attributes:
        settled_s: the first read begins.
        last_read_s: no read begins at or after this.
        return_s: the drain has returned, whatever the engine does.
    """

    settled_s: float
    last_read_s: float
    return_s: float


@dataclass(frozen=True)
class DrainOptions:
    """What a drain is told; `check` says what cannot be used.

    Attributes:
        url: the engine's metrics page, as a rule on the loopback address.
        engine: the engine's profile; empty: found from the page.
        grace_s: the Pod's `terminationGracePeriodSeconds`, 15 to 3600.
        exit_reserve_s: what the engine needs to exit after SIGTERM; SGLang's prefill and decode roles need 20.
        max_grace_s: the longest that this node lets a Pod terminate (node shutdown, spot reclaim), where that is known.
        connections: whether clients' connections count; None: where they can be seen.
        stale_after_s: ends the wait for requests that nobody waits for; None: never. Not for prefill or decode roles.
        on_http_error: one of ON_HTTP_ERROR.
        token_file: holds what is sent to the engine as `Authorization: Bearer`.
        leader_url: the metrics page of a multi-Pod replica's leader, which is read instead of `url`: a worker has none.
        settle_s: instead of SETTLE_S; 0 for a person who only wants to look.
    """

    url: str
    engine: str = ""
    grace_s: float = 30.0
    exit_reserve_s: float = 5.0
    max_grace_s: Optional[float] = None
    connections: Optional[bool] = None
    stale_after_s: Optional[float] = None
    on_http_error: str = BY_CONNECTIONS
    token_file: Optional[str] = None
    leader_url: str = ""
    settle_s: float = SETTLE_S

    def check(self) -> None:
        """Refuse what cannot be used.

        Raises:
            UsageError: in one line, with the flag's name.
        """
        split_url(self.page_url)
        if not MIN_GRACE_S <= self.grace_s <= MAX_GRACE_S:
            raise UsageError(f"--grace is {self.grace_s:g} s: expected {MIN_GRACE_S:g} to {MAX_GRACE_S:g}")
        if not self.exit_reserve_s >= 0:
            raise UsageError(f"--exit-reserve is {self.exit_reserve_s:g} s: expected 0 or more")
        if self.grace_s < self.exit_reserve_s + MIN_WINDOW_S:
            raise UsageError(
                f"--grace is {self.grace_s:g} s and --exit-reserve {self.exit_reserve_s:g} s: expected a grace period "
                f"of at least {self.exit_reserve_s + MIN_WINDOW_S:g} s, or no time is left to drain"
            )
        for flag, seconds in (("--max-grace", self.max_grace_s), ("--drain-stale-after", self.stale_after_s)):
            if seconds is not None and not 0 < seconds < math.inf:
                raise UsageError(f"{flag} is {seconds:g} s: expected more than 0")
        if self.on_http_error not in ON_HTTP_ERROR:
            raise UsageError(f"--on-http-error is {self.on_http_error!r}: expected {' or '.join(ON_HTTP_ERROR)}")

    def profile(self, profiles: Optional[Tuple[Profile, ...]] = None) -> Optional[Profile]:
        """The profile that `engine` names; None where the page is to tell.

        Args:
            profiles: those to look in; None: the built-in ones.

        Raises:
            UsageError: there is none of that name.
        """
        if not self.engine:
            return None
        known = {profile.name: profile for profile in (PROFILES.values() if profiles is None else profiles)}
        if self.engine not in known:
            raise UsageError(f"unknown engine {self.engine!r}; known are {', '.join(sorted(known))}")
        return known[self.engine]

    @property
    def page_url(self) -> str:
        """What is read. llama.cpp's router would load the model that a URL names, unless told not to."""
        url = self.leader_url or self.url
        return add_query(url, "autoload=false") if re.search(r"[?&]model=", url) else url

    @property
    def local(self) -> bool:
        """Whether the engine listens on the loopback address: then its connections are to be seen from here."""
        return bool(_LOOPBACK.fullmatch(split_url(self.page_url).host))

    @property
    def effective_grace_s(self) -> float:
        """The smaller of the configured grace period and the node's limit.

        A delete may come with a shorter one (`metadata.deletionGracePeriodSeconds`): nothing in the Pod can read it.
        """
        return self.grace_s if self.max_grace_s is None else min(self.grace_s, self.max_grace_s)

    @property
    def schedule(self) -> Schedule:
        """The instants that the effective grace period leaves; all at once where it is shorter than the reserve."""
        last_read_s = max(0.0, self.effective_grace_s - self.exit_reserve_s)
        latest_s = max(0.0, min(self.effective_grace_s, last_read_s + LATEST_RETURN_S))
        return Schedule(min(self.settle_s, last_read_s), last_read_s, latest_s)
