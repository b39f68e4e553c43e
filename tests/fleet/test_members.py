"""What is remembered of replicas, on a driven clock."""

from __future__ import annotations

import pytest

from infscale.core.replicas import Phase, Replica
from infscale.errors import SourceError
from infscale.fleet.members import Members
from infscale.fleet.sighting import Sighting, silent

SERVING, SILENT, STARTING, DRAINING = Phase.SERVING, Phase.SILENT, Phase.STARTING, Phase.DRAINING


class Looks(Members):
    """Members whose clocks stand where the last look was; the wall clock may be ahead of the other by `ahead_s`."""

    ahead_s = 0.0

    def __init__(self, **more) -> None:
        self._now_s = 0.0
        super().__init__(**more, clock=lambda: self._now_s)

    def take(self, sightings, now_s, *, expected=None):
        """See `Members.take`."""
        self._now_s = now_s
        return super().take(sightings, now_s + self.ahead_s, expected=expected)

    def missed_at(self, now_s):
        """See `Members.missed`."""
        self._now_s = now_s
        return self.missed()


def serves(name: str, **more) -> Sighting:
    """A replica with a value."""
    return Sighting(Replica(name, SERVING, inflight=3.0, **more))


def leaves(name: str) -> Sighting:
    """A replica that is draining."""
    return Sighting(Replica(name, DRAINING, inflight=3.0))


def phases(replicas) -> dict[str, Phase]:
    """Each replica's phase."""
    return {replica.name: replica.phase for replica in replicas}


def test_silent_or_starting_is_a_matter_of_the_past():
    """Without a value, one that was ready once is silent, and one that never was is starting."""
    members = Looks()
    assert phases(members.take([serves("a"), silent("b", "refused")], 0)) == {"a": SERVING, "b": STARTING}
    assert phases(members.take([silent("a", "hangs"), silent("b", "refused")], 15)) == {"a": SILENT, "b": STARTING}


def test_the_look_itself_may_tell_of_the_past():
    """A sidecar that knows its engine, or a Pod that was ready, makes a replica silent at first sight."""
    seen = silent("a", "hangs", state="saturated", served_before=True)
    (replica,) = Looks().take([seen], 0)
    assert (replica.phase, replica.state) == (SILENT, "saturated")


def test_engine_that_loads_again_stays_expected():
    """A replica that was ready and says that it loads is a hole in the demand, not capacity on the way."""
    members = Looks()
    members.take([serves("a")], 0)
    assert phases(members.take([Sighting(Replica("a", STARTING, state="loading"))], 15)) == {"a": SILENT}


def test_lost_replica_is_silent_for_ten_minutes():
    """One that is listed no more is missed for ten minutes and then forgotten, also what was known of it."""
    members = Looks()
    members.take([serves("a"), serves("b")], 0)
    for now_s in (15, 300, 614):
        replicas = members.take([serves("a")], now_s)
        assert phases(replicas) == {"a": SERVING, "b": SILENT}
        assert replicas[1].inflight is None
    assert phases(members.take([serves("a")], 615)) == {"a": SERVING}
    assert phases(members.take([serves("a"), silent("b", "refused")], 630)) == {"a": SERVING, "b": STARTING}


def test_lost_replica_that_comes_back():
    """A replica that is listed again is what it was, and its ten minutes start anew the next time."""
    members = Looks()
    members.take([serves("a")], 0)
    members.take([], 500)
    assert phases(members.take([serves("a")], 600)) == {"a": SERVING}
    assert phases(members.take([], 700)) == {"a": SILENT}
    assert phases(members.take([], 1200)) == {"a": SILENT}


def test_who_left_is_not_missed():
    """A replica that was draining, or never was ready, is gone once it is listed no more."""
    members = Looks()
    assert phases(members.take([leaves("a"), silent("b", "refused")], 0)) == {"a": DRAINING, "b": STARTING}
    assert members.take([], 15) == ()


def test_no_more_are_missed_than_there_should_be():
    """Where the count is known, a replica that was scaled away is no hole that would call for itself again."""
    members = Looks()
    members.take([serves("a"), serves("b"), serves("c")], 0, expected=3)
    assert phases(members.take([serves("a"), serves("b")], 15, expected=3)) == {"a": SERVING, "b": SERVING, "c": SILENT}
    assert phases(members.take([serves("a"), serves("b")], 30, expected=2)) == {"a": SERVING, "b": SERVING}


def test_replacement_that_never_answered_takes_nobodys_place():
    """A lost replica is missed beside the one that is listed in its stead, until that one serves: no value, no zero."""
    members = Looks()
    members.take([serves("a"), serves("b"), serves("c")], 0, expected=3)
    swapped = [serves("a"), serves("b"), silent("d", "refused")]
    for now_s in (15, 300):
        replicas = members.take(swapped, now_s, expected=3)
        assert phases(replicas) == {"a": SERVING, "b": SERVING, "c": SILENT, "d": STARTING}
    served = [serves("a"), serves("b"), serves("d")]
    assert phases(members.take(served, 315, expected=3)) == {"a": SERVING, "b": SERVING, "d": SERVING}


def test_replacement_that_never_answers_at_all():
    """The lost one is forgotten after its ten minutes, whatever stands in its stead."""
    members = Looks()
    members.take([serves("a"), serves("b")], 0, expected=2)
    swapped = [serves("a"), silent("c", "refused")]
    assert phases(members.take(swapped, 15, expected=2)) == {"a": SERVING, "b": SILENT, "c": STARTING}
    assert phases(members.take(swapped, 615, expected=2)) == {"a": SERVING, "c": STARTING}


def test_longest_lost_goes_first():
    """Of several lost replicas, those that were seen last are the likelier ones to be there."""
    members = Looks()
    members.take([serves("a"), serves("b"), serves("c")], 0)
    members.take([serves("b"), serves("c")], 15)
    assert phases(members.take([serves("c")], 30, expected=2)) == {"b": SILENT, "c": SERVING}


def test_api_list_is_the_truth():
    """With no time for the lost, one that is listed no more is forgotten at once."""
    members = Looks(lost_s=0.0)
    members.take([serves("a"), serves("b")], 0)
    assert phases(members.take([serves("a")], 15)) == {"a": SERVING}


def test_failed_source_keeps_everyone_as_silent():
    """While the source cannot be read nobody is lost: who was ready is silent, the others are what they were."""
    members = Looks()
    members.take([serves("a"), silent("b", "refused"), leaves("c")], 0)
    for now_s in (15, 3600):
        assert phases(members.missed_at(now_s)) == {"a": SILENT, "b": STARTING, "c": DRAINING}
    assert phases(members.take([serves("a"), serves("b")], 3615)) == {"a": SERVING, "b": SERVING}


@pytest.mark.parametrize("jump_s", [3600, -3600])
def test_wall_clock_that_jumps(jump_s):
    """A jump is no time that has passed: a lost replica is missed for its ten minutes."""
    members = Looks()
    members.take([serves("a")], 10_000)
    members.take([], 10_000)
    members.ahead_s = jump_s
    assert phases(members.take([], 10_599)) == {"a": SILENT}
    assert members.take([], 10_600) == ()


def test_cold_start_from_creation_to_first_value():
    """Creation as the source tells it, first served when this process saw it, once and for all."""
    members = Looks()
    starting = Sighting(Replica("a", STARTING, created_s=100.0))
    (replica,) = members.take([starting], 115)
    assert (replica.created_s, replica.served_s) == (100.0, None)
    (replica,) = members.take([serves("a", created_s=100.0)], 190)
    assert (replica.created_s, replica.served_s) == (100.0, 190)
    (replica,) = members.take([serves("a", created_s=100.0)], 205)
    assert replica.served_s == 190


def test_replica_that_served_before_this_process_has_no_cold_start():
    """A recommender that starts beside replicas of yesterday must not measure a cold start of a day."""
    (replica,) = Looks().take([serves("a", created_s=100.0)], 90_000)
    assert (replica.created_s, replica.served_s) == (100.0, None)


def test_cold_start_shorter_than_the_cycle():
    """A replica that was made and served between two looks has a cold start all the same."""
    members = Looks()
    members.take([serves("a")], 100)
    replicas = members.take([serves("a"), serves("b", created_s=103.0)], 115)
    assert replicas[1].served_s == 115


def test_creation_where_no_source_tells_it():
    """A replica that appears while we look was made then; one that was there at the first look, nobody knows."""
    members = Looks()
    members.take([silent("a", "refused")], 0)
    replicas = members.take([serves("a"), silent("b", "refused"), serves("c")], 15)
    assert [(replica.created_s, replica.served_s) for replica in replicas] == [(None, 15), (15, None), (None, None)]
    replicas = members.take([serves("a"), serves("b"), serves("c")], 75)
    assert (replicas[1].created_s, replicas[1].served_s) == (15, 75)


def test_same_name_another_pod():
    """A StatefulSet gives a Pod's name again: with another creation it is another replica."""
    members = Looks()
    members.take([serves("a-0", created_s=100.0)], 115)
    new = Sighting(Replica("a-0", SILENT, created_s=130.0))
    assert phases(members.take([new], 145)) == {"a-0": STARTING}


def test_members_are_bounded():
    """More replicas than the limit are refused, and the lost never push the listed over it."""
    members = Looks(limit=3)
    with pytest.raises(SourceError, match="4 replicas are listed: expected at most 3"):
        members.take([serves(name) for name in "abcd"], 0)
    members.take([serves(name) for name in "abc"], 0)
    assert phases(members.take([serves(name) for name in "de"], 15)) == {"a": SILENT, "d": SERVING, "e": SERVING}


def test_silence_is_told_once(caplog):
    """One line when replicas fall silent, with their names and why, and one when they are back; none in between."""
    caplog.set_level("INFO")
    members = Looks()
    names = [f"r{number}" for number in range(8)]
    members.take([serves(name) for name in names], 0)
    for now_s in (15, 30):
        members.take([serves("r0"), *(silent(name, "it hangs") for name in names[1:])], now_s)
    members.take([serves(name) for name in names], 45)
    told = [(record.getMessage(), record.__dict__["count"], record.__dict__["names"]) for record in caplog.records]
    assert told == [
        ("replicas silent", 7, "r1,r2,r3,r4,r5 and 2 more"),
        ("replicas answer again", 7, "r1,r2,r3,r4,r5 and 2 more"),
    ]
    assert caplog.records[0].__dict__["reason"] == "it hangs"
