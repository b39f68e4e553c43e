"""Which series of a Prometheus tell of requests: infscale's own, or those of engines that it scraped itself. Pure.

Called by `prometheus`. What an engine calls its counters, and over which labels they are copies, is in its profile.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from infscale.engines import PROFILES
from infscale.engines.profile import Metric, Profile
from infscale.engines.sglang import SGLANG
from infscale.engines.vllm import VLLM
from infscale.errors import UsageError

ENGINES = (VLLM, SGLANG)

NAMES = "infscale_(finished_requests_total|inflight_requests)|(.+_)?(vllm|sglang|llamacpp)[:_].+"
"""The metrics among which `found_in` looks. Gateways put a word before an engine's prefix, and rewrite its colon."""

_UNCOUNTED = "|".join(
    re.escape(profile.name).replace("\\", "\\\\") for profile in PROFILES.values() if not profile.finished
)
UNCOUNTED = f'__name__="infscale_engine_info",engine=~"{_UNCOUNTED}"'
"""Matches the sidecars of engines that count no requests."""

TARGET_LABELS = ("job", "service", "endpoint", "container", "prometheus", "prometheus_replica")
"""What differs where one page is scraped twice: by two jobs, or by two Prometheus that a querier joins."""

_MATCHER = r'[a-zA-Z_][a-zA-Z0-9_]*\s*(=~|!~|!=|=)\s*"([^"\\\n]|\\.)*"'
_SELECTOR = re.compile(rf"\s*{_MATCHER}\s*(,\s*{_MATCHER}\s*)*")
_KUBERNETES_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class Family:
    """The series of one kind of page.

    Attributes:
        engine: `infscale`, `vllm` or `sglang`.
        finished, prompt_tokens, generation_tokens: names of counters.
        inflight: names of gauges that together are the requests in the engine.
        copies: labels over which series are copies.
        matchers: that a series must fulfil besides those asked for.
    """

    engine: str
    finished: str
    prompt_tokens: str
    generation_tokens: str
    inflight: tuple[str, ...]
    copies: tuple[str, ...] = TARGET_LABELS
    matchers: tuple[str, ...] = ()

    def increase(self, name: str, selector: str, step_s: float) -> str:
        """The expression for a counter's growth in the step that ends at an instant."""
        return f"sum({self._one_of_copies(f'increase({self._series(name, selector)}[{step_s * 1000:.0f}ms])')})"

    def inflight_now(self, selector: str) -> str:
        """The expression for the requests in the engines at an instant; 0 where nothing tells."""
        sums = (f"sum({self._one_of_copies(self._series(name, selector))})" for name in self.inflight)
        return " + ".join(f"({one} or vector(0))" for one in sums)

    def _one_of_copies(self, vector: str) -> str:
        return f"max without ({','.join(self.copies)}) ({vector})"

    def _series(self, name: str, selector: str) -> str:
        # The name as a matcher: a colon is no letter of every dialect, and a recording rule's name may hold it.
        return "{" + ",".join([f'__name__="{name}"', *self.matchers, *([selector] if selector else [])]) + "}"


NORMALISED = Family(
    "infscale",
    "infscale_finished_requests_total",
    "infscale_prompt_tokens_total",
    "infscale_generation_tokens_total",
    ("infscale_inflight_requests",),
)


def selector_of(workload: str, selector: str) -> str:
    """The label matchers that a user asked for; empty: every series.

    Args:
        workload: `NAMESPACE/NAME`, the labels `namespace` and `workload`; may be empty.
        selector: matchers as in a query, `namespace="ml",pod=~"vllm-.*"`; may be empty.

    Raises:
        UsageError: one of them cannot be used.
    """
    parts = []
    if workload:
        namespace, _, name = workload.partition("/")
        if not _KUBERNETES_NAME.fullmatch(namespace) or not _KUBERNETES_NAME.fullmatch(name):
            raise UsageError(f"--workload: expected NAMESPACE/NAME, as inference/vllm, got {workload[:120]!r}")
        parts.append(f'namespace="{namespace}",workload="{name}"')
    if selector:
        inside = selector.strip().removeprefix("{").removesuffix("}")
        if not _SELECTOR.fullmatch(inside):
            example = 'namespace="ml",pod=~"vllm-.*"'
            raise UsageError(f"--selector: expected label matchers, as {example}, got {selector[:120]!r}")
        parts.append(inside.strip())
    return ",".join(parts)


def found_in(names: Collection[str]) -> list[Family]:
    """The families whose counter of finished requests is among the names, the normalised one first."""
    raw = (
        _raw(profile, name.removesuffix(_name(profile.finished)), names)
        for profile in ENGINES
        for name in sorted(names)
        if re.fullmatch(rf"(.+_)?{profile.prefix}[:_]{_name(profile.finished)}", name)
    )
    return [*([NORMALISED] if NORMALISED.finished in names else []), *raw]


def uncounted(names: Iterable[str]) -> bool:
    """Whether the own series of an engine without a counter of requests are among them."""
    return any(re.match(r"(.+_)?llamacpp[:_]", name) for name in names)


def _raw(profile: Profile, prefix: str, names: Collection[str]) -> Family:
    gauges = [metric for metric in (profile.running, profile.waiting, *profile.queues) if metric]
    told = (next((prefix + name for name in metric.names if prefix + name in names), "") for metric in gauges)
    return Family(
        profile.name,
        prefix + _name(profile.finished),
        prefix + _name(profile.prompt_tokens),
        prefix + _name(profile.generation_tokens),
        tuple(name for name in told if name),
        copies=(*TARGET_LABELS, *sorted(profile.copies)),
        matchers=tuple(f'{label}=~"{"|".join(values)}"' for label, values in profile.only),
    )


def _name(metric: Metric | None) -> str:
    assert metric is not None  # noqa: S101 - the profiles of ENGINES have them
    return metric.names[0]
