"""Several engines in one Pod as one replica."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from infscale import reading as states
from infscale.metrics.replica import WORST_FIRST, Identity, merge
from infscale.reading import STATES, Reading
from tests.metrics.cases import HISTOGRAMS, LLAMA, READ_AT_S, SGLANG, VLLM, failed, model, view


def in_state(state: str):
    """A view in a state, with values where that state has some."""
    if state in (states.OK, states.FRESH, states.ASLEEP, states.STALE):
        return view(state=state, message=f"why {state}")
    return failed(state, f"why {state}")


@pytest.mark.parametrize("state", STATES)
def test_one_engine_is_itself(state):
    """With one engine the replica has its state and message."""
    replica = merge([in_state(state)])

    assert (state, f"why {state}") == (replica.state, replica.message)


@pytest.mark.parametrize("worse", WORST_FIRST)
@pytest.mark.parametrize("state", STATES)
def test_the_worst_state_wins(worse, state):
    """Of two engines the worse one decides, in whatever order they come, and the message says which it was."""
    worst = min(worse, state, key=[*WORST_FIRST, states.OK, states.FRESH, states.ASLEEP].index)
    for views in ([in_state(worse), in_state(state)], [in_state(state), in_state(worse)]):
        replica = merge(views)
        place = 1 + [one.state for one in views].index(worst)

        assert (worst, f"engine {place} of 2: why {worst}") == (replica.state, replica.message)


@pytest.mark.parametrize(
    ("engines", "replica"),
    [
        (("ok", "ok"), "ok"),
        (("ok", "fresh"), "ok"),
        (("fresh", "fresh"), "fresh"),
        (("asleep", "ok"), "ok"),
        (("asleep", "asleep"), "asleep"),
        (("asleep", "fresh"), "ok"),
        (("ok", "fresh", "stale"), "stale"),
    ],
)
def test_states_without_a_fault(engines, replica):
    """`fresh` and `asleep` hold only if they hold for all; a mixture is `ok`, which needs no message."""
    merged = merge([in_state(state) for state in engines])

    assert replica == merged.state
    assert (replica == "ok") == (merged.message == "") or engines == ("ok", "ok")


def test_every_state_has_its_rank():
    """No state is forgotten in the order."""
    assert {*WORST_FIRST, "ok", "fresh", "asleep"} == set(STATES)


def test_values_add_up():
    """Counts of one model add up over the engines, the KV cache is that of the fullest, the time that of the oldest."""
    other = replace(VLLM, models=(replace(VLLM.models[0], kv=0.9, finished=(("stop", 1.0), ("tool", 2.0))),))
    replica = merge([view(), view(other, read_at_s=READ_AT_S - 3, scrape_duration_s=0.5)])

    (shown,) = replica.models
    assert (shown.running, shown.waiting, shown.inflight, shown.kv) == (10.0, 6.0, 16.0, 0.9)
    assert (shown.prompt_tokens, shown.generation_tokens) == (24_000.0, 2 * 3_456_789.0)
    assert shown.finished == (("stop", 21.0), ("length", 4.0), ("abort", 0.0), ("tool", 2.0))
    assert (replica.read_at_s, replica.scrape_duration_s, replica.inflight) == (READ_AT_S - 3, 0.5, 16.0)


def test_no_partial_sum():
    """One engine without values leaves the replica without any: a sum over the others would be too low."""
    replica = merge([view(), failed(states.LOADING, "503"), view()], capacity=32.0)

    assert (replica.state, replica.message) == ("loading", "engine 2 of 3: 503")
    assert (replica.models, replica.inflight, replica.capacity, replica.read_at_s) == ((), None, None, None)
    assert not replica.up


def test_saturated_without_values_beats_saturated_with():
    """Where one full engine's values are held and another's are not, the message is that of the latter."""
    replica = merge([view(state="saturated", message="held"), failed("saturated", "too old")])

    assert (replica.message, replica.inflight) == ("engine 2 of 2: too old", None)


def test_what_one_engine_does_not_tell_is_unknown():
    """A part that one engine does not tell is unknown of the whole; the KV cache is the fullest that is told."""
    total = Reading("dynamo", states.OK, (replace(model(LLAMA, 0, 0), running=None, waiting=None, inflight=9.0),))
    (shown,) = merge([view(), view(total)]).models

    assert (shown.running, shown.waiting, shown.inflight, shown.prompt_tokens) == (None, None, 17.0, None)
    assert shown.kv == 0.47


@pytest.mark.parametrize(
    ("told", "flag", "capacity"),
    [((4.0, 8.0), None, 12.0), ((4.0, None), None, None), ((4.0, None), 16.0, 16.0), ((4.0, 8.0), 16.0, 12.0)],
)
def test_capacity(told, flag, capacity):
    """Slots add up if every engine tells its own; else the flag counts, for the whole replica."""
    assert capacity == merge([view(replace(VLLM, capacity=slots)) for slots in told], capacity=flag).capacity


def test_model_name_takes_the_place_of_all():
    """With `--model-name` every model has that name, and they add up."""
    reading = Reading("triton", states.OK, (model("chat", 2.0, 1.0), model("code", 3.0, 0.0)))
    replica = merge([view(reading)], model_name="both")

    assert [(shown.model, shown.inflight) for shown in replica.models] == [("both", 6.0)]
    assert replica.identities == (Identity("triton", "", "both", ""),)


def test_models_of_several_engines_keep_their_names():
    """Models of different names are not added up; each engine is named once."""
    replica = merge([view(), view(SGLANG), view()])

    assert [(shown.model, shown.inflight) for shown in replica.models] == [(LLAMA, 16.0), ("qwen", 6.0)]
    assert replica.identities == (Identity("vllm", "", LLAMA, ""), Identity("sglang", "", "qwen", "decode"))


def test_cpu_is_of_all_engines_or_unknown():
    """CPU over the Pod's request adds up; one unknown engine makes it unknown."""
    assert merge([view(cpu_ratio=0.5), view(cpu_ratio=0.25)]).cpu_ratio == 0.75
    assert merge([view(cpu_ratio=0.5), view()]).cpu_ratio is None


def test_histograms_of_one_layout_add_up():
    """Buckets of one kind, engine, model and layout are added up."""
    reading = replace(VLLM, histograms=HISTOGRAMS[:1])
    replica = merge([view(reading), view(reading)])

    (shown,) = replica.histograms
    assert shown.histogram.buckets == ((0.001, 0.0), (0.25, 22.0), (1.0, 24.0), (math.inf, 26.0))
    assert (shown.histogram.sum_s, shown.engine, replica.warnings) == (8.25, "vllm", ())


def test_histograms_of_two_layouts_are_not_merged():
    """Of two layouts under one engine's name the first is shown, and a warning says so; other engines keep theirs."""
    other = replace(HISTOGRAMS[0], buckets=((0.5, 1.0), (math.inf, 1.0)))
    replica = merge(
        [view(replace(VLLM, histograms=(shape,))) for shape in (HISTOGRAMS[0], other, other)]
        + [view(replace(VLLM, engine="aphrodite", histograms=(other,)))]
    )

    assert [(shown.engine, shown.histogram) for shown in replica.histograms] == [
        ("vllm", HISTOGRAMS[0]),
        ("aphrodite", other),
    ]
    (warning,) = replica.warnings
    assert "two bucket layouts" in warning


def test_warnings_of_the_readings_come_along():
    """What a reading warns of is told once."""
    reading = replace(VLLM, warnings=("a page of a whole node",))

    assert merge([view(reading), view(reading)]).warnings == ("a page of a whole node",)
