"""The policy grammar: what a text means, how a policy is printed, and how each fault is said."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infscale.core.checks import check_policy, without_effect
from infscale.core.grammar import Part, describe, parse_form, parse_policy, policy_text, read_number
from infscale.core.policy import (
    DEFAULT_SCALE_DOWN,
    DEFAULT_SCALE_UP,
    Behavior,
    PolicyType,
    ScalingPolicy,
    ScalingRules,
    SelectPolicy,
)
from infscale.core.scaling import AUTO, Goal, MetricName, ScalePolicy
from infscale.core.settings import KEYS, NUMBERS, policy_of
from infscale.errors import PolicyError
from tests.policies import policies

PODS, PERCENT = PolicyType.PODS, PolicyType.PERCENT
QUEUE = (Goal(MetricName.QUEUE, 24),)
FULL = (
    "queue:24,lookahead=90,min=0,max=8,cooldown=120,downpods=1,downwindow=300,up=100%/15+4/15,tolerance=0.1"  # DECISION
)


def fault(text: str) -> str:
    """What is said of a text that is no policy."""
    with pytest.raises(PolicyError) as caught:
        parse_policy(text)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_every_part_of_a_policy():
    """Bounds, lookahead, cooldown and both directions of behaviour come out of one text."""
    up = ScalingRules((ScalingPolicy(PERCENT, 100, 15), ScalingPolicy(PODS, 4, 15)), SelectPolicy.MAX, 0, 0.1)
    down = ScalingRules((ScalingPolicy(PODS, 1, 15),), SelectPolicy.MAX, 300, 0.1)

    assert parse_policy(FULL) == ScalePolicy(QUEUE, 0, 8, Behavior(up, down), lookahead_s=90, cooldown_s=120)


@pytest.mark.parametrize(
    ("text", "goals", "plain"),
    [
        ("queue:24", QUEUE, False),
        ("hpa:cpu:60", (Goal(MetricName.CPU, 60),), True),
        ("kv:80+ttft:0.5", (Goal(MetricName.KV, 80), Goal(MetricName.TTFT, 0.5)), False),
        ("work:learned", (Goal(MetricName.WORK, None),), False),
        ("work:6e3+waiting:.5", (Goal(MetricName.WORK, 6000), Goal(MetricName.WAITING, 0.5)), False),
    ],
)
def test_metrics_and_targets(text, goals, plain):
    """One metric or several, each with its target; `hpa:` in front is the HPA layer alone."""
    assert parse_policy(text) == ScalePolicy(goals, plain=plain)


def test_a_policy_of_no_settings_is_the_default():
    """Settings change what they name."""
    assert policy_of(QUEUE, {}) == ScalePolicy(QUEUE)
    assert policy_of(QUEUE, {"max": 3}, plain=True) == ScalePolicy(QUEUE, max_replicas=3, plain=True)


def test_what_is_not_given_of_behaviour_is_the_hpas_default():
    """One key of a direction leaves the rest of it, and the other direction, as the HPA fills them in."""
    down = replace(DEFAULT_SCALE_DOWN, policies=(ScalingPolicy(PODS, 1, 60),))

    assert parse_policy("queue:24").behavior is None
    assert parse_policy("queue:24,down=1/60").behavior == Behavior(DEFAULT_SCALE_UP, down)
    assert parse_policy("queue:24,upwindow=0").behavior == Behavior()


def test_short_keys_of_a_direction_combine():
    """`uppods` and `uppercent` are two policies of one list, with a period of 15 s, in the order they stand in."""
    behavior = parse_policy("queue:24,uppercent=50,uppods=2").behavior

    assert behavior is not None
    assert behavior.scale_up.policies == (ScalingPolicy(PERCENT, 50, 15), ScalingPolicy(PODS, 2, 15))


def test_tolerance_is_that_of_both_directions_but_for_their_own():
    """`tolerance` goes to the direction that has none of its own, wherever it stands."""
    behavior = parse_policy("queue:24,uptolerance=0,tolerance=0.2").behavior

    assert behavior is not None
    assert (behavior.scale_up.tolerance, behavior.scale_down.tolerance) == (0, 0.2)


@pytest.mark.parametrize("choice", ["disabled", "Disabled", "DISABLED"])
def test_selects_in_the_hpas_spelling_too(choice):
    """`Disabled`, as in a manifest, is read as `disabled`, which is printed."""
    policy = parse_policy(f"queue:24,downselect={choice}")

    assert policy_text(policy) == "queue:24,downselect=disabled"


@pytest.mark.parametrize(
    ("text", "shortest"),
    [
        (
            FULL,
            "queue:24,min=0,max=8,lookahead=90,cooldown=120,tolerance=0.1,downwindow=300,up=100%/15+4/15,downpods=1",
        ),
        (" queue: 24.0 , min = 01 ", "queue:24"),
        ("queue:24,max=2147483647,coverage=0.5,lookahead=0,quantile=.95", "queue:24"),
        ("queue:24,up=4/15+100%/15,down=100%/15", "queue:24,upwindow=0"),
        ("queue:24,up=8/15,down=50%/15", "queue:24,upwindow=0,uppods=8,downpercent=50"),
        ("queue:1e20,lookahead=auto", "queue:1e20,lookahead=auto"),
        ("queue:1.7976931348623157e308", "queue:1.7976931348623157e308"),
        ("queue:24,min=3,max=3,uppods=2,up=100%/15", "queue:24,min=3,max=3,up=2/15+100%/15"),
        ("queue:9.9e15+running:1e16", "queue:9900000000000000+running:1e16"),
        ("queue:24,uptolerance=0.05,downtolerance=0.05", "queue:24,tolerance=0.05"),
    ],
)
def test_printing_is_shortest(text, shortest):
    """Defaults, zeros and blanks go, short keys stand where they fit; a behaviour of defaults stays one."""
    printed = policy_text(parse_policy(text))

    assert printed.replace("upwindow=0,", "") == shortest.replace("upwindow=0,", "")
    assert parse_policy(printed) == parse_policy(text)


@given(policies())
def test_print_and_read_is_the_identity(policy):
    """Whatever the policy, its text reads back as the same policy, and prints the same again."""
    text = policy_text(policy)

    check_policy(policy)
    assert parse_policy(text) == policy
    assert policy_text(parse_policy(text)) == text


FAULTS = [
    ("", "the policy is empty: expected METRIC:TARGET, as queue:24"),
    ("quue:3", "'quue' at character 1: no such metric; did you mean 'queue'? allowed are queue, waiting, running"),
    ("Queue:3", "did you mean 'queue'?"),
    ("hpa:foo:2", "'foo' at character 5: no such metric; allowed are queue, waiting, running, kv, cpu, ttft, work"),
    ("static:2", "'static' at character 1: no such metric; allowed are"),
    ("hpa:", "nothing at character 5: no such metric"),
    ("queue", "'queue' at character 1: expected a target, as queue:TARGET in requests per replica"),
    ("queue:24+kv", "'kv' at character 10: expected a target"),
    ("queue:24+queue:12", "'queue:12' at character 10: given twice; the smaller target alone would count"),
    (":3", "nothing at character 1: no such metric"),
    ("queue:24,=3", "nothing at character 10: no such key"),
    ("queue:24+foo:3", "'foo' at character 10: no such metric; allowed are queue"),
    ("queue:24,mim=0", "'mim' at character 10: no such key; did you mean 'min'? allowed are min, max, lookahead"),
    ("queue:24,", "nothing at character 10: no such key"),
    ("queue:24,min=1,min=2", "'min' at character 16: given twice, first at character 10"),
    ("queue:24,queue=2", "'queue' at character 10: no such key"),
    ("queue:24,max", "nothing at character 13: max: expected a whole number of replicas from 1 up"),
    (
        "queue:24,upselect=most",
        "'most' at character 19: no such choice for upselect; allowed are max, min, disabled",
    ),
    ("queue:24,up=100%", "'100%' at character 13: expected Pods or percent and a period in seconds, as 4/15"),
    ("queue:24,up=4/15+100%/x", "'x' at character 23: a period: expected whole seconds from 1 to 1800"),
    ("queue:24,\nmin=-1", "'-1' at character 15: min: expected"),
]


@pytest.mark.parametrize(("text", "said"), FAULTS)
def test_faults_point_at_the_part(text, said):
    """An error quotes the wrong part with its position and says what is allowed, with the nearest right one."""
    assert said in fault(text)


CONTRADICTIONS = [
    ("queue:24,min=5,max=2", "'max=2' at character 16: the maximum 2 is below the minimum 5"),
    ("queue:24,max=0", "'0' at character 14: max: expected a whole number of replicas from 1 up"),
    ("queue:24,min=1.5", "'1.5' at character 14: min"),
    ("cpu:60,min=0", "'min=0' at character 8: at 0 replicas cpu has no sample and would never wake them"),
    ("kv:80+ttft:2,min=0", "'min=0' at character 14: at 0 replicas kv and ttft have no sample"),
    ("work:learned,min=0", "at 0 replicas work has no sample"),
    ("hpa:queue:24,lookahead=90", "'lookahead=90' at character 14: hpa: takes only what the HPA itself has"),
    ("kv:learned", "'learned' at character 4: expected percent of the KV cache"),
]


@pytest.mark.parametrize(("text", "part"), CONTRADICTIONS)
def test_contradictions_are_refused(text, part):
    """What cannot be meant as it stands is an error at the part that contradicts the others."""
    assert part in fault(text)


NEVER = ("nan", "inf", "-inf", "1_0", "٣", "0x10", "4s", "", "1e999")


@pytest.mark.parametrize("value", ["0", "-1", "-0.5", *NEVER])
@pytest.mark.parametrize("metric", MetricName)
def test_targets_are_numbers_above_0(metric, value):
    """A target of 0, below 0, NaN, infinite or no plain decimal number is refused for every metric."""
    assert "expected" in fault(f"{metric}:{value}")


OUT_OF_BOUNDS = {
    "min": ("-1", "0.5", "2147483648"),
    "max": ("0", "2147483648"),
    "lookahead": ("-1", "3601", "Auto"),
    "cooldown": ("-1",),
    "coverage": ("-0.1", "1.1"),
    "guard": ("0", "1.01"),
    "knee": ("0",),
    "promptweight": ("-0.1",),
    "quantile": ("0", "1"),
    **dict.fromkeys(("tolerance", "uptolerance", "downtolerance"), ("-0.01",)),
    **dict.fromkeys(("upwindow", "downwindow"), ("-1", "3601", "0.5")),
    **dict.fromkeys(("uppods", "downpods", "uppercent", "downpercent"), ("0", "-1", "0.5")),
    **dict.fromkeys(("up", "down"), ("0/15", "1/0", "1/1801", "0%/15", "-1/15", "1/1.5", "4", "%/15", "")),
}


@pytest.mark.parametrize("key", OUT_OF_BOUNDS)
def test_values_stay_in_their_bounds(key):
    """Each key refuses what is outside of its bounds, and what is no number, and names what it expects."""
    for value in (*OUT_OF_BOUNDS[key], *NEVER):
        assert "expected" in fault(f"queue:24,{key}={value}")


def test_every_key_has_bounds_that_are_tested():
    """No key is left out of the list above, but for the two choices."""
    assert {*OUT_OF_BOUNDS} == {*KEYS} - {"upselect", "downselect"}


@given(st.text(max_size=40) | st.text(alphabet="queue:24,min=0+hpa%/kv.e-", max_size=40))
def test_any_text_is_a_policy_or_a_fault(text):
    """Whatever is typed, the answer is a policy that can be used or one line that says why not."""
    try:
        check_policy(parse_policy(text))
    except PolicyError:
        assert fault(text).isprintable()


MADE_IN_CODE: list[tuple[dict[str, Any], str]] = [
    ({"goals": ()}, "metrics: none is given"),
    ({"goals": (*QUEUE, *QUEUE)}, "queue: given twice"),
    ({"goals": (Goal(MetricName.QUEUE, 0),)}, "queue: expected requests per replica above 0, as 24, got 0"),
    (
        {"goals": (Goal(MetricName.QUEUE, float("nan")),)},
        "queue: expected requests per replica above 0, as 24, got nan",
    ),
    ({"goals": (Goal(MetricName.KV, None),)}, "kv: a target that is learned exists for work alone"),
    ({"goals": (Goal(MetricName.CPU, 60),), "min_replicas": 0}, "min: at 0 replicas cpu has no sample"),
    ({"min_replicas": 3, "max_replicas": 2}, "max: the maximum 2 is below the minimum 3"),
    ({"lookahead_s": -2.0}, "lookahead: expected seconds from 0 to 3600, or auto, got -2"),
    ({"coverage": float("nan")}, "coverage: expected a share from 0 to 1, got nan"),
    ({"behavior": Behavior(scale_up=ScalingRules(()))}, "up: expected at least one scaling policy"),
    (
        {"behavior": Behavior(scale_down=ScalingRules((ScalingPolicy(PODS, 1, 1801),)))},
        "down: expected a period in whole seconds from 1 to 1800, got 1801",
    ),
    (
        {"behavior": Behavior(scale_down=ScalingRules((ScalingPolicy(PODS, 0, 15),)))},
        "down: expected whole Pods from 1 up, got 0",
    ),
    ({"plain": True, "guard": 0.85}, "guard: hpa: takes only"),
]


@pytest.mark.parametrize(("change", "said"), MADE_IN_CODE)
def test_a_policy_made_in_code_is_checked_alike(change, said):
    """`check_policy` refuses the same of a policy that was never text."""
    with pytest.raises(PolicyError, match=r"^policy: ") as caught:
        check_policy(replace(ScalePolicy(QUEUE), **change))

    assert said in str(caught.value)


def test_each_fault_as_a_person_reads_it(golden):
    """The whole line for each wrong text above, and for each policy that code made wrong."""
    texts = [text for text, _ in (*FAULTS, *CONTRADICTIONS)]
    texts += [f"queue:{'x' * length}" for length in (60, 61, 194, 195)]  # what is quoted of a text ends at 60, and 200
    texts += ["queue:24," + key + "=?" for key in KEYS] + [f"{metric}:?" for metric in MetricName]
    lines = [f"{text!r}\n  {fault(text)}\n" for text in texts]
    for change, _ in MADE_IN_CODE:
        with pytest.raises(PolicyError) as caught:
            check_policy(replace(ScalePolicy(QUEUE), **change))
        lines.append(f"{caught.value}\n")
    golden("policy-faults.txt", "".join(lines))


def test_auto_is_a_lookahead():
    """`lookahead=auto` is the length of the measured cold starts, not a number of seconds."""
    policy = parse_policy("queue:24,lookahead=auto")

    assert policy.lookahead_s == AUTO
    check_policy(policy)


def test_what_has_no_effect_is_told():
    """A knee, prompt weight, quantile or cooldown that nothing uses is named, and no error."""
    idle = parse_policy("queue:24,knee=6000,promptweight=0.2,quantile=0.9,cooldown=60")
    used = parse_policy("queue:24+ttft:2,guard=0.85,knee=6000,promptweight=0.2,quantile=0.9,min=0,cooldown=60")

    assert without_effect(idle) == (
        "knee has no effect: only guard or the metric work uses it",
        "promptweight has no effect: only guard or the metric work uses it",
        "quantile has no effect: only the metric ttft uses it",
        "cooldown has no effect: only min=0 uses it",
    )
    assert without_effect(used) == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("queue:4,max=3", "queue:4 (min 1, max 3)"),
        ("queue:4,min=0,lookahead=90", "queue:4 (min 0)"),
        ("hpa:cpu:60+kv:80", "hpa:cpu:60+kv:80 (min 1)"),
    ],
)
def test_described_in_a_few_words(text, words):
    """Metrics with targets and the bounds."""
    assert describe(parse_policy(text)) == words


def whole(part: Part) -> float:
    """A reader of `static:N`."""
    return read_number(part, NUMBERS["min"])


def test_other_forms_by_their_first_word():
    """A caller's own forms get what follows their word, with its place; all else is read as ever."""
    forms = {"static": whole, "oracle": lambda part: part.text}

    assert parse_form(" static: 2", forms) == 2
    assert parse_form("oracle", forms) == ""
    assert parse_form("queue:24", forms) == ScalePolicy(QUEUE)
    with pytest.raises(PolicyError, match="'x' at character 8: expected a whole number"):
        parse_form("static:x", forms)
    with pytest.raises(PolicyError, match=r"did you mean 'static'[?] allowed are queue, .*, hpa, static, oracle"):
        parse_form("statik:2", forms)


GUIDE = (Path(__file__).parents[2] / "docs" / "policy.md").read_text(encoding="utf-8")


def test_the_guides_examples_are_policies():
    """Every example of the guide can be used, and each refusal that it shows is what is said."""
    texts = re.findall(r"```text\n(.*?)```", GUIDE, re.DOTALL)

    for example in texts[1].splitlines():
        parse_policy(example)
    for refusal in texts[2].splitlines():
        assert fault(refusal.split("'")[1]).startswith(refusal.removesuffix("..."))


def test_the_guide_names_every_key_and_metric():
    """The tables of the guide are complete."""
    rows = re.findall(r"^\| (`.*?) \|", GUIDE, re.MULTILINE)
    named = re.findall(r"`(\w+)`", " ".join(rows))

    assert {*KEYS, *MetricName} <= {*named}
