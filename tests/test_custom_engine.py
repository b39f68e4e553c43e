"""A mapping becomes an engine profile, and back; what cannot be one is an error with its path."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infscale.engines import PROFILES, Metric, Profile
from infscale.engines.custom import profile_from_mapping, to_mapping
from infscale.errors import ConfigError
from infscale.normalise import read_page
from infscale.reading import ReadFailure, Reading

PAGES = Path(__file__).parent / "data" / "pages"

LEAST = {"name": "mine", "prefix": "mine", "running": "run", "waiting": "wait"}

WHOLE = {
    "name": "mine",
    "prefix": "mine",
    "running": "run",
    "waiting": ["wait", "queued"],
    "queues": ["grammar", {"name": "stage", "where": {"stage": "admission"}}, ["old", "older"]],
    "front": "front_queue",
    "optional": ["running"],
    "sum_over": ["rank"],
    "copies": ["pid", "tp"],
    "replica_label": "ReplicaId",
    "only": {"priority": ["", "all"]},
    "not_engine": ["server"],
    "kv": {"names": ["kv", "cache"], "where": {"pool": "gpu"}},
    "kv_parts": {"used": "kv_used", "total": "kv_total"},
    "prompt_tokens": "prompt_total",
    "generation_tokens": "generation_total",
    "finished": "done_total",
    "outcome_labels": ["why"],
    "rejected": {"name": "done_total", "where": {"why": "full"}},
    "progress": ["steps_total"],
    "served": ["ttft_count"],
    "capacity": "slots",
    "sleep": {"metric": "sleep_state", "label": "state", "awake": "up"},
    "cpu": "cpu_total",
    "start_time": "started_seconds",
    "requests": "http_total",
    "histograms": {"time_to_first_token": "ttft", "request_queue": "queue_time"},
    "model_label": ["model", "model_name"],
    "role_label": "role",
    "min_interval": 3.5,
    "hints": {"not_found": "a", "unauthorized": "b", "disabled": "c", "timeout": "d"},
    "select": {"ReplicaId": "r2"},
}


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_built_in_profiles_go_to_a_mapping_and_back_unchanged(profile):
    """The way through JSON, as a drain hook's profiles take it, is the identity."""
    mapping = json.loads(json.dumps(to_mapping(profile)))

    assert profile_from_mapping(mapping) == profile


def test_every_key_goes_to_a_profile_and_back_unchanged():
    """A mapping with every key sets every field, and comes back meaning the same."""
    profile = profile_from_mapping(WHOLE)

    unset = [f.name for f in dataclasses.fields(Profile) if getattr(profile, f.name) in (None, (), "")]
    assert unset == ["total"]  # excluded by `running`
    assert profile_from_mapping(json.loads(json.dumps(to_mapping(profile)))) == profile


def test_no_gauge_that_counts_is_no_measurement():
    """Each of the gauges may be absent beside the other, not both: what was sought and is not there is said."""
    mapping = {"name": "x", "running": "a", "waiting": "b", "optional": ["running", "waiting"], "select": {"pod": "p2"}}
    page = 'a{pod="p1"} 1\n'
    failure = read_page(page, profile=profile_from_mapping(mapping))
    assert isinstance(failure, ReadFailure)
    assert (failure.state, failure.message) == ("misconfigured", 'no a with pod="p2"')
    found = read_page(page, profile=profile_from_mapping({**mapping, "select": {"pod": "p1"}}))
    assert isinstance(found, Reading)
    assert (found.running, found.waiting) == (1, 0)


def test_total_alone_is_enough():
    """An engine that tells only running + waiting gives `total`."""
    profile = profile_from_mapping({"name": "t", "total": "inflight_requests"})

    assert profile.total == Metric(("inflight_requests",))
    assert (profile.prefix, profile.running) == ("", None)


def test_base_gives_what_is_not_said():
    """With `base`, keys replace those of the built-in profile, and null takes one away."""
    profile = profile_from_mapping({"name": "ray", "base": "vllm", "select": {"ReplicaId": "r2"}, "sleep": None})

    vllm = PROFILES["vllm"]
    assert profile == dataclasses.replace(vllm, name="ray", select=(("ReplicaId", "r2"),), sleep=None)


def test_replica_of_a_ray_node_is_read_alone():
    """Ray's node page, read with a profile that selects a replica, gives that replica's requests."""
    profile = profile_from_mapping({"name": "ray", "base": "vllm", "select": {"ReplicaId": "r2"}})
    page = (PAGES / "ray-vllm-node.reconstructed.prom").read_text(encoding="utf-8")

    reading = read_page(page, profile=profile)

    assert isinstance(reading, Reading)
    assert (reading.engine, reading.running, reading.waiting) == ("ray", 5, 2)


def test_own_engine_is_read():
    """A page of an engine nobody knows is read as its mapping says: spellings, parts by label, ranks summed."""
    profile = profile_from_mapping(
        {
            "name": "mine",
            "prefix": "mine",
            "running": ["requests_active", "run"],
            "waiting": {"name": "stage", "where": {"stage": "queue"}},
            "queues": [{"name": "stage", "where": {"stage": "admission"}}],
            "sum_over": ["rank"],
            "model_label": "model",
        }
    )
    page = (
        'mine:run{model="m",rank="0"} 2\nmine:run{model="m",rank="1"} 3\nmine:run{model="m",rank="1",tp="1"} 3\n'
        'mine_stage{model="m",stage="queue"} 4\nmine_stage{model="m",stage="admission"} 1\n'
        'mine_stage{model="m",stage="sent"} 9\n'
    )

    reading = read_page(page, profiles=[profile])

    assert isinstance(reading, Reading)
    assert [(m.model, m.running, m.waiting, m.inflight) for m in reading.models] == [("m", 5, 5, 10)]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"runing": "x"}, "profiles[0].runing: unknown key, did you mean 'running'?"),
        ({"running": 3}, "profiles[0].running: expected a metric name, a list of its spellings or a mapping, got"),
        ({"running": "a b"}, "profiles[0].running: expected a metric name (letters, digits, '_' and ':'), got 'a b'"),
        ({"running": []}, "profiles[0].running: expected at least one name, got an empty list"),
        ({"running": ["a", 1]}, "profiles[0].running[1]: expected a metric name (letters, digits, '_' and ':'), got"),
        ({"running": {"nam": "x"}}, "profiles[0].running.nam: unknown key, did you mean 'name'?"),
        ({"running": {"where": {"a": "b"}}}, "profiles[0].running: expected either 'name' or 'names'"),
        (
            {"running": {"name": "x", "where": {"a": 1}}},
            "profiles[0].running.where.a: expected text, got the number 1 (",
        ),
        ({"running": {"name": "x", "where": {"a-b": "1"}}}, "profiles[0].running.where: expected a label name"),
        ({"running": {"name": "x", "where": ["a"]}}, "profiles[0].running.where: expected a mapping, got a list"),
        ({"running": "mine_run"}, "profiles[0].running: expected 'run', without the prefix, got 'mine_run'"),
        ({"running": None, "waiting": None}, "profiles[0]: expected 'running' (with 'waiting'), or 'total'"),
        ({"running": None}, "profiles[0]: expected 'running' (with 'waiting'), or 'total'"),
        ({"running": None, "total": "all"}, "profiles[0].waiting: expected 'running' beside it"),
        ({"total": "all"}, "profiles[0].total: counts each request again beside 'running'"),
        ({"waiting": "run"}, "profiles[0].waiting: 'run' stands in 'running' too: its requests would count twice"),
        ({"queues": ["a", "wait"]}, "profiles[0].queues[1]: 'wait' stands in 'waiting' too"),
        ({"queues": "a"}, "profiles[0].queues: expected a list, got 'a'"),
        ({"name": None}, "profiles[0].name: missing"),
        ({"name": "a b"}, "profiles[0].name: expected a name (letters, digits, '.', '_' and '-'), got 'a b'"),
        ({"name": ["a"]}, "profiles[0].name: expected a name (letters, digits, '.', '_' and '-'), got a list"),
        ({"base": "vlm"}, "profiles[0].base: no built-in profile 'vlm', did you mean 'vllm'?"),
        ({"prefix": "mine:"}, "profiles[0].prefix: expected 'mine', without the separator, got 'mine:'"),
        ({"prefix": "m-e"}, "profiles[0].prefix: expected one word (letters, digits and '_'), got 'm-e'"),
        ({"select": {"r": True}}, "profiles[0].select.r: expected text, got true (put it in quotes)"),
        ({"only": {"priority": 0}}, "profiles[0].only.priority: expected text or a list of texts, got the number 0"),
        ({"sum_over": "a-b"}, "profiles[0].sum_over: expected a label name"),
        ({"optional": ["total"]}, "profiles[0].optional: expected 'running' or 'waiting', got 'total'"),
        ({"min_interval": "1s"}, "profiles[0].min_interval: expected a number, got '1s'"),
        ({"min_interval": True}, "profiles[0].min_interval: expected a number, got true"),
        ({"min_interval": -1}, "profiles[0].min_interval: expected a number from 0 to 3600, got -1"),
        ({"min_interval": float("nan")}, "profiles[0].min_interval: expected a number, got the number nan"),
        ({"histograms": {"ttft": "x"}}, "profiles[0].histograms.ttft: unknown key; known are inter_token_latency, "),
        ({"kv_parts": {"used": "x"}}, "profiles[0].kv_parts.total: missing"),
        ({"sleep": {"metric": "x"}}, "profiles[0].sleep.label: missing"),
        ({"hints": {"disabled": 1}}, "profiles[0].hints.disabled: expected text, got the number 1"),
        ({1: "x"}, "profiles[0]: expected keys in text, got the number 1 as a key"),
    ],
)
def test_what_cannot_be_used_is_said_with_its_path(change, error):
    """Each fault names the key and what was expected, in one line."""
    with pytest.raises(ConfigError) as caught:
        profile_from_mapping({**LEAST, **change}, "profiles[0]", source="infscale.yaml")

    assert str(caught.value).startswith(f"infscale.yaml: {error}")
    assert "\n" not in str(caught.value)


def test_profile_must_be_a_mapping():
    """A profile that is text is an error at its place."""
    with pytest.raises(ConfigError, match=r"^profiles\[2\]: expected a mapping, got 'vllm'$"):
        profile_from_mapping("vllm", "profiles[2]")


WORDS = st.sampled_from(
    ["run", "wait", "a", "b:c", "x y", "", "vllm", "name", "names", "where", "used", "total", "label"]
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 5) | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from([*WHOLE, "total", "base"]), ANYTHING, max_size=4))
def test_any_mapping_is_a_profile_or_an_error(change):
    """Whatever stands in a mapping: it makes a profile that goes to a mapping and back, or it is a ConfigError."""
    try:
        profile = profile_from_mapping({**LEAST, **change})
    except ConfigError:
        return

    assert profile_from_mapping(json.loads(json.dumps(to_mapping(profile)))) == profile
