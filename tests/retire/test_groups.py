"""A replica of several Pods: a group is whole, or what is not right with it is told by name."""

from __future__ import annotations

import pytest

from infscale.retire.groups import GROUP_LABEL, SEAT_LABEL, SIZE_ANNOTATION, Group, group_of, index_of
from infscale.retire.rules import Reason
from tests.retire.pods import pod


def seat(name: str, index: str | None, *, group: str = "1", size: str | None = "3"):
    """A Pod of a group."""
    labels = {GROUP_LABEL: group} | ({SEAT_LABEL: index} if index is not None else {})
    return pod(name, labels=labels, annotations={SIZE_ANNOTATION: size} if size else {})


WHOLE = [seat("v-1-2", "2"), seat("v-1", "0"), seat("v-1-1", "1"), seat("v-0", "0", group="0")]


def test_a_whole_group():
    """Its Pods by seat, the leader first, and nobody of another group."""
    found = group_of(WHOLE, 1)

    assert isinstance(found, Group)
    assert [member.name for member in found.pods] == ["v-1", "v-1-1", "v-1-2"]
    assert [index_of(member) for member in (*WHOLE, pod("v-2"))] == [1, 1, 1, 0, None]


@pytest.mark.parametrize(
    ("pods", "words"),
    [
        ([WHOLE[0], WHOLE[2]], "no leader"),
        ([*WHOLE, seat("v-1b", "0")], "two leaders: v-1, v-1b"),
        ([*WHOLE, seat("v-1-1b", "1")], "seat 1 is taken twice: v-1-1, v-1-1b"),
        ([WHOLE[1], WHOLE[2]], "2 of 3 Pods"),
        ([*WHOLE, seat("v-1-3", "3")], "4 of 3 Pods"),
        ([WHOLE[1], WHOLE[2], seat("v-1-7", "7")], "3 of 3 Pods"),
        ([*WHOLE[:3], seat("v-1-x", None)], "v-1-x has no seat"),
        ([*WHOLE[:3], seat("v-1-x", "one")], "v-1-x has no seat"),
        ([seat("v-1", "0", size=None)], "does not tell its size"),
        ([], "no leader"),
    ],
)
def test_a_group_that_is_not_whole(pods, words):
    """No leader, two, a wrong size, a seat taken twice."""
    found = group_of(pods, 1)

    assert isinstance(found, Reason)
    assert words in found.detail
    assert found.detail.startswith("group 1: ")
