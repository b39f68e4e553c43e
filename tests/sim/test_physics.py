"""What a replica can do follows from the facts of its card and model."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from infscale.errors import ConfigError
from infscale_sim.cli.gpu import command
from infscale_sim.hardware import load_profile, profile_names

DEFAULT = load_profile("h100-8b")


def test_default_figures():
    """An 8B model in FP16 on an 80 GB H100: the figures by hand."""
    assert DEFAULT.weights_gb == 16.0
    assert DEFAULT.kv_gb == pytest.approx(52.0)
    assert DEFAULT.kv_bytes_per_token == 131_072
    assert DEFAULT.kv_tokens == 396_728
    assert 1 / DEFAULT.prefill_token_s == pytest.approx(24_750)
    assert DEFAULT.decode_step_s(1, 1000) == pytest.approx(6.8789e-3, rel=1e-4)
    assert DEFAULT.decode_step_s(64, 1000) == pytest.approx(10.4003e-3, rel=1e-4)
    assert DEFAULT.cold_start_s == 91
    assert [DEFAULT.cpu_ratio(0, 0), DEFAULT.cpu_ratio(0), DEFAULT.cpu_ratio(64)] == pytest.approx([0.05, 0.3, 0.46])


def test_gpu_prints_the_figures_with_units():
    """`infscale gpu` prints them, a blank before each unit."""
    text = CliRunner().invoke(command).output

    for figure in (
        *("16.0 GB", "52.0 GB", "396,728 tokens", "24,750 tokens/s", "6.9 ms", "10.4 ms", "6,154 output tokens/s"),
        *(" 91 s", "5 %, 30 % and 46 %"),
    ):
        assert figure in text


def test_gpu_as_json():
    """`--json` gives a list with an object for each profile, nothing else."""
    rows = json.loads(CliRunner().invoke(command, ["--json", "--profile", "h100-8b", "--profile", "l4-8b"]).output)

    assert [row["profile"] for row in rows] == ["h100-8b", "l4-8b"]
    assert rows[0]["kv_tokens"] == 396_728
    assert rows[0]["output_tokens_per_s"] == pytest.approx(6153.69, rel=1e-6)


@pytest.mark.parametrize("name", profile_names())
def test_every_built_in_profile_loads(name):
    """Each has room for at least a few long requests, and a cold start of minutes."""
    hardware = load_profile(name)

    assert hardware.kv_tokens > 50_000
    assert 60 < hardware.cold_start_s < 300


def test_every_card_and_model_is_there():
    """Five cards, and dense models of three sizes and a mixture of experts."""
    cards = {load_profile(name).gpu for name in profile_names()}
    models = {load_profile(name).model for name in profile_names()}

    assert len(cards) == 5
    assert any(model.billion_active for model in models)


def test_tensor_parallelism_and_quantisation():
    """Two cards have twice the bandwidth and compute; one byte a parameter halves the weights and the step."""
    two, small = replace(DEFAULT, tensor_parallel=2), replace(DEFAULT, bytes_per_parameter=1)

    assert two.prefill_token_s == DEFAULT.prefill_token_s / 2
    assert two.weights_step_s == DEFAULT.weights_step_s / 2
    assert two.kv_gb == pytest.approx(2 * 68 - 16)
    assert small.weights_step_s == DEFAULT.weights_step_s / 2
    assert small.kv_gb == pytest.approx(60)


def test_own_profile(tmp_path):
    """A file with the facts of a card, and a model by its name, is a profile like the built-in ones."""
    path = tmp_path / "mine.yaml"
    path.write_text("gpu: {memory_gb: 48, bandwidth_gb_per_s: 864, dense_tflops: 362}\nmodel: 8b\nslots: 16\n")

    hardware = load_profile(str(path))

    assert (hardware.name, hardware.slots, hardware.gpu.memory_gb) == ("mine", 16, 48)
    assert hardware.kv_gb == pytest.approx(48 * 0.9 - 4 - 16)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpu: h100\nmodel: llama-3-70b\n", "the weights do not fit: 141.2 GB of weights, 68.0 GB usable of 80 GB"),
        ("gpu: h10\nmodel: 8b\n", "mine.yaml: gpu: no such name 'h10', did you mean 'h100'"),
        ("gpu: h100\n", "model is missing"),
        ("gpu: {memory_gb: 80}\nmodel: 8b\n", "gpu: bandwidth_gb_per_s is missing"),
        ("gpu: h100\nmodel: 8b\nslot: 3\n", "mine.yaml: slot: unknown key, did you mean 'slots'"),
        ("gpu: h100\nmodel: 8b\nslots: 2.5\n", "slots: expected a whole number from 1 up, got 2.5"),
        ("gpu: h100\nmodel: 8b\nprefill: chunkd\n", "prefill: no such choice 'chunkd', did you mean 'chunked'"),
        ("gpu: h100\nmodel: 8b\nprefill: chunked\nstep_tokens: 64\n", "leave no room for prefill beside 64 slots"),
        ("gpu: h100\nmodel: 8b\nload_gb_per_s: 0\n", "load_gb_per_s: expected a number above 0"),
        ("gpu: h100\nmodel: 8b\nusable_memory: 90\n", "usable_memory: expected a share up to 1, got 90"),
        ("- 3\n", "expected a mapping"),
    ],
)
def test_bad_profile_is_refused(tmp_path, text, message):
    """The error is a line that says where, what was expected and, where figures decide, the figures."""
    path = tmp_path / "mine.yaml"
    path.write_text(text)

    with pytest.raises(ConfigError) as error:
        load_profile(str(path))

    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_unknown_profile_names_the_nearest():
    """A name that is none is refused with the nearest that is."""
    with pytest.raises(ConfigError, match="did you mean 'h100-8b'"):
        load_profile("h100-8bb")
