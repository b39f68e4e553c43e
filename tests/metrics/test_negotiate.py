"""Which format and encoding a scraper gets."""

from __future__ import annotations

import pytest

from infscale.metrics.negotiate import OPENMETRICS, TEXT, choose_format

PROMETHEUS_2 = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", TEXT),
        ("*/*", TEXT),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", TEXT),
        ("text/plain;version=0.0.4", TEXT),
        ("text/plain; version=1.0.0; escaping=underscores", TEXT),
        ("application/json", TEXT),
        (PROMETHEUS_2, OPENMETRICS),
        (PROMETHEUS_3, OPENMETRICS),
        ("application/openmetrics-text", OPENMETRICS),
        ('Application/OpenMetrics-Text ; Version="1.0.0"', OPENMETRICS),
        ("text/plain, application/openmetrics-text", OPENMETRICS),
        ("application/openmetrics-text;version=0.0.1,text/plain;version=0.0.4;q=0.5", TEXT),
        ("application/openmetrics-text;version=2.0.0", TEXT),
        ("application/openmetrics-text;version=2.0.0,application/openmetrics-text;version=1.0.0;q=0.5", OPENMETRICS),
        ("application/openmetrics-text;q=0.5,text/plain;q=0.9", TEXT),
        ("application/openmetrics-text;q=0", TEXT),
        ("application/openmetrics-text;q=much", TEXT),
        ("application/openmetrics-text;q=nan", TEXT),
        (",;=;,,;q", TEXT),
    ],
)
def test_format(accept, form):
    """Prometheus gets OpenMetrics 1.0.0; unknown versions and everything else get the text format."""
    assert form is choose_format(accept)
