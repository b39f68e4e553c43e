"""The sidecar's flags about the drain of the engines beside it, and what is made of their values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from infscale.cli.drain_options import check_limit, options_of
from infscale.cli.options import SECONDS, F, option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infscale.drain.endpoint import DrainEndpoint
    from infscale.drain.mark import TerminationMark
    from infscale.engines.profile import Profile
    from infscale.metrics.drains import DrainCounters
    from infscale.sidecar import Engine


def drain_options(function: F) -> F:
    """Give the sidecar the flags of its `/drain` and of the Pod-termination mark."""
    decorators = [
        option("--grace", type=SECONDS, default=30.0, metavar="SECONDS", help="The Pod's grace period."),
        option("--exit-reserve", type=SECONDS, default=5.0, metavar="SECONDS", help="What an engine needs to exit."),
        option("--max-grace", type=SECONDS, metavar="SECONDS", help="The longest that the node lets a Pod terminate."),
        option("--drain-stale-after", type=SECONDS, metavar="SECONDS", help="A drain gives up hung requests."),
        option("--connections/--no-connections", default=None, help="Look at clients' connections."),
        option("--mark.socket", metavar="PATH", help="For mark-terminating.  [default: in /run/infscale]"),
    ]
    for decorate in reversed(decorators):
        function = decorate(function)
    return function


def check_drain(flags: dict[str, Any]) -> None:
    """Refuse flags that contradict each other.

    Raises:
        UsageError: in one line.
    """
    for url in flags["engine_url"]:
        check_limit(options_of(url, flags))


def endpoint_of(
    engines: Sequence[Engine],
    profiles: tuple[Profile, ...],
    flags: dict[str, Any],
    mark: TerminationMark,
    counters: DrainCounters,
) -> DrainEndpoint:
    """What answers `/drain` for the engines that `--engine-url` names.

    Args:
        engines: in the order of the flag.
        profiles: the engines to look for.
        flags: checked by `check_drain`.
        mark: the Pod-termination mark.
        counters: what adds up over the drains.
    """
    from infscale.drain.endpoint import DrainEndpoint
    from infscale.drain.ledger import Beside

    def beside(engine: Engine, url: str) -> Beside:
        """The engine as its drain reads it."""
        return Beside(
            options_of(url, flags), profiles, lambda: engine.profile, lambda timeout_s: engine.read(timeout_s)[0]
        )

    pairs = zip(engines, flags["engine_url"], strict=True)
    return DrainEndpoint([beside(engine, url) for engine, url in pairs], mark, counters)
