"""The public traces have, through the readers, the statistics that were published with them."""

from __future__ import annotations

import statistics
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from infscale_sim.traces.trace import open_trace


@pytest.mark.parametrize(
    ("name", "count", "end_s", "cv", "prompt", "output"),
    [
        ("azure2023_code", 8_819, 3_436, 13.2, (2048, 1469), (27.9, 13)),
        ("azure2023_conv", 19_366, 3_502, 1.09, (1155, 1020), (211, 129)),
        ("mooncake_conversation", 12_031, 3_537, 3.03, (12035, 6909), (343, 350)),
        ("mooncake_synthetic", 3_993, 1_022, 1.01, (15325, 11587), (149, 69)),
    ],
)
def test_request_traces(traces: Path, name, count, end_s, cv, prompt, output):
    """Requests, span, variation of the gaps, mean and median of the lengths; a tenth of it keeps the mean rate."""
    path = traces / "normalised" / f"{name}.csv"
    found = list(open_trace(path))

    assert len(found) == count
    assert found[-1].arrival_s == pytest.approx(end_s, abs=1)
    gaps = [after.arrival_s - before.arrival_s for before, after in pairwise(found)]
    assert statistics.pstdev(gaps) / statistics.fmean(gaps) == pytest.approx(cv, rel=0.01)
    for column, wanted in ((1, prompt), (2, output)):
        values = [request[column] for request in found]
        assert (statistics.fmean(values), statistics.median(values)) == pytest.approx(wanted, rel=0.01, abs=0.5)
    assert len(list(open_trace(path, scale=0.1))) == pytest.approx(count / 10, rel=0.15)


@pytest.mark.parametrize(
    ("name", "scale", "mean_rps", "peak_rps", "lengths"),
    [
        ("language_m-large", 1e-3, 195.8, 583.0, (914, 155)),
        ("language_m-small", 1e-4, 1174, 3880, (120, 15)),
        ("reason_deepseek-r1", 1e-1, 16.0, 42.5, (1268, 1527)),
    ],
)
def test_servegen_rates(traces: Path, name, scale, mean_rps, peak_rps, lengths):
    """Scaled down, 14 days (one for the last) have the published mean rate, peak and mean lengths."""
    found = list(open_trace(traces / "servegen" / f"{name}_10min.csv", scale=scale))
    span_s = 86_400 * (1 if name.startswith("reason") else 14)

    assert len(found) / span_s / scale == pytest.approx(mean_rps, rel=0.04)
    windows = Counter(int(request.arrival_s // 600) for request in found)
    assert max(windows.values()) / 600 / scale == pytest.approx(peak_rps, rel=0.3)
    for column, mean in zip((1, 2), lengths, strict=True):
        assert statistics.fmean(request[column] for request in found) == pytest.approx(mean, rel=0.15)


def test_burstgpt_week(traces: Path):
    """The week's tokens and its silent minutes (38 %) are there."""
    found = list(open_trace(traces / "burstgpt" / "burstgpt1_week1_tokens_per_minute.csv"))

    tokens = sum(request.prompt_tokens + request.output_tokens for request in found)
    assert tokens / 604_800 == pytest.approx(28.0, rel=0.05)
    busy = {int(request.arrival_s // 60) for request in found}
    assert len(busy) <= 10_080 - 3_857
