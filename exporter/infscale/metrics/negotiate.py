"""Which format a scrape of /metrics gets: `Accept`, read as servers do.

`render` asks. The client library's `choose_encoder` takes the first range that it knows and answers with whatever
version was asked for; here preferences (`q`) hold, and a version that we do not write gets the plain text format, which
every scraper reads (prometheus/docs, instrumenting/content_negotiation).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector


@dataclass(frozen=True)
class Format:
    """A text format: its content type, what writes it, and the line that closes a page."""

    content_type: str
    write: Callable[[Collector], bytes]
    end: bytes = b""


TEXT = Format("text/plain; version=0.0.4; charset=utf-8", generate_latest)
OPENMETRICS = Format(
    "application/openmetrics-text; version=1.0.0; charset=utf-8", openmetrics.generate_latest, b"# EOF\n"
)


def choose_format(accept: str) -> Format:
    """The format for an `Accept` header (empty: there is none). Never refuses: what is unknown gets plain text."""
    wanted = 0.0
    plain = 0.0
    for media_type, parameters, weight in _ranges(accept):
        if media_type == "application/openmetrics-text" and parameters.get("version", "1.0.0") == "1.0.0":
            wanted = max(wanted, weight)
        elif media_type in ("text/plain", "text/*", "*/*"):
            plain = max(plain, weight)
    return OPENMETRICS if wanted > 0 and wanted >= plain else TEXT


def _ranges(header: str) -> Iterator[tuple[str, dict[str, str], float]]:
    """Each range of a header: (value, its parameters, its weight `q`, 1 if not given, 0 if it is no number)."""
    for item in header.split(","):
        value, *rest = item.split(";")
        pairs = (part.partition("=") for part in rest)
        parameters = {name.strip().lower(): text.strip().strip('"') for name, _, text in pairs}
        try:
            weight = float(parameters.get("q", "1"))
        except ValueError:
            weight = 0.0
        yield value.strip().lower(), parameters, weight
