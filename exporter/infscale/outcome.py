"""What an answer of an engine's address means: a Reading, or a ReadFailure with the flag to set.

Between `infscale.scrape` (a page or a transport failure) and `infscale.normalise` (what the page says). Called by the
sidecar, the parse command and the drain. Pure.

Runs on Python 3.9 (it travels in the drain bundle).
"""

from __future__ import annotations

import re
from typing import Optional, Union

from infscale.engines.profile import Hints, Profile
from infscale.normalise import read_page
from infscale.reading import LOADING, MISCONFIGURED, NOT_AN_ENGINE, SATURATED, UNREACHABLE, ReadFailure, Reading
from infscale.scrape import Page, ScrapeFailure

# No packet is lost on the way to oneself: there a time-out before the connection is an accept queue that is full.
_LOOPBACK = re.compile(r"https?://(127\.|localhost[:/]|\[::1\])")

# For an engine that was not told and cannot be known: each engine's own word.
_ANY = Hints(
    not_found="check the path, and turn the engine's metrics on: SGLang --enable-metrics, llama-server --metrics",
    timeout="the engine accepts connections but is too busy to answer; llama-server: raise --threads-http",
)


def outcome(
    answer: Union[Page, ScrapeFailure],
    *,
    profile: Optional[Profile] = None,
    profiles: Optional[tuple[Profile, ...]] = None,
    source: str,
    histograms: bool = False,
) -> Union[Reading, ReadFailure]:
    """What `answer` means for the engine at `source`.

    Args:
        answer: what one read of the engine's address gave.
        profile: the engine, where it is told or was found before.
        profiles: the engines to look for otherwise; None: the built-in ones.
        source: names the engine in messages (its URL without secrets).
        histograms: whether the engine's histograms are read too.
    """
    engine, hints = (profile.name, profile.hints) if profile else ("", _ANY)
    if isinstance(answer, ScrapeFailure):
        if answer.kind == "timeout" and (answer.connected or _LOOPBACK.match(source)):
            return ReadFailure(SATURATED, "timeout", f"{answer.message}; {hints.timeout}", engine)
        return ReadFailure(UNREACHABLE, answer.kind, answer.message, engine)
    if answer.status != 200:
        return _refusal(answer, hints, source, engine)
    try:
        text = answer.body.decode("utf-8")
    except UnicodeDecodeError as error:
        message = f"{source}: byte {error.start} is not UTF-8: expected a metrics page in text"
        return ReadFailure(UNREACHABLE, "unusable", message, engine)
    if "\x00" in text:
        return ReadFailure(NOT_AN_ENGINE, "not_metrics", f"{source}: a binary file, expected a metrics page", engine)
    if profiles is None:
        return read_page(text, profile=profile, source=source, histograms=histograms)
    return read_page(text, profile=profile, profiles=profiles, source=source, histograms=histograms)


def _refusal(page: Page, hints: Hints, source: str, engine: str) -> ReadFailure:
    said = f"{source}: HTTP {page.status}"
    if page.status == 401:
        return ReadFailure(MISCONFIGURED, "http", f"{said}: {hints.unauthorized}", engine)
    if page.status in (404, 501):
        return ReadFailure(MISCONFIGURED, "http", f"{said}: {hints.not_found}", engine)
    if page.status == 503 and b"loading" in page.body[:4096].lower():
        return ReadFailure(LOADING, "http", f"{said}: the engine is loading its model", engine)
    hint = {400: hints.not_found, 403: hints.unauthorized}.get(page.status, "expected 200 and a metrics page")
    return ReadFailure(UNREACHABLE, "http", f"{said}: {hint}", engine)
