"""What fuzzing found, each as one small case in words; the inputs themselves are in the saved corpus."""

from __future__ import annotations

import dataclasses
import json
import time

import pytest

from infscale.errors import ConfigError, StateError
from infscale.normalise import read_page
from infscale.reading import Reading
from infscale.retire.persisted import decode, encode
from infscale.yaml_file import load_yaml
from tests.fuzz.targets import NOW_S, WORKLOAD
from tests.retire.test_persisted import WHOLE

PAGE = """vllm:num_requests_running{model_name="m"} 1
vllm:num_requests_waiting{model_name="m"} 0
vllm:time_to_first_token_seconds_bucket{model_name="m",le="%s"} 1
vllm:time_to_first_token_seconds_bucket{model_name="m",le="%s"} 2
vllm:time_to_first_token_seconds_count{model_name="m"} 2
vllm:time_to_first_token_seconds_sum{model_name="m"} 3
"""


@pytest.mark.parametrize("bounds", [("", "+Inf"), ("x", "+Inf"), ("NaN", "+Inf"), ("1", "1.0"), ("-Inf", "1")])
def test_buckets_without_usable_bounds(bounds):
    """A bucket's bound that is no number leaves the histogram out, and the gauges are read all the same."""
    reading = read_page(PAGE % bounds, histograms=True)
    assert isinstance(reading, Reading)
    assert reading.histograms == ()
    assert reading.inflight == 1
    whole = read_page(PAGE % ("0.5", "+Inf"), histograms=True)
    assert isinstance(whole, Reading)
    assert [one.buckets for one in whole.histograms] == [((0.5, 1.0), (float("inf"), 2.0))]


@pytest.mark.parametrize("value", ["!!timestamp x", "!!int ''", "!!float ''", "!!bool x"])
def test_yaml_tags_that_do_not_fit(value, tmp_path):
    """PyYAML fails in ways of its own over a tag and a text that do not go together: a fault of the file."""
    path = tmp_path / "infscale.yaml"
    path.write_text(f"engine: {value}\n")
    with pytest.raises(ConfigError, match="engine: not a value: "):
        load_yaml(str(path))


@pytest.mark.parametrize("value", ["1" + ":1" * 500_000, "0x" + "f" * 1_000_000, "0b" + "1" * 1_000_000])
def test_yaml_numbers_that_take_for_ever(value, tmp_path):
    """A number of a million characters, to the base 60 above all, is refused before it is computed: 70 s otherwise."""
    path = tmp_path / "infscale.yaml"
    path.write_text(f"engine: {value}\n")
    began_s = time.process_time()
    with pytest.raises(ConfigError, match="engine: not a value: "):
        load_yaml(str(path))
    assert time.process_time() - began_s < 5


@pytest.mark.parametrize("key", ["started_s", "since_s"])
def test_a_record_with_a_number_beyond_float(key):
    """An integer of 400 digits in a retirement's record is damage like any other."""
    text = json.dumps({**json.loads(encode(WHOLE)), key: 10**400})
    with pytest.raises(StateError, match=f"damaged .*{key}"):
        decode(text, "here", WORKLOAD, NOW_S)


def test_a_record_whose_fault_is_long_or_of_several_lines():
    """What a damaged record says is quoted and cut: an error stays one line."""
    for change in ({"state": "x" * 100_000}, {"state": "a\nb"}, {"version": ["x"] * 10_000}):
        text = json.dumps({**json.loads(encode(WHOLE)), **change})
        with pytest.raises(StateError) as caught:
            decode(text, "here", WORKLOAD, NOW_S)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 400
    other = encode(dataclasses.replace(WHOLE, workload_uid="other", workload="a\nb"))
    with pytest.raises(StateError, match="another workload") as caught:
        decode(other, "here", WORKLOAD, NOW_S)
    assert "\n" not in str(caught.value)


def test_a_line_break_within_what_an_error_quotes():
    """A name out of a file, whatever it holds, leaves the error one line; control characters are shown as text."""
    told = str(StateError("state.json: has ch\nge, \x1b[31mtime: expected change and time_s"))
    assert told == r"state.json: has ch ge, \x1b[31mtime: expected change and time_s"
