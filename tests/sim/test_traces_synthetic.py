"""Described traffic: exact where nothing is random, the asked statistics where something is."""

from __future__ import annotations

import statistics
from itertools import pairwise
from pathlib import Path

import pytest

from infscale.checks import Place
from infscale.errors import ConfigError, UsageError
from infscale_sim.scenario import load_scenario
from infscale_sim.traces.synthetic import KEYS, synthetic
from infscale_sim.traces.trace import open_trace
from infscale_sim.traffic import Request, Requests
from tests.conftest import DATA

STEADY = "rate: [[0, 10], [1000, 10]]\nprompt_tokens: 100\noutput_tokens: [1, 2, 3]\n"


def written(tmp_path: Path, text: str) -> Path:
    """A description as a file."""
    path = tmp_path / "trace.yaml"
    path.write_text(text)
    return path


def test_the_default_scenario_has_15555_requests(tmp_path):
    """Even arrivals come where the integral of the rate is k - 0.5, as the scenario of the same words has them."""
    text = """
rate: [[0, 3], [180, 3], [360, 30], [720, 30], [720, 5], [960, 5], [960, 0], [1320, 0], [1320, 0.25], [1500, 0.25]]
prompt_tokens: [64, 160, 96, 192, 128]
output_tokens: [400, 200, 600, 300, 500, 240, 560]
"""
    trace = open_trace(written(tmp_path, text))
    found = list(trace)

    assert trace.seed is None
    assert len(found) == 15_555
    assert list(found[0]) == pytest.approx([1 / 6, 64, 400])
    assert found[-1].arrival_s == pytest.approx(1498)
    assert not any(960 < request.arrival_s < 1320 for request in found)
    assert Requests.of(found) == load_scenario("default").requests()


def test_scale_of_a_description_scales_the_rate(tmp_path):
    """Twice the rate gives exactly twice the even requests, with the lengths in the same order."""
    found = list(open_trace(written(tmp_path, STEADY), scale=2))

    assert len(found) == 20_000
    assert [request.output_tokens for request in found[:4]] == [1, 2, 3, 1]
    assert found[0].arrival_s == pytest.approx(0.025)


@pytest.mark.parametrize(
    ("arrivals", "cv"),
    [
        ("poisson", 1),
        ("{process: gamma, cv: 0.3}", 0.3),
        ("{process: gamma, cv: 1}", 1),
        ("{process: gamma, cv: 3}", 3),
    ],
)
def test_gaps_have_the_asked_variation(tmp_path, arrivals, cv):
    """The gaps' coefficient of variation is the asked one, at the asked rate."""
    found = list(open_trace(written(tmp_path, f"{STEADY}arrivals: {arrivals}\n"), seed=1))

    assert len(found) == pytest.approx(10_000, rel=0.04 * max(1, cv))
    assert variation(found) == pytest.approx(cv, rel=0.08)


def test_seed_of_the_file_and_of_the_call(tmp_path):
    """The file's seed holds unless the call gives one; each seed is another trace, the same at every walk."""
    path = written(tmp_path, f"{STEADY}arrivals: poisson\nseed: 5\n")
    trace = open_trace(path)

    assert (trace.seed, open_trace(path, seed=0).seed) == (5, 0)
    assert list(trace) == list(trace) == list(open_trace(path, seed=5)) != list(open_trace(path, seed=6))


def test_quantiles_give_themselves_back(tmp_path):
    """Lengths by quantiles have these quantiles."""
    points = "[[0, 7], [0.25, 85], [0.5, 129], [0.95, 451], [1, 1000]]"
    text = STEADY.replace("prompt_tokens: 100", f"prompt_tokens: {{quantiles: {points}}}")
    found = sorted(request.prompt_tokens for request in open_trace(written(tmp_path, text)))

    assert min(found) >= 7
    assert max(found) <= 1000
    for share, tokens in ((0.25, 85), (0.5, 129), (0.95, 451)):
        assert found[int(share * len(found))] == pytest.approx(tokens, rel=0.06)


@pytest.mark.parametrize(
    ("name", "count", "cv", "prompt", "output"),
    [
        ("azure-conversation", 19_366, 1.09, (1155, 1020, 4083), (211, 129, 451)),
        ("mooncake-conversation", 12_031, 3.03, (12035, 7300, 39550), (343, 277, 826)),
    ],
)
def test_fits_to_public_traces(name, count, cv, prompt, output):
    """The fitted descriptions have the public traces' requests, burstiness, and mean, median and p95 of the lengths.

    Mooncake's fit has the lognormal's own median and p95: of its outputs the trace has 350 and 698, of its prompts
    6,909 and 39,550.
    """
    found = list(open_trace(DATA / "traces" / f"{name}.yaml"))

    assert len(found) == pytest.approx(count, rel=0.06)
    assert variation(found) == pytest.approx(cv, rel=0.1)
    for column, wanted in ((1, prompt), (2, output)):
        values = sorted(request[column] for request in found)
        told = (statistics.fmean(values), values[len(values) // 2], values[int(0.95 * len(values))])
        assert told == pytest.approx(wanted, rel=0.08)


def variation(requests: list[Request]) -> float:
    """The coefficient of variation of the gaps."""
    gaps = [after.arrival_s - before.arrival_s for before, after in pairwise(requests)]
    return statistics.pstdev(gaps) / statistics.fmean(gaps)


GOOD = {"rate": [[0, 3], [60, 3]], "prompt_tokens": 10, "output_tokens": 10}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rate": None}, "rate: expected a list, got nothing"),
        ({"rate": []}, "rate: spans no time: expected two points or more"),
        ({"rate": [[5, 3], [5, 4]]}, "rate: spans no time"),
        ({"rate": [[0, 3], [60]]}, r"rate\[1\]: expected \[seconds, requests per second\], got a list of 1"),
        ({"rate": [[0, 3], [60, -1]]}, r"rate\[1\]\[1\]: expected a number from 0"),
        ({"rate": [[60, 3], [0, 1]]}, r"rate\[1\]: goes back from 60 s to 0 s"),
        ({"rate": [[0, 3], [1e12, 1]]}, r"rate\[1\]\[0\]: expected a number from 0"),
        ({"arrivals": "bursty"}, "arrivals: .*bursty"),
        ({"arrivals": {"process": "gamma", "cv": 0}}, "arrivals.cv: expected a number from 0.01"),
        ({"prompt_tokens": 0}, "prompt_tokens.*expected a number from 1"),
        ({"prompt_tokens": {"distribution": "lognormal", "mean": 5}}, "prompt_tokens: .*cv is missing"),
        ({"prompt_tokens": {"quantiles": [[0, 1], [0.5, 9]]}}, "prompt_tokens.quantiles: expected .* to share 1"),
        ({"prompt_tokens": {"quantiles": [[0, 9], [1, 1]]}}, "prompt_tokens.quantiles: expected .* both ascending"),
        ({"prompt_tokens": {"quantiles": [[0, 1], [1, 9]], "mean": 5}}, "prompt_tokens.*mean: unknown key"),
        ({"seed": 1.5}, "seed: expected a whole number, got the number 1.5"),
        ({"horizon_s": 5}, "horizon_s: unknown key"),
    ],
)
def test_bad_descriptions(changes, words):
    """A description that cannot be used is told with the key, and what was expected there."""
    with pytest.raises(ConfigError, match=f"^t.yaml: {words}"):
        synthetic({**GOOD, **changes}, Place("t.yaml"))


@pytest.mark.parametrize("key", ["rate", "prompt_tokens", "output_tokens"])
def test_missing_keys(key):
    """A missing key is told, with all that there are."""
    with pytest.raises(ConfigError, match=f"t.yaml: {key}: missing: .*{', '.join(KEYS)}"):
        synthetic({name: value for name, value in GOOD.items() if name != key}, Place("t.yaml"))


def test_silence_is_told(tmp_path):
    """A rate that is 0 throughout is no trace."""
    with pytest.raises(UsageError, match="no request in it"):
        list(open_trace(written(tmp_path, STEADY.replace("10]", "0]"))))
