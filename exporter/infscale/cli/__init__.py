"""The command line's root: finds the command, runs it, and turns every fault into one line for a person.

Called by the console script `infscale` and by `python -m infscale`. A command is imported when it is run, not
before: `infscale --help` needs click and the table below, nothing else.

Exit status: 0 well, 1 a run that failed or a source that could not be read, 2 usage or configuration, 70 a bug of ours
(EX_SOFTWARE of sysexits.h), 130 interrupted (128 + SIGINT, as shells report it).
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple, NoReturn

import click

from infscale import __version__
from infscale.errors import InfscaleError, printable

ENTRY_POINTS = "infscale.commands"
"""Entry-point group through which another package adds commands: each entry is a table like COMMANDS."""


class Entry(NamedTuple):
    """One command: where it stands, as `module:attribute`, and its line in `infscale --help`."""

    target: str
    help: str


COMMANDS: Mapping[str, Entry] = {
    "sidecar": Entry("infscale.cli.sidecar:command", "Read the engine beside it and publish the normalised metric."),
    "recommender": Entry("infscale.cli.recommender:command", "Decide for a workload again and again, and publish it."),
    "kube": Entry("infscale.cli.kube:command", "Decide for a Deployment over the API server; --apply scales it."),
    "retire": Entry("infscale.cli.retire:command", "Take one replica away, only when it is proven idle."),
    "activator": Entry("infscale.cli.activator:command", "Hold requests while no replica is ready, and wake one."),
    "decide": Entry("infscale.cli.decide:command", "Decide once how many replicas a workload should have, and why."),
    "parse": Entry("infscale.cli.parse:command", "Read metrics pages (files or URLs) once and print what they say."),
    "check-config": Entry("infscale.cli.check_config:command", "Check a configuration file and say what is wrong."),
    "drain": Entry("infscale.cli.drain:command", "Wait until an engine has nothing in flight; say what came of it."),
    "mark-terminating": Entry(
        "infscale.cli.mark_terminating:command", "The sidecar's own preStop hook: tell it that its Pod is terminating."
    ),
    "install-hook": Entry("infscale.cli.install_hook:command", "Write the engine's preStop hook into a folder."),
    "replay": Entry("infscale.cli.replay:command", "Serve a recorded run of an engine as the engine served it."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Our own commands in the table's order, then those of other packages."""
        return [*COMMANDS, *(name for name in added_commands() if name not in COMMANDS)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None if nobody has it."""
        entry = COMMANDS.get(cmd_name) or added_commands().get(cmd_name)
        if entry is None:
            return None
        module, _, attribute = entry.target.partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is meant; an unknown one is refused with the nearest."""
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as error:
            raise click.exceptions.NoSuchCommand(
                error.command_name, possibilities=self.list_commands(ctx), ctx=ctx
            ) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands for `--help` out of the tables, without importing one."""
        table = {**added_commands(), **COMMANDS}
        with formatter.section("Commands"):
            formatter.write_dl([(name, table[name].help) for name in self.list_commands(ctx)])


def added_commands() -> dict[str, Entry]:
    """The tables of the other packages, joined."""
    from importlib.metadata import entry_points  # 20 ms: only `--help` and foreign commands pay for it

    found: dict[str, Entry] = {}
    for point in entry_points(group=ENTRY_POINTS):
        found.update(point.load())
    return found


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Every flag can be given in the environment too: --engine.min-interval is INFSCALE_ENGINE_MIN_INTERVAL.",
)
@click.version_option(__version__, "--version", prog_name="infscale", message="%(prog)s %(version)s")
def cli() -> None:
    """Scale LLM inference on queue depth: read what an engine really has in flight, and publish it for Prometheus."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command line (`sys.argv[1:]` by default) and return its exit status; a command may return it itself."""
    try:
        status = cli.main(arguments, prog_name="infscale", standalone_mode=False)
        sys.stdout.flush()
    except click.Abort:  # what click makes of Ctrl-C
        return 130
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        say(describe(error))
        return error.exit_code
    except InfscaleError as error:
        say(str(error))
        return error.exit_code
    except BrokenPipeError:
        discard_output()
        return 1
    except Exception as error:
        if os.environ.get("INFSCALE_DEBUG") == "1":
            raise
        say(f"this is a bug in infscale: {type(error).__name__}: {error} (INFSCALE_DEBUG=1 shows where)")
        return 70
    return status if isinstance(status, int) else 0


def describe(error: click.ClickException) -> str:
    """A click error in one line, with the nearest right word and the command whose help tells more."""
    nearest = getattr(error, "possibilities", None)
    text = f"{error.message.rstrip('.')}; did you mean {nearest[0]}?" if nearest else error.format_message()
    context = getattr(error, "ctx", None)
    if context is not None:
        text = f"{text.rstrip('.')} (see '{context.command_path} --help')"
    return text[:1].lower() + text[1:]


def say(text: str) -> None:
    """Print one line on standard error, whatever the text holds: files, servers and people wrote parts of it."""
    click.echo(f"infscale: {printable(' '.join(text.split()))}", err=True)


def discard_output() -> None:
    """Send what is left in the buffer of a closed standard output nowhere, so that the interpreter ends quietly."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main() -> NoReturn:
    """The console script."""
    sys.exit(run())
