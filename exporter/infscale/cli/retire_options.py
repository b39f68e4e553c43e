"""The flags of the retirement protocol: of `recommender` and `kube`, whose `--apply` scales down through it.

`infscale retire` has some of them too, and makes its retirer here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from infscale.cli.options import F, option
from infscale.errors import UsageError

if TYPE_CHECKING:
    from infscale.kube.cluster import Cluster
    from infscale.retire.passes import Retirer
    from infscale.retirement import Retirement

TOKEN_FILE_HELP = "The token that the sidecars ask for, to leave rotation."  # noqa: S105 (a help text)
ROTATION_HELP = "Ask a router that ignores readiness for its endpoints, too."


def retire_options(function: F) -> F:
    """Add `--retire` and what belongs to it."""
    for add in reversed(
        (
            option("--retire", is_flag=True, help="Scale down one replica at a time, each proven idle; with --apply."),
            option("--retry", is_flag=True, help="Begin another retirement after one that was aborted, 300 s later."),
            option("--withdraw.token-file", metavar="FILE", help=TOKEN_FILE_HELP),
            option("--rotation", metavar="llm-d:URL", help=ROTATION_HELP),
        )
    ):
        function = add(function)
    return function


def check_retire(flags: dict[str, Any]) -> None:
    """Refuse what belongs to `--retire` without it, and it without `--apply`."""
    if flags["retire"] and not flags["apply"]:
        raise UsageError("--retire is how --apply scales down: give --apply, or leave it out")
    for flag, key in (("--retry", "retry"), ("--rotation", "rotation")):
        if flags[key] and not flags["retire"]:
            raise UsageError(f"{flag} belongs to --retire")


def retirement_of(
    flags: dict[str, Any], cluster: Cluster, workload: tuple[str, str, str], *, background: bool
) -> Retirement | None:
    """What scales the workload (kind, namespace, name) down; None without `--retire`."""
    if not flags["retire"]:
        return None
    from infscale.retirement import Retirement

    return Retirement(retirer_of(flags, cluster, workload), retry=flags["retry"], background=background)


def retirer_of(flags: dict[str, Any], cluster: Cluster, workload: tuple[str, str, str], **more: Any) -> Retirer:
    """The protocol for a workload (kind, namespace, name); `more` as `Retirer` takes it.

    Raises:
        UsageError: the token file cannot be used, or the router is none.
    """
    from infscale.retire.passes import Retirer
    from infscale.retire.router import parse_rotation
    from infscale.scrape_token import read_token

    token_file = flags["withdraw_token_file"]
    if token_file:
        read_token(token_file)  # what is wrong with it is told now
    rotation = parse_rotation(flags["rotation"]) if flags["rotation"] else None
    return Retirer(cluster, *workload, token_file=token_file, rotation=rotation, **more)
