"""The flags that say what is asked for: a policy in the grammar, in a file, out of a manifest, or by plain flags."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from infscale.cli.options import F, option, parameter_of
from infscale.errors import UsageError

if TYPE_CHECKING:
    from infscale.core.scaling import ScalePolicy

_PLAIN = (
    ("--metric", "metric", "NAME", "queue, waiting, running, kv, cpu, ttft or work."),
    ("--target", "target", "N", "What one replica should have of it."),
    ("--min", "min_replicas", "N", "Lower bound; 0 allows scale to zero."),
    ("--max", "max_replicas", "N", "Upper bound."),
    ("--down-window", "down_window_s", "SECONDS", "How long a fall has to last."),
    ("--zero-cooldown", "zero_cooldown_s", "SECONDS", "How long nothing may happen before zero."),
    ("--lookahead", "lookahead_s", "SECONDS", "How far ahead demand is projected; auto: as long as cold starts take."),
    ("--tolerance", "tolerance", "SHARE", "How far from the target nothing changes."),
    ("--up-pods", "up_pods", "N", "Replicas added within 15 s, at most."),
    ("--up-percent", "up_percent", "N", "Percent added within 15 s, at most."),
    ("--down-pods", "down_pods", "N", "Replicas taken away within 15 s, at most."),
    ("--down-percent", "down_percent", "N", "Percent taken away within 15 s, at most."),
)
"""Flag, argument of `policy_flags.policy_from_flags`, metavar, help."""

POLICY_FLAGS = ("policy", "policy_file", "from_manifest", *(parameter_of(flag) for flag, *_ in _PLAIN))
"""The names of their values."""


def policy_options(function: F) -> F:
    """Give a command the ways to name a policy; `policy_of` takes their values."""
    decorators = [
        option("--policy", metavar="POLICY", help="As queue:24,min=1,max=8,downwindow=300 (docs/policy.md)."),
        option("--policy.file", metavar="FILE", help="The same as YAML."),
        option("--from-manifest", metavar="FILE", help="An HPA or ScaledObject, read as a policy."),
        *(option(flag, metavar=kind, help=text) for flag, _, kind, text in _PLAIN),
    ]
    for decorate in reversed(decorators):
        function = decorate(function)
    return function


@dataclass(frozen=True)
class Asked:
    """A policy and what a person should know of how it was read."""

    policy: ScalePolicy
    warnings: tuple[str, ...] = ()


def policy_given(flags: dict[str, Any]) -> bool:
    """Whether any of the policy's flags was given."""
    return any(flags[name] is not None for name in POLICY_FLAGS)


def policy_of(flags: dict[str, Any]) -> Asked:
    """The policy that the flags ask for.

    Raises:
        UsageError: none, or more than one of the ways to give it; a policy or file that cannot be used.
    """
    files = {"--policy.file": flags["policy_file"], "--from-manifest": flags["from_manifest"]}
    given = [flag for flag, path in files.items() if path is not None]
    if given:
        others = given[1:] + ["--policy"] * (flags["policy"] is not None)
        others += [flag for flag, *_ in _PLAIN if flags[parameter_of(flag)] is not None]
        if others:
            raise UsageError(f"{given[0]} and {', '.join(others)}: give the policy in one way")
        if flags["policy_file"] is not None:
            from infscale.policy_yaml import load_policy

            return _asked(load_policy(flags["policy_file"]))
        from infscale.manifest import load_manifest

        found = load_manifest(flags["from_manifest"])
        return _asked(found.policy, *found.warnings)
    from infscale.policy_flags import policy_from_flags

    plain = {keyword: flags[parameter_of(flag)] for flag, keyword, *_ in _PLAIN}
    return _asked(policy_from_flags(flags["policy"], **plain))


def policy_said(flags: dict[str, Any]) -> ScalePolicy:
    """As `policy_of`, with the warnings printed."""
    from infscale.cli import say

    asked = policy_of(flags)
    for warning in asked.warnings:
        say(warning)
    return asked.policy


def _asked(policy: ScalePolicy, *warnings: str) -> Asked:
    from infscale.core.checks import without_effect

    return Asked(policy, (*warnings, *without_effect(policy)))
