"""`infscale mark-terminating`: the sidecar's own preStop hook."""

from __future__ import annotations

import click

from infscale.cli.options import option

_EXAMPLES = """\b
Examples:
  infscale mark-terminating
  infscale mark-terminating --wait
"""


@click.command("mark-terminating", epilog=_EXAMPLES)
@option("--mark.socket", metavar="PATH", help="The sidecar's socket.  [default: /run/infscale/mark.sock]")
@click.option("--wait", is_flag=True, help="Come back when the engine has left, or 3 s before the grace period ends.")
def command(mark_socket: str | None, wait: bool) -> int:
    """Tell the sidecar of this container that its Pod is terminating: its preStop hook.

    From then on the replica is draining: its requests still show, and count in no demand. With --wait the sidecar stays
    for as long as its engine does, which Kubernetes before 1.29 does not see to (there are no native sidecars).
    """
    from infscale.drain.mark import DEFAULT_SOCKET, tell

    # One line at once: whoever runs it by hand sees that the mark is set while it waits.
    last = tell(mark_socket or DEFAULT_SOCKET, wait=wait, on_marked=lambda: click.echo("marked as terminating"))
    if wait:
        click.echo(last)
    return 0
