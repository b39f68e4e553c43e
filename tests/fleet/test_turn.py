"""Whose turn it is to evaluate, among the peers of a source."""

from __future__ import annotations

import pytest

from infscale.errors import SourceError
from infscale.fleet.turn import Turn

PEERS = ("10.0.0.7", "10.0.0.9", "10.0.0.11", "10.0.0.8")
PLACES = tuple(f"{peer}:10047" for peer in PEERS)


def turn(names: tuple[str, ...], **settings) -> Turn:
    """A sidecar's, among these names."""
    return Turn(lambda: names, **settings)


@pytest.mark.parametrize(
    ("me", "speaks"), [("10.0.0.11", True), ("10.0.0.7", True), ("10.0.0.8", True), ("10.0.0.9", False)]
)
def test_the_three_lowest_names_evaluate(me, speaks):
    """In the order of the sorted texts, whatever the source's order."""
    assert (turn(PEERS, told=me).why_not() == "") is speaks


def test_who_does_not_evaluate_says_who_does():
    """Who asks the wrong one is told whom to ask."""
    said = turn(PEERS, told="10.0.0.9").why_not()
    assert said == "others evaluate this workload, ask one of them: 10.0.0.11, 10.0.0.7, 10.0.0.8"


def test_few_all_evaluate():
    """Up to the number of speakers nobody needs to know who it is."""
    assert turn(PEERS[:3]).why_not() == ""
    assert turn(()).why_not() == ""


@pytest.mark.parametrize(("speakers", "speaks"), [(1, False), (2, True), (4, True)])
def test_number_of_speakers(speakers, speaks):
    """As many as told."""
    assert (turn(PEERS, told="10.0.0.7", speakers=speakers).why_not() == "") is speaks


def test_who_is_not_listed_yet():
    """A new peer speaks where it will speak once it is listed; a peer that is listed twice counts once."""
    names = ("b", "c", "d", "e")
    assert turn(names, told="a").why_not() == ""
    assert turn(names, told="f").why_not() == "others evaluate this workload, ask one of them: b, c, d"
    assert turn(("b", "b", "b", "c"), told="d").why_not() == ""


@pytest.mark.parametrize(("names", "port"), [(PEERS, 10047), (PLACES, 10047)])
def test_found_by_where_it_listens(names, port):
    """A sidecar that listens on one address is the peer of that address."""
    assert "others" in turn(names, host="10.0.0.9", port=port).why_not()
    assert turn(names, host="10.0.0.7", port=port).why_not() == ""


def test_found_by_the_machines_address():
    """A sidecar that listens on every address is the peer whose address its machine has."""
    said = turn(("127.0.0.1", *PEERS), port=10047).why_not()
    assert said == "others evaluate this workload, ask one of them: 10.0.0.11, 10.0.0.7, 10.0.0.8"


def test_on_one_machine_the_port_tells():
    """Several on one machine are told apart by their ports."""
    names = tuple(f"127.0.0.1:{port}" for port in (1001, 1002, 1003, 1004))
    assert turn(names, port=1002).why_not() == ""
    assert "others" in turn(names, port=1004).why_not()


@pytest.mark.parametrize("names", [PEERS, tuple(f"127.0.0.{n}" for n in range(1, 6)), ("[2001:db8::1]:1", *PLACES)])
def test_not_found(names):
    """None or several may be this one: it leaves the turn to others, and says what to tell it."""
    assert "--fleet.self" in turn(names).why_not()


def test_peers_that_cannot_be_listed():
    """The evaluation will say why."""

    def names() -> tuple[str, ...]:
        raise SourceError("no name server answers")

    assert Turn(names).why_not() == ""


def test_once_found_it_stays():
    """Who has left the list for a moment still stands where it stood."""
    listed = [PEERS]
    here = Turn(lambda: listed[0], host="10.0.0.9")
    assert "others" in here.why_not()
    listed[0] = (*PEERS[:1], *PEERS[2:], "10.0.0.6")
    assert "others" in here.why_not()
