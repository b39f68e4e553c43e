"""What SIGHUP reads again for `sidecar` and `recommender`, and what of it counts at once: `infscale.reload` calls it.

Engines (`--engine`, `--engine.select`, the profiles of `--config.file`) and the policy change while the process runs.
Everything else is checked, so that a mistake is told, and takes a restart. The web config file and the token files are
read anew without being asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from infscale.cli import describe
from infscale.cli.engine_options import Chosen, chosen, target
from infscale.cli.policy_options import POLICY_FLAGS, policy_of
from infscale.cli.web_options import check_web_config
from infscale.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from infscale.core.scaling import ScalePolicy
    from infscale.evaluator import Evaluator

_AT_ONCE = ("config_file", "engine", "engine_select", *POLICY_FLAGS)


def reload_of(
    ctx: click.Context, use_engines: Callable[[Chosen], object], evaluator: Evaluator | None
) -> Callable[[], list[str]]:
    """What a SIGHUP does; see `infscale.reload.Reloader`.

    Args:
        ctx: of the running command.
        use_engines: puts engines in force.
        evaluator: decides by the policy; None where there is none.
    """

    def reload() -> list[str]:
        """Read everything anew before anything is taken over; the flags that changed and need a restart."""
        flags = flags_anew(ctx)
        engines = chosen(flags["config_file"], flags["engine"], flags["engine_select"])
        check_web_config(flags["web_config_file"])
        for url in flags.get("engine_url", ()):
            target(url, **flags)
        if evaluator is not None:
            evaluator.policy = _policy(flags, evaluator.policy)
        use_engines(engines)
        changed = [name for name, value in flags.items() if value != ctx.params[name] and name not in _AT_ONCE]
        return sorted(_flag(ctx, name) for name in changed)

    return reload


def flags_anew(ctx: click.Context) -> dict[str, Any]:
    """Every flag's value with `--config.file` as it is now; the command line and the environment win as before.

    Raises:
        UsageError: the file, or a value in it, cannot be used.
    """
    typed = {name for name in ctx.params if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    given = {name: ctx.params[name] for name in typed - {"config_file"}}
    arguments = ["--config.file", ctx.params["config_file"].source] if "config_file" in typed else []
    try:
        fresh = ctx.command.make_context(ctx.info_name, arguments, parent=ctx.parent, default_map=given)
    except click.ClickException as error:
        raise UsageError(describe(error)) from error
    return {**fresh.params, **given}


def _policy(flags: dict[str, Any], in_force: ScalePolicy) -> ScalePolicy:
    """The policy as it is now; one that needs more of the replicas than is read of them takes a restart."""
    from infscale.core.scaling import MetricName

    policy = policy_of(flags).policy
    needs_ttft, has_ttft = (any(goal.metric is MetricName.TTFT for goal in one.goals) for one in (policy, in_force))
    if needs_ttft and not has_ttft:
        raise UsageError("the policy asks for ttft, whose histograms were not asked for so far: restart the process")
    return policy


def _flag(ctx: click.Context, name: str) -> str:
    """A flag as it is written."""
    return next(param.opts[0] for param in ctx.command.params if param.name == name)
