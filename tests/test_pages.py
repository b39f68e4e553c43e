"""Every recorded page reads as its right values say: engine, state, running, waiting, in flight, KV use."""

import json
from pathlib import Path

import pytest

from infscale.engines import PROFILES
from infscale.engines.profile import Profile
from infscale.normalise import read_page
from infscale.reading import ReadFailure, Reading

PAGES = Path(__file__).parent / "data" / "pages"
EXPECTED = json.loads((PAGES / "expected.json").read_text())


def test_every_page_has_its_right_values() -> None:
    """No page is left out of expected.json, and none is named there that is not shipped."""
    shipped = {path.name for path in PAGES.iterdir() if path.suffix in {".prom", ".txt", ".json"}}
    assert shipped - {"expected.json"} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_page_reads_as_expected(name: str) -> None:
    """The engine is found from the page alone, and its numbers are the right ones."""
    want = EXPECTED[name]
    got = read_page((PAGES / name).read_text(), source=name, histograms=True)

    assert got.state == want["state"]
    if isinstance(got, ReadFailure):
        assert (got.engine or None) == want["engine"]
        assert got.message
        return
    assert got.engine == want["engine"]
    assert got.inflight == want["inflight"]
    if "running" in want:
        assert (got.running, got.waiting) == (want["running"], want["waiting"])
    if "kv" in want:
        assert got.kv == (None if want["kv"] is None else pytest.approx(want["kv"]))


@pytest.mark.parametrize("name", [name for name in EXPECTED if EXPECTED[name]["engine"]])
def test_page_reads_the_same_when_the_engine_is_told(name: str) -> None:
    """`--engine` changes nothing on a page of that engine."""
    text, profile = (PAGES / name).read_text(), PROFILES[EXPECTED[name]["engine"]]
    assert read_page(text, profile=profile, source=name) == read_page(text, source=name)


@pytest.mark.parametrize("name", [n for n in EXPECTED if EXPECTED[n].get("running") is not None])
def test_parts_add_up(name: str) -> None:
    """Running and waiting are the two parts of in flight, to the digit, for each model."""
    reading = read_page((PAGES / name).read_text())
    assert isinstance(reading, Reading)
    for model in reading.models:
        assert model.running is not None
        assert model.waiting is not None
        assert model.running + model.waiting == model.inflight


def test_ray_page_with_a_selector_is_one_replica() -> None:
    """The page of a Ray node, read for one ReplicaId, is that replica's; without one the sum, and a warning."""
    text = (PAGES / "ray-vllm-node.reconstructed.prom").read_text()
    one: Profile = _with_select(PROFILES["vllm"], ("ReplicaId", "r2"))

    whole, part = read_page(text), read_page(text, profile=one)

    assert isinstance(whole, Reading)
    assert isinstance(part, Reading)
    assert (part.running, part.waiting, part.kv) == (5, 2, 0.6)
    assert part.warnings == ()
    assert "r1, r2" in whole.warnings[0]
    assert "--engine.select ReplicaId=NAME" in whole.warnings[0]


def test_selector_that_matches_nothing_is_said() -> None:
    """A selector without a series is a misconfiguration that names it, never 0."""
    text = (PAGES / "ray-vllm-node.reconstructed.prom").read_text()
    failure = read_page(text, profile=_with_select(PROFILES["vllm"], ("ReplicaId", "r9")))
    assert isinstance(failure, ReadFailure)
    assert failure.state == "misconfigured"
    assert 'ReplicaId="r9"' in failure.message


def _with_select(profile: Profile, *select: tuple[str, str]) -> Profile:
    from dataclasses import replace

    return replace(profile, select=select)


RENAMED = """\
vllm:num_requests_active{model_name="m"} 7
vllm:num_requests_queued{model_name="m"} 3
vllm:generation_tokens_total{model_name="m"} 0
vllm:prompt_tokens_total{model_name="m"} 4200
"""


def test_renamed_gauges_are_not_fresh() -> None:
    """Gauges that are gone while a counter moved were renamed: misconfigured, and the message says what was sought."""
    failure = read_page(RENAMED)
    assert isinstance(failure, ReadFailure)
    assert (failure.state, failure.reason, failure.engine) == ("misconfigured", "missing", "vllm")
    assert "vllm:num_requests_running and vllm:num_requests_waiting" in failure.message
    assert "vllm:prompt_tokens_total is 4200" in failure.message


@pytest.mark.parametrize(
    "line",
    [
        "vllm:generation_tokens_total 1",
        "vllm:request_success_total 1",
        "vllm:iteration_tokens_total_count 1",
        "vllm:time_to_first_token_seconds_count 1",
        'http_requests_total{handler="/v1/chat/completions",method="POST",status="2xx"} 1',
        "vllm:prompt_tokens_total NaN",
        "vllm:prompt_tokens_total what",
    ],
)
def test_anything_served_forbids_fresh(line: str) -> None:
    """One counter of requests or tokens above 0, or one that cannot be read, is no sign of an engine at rest."""
    page = 'vllm:num_preemptions_total{engine="0"} 0\n' + line + "\n"
    assert read_page(page).state == "misconfigured"


@pytest.mark.parametrize(
    "line",
    [
        'http_requests_total{handler="/metrics",method="GET",status="2xx"} 90',
        'http_requests_total{handler="/health",method="GET",status="2xx"} 90',
        'http_requests_total{handler="/v1/load_lora_adapter",method="POST",status="2xx"} 1',
        'http_requests_total{handler="/v1/chat/completions",method="POST",status="2xx"} 0',
    ],
)
def test_probes_are_no_service(line: str) -> None:
    """Probes, scrapes and an operator's calls leave an engine fresh."""
    page = f'vllm:num_preemptions_total{{engine="0",model_name="m"}} 0\n{line}\n'
    reading = read_page(page)
    assert isinstance(reading, Reading)
    assert (reading.state, reading.inflight, reading.running, reading.waiting) == ("fresh", 0, 0, 0)


def test_v0_before_its_first_request_is_fresh() -> None:
    """A V0 page has no running and waiting series before the first request: fresh, not an error and not unknown."""
    page = (PAGES / "vllm-0.6.6.post1-v0engine.prom").read_text()
    head = [line for line in page.splitlines() if line.startswith("#")]
    fresh = "\n".join([*head, 'vllm:cache_config_info{block_size="16",num_gpu_blocks="1024"} 1.0', ""])
    assert read_page(fresh).state == "fresh"


def test_one_gauge_without_the_other_is_misconfigured() -> None:
    """Half a measurement is none."""
    failure = read_page('vllm:num_requests_running{model_name="m"} 0\n')
    assert isinstance(failure, ReadFailure)
    assert failure.state == "misconfigured"
    assert "vllm:num_requests_waiting" in failure.message


def test_families_without_samples_are_stats_disabled() -> None:
    """HELP and TYPE without a value are not 0: vLLM writes them so when its statistics are off."""
    page = "# HELP vllm:num_requests_running Number\n# TYPE vllm:num_requests_running gauge\n"
    failure = read_page(page)
    assert isinstance(failure, ReadFailure)
    assert (failure.state, failure.engine) == ("stats_disabled", "vllm")
    assert "--disable-log-stats" in failure.message


@pytest.mark.parametrize("value", ["NaN", "-1", "+Inf", "-Inf", "-1e-9", "1e308", "9007199254740992"])
@pytest.mark.parametrize(
    "gauge", ["vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:num_requests_swapped"]
)
def test_unusable_gauge_is_no_measurement(gauge: str, value: str) -> None:
    """A counted gauge that is NaN, negative, infinite or too large makes the replica silent; the message shows it."""
    lines = {"vllm:num_requests_running": "0", "vllm:num_requests_waiting": "0", "vllm:num_requests_swapped": "0"}
    lines[gauge] = value
    failure = read_page("".join(f"{name} {number}\n" for name, number in lines.items()))
    assert isinstance(failure, ReadFailure)
    assert (failure.state, failure.reason) == ("unreachable", "unusable")
    assert gauge in failure.message


HUGE = "1e308"


@pytest.mark.parametrize(
    "page",
    [
        f"vllm:num_requests_running {HUGE}\nvllm:num_requests_waiting {HUGE}\n",
        f'vllm:num_requests_running{{engine="0"}} {HUGE}\nvllm:num_requests_running{{engine="1"}} {HUGE}\n'
        "vllm:num_requests_waiting 0\n",
        f'vllm:num_requests_running{{model_name="a"}} {HUGE}\nvllm:num_requests_running{{model_name="b"}} {HUGE}\n'
        "vllm:num_requests_waiting 0\n",
        f"dynamo_frontend_inflight_requests {HUGE}\n",
    ],
    ids=["running and waiting", "ranks", "models", "a total"],
)
def test_no_sum_is_infinite(page: str) -> None:
    """Finite gauges that add up to infinity are no measurement, whatever they are summed over."""
    failure = read_page(page)
    assert isinstance(failure, ReadFailure)
    assert (failure.state, failure.reason) == ("unreachable", "unusable")
    assert "is 1e+308: expected a number of requests" in failure.message


def test_counters_that_are_none_are_left_out() -> None:
    """A counter whose series would add up to infinity is not known; the requests in flight are."""
    ranks = "".join(
        f'vllm:prompt_tokens_total{{engine="{rank}"}} {HUGE}\n'
        f'vllm:request_success_total{{engine="{rank}",finished_reason="stop"}} {HUGE}\n'
        for rank in (0, 1)
    )
    reading = read_page("vllm:num_requests_running 1\nvllm:num_requests_waiting 2\n" + ranks)
    assert isinstance(reading, Reading)
    assert (reading.inflight, reading.prompt_tokens, reading.models[0].finished, reading.counters) == (3, None, (), ())


@pytest.mark.parametrize("value", ["NaN", "-1", "+Inf", HUGE])
def test_optional_gauges_that_are_no_counts_are_not_known(value: str) -> None:
    """Slots and cache use are absent where a part of them is no count; the requests in flight stay."""
    page = "mistralrs_sequences_running 1\nmistralrs_sequences_waiting 2\n"
    page += f"mistralrs_sequences_capacity {value}\nmistralrs_kv_cache_blocks_used {value}\n"
    reading = read_page(page + "mistralrs_kv_cache_blocks_total 8\n")
    assert isinstance(reading, Reading)
    assert (reading.inflight, reading.capacity, reading.kv) == (3, None, None)


def test_broken_counted_line_is_named() -> None:
    """A counted line that breaks the format is an error with its place and text."""
    failure = read_page('vllm:num_requests_running 1\nvllm:num_requests_waiting{engine="0 5\n', source="page.prom")
    assert isinstance(failure, ReadFailure)
    assert (failure.state, failure.reason) == ("unreachable", "unusable")
    assert failure.message.startswith("page.prom:2: ")


def test_broken_line_elsewhere_is_not_looked_at() -> None:
    """One broken line of another metric does not blind the reader."""
    reading = read_page("vllm:num_requests_running 1\nvllm:num_requests_waiting 2\nsome{broken 5\n")
    assert isinstance(reading, Reading)
    assert reading.inflight == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<html><body>", "HTML"),
        ('{"detail": "x"}', "JSON"),
        ("[]", "JSON"),
        ("", "empty"),
        ("other_metric 1\n", "without"),
    ],
)
def test_other_pages_are_not_an_engine(text: str, said: str) -> None:
    """HTML, JSON, an empty page and another exporter's page are none of an engine, and the message says which."""
    failure = read_page(text)
    assert isinstance(failure, ReadFailure)
    assert (failure.state, failure.reason) == ("not_an_engine", "not_metrics")
    assert said in failure.message


def test_page_of_another_engine_than_told_says_so() -> None:
    """With --engine vllm on SGLang's page the message names the engine that it is."""
    text = (PAGES / "sglang-0.5.23-single.prom").read_text()
    failure = read_page(text, profile=PROFILES["vllm"])
    assert isinstance(failure, ReadFailure)
    assert failure.state == "misconfigured"
    assert "sglang" in failure.message
    assert "--engine" in failure.message


def test_two_models_are_two_series() -> None:
    """A page with several models gives each its own; a counter without the label is left out of both."""
    page = "".join(
        f'vllm:num_requests_{kind}{{model_name="{model}"}} {value}\n'
        for kind, model, value in [("running", "a", 3), ("running", "b", 4), ("waiting", "a", 1), ("waiting", "b", 0)]
    )
    reading = read_page(page)
    assert isinstance(reading, Reading)
    assert [(m.model, m.running, m.waiting) for m in reading.models] == [("a", 3, 1), ("b", 4, 0)]
    assert reading.inflight == 8


def test_counters_split_by_streaming_are_summed() -> None:
    """SGLang splits its counters by is_streaming: both parts count, copies of a rank do not."""
    page = (
        "sglang:num_running_reqs 1\nsglang:num_queue_reqs 0\n"
        'sglang:prompt_tokens_total{is_streaming="true"} 10\nsglang:prompt_tokens_total{is_streaming="false"} 5\n'
        'sglang:realtime_tokens_total{mode="decode",tp_rank="0"} 7\n'
        'sglang:realtime_tokens_total{mode="decode",tp_rank="1"} 7\n'
    )
    reading = read_page(page)
    assert isinstance(reading, Reading)
    assert reading.prompt_tokens == 15
    assert dict(reading.counters)["realtime_tokens_total"] == 7
    assert reading.live


def test_sglang_without_a_live_counter_is_never_stale() -> None:
    """Before 0.5.6 no SGLang counter moves during a long generation."""
    reading = read_page((PAGES / "sglang-0.5.2-single.prom").read_text())
    assert isinstance(reading, Reading)
    assert not reading.live
