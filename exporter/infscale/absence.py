"""What a page without an engine's gauges is: a fresh engine, one whose statistics are off, or no engine at all.

The absence of a measurement is not a measurement of absence: only an engine that shows that it never served anything
reads as 0. Called by `infscale.normalise`. Pure.

Runs on Python 3.9 (it travels in the drain bundle).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Optional, Tuple, Union

from infscale.combine import model_of
from infscale.engines.profile import Profile
from infscale.exposition import Selection, Selector, mentions
from infscale.reading import FRESH, MISCONFIGURED, NOT_AN_ENGINE, STATS_DISABLED, ModelReading, ReadFailure, Reading

# A FastAPI front end's own families; vLLM with --disable-log-stats has nothing else.
_FRONT_END = re.compile(r"^[ \t]*(?:http|process|python)_\w+[ \t{]")
_FRONT_END_REQUESTS = re.compile(r"^[ \t]*http_request", re.MULTILINE)
# Requests that are no inference: probes and pages are GET, these are an operator's POST.
_OPERATOR = re.compile(
    r"(metrics|health\w*|ping|ready|live|version|models|load|docs|none|/|lora_adapter|sleep|wake_up|tokenize"
    r"|reset_\w+|start_profile|stop_profile|pause|resume)$"
)


def judge_absence(
    text: str, profile: Optional[Profile], profiles: Tuple[Profile, ...], source: str
) -> Union[Reading, ReadFailure]:
    """What the page is, given that it has none of `profile`'s (or of any engine's) gauges.

    Args:
        text: the page.
        profile: the engine, where it was told.
        profiles: the engines it may be otherwise.
        source: names the page in messages.
    """
    seen = {candidate.name: mentions(text, candidate.prefix) for candidate in ((profile,) if profile else profiles)}
    for candidate in (profile,) if profile else profiles:
        if seen[candidate.name] == "samples":
            return _fresh_or_renamed(text, candidate, source)
    for candidate in (profile,) if profile else profiles:
        if seen[candidate.name] == "comments":
            message = f"{candidate.name}'s metrics are named but have no values: {candidate.hints.disabled}"
            return ReadFailure(STATS_DISABLED, "missing", message, candidate.name)
    if profile is None or profile.name == "vllm":
        vllm = next((candidate for candidate in profiles if candidate.name == "vllm"), None)
        if vllm and _is_front_end(text):
            message = f"a vLLM front end without engine metrics (only http_* and process_*): {vllm.hints.disabled}"
            return ReadFailure(STATS_DISABLED, "missing", message, "vllm")
    return _no_engine(text, profile, profiles)


def _fresh_or_renamed(text: str, profile: Profile, source: str) -> Union[Reading, ReadFailure]:
    """`fresh` only if nothing was ever served; gauges that are gone though counters moved were renamed."""
    selection = _served_selector(profile).select(text, source)
    moved = _moved(selection, profile)
    if moved:
        gauges = (profile.running, profile.waiting, profile.total)
        sought = " and ".join(profile.full(metric.names[0]) for metric in gauges if metric)
        message = f"no {sought} on the page though {moved}: were the gauges renamed? describe them in profiles:"
        return ReadFailure(MISCONFIGURED, "missing", message, profile.name)
    labelled = [sample for samples in selection.samples.values() for sample in samples]
    model = next((model for model in (model_of(sample.labels, profile) for sample in labelled) if model), "")
    parts = None if profile.total else 0.0
    return Reading(profile.name, FRESH, (ModelReading(model, parts, parts, 0.0),))


@lru_cache(maxsize=64)
def _served_selector(profile: Profile) -> Selector:
    metrics = (profile.prompt_tokens, profile.generation_tokens, profile.finished, *profile.progress, *profile.served)
    names = dict.fromkeys(name for metric in metrics if metric for name in metric.names)
    return Selector(names, prefix=profile.prefix, plain=(profile.requests,))


def _moved(selection: Selection, profile: Profile) -> str:
    """The first counter that shows that something was served, as words; empty where none does."""
    for name, samples in selection.samples.items():
        for sample in samples:
            if name == profile.requests:
                handler = sample.labels.get("handler", sample.labels.get("endpoint", ""))
                if sample.labels.get("method", "POST") != "POST" or _OPERATOR.search(handler):
                    continue
            if not sample.value <= 0:
                return f"{sample.name} is {sample.value:g}"
    for name, error in selection.broken.items():
        return f"{name} cannot be read ({error.why})"
    return ""


def _is_front_end(text: str) -> bool:
    lines = (line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#"))
    return bool(_FRONT_END_REQUESTS.search(text)) and all(_FRONT_END.match(line) for line in lines)


def _no_engine(text: str, profile: Optional[Profile], profiles: Tuple[Profile, ...]) -> ReadFailure:
    start = text.lstrip()[:1]
    what = "a page without an engine's metrics"
    if not start:
        what = "an empty page"
    elif start == "<":
        what = "an HTML page"
    elif start in '[{"':
        what = "a JSON document"
    if profile is None:
        known = ", ".join(candidate.name for candidate in profiles)
        hint = f"give the address of the engine's own metrics page (known: {known})"
        return ReadFailure(NOT_AN_ENGINE, "not_metrics", f"{what}: {hint}")
    for other in profiles:
        if other.name != profile.name and mentions(text, other.prefix) == "samples":
            message = (
                f"the page is of {other.name}, not of {profile.name}: leave --engine out or set it to {other.name}"
            )
            return ReadFailure(MISCONFIGURED, "missing", message, other.name)
    return ReadFailure(NOT_AN_ENGINE, "not_metrics", f"{what}: {profile.hints.not_found}", profile.name)
