"""docs/reference/engines.md: what is read of each engine, from its profile and the recorded pages of its versions."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from infscale.engines import PROFILES, Metric, Profile
from infscale.engines.profile import HISTOGRAM_KINDS
from infscale.normalise import selector
from tools.reference_pages.markdown import NONE, code, head, table

PAGES = Path(__file__).resolve().parents[2] / "tests" / "data" / "pages"

INTRODUCTION = """\
What infscale reads of each engine, the same for sidecar, drain and everything else. [Engines](../engines.md) says
what to set on each. Names stand without the prefix, which may be followed by `:` or `_`. Of several spellings the
first on the page is taken. *Counted* gauges add up to the requests in flight; *required* means that without it
nothing is known.
"""


def page() -> str:
    """What is read of each engine."""
    parts = [
        head("Engine profiles", "exporter/infscale/engines and the recorded pages of tests/data/pages", INTRODUCTION)
    ]
    rows = [
        [f"[{p.name}](#{p.name.replace('.', '')})", code(*required(p)), f"{p.min_interval_s:g} s", code(*p.sum_over)]
        for p in PROFILES.values()
    ]
    parts.append(table(["engine", "required gauges", "a read is shared for", "added up over"], rows))
    for profile in PROFILES.values():
        parts += [f"## {profile.name}\n", profile_notes(profile), profile_table(profile), by_version(profile)]
    return "\n".join(part for part in parts if part)


def required(profile: Profile) -> Iterator[str]:
    """The gauges without which nothing is known."""
    for role, metric in (("running", profile.running), ("waiting", profile.waiting), ("total", profile.total)):
        if metric and role not in profile.optional:
            yield spelt(metric.names[0], metric)


def spelt(name: str, metric: Metric) -> str:
    """A name with the labels that a series must have."""
    where = ",".join(f'{label}="{value}"' for label, value in metric.where)
    return f"{name}{{{where}}}" if where else name


def roles(profile: Profile) -> Iterator[tuple[str, str, Metric]]:
    """Each metric of a profile: its role, its part in the count, itself."""
    counted = {"running", "waiting", "total", "queues", "front"}
    histograms = zip(
        (f"histogram of {kind.replace('_', ' ')}" for kind in HISTOGRAM_KINDS), profile.histograms, strict=True
    )
    found: list[tuple[str, object]] = [(f.name, getattr(profile, f.name)) for f in fields(Profile)]
    found += [("sleep", profile.sleep[0] if profile.sleep else None), *histograms]
    for role, value in found:
        several = value if isinstance(value, tuple) else (value,)
        for metric in several:
            if (
                isinstance(metric, Metric)
                and metric.names
                and role != "histograms"
                and (role, value) != ("sleep", profile.sleep)
            ):
                must = role in ("running", "waiting", "total") and role not in profile.optional
                part = "counted, required" if must else "counted when present" if role in counted else NONE
                yield role.replace("_", " "), part, metric


def profile_notes(profile: Profile) -> str:
    """Prefix and labels in a few words."""
    module = importlib.import_module(f"infscale.engines.{profile.name.replace('.', '')}")
    text = (module.__doc__ or "").strip()
    says = [f"Prefix `{profile.prefix}`."]
    if profile.sum_over:
        says.append(
            f"Series are added up over {code(*profile.sum_over)} and the model; over every other label they are copies."
        )
    says += [
        f"Of {code(label)} only {code(*(v or '(empty)' for v in values))} counts." for label, values in profile.only
    ]
    if profile.not_engine:
        says.append(f"A page whose gauges have {code(*profile.not_engine)} is a router's.")
    if profile.sleep:
        says.append(f'Awake: `{profile.sleep[1]}="{profile.sleep[2]}"`.')
    if profile.role_label:
        says.append(f"The role stands in `{profile.role_label}`.")
    if not profile.progress:
        says.append("No counter moves while requests run: never `stale`.")
    return f"{text}\n\n{' '.join(says)}\n"


def profile_table(profile: Profile) -> str:
    """A row for each metric of a profile."""
    rows = ([role, part, code(*(spelt(name, m) for name in m.names))] for role, part, m in roles(profile))
    return table(["role", "in flight", "names"], rows)


def by_version(profile: Profile) -> str:
    """Which spellings the recorded pages of each version have, for the roles in which versions differ."""
    versions = recorded(profile)
    names: dict[str, list[str]] = {}
    for role, _, metric in roles(profile):
        names.setdefault(role, []).extend(metric.names)
    there = {role: [tuple(n for n in names[role] if n in page) for page in versions.values()] for role in names}
    varying = {role: [code(*cell) for cell in cells] for role, cells in there.items() if len(set(cells)) > 1}
    if not varying:
        return ""
    shown: dict[tuple[str, ...], list[str]] = {}
    for version, *row in zip(versions, *varying.values(), strict=True):
        shown.setdefault(tuple(row), []).append(version)
    rows = [[", ".join(group), *row] for row, group in shown.items()]
    return "Where versions differ, by recorded pages of each (a dash: not there):\n\n" + table(
        ["version", *varying], rows
    )


def recorded(profile: Profile) -> dict[str, set[str]]:
    """The names that the recorded pages of each version of an engine have, oldest first."""
    found: dict[str, set[str]] = {}
    for page, truth in json.loads((PAGES / "expected.json").read_text(encoding="utf-8")).items():
        version = re.match(rf"{profile.name.replace('.', '')}-([0-9.-]*[0-9])(\.post\d+)?-", page)
        if version and truth.get("engine") == profile.name and page.endswith(".prom"):
            selection = selector(profile, histograms=True).select((PAGES / page).read_text(encoding="utf-8"), page)
            names = {name.removesuffix("_bucket") for name in selection.samples}
            found.setdefault(version[1], set()).update(names)
    return dict(sorted(found.items(), key=lambda item: [int(n) for n in re.findall(r"\d+", item[0])]))
