"""The flags that say what is asked for: a policy in the grammar, in a file, out of a manifest, or by plain flags."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from infscale.cli.options import F, option
from infscale.errors import UsageError

if TYPE_CHECKING:
    from infscale.core.scaling import ScalePolicy

_PLAIN = (
    ("--metric", "NAME", "queue, waiting, running, kv, cpu, ttft or work."),
    ("--target", "N", "What one replica should have of it."),
    ("--min", "N", "Lower bound; 0 allows scale to zero."),
    ("--max", "N", "Upper bound."),
    ("--down-window", "SECONDS", "How long a fall has to last."),
    ("--zero-cooldown", "SECONDS", "How long nothing may happen before zero."),
    ("--lookahead", "SECONDS", "How far ahead demand is projected; auto: as long as cold starts take."),
    ("--tolerance", "SHARE", "How far from the target nothing changes."),
    ("--up-pods", "N", "Replicas added within 15 s, at most."),
    ("--up-percent", "N", "Percent added within 15 s, at most."),
    ("--down-pods", "N", "Replicas taken away within 15 s, at most."),
    ("--down-percent", "N", "Percent taken away within 15 s, at most."),
)
_KEYWORDS = {
    "metric": "metric",
    "target": "target",
    "min": "min_replicas",
    "max": "max_replicas",
    "down_window": "down_window_s",
    "zero_cooldown": "zero_cooldown_s",
    "lookahead": "lookahead_s",
    "tolerance": "tolerance",
    "up_pods": "up_pods",
    "up_percent": "up_percent",
    "down_pods": "down_pods",
    "down_percent": "down_percent",
}


POLICY_FLAGS = ("policy", "policy_file", "from_manifest", *_KEYWORDS)
"""The names of their values."""


def policy_options(function: F) -> F:
    """Give a command the ways to name a policy; `policy_of` takes their values."""
    decorators = [
        option("--policy", metavar="POLICY", help="As queue:24,min=1,max=8,downwindow=300 (docs/policy.md)."),
        option("--policy.file", metavar="FILE", help="The same as YAML."),
        option("--from-manifest", metavar="FILE", help="An HPA or ScaledObject, read as a policy."),
        *(option(flag, metavar=kind, help=text) for flag, kind, text in _PLAIN),
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
    from infscale.core.checks import without_effect

    files = {"--policy.file": flags["policy_file"], "--from-manifest": flags["from_manifest"]}
    given = [flag for flag, path in files.items() if path is not None]
    plain = {keyword: flags[name] for name, keyword in _KEYWORDS.items()}
    if given:
        others = given[1:] + ["--policy"] * (flags["policy"] is not None)
        others += [f"--{name.replace('_', '-')}" for name in _KEYWORDS if flags[name] is not None]
        if others:
            raise UsageError(f"{given[0]} and {', '.join(others)}: give the policy in one way")
        if flags["policy_file"] is not None:
            from infscale.policy_yaml import load_policy

            return _asked(load_policy(flags["policy_file"]))
        from infscale.manifest import load_manifest

        found = load_manifest(flags["from_manifest"])
        return Asked(found.policy, (*found.warnings, *without_effect(found.policy)))
    from infscale.policy_flags import policy_from_flags

    return _asked(policy_from_flags(flags["policy"], **plain))


def policy_said(flags: dict[str, Any]) -> ScalePolicy:
    """As `policy_of`, with the warnings printed."""
    asked = policy_of(flags)
    for warning in asked.warnings:
        click.echo(f"infscale: {warning}", err=True)
    return asked.policy


def _asked(policy: ScalePolicy) -> Asked:
    from infscale.core.checks import without_effect

    return Asked(policy, without_effect(policy))
