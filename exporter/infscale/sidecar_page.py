"""The sidecar's landing page: the state of the replica and why, for the person who opens its port in a browser."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from infscale import __version__
from infscale.reading import ASLEEP, FRESH, LOADING, OK, SATURATED, STALE
from infscale.web.landing import Link, Section, State, landing_page

REFRESH_S = 5
_TONES = {OK: "good", FRESH: "good", ASLEEP: "good", LOADING: "warn", SATURATED: "warn", STALE: "warn"}
_FINE = "the engine answers and its numbers are as read"


def sidecar_page(reading: Mapping[str, Any], decision: Sequence[Section] = ()) -> bytes:
    """The page for what `/api/v1/reading` says, as UTF-8 HTML.

    Args:
        reading: the replica as `infscale.sidecar.Sidecar.reading` gives it.
        decision: the workload's decision and its steps, where this sidecar evaluates it.
    """
    state = reading["state"]
    facts = [("in flight", _number(reading["inflight"]))]
    facts += [
        (name, _number(reading[name])) for name in ("running", "waiting", "capacity") if reading[name] is not None
    ]
    if reading["kv"] is not None:
        facts.append(("KV cache", f"{reading['kv']:.0%}"))
    return landing_page(
        "infscale sidecar",
        __version__,
        state=State(state, reading["message"] or _FINE, _TONES.get(state, "bad")),
        facts=facts,
        sections=[*_sections(reading), *decision],
        links=(
            Link("/metrics", "/metrics", "what Prometheus scrapes"),
            Link("/api/v1/reading", "/api/v1/reading", "this page as JSON"),
        ),
        refresh_s=REFRESH_S,
    )


def _sections(reading: Mapping[str, Any]) -> list[Section]:
    sections = []
    if reading["draining"]:
        sections.append(Section("Rotation", [_leaving(reading)]))
    if len(reading["models"]) > 1:
        rows = [(model["model"], f"{_number(model['inflight'])} in flight") for model in reading["models"]]
        sections.append(Section("Models", rows))
    engines = []
    for engine in reading["engines"]:
        text = f"{engine['engine'] or 'engine not known yet'}: {engine['state']}"
        engines.append((engine["url"], f"{text}: {engine['message']}" if engine["message"] else text))
    sections.append(Section("Engines", engines))
    if reading["read_at"] is not None:
        sections.append(Section("Values", [("read at", _when(reading["read_at"]))]))
    if reading["warnings"]:
        sections.append(Section("Warnings", [("", warning) for warning in reading["warnings"]]))
    return sections


def _leaving(reading: Mapping[str, Any]) -> tuple[str, str]:
    """Why every demand leaves the replica out, though what it has in flight still shows."""
    if not reading["withdrawn"]:
        return "draining", "the Pod is terminating"
    until = _when(reading["withdrawn_until"])
    return "withdrawn", f"not ready on request until {until}, unless that is renewed; then it is back by itself"


def _when(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).isoformat(sep=" ", timespec="seconds").replace("+00:00", " UTC")


def _number(value: float | None) -> str:
    return "not known" if value is None else f"{value:g}"
