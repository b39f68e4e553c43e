"""The landing page: what a person on call wants to know first, in one small page without anything from elsewhere.

The sidecar and the recommender say what stands on it; everything that they give is escaped here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

HTML = "text/html; charset=utf-8"
TONES = ("good", "warn", "bad")
"""How the state is to be taken: colour is never the only sign, the state is always there in words."""

_STYLE = """
:root{color-scheme:light dark;--ink:#1c1f24;--dim:#5a626d;--line:#d9dde3;--page:#fff;--card:#f5f6f8;--link:#0b57b0;
--good:#1a7f37;--warn:#8a5a00;--bad:#b3261e}
@media(prefers-color-scheme:dark){:root{--ink:#e8eaed;--dim:#a3abb6;--line:#3a4049;--page:#16181c;--card:#1f2227;
--link:#8ab4f8;--good:#5bc77a;--warn:#e3b341;--bad:#ff8a80}}
*{box-sizing:border-box}
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--page);max-width:46rem;margin:0 auto;
padding:1.5rem 1rem;overflow-wrap:anywhere}
header{display:flex;flex-wrap:wrap;gap:.2rem .7rem;align-items:baseline;margin-bottom:1rem}
h1{font-size:1.4rem;margin:0}h2{font-size:1rem;margin:1.6rem 0 .4rem}
header span,small,.unit{color:var(--dim)}
a{color:var(--link)}
.state{border:1px solid var(--line);border-left:.4rem solid var(--tone);border-radius:.4rem;background:var(--card);
padding:.6rem .9rem}
.state strong{color:var(--tone);font-size:1.15rem}.state p{margin:.2rem 0 0}
.good{--tone:var(--good)}.warn{--tone:var(--warn)}.bad{--tone:var(--bad)}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(8rem,1fr));gap:.7rem;margin:1rem 0 0}
.facts div{border:1px solid var(--line);border-radius:.4rem;padding:.5rem .9rem}
.facts dt{color:var(--dim);font-size:.9rem}
.facts dd{margin:0;font-size:1.6rem;font-variant-numeric:tabular-nums;line-height:1.3}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;vertical-align:top;padding:.3rem .6rem .3rem 0;border-bottom:1px solid var(--line)}
th{font-weight:normal;color:var(--dim);width:14rem}
ul{padding:0;margin:0;list-style:none}li{padding:.15rem 0}
"""


@dataclass(frozen=True)
class State:
    """What the replica or the workload is in.

    Attributes:
        name: one word, as `infscale_engine_state` says it.
        reason: why, and what to do, in words; may be empty.
        tone: one of TONES.
    """

    name: str
    reason: str = ""
    tone: str = "good"


@dataclass(frozen=True)
class Section:
    """A heading with rows of (what, value)."""

    title: str
    rows: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Link:
    """A path on this server, or a page elsewhere, and what is to be found there."""

    href: str
    label: str
    note: str = ""


def landing_page(
    title: str,
    version: str,
    *,
    state: State,
    facts: Sequence[tuple[str, str]] = (),
    sections: Sequence[Section] = (),
    links: Sequence[Link] = (),
    refresh_s: int = 0,
) -> bytes:
    """Return the page as UTF-8 HTML; serve it as HTML.

    Args:
        title: the name of the program and what it looks at, as `infscale sidecar`.
        version: of infscale.
        state: shown first.
        facts: the few numbers that matter, as ("in flight", "12"); an unknown one is given in words ("not known").
        sections: what explains the state, as the decision and its steps.
        links: where to go from here.
        refresh_s: the page asks for itself anew after so many seconds; 0 for never.
    """
    refresh = f'<meta http-equiv="refresh" content="{refresh_s}">' if refresh_s else ""
    reason = f"<p>{escape(state.reason)}</p>" if state.reason else ""
    numbers = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts)
    parts = [
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width,initial-scale=1">',
        '<link rel="icon" href="data:,">',
        refresh,
        f"<title>{escape(state.name)} · {escape(title)}</title><style>{_STYLE}</style></head>\n<body>",
        f"<header><h1>{escape(title)}</h1><span>version {escape(version)}</span></header>\n<main>",
        f'<div class="state {_tone(state)}" role="status"><strong>{escape(state.name)}</strong>{reason}</div>\n',
        f'<dl class="facts">{numbers}</dl>\n' if numbers else "",
        *(_section(section) for section in sections),
        _links(links),
        "</main></body></html>\n",
    ]
    return "".join(parts).encode()


def _tone(state: State) -> str:
    if state.tone not in TONES:
        raise ValueError(f"unknown tone {state.tone!r}")
    return state.tone


def _section(section: Section) -> str:
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(value)}</td></tr>' for name, value in section.rows
    )
    return f"<section><h2>{escape(section.title)}</h2><table>{rows}</table></section>\n"


def _links(links: Sequence[Link]) -> str:
    if not links:
        return ""
    items = "".join(
        f'<li><a href="{escape(link.href)}">{escape(link.label)}</a> <small>{escape(link.note)}</small></li>'
        for link in links
    )
    return f'<nav aria-label="Pages"><h2>Pages</h2><ul>{items}</ul></nav>\n'
