"""The sidecar's flags about its withdrawal and its Pod, and what is made of their values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from infscale.cli.options import F, envvar_of, option

if TYPE_CHECKING:
    from infscale.drain.connections import Connections
    from infscale.sidecar import PodAround
    from infscale.withdraw import WithdrawEndpoint


def withdraw_options(function: F) -> F:
    """Give the sidecar the flags of its `/withdraw` and of the Pod that it is in."""
    decorators = [
        option("--withdraw.token-file", metavar="FILE", help="Who sends this token may withdraw; read each time."),
        *(
            option(flag, metavar=what.upper(), envvar=[envvar_of(flag), variable], help=f"The Pod's {what}.")
            for flag, variable, what in (
                ("--pod.namespace", "POD_NAMESPACE", "namespace"),
                ("--pod.name", "POD_NAME", "name"),
                ("--pod.uid", "POD_UID", "uid"),
            )
        ),
    ]
    for decorate in reversed(decorators):
        function = decorate(function)
    return function


def check_token(flags: dict[str, Any]) -> None:
    """Refuse a token file that cannot be used, for `--config.check`: a sidecar that starts with one says so and runs.

    Raises:
        UsageError: names the file.
    """
    from infscale.scrape_token import read_token

    if flags["withdraw_token_file"] is not None:
        read_token(flags["withdraw_token_file"])


def pod_around(flags: dict[str, Any]) -> PodAround:
    """What is known of the sidecar's Pod; it is not withdrawn yet."""
    from infscale.client_watch import ClientWatch
    from infscale.sidecar import PodAround
    from infscale.sidecar_reading import PodIdentity

    identity = PodIdentity(flags["pod_namespace"], flags["pod_name"], flags["pod_uid"])
    looks = _looks(flags)
    return PodAround(identity, clients=ClientWatch(looks).look) if looks else PodAround(identity)


def withdraw_endpoint_of(flags: dict[str, Any], pod: PodAround) -> WithdrawEndpoint:
    """What answers `/withdraw`."""
    from infscale.withdraw import WithdrawEndpoint

    return WithdrawEndpoint(pod.withdrawal, flags["withdraw_token_file"], look=pod.clients)


def _looks(flags: dict[str, Any]) -> list[Connections]:
    """A look at the clients of each engine; none if those of one engine cannot be seen from here."""
    from infscale.drain.connections import Connections
    from infscale.drain.options import DrainOptions
    from infscale.scrape_url import split_url

    engines = [DrainOptions(url) for url in flags["engine_url"]]
    wanted = all(engine.local for engine in engines) if flags["connections"] is None else flags["connections"]
    return [Connections(split_url(engine.page_url).port) for engine in engines] if wanted else []
