"""The stand-in engine's pages against real ones: names, types, labels and bounds, and what infscale reads from them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from infscale.engines import PROFILES
from infscale.engines.profile import Metric, Profile
from infscale.normalise import read_page
from infscale.reading import Reading
from infscale_sim.cli.sim_engine import DIALECTS
from infscale_sim.engine_batch import Sequence, StepBatch
from infscale_sim.engine_dialect import State
from infscale_sim.engine_stats import Stats
from infscale_sim.hardware import load_profile

PAGES = Path(__file__).parent.parent / "data" / "pages"
REAL = [
    ("vllm", "0.33.0", "vllm-0.33.0-single.prom"),
    ("vllm", "0.20.2", "vllm-0.20.2-single.prom"),
    ("vllm", "0.16.0", "vllm-0.16.0-single.prom"),
    ("vllm", "0.12.0", "vllm-0.12.0-single.prom"),
    ("vllm", "0.10.2", "vllm-0.10.2-single.prom"),
    ("vllm", "0.8.5.post1", "vllm-0.8.5.post1-single.prom"),
    ("vllm", "0.6.6.post1", "vllm-0.6.6.post1-v0engine.prom"),
    ("sglang", "0.5.23", "sglang-0.5.23-single.prom"),
    ("sglang", "0.5.14", "sglang-0.5.14-single.prom"),
    ("sglang", "0.5.9", "sglang-0.5.9-single.prom"),
    ("sglang", "0.5.2", "sglang-0.5.2-single.prom"),
    ("sglang", "0.4.6.post5", "sglang-0.4.6.post5-single.prom"),
    ("sglang", "0.4.3", "sglang-0.4.3-single.prom"),
    ("llama.cpp", "2026-10", "llamacpp-2026-10-busy2.prom"),
    ("llama.cpp", "2025-08", "llamacpp-2025-08-busy1.prom"),
    ("llama.cpp", "2025-03", "llamacpp-2025-03-busy2.prom"),
]
_SAMPLE = re.compile(r"([\w:]+)(?:\{(.*)\})? \S+")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def used_names(profile: Profile) -> set[str]:
    """The families of an engine that infscale reads."""
    wanted: list[Metric | None] = [profile.running, profile.waiting, profile.kv, profile.capacity, *profile.queues]
    wanted += [profile.prompt_tokens, profile.generation_tokens, profile.finished, profile.rejected]
    wanted += [*profile.progress, *profile.served, *profile.histograms, profile.sleep[0] if profile.sleep else None]
    names = {f"{profile.prefix}:{name}" for metric in wanted if metric for name in metric.names}
    return {re.sub("_(count|sum)$", "", name) for name in names} | {profile.cpu, profile.start_time, profile.requests}


def shape(page: str, profile: Profile) -> set[tuple[str, str, tuple[str, ...], str]]:
    """Sample name, type, label names and bound of each series that infscale uses."""
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", page, re.MULTILINE))
    used, found = used_names(profile), set()
    for line in page.splitlines():
        if line.startswith("#"):
            continue
        match = _SAMPLE.fullmatch(line)
        assert match, line
        name, labels = match[1], dict(_LABEL.findall(match[2] or ""))
        family = next((f for f in (name, re.sub("_(bucket|count|sum)$", "", name)) if f in types), name)
        if family in used:
            found.add((name, types[family], tuple(sorted(labels)), labels.get("le", "")))
    return found


def state(dialect: str, version: str) -> tuple[State, str]:
    """An engine with 2 of 5 requests running, one more done before, and its page."""
    made = DIALECTS[dialect][0](version)
    hardware = load_profile("h100-8b")
    batch = StepBatch(2, hardware, Stats(made.bounds, 1.0))
    for number, output in enumerate((3, 500, 500, 500, 500, 500)):
        one = Sequence(1000, output, lambda: None, streaming=number % 2 == 0, reason="length")
        batch.submit(one, number * 0.001)
    batch.advance(1.0)
    found = State("meta-llama/Llama-3.1-8B-Instruct", batch, 12.5, 1.75e9)
    page = made.new_page()
    made.write(page, found)
    return found, page.text()


@pytest.mark.parametrize(("dialect", "version", "real"), REAL, ids=[row[2] for row in REAL])
def test_names_types_labels_and_bounds_are_the_real_ones(dialect, version, real):
    """For every metric that infscale uses, the page has the very series shapes of the engine's own page."""
    profile = PROFILES[dialect]
    _, page = state(dialect, version)
    assert shape(page, profile) == shape((PAGES / real).read_text(), profile)


@pytest.mark.parametrize(("dialect", "version", "real"), REAL, ids=[row[2] for row in REAL])
def test_infscale_reads_what_is_true(dialect, version, real):
    """Engine, running, waiting, KV use and counters read as the batch has them, under no warning."""
    engine, page = state(dialect, version)
    reading = read_page(page, histograms=True)
    assert isinstance(reading, Reading)
    assert (reading.engine, reading.state, reading.warnings) == (dialect, "ok", ())
    assert (reading.running, reading.waiting, reading.inflight) == (2, 3, 5)
    stats = engine.batch.stats
    if reading.kv is not None:
        assert reading.kv == pytest.approx(engine.batch.kv_ratio, rel=1e-4)
    at_end = dialect == "sglang"
    prompts = stats.prompt_tokens_done.total() if at_end else stats.prompt_tokens
    tokens = stats.generation_tokens if dialect == "vllm" else stats.generation_tokens_done.total()
    assert [(model.prompt_tokens, model.generation_tokens) for model in reading.models] == [(prompts, tokens)]
    assert tokens > 0
    kinds = {histogram.kind: histogram.buckets[-1][1] for histogram in reading.histograms}
    if dialect != "llama.cpp":
        assert kinds["time_to_first_token"] == 3


@pytest.mark.parametrize("dialect", DIALECTS)
def test_fresh_page_is_zero_and_not_an_error(dialect):
    """Before the first request every gauge is there and 0."""
    make, newest = DIALECTS[dialect]
    made = make(newest)
    batch = StepBatch(2, load_profile("h100-8b"), Stats(made.bounds, 1.0))
    page = made.new_page()
    made.write(page, State('a "model"\\', batch, 0.0, 0.0))
    reading = read_page(page.text())
    assert isinstance(reading, Reading)
    assert reading.inflight == 0
    if dialect != "llama.cpp":
        assert reading.models[0].model == 'a "model"\\'
