"""The plain flags of the command line: the same policies as the grammar's, and faults with the flag's name."""

from __future__ import annotations

import pytest

from infscale.core.grammar import parse_policy
from infscale.errors import PolicyError, UsageError
from infscale.policy_flags import policy_from_flags


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({"target": 4}, "queue:4"),
        ({"metric": "work", "target": "learned"}, "work:learned"),
        (
            {"target": 4, "min_replicas": 1, "max_replicas": 3, "metric": "queue", "down_window_s": 20},
            "queue:4,max=3,downwindow=20",
        ),
        ({"target": "4", "lookahead_s": "auto"}, "queue:4,lookahead=auto"),
        (
            {"target": 4, "lookahead_s": "90", "zero_cooldown_s": 120, "min_replicas": 0},
            "queue:4,min=0,lookahead=90,cooldown=120",
        ),
        (
            {"target": 4, "tolerance": 0.2, "up_pods": 4, "up_percent": 100},
            "queue:4,tolerance=0.2,uppods=4,uppercent=100",
        ),
        ({"target": 4, "down_pods": 1, "down_percent": 50.0}, "queue:4,down=1/15+50%/15"),
        ({"policy": "queue:24,min=2"}, "queue:24,min=2"),
    ],
)
def test_flags_are_keys_in_other_words(flags, text):
    """What the flags say is the policy that the grammar has for it."""
    assert policy_from_flags(**flags) == parse_policy(text)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({}, "no policy: expected --policy, as --policy queue:24, or --target with the other flags"),
        ({"min_replicas": 2}, "no policy"),
        (
            {"policy": "queue:24", "target": 4, "min_replicas": 0},
            "--policy and --target, --min: the policy says all of it, give one or the other",
        ),
        ({"policy": "queue:24", "tolerance": 0.0}, "--policy and --tolerance: the policy says all of it"),
    ],
)
def test_policy_and_flags_do_not_mix(flags, said):
    """One of the two ways is needed, and only one."""
    with pytest.raises(UsageError, match=f"^{said}"):
        policy_from_flags(**flags)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"target": 0}, "--target: expected requests per replica above 0, as 24, got 0"),
        ({"target": "4x"}, "--target: expected requests per replica above 0, as 24, got '4x'"),
        ({"target": float("nan")}, "--target: expected requests per replica above 0, as 24, got nan"),
        ({"target": 4, "metric": "que"}, "--metric: no metric 'que'; did you mean 'queue'? allowed are queue, waiting"),
        ({"target": 4, "min_replicas": 5, "max_replicas": 2}, "--max: the maximum 2 is below the minimum 5"),
        ({"target": 60, "metric": "cpu", "min_replicas": 0}, "--min: at 0 replicas cpu has no sample"),
        ({"target": 4, "down_window_s": -20}, "--down-window: expected whole seconds from 0 to 3600, got -20"),
        ({"target": 4, "zero_cooldown_s": -1}, "--zero-cooldown: expected seconds from 0 up, got -1"),
        ({"target": 4, "lookahead_s": "long"}, "--lookahead: expected seconds from 0 to 3600, or auto, got 'long'"),
        ({"target": 4, "tolerance": -0.1}, "--tolerance: expected a share from 0 up"),
        ({"target": 4, "up_pods": 0}, "--up-pods: expected whole Pods from 1 up, got 0"),
        ({"target": 4, "down_percent": 0.5}, "--down-percent: expected whole percent from 1 up, got 0.5"),
    ],
)
def test_faults_name_the_flag(flags, said):
    """An error begins with the flag that is wrong and says what it takes."""
    with pytest.raises(PolicyError) as caught:
        policy_from_flags(**flags)

    assert str(caught.value).startswith(said)
