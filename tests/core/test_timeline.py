"""Set the load, advance the clock, expect: the life of a workload as one story."""

from __future__ import annotations

from tests.core.workload import Workload


def test_a_day_in_short():
    """Burst, hold, fall, window, zero, wake."""
    workload = Workload("queue:4,min=0,max=8,cooldown=120,downpods=1,downwindow=60", cold_start_s=60)

    # A quiet replica within the tolerance.
    workload.load = 4
    workload.advance(60)
    assert (workload.replicas, workload.reason) == (1, "tolerance")

    # Burst: 26 requests are 7 replicas, and the HPA's default allows 4 more in 15 s.
    workload.load = 26
    workload.advance(15)
    assert (workload.replicas, workload.reason) == (5, "rate_limited")
    workload.advance(15)
    assert (workload.replicas, workload.reason) == (7, "metric")

    # Hold: while they load, the same queue asks for no more.
    workload.advance(120)
    assert (workload.replicas, workload.reason) == (7, "tolerance")
    assert workload.serving == 7

    # Fall: the window of 60 s holds the count, then one Pod goes each 15 s.
    workload.load = 6
    workload.advance(45)
    assert (workload.replicas, workload.reason) == (7, "stabilised")
    workload.advance(15)
    assert (workload.replicas, workload.reason) == (6, "rate_limited")
    workload.advance(60)
    assert workload.replicas == 2

    # Window: a short dip is held by the proposals of the last minute.
    workload.load = 2
    workload.advance(45)
    assert (workload.replicas, workload.reason) == (2, "stabilised")
    workload.load = 7
    workload.advance(15)
    assert workload.replicas == 2

    # Zero: idle for the cooldown, 1 first and then 0.
    workload.load = 0
    workload.advance(60)
    assert workload.replicas == 1
    workload.advance(45)
    assert (workload.replicas, workload.reason) == (1, "cooldown")
    workload.advance(15)
    assert (workload.replicas, workload.reason) == (0, "idle_to_zero")
    workload.advance(600)
    assert workload.replicas == 0

    # Wake: a held request is one replica, and a backlog more.
    workload.held = 1
    workload.advance(15)
    assert (workload.replicas, workload.reason) == (1, "activate_from_zero")
    workload.held = 9
    workload.advance(15)
    assert (workload.replicas, workload.reason) == (3, "metric")
    workload.held, workload.load = 0, 9
    workload.advance(90)
    assert (workload.replicas, workload.serving) == (3, 3)


def test_a_gentle_policy_goes_to_zero_from_many():
    """The cooldown is over before the window: 1 at once, and 0 with the next look."""
    workload = Workload("queue:4,min=0,cooldown=120,downwindow=3600", replicas=5)
    workload.load = 20
    workload.advance(60)
    workload.load = 0
    workload.advance(105)
    assert (workload.replicas, workload.reason) == (5, "stabilised")
    workload.advance(15)
    assert (workload.replicas, workload.reason) == (1, "idle_to_zero")
    workload.advance(15)
    assert (workload.replicas, workload.reason) == (0, "idle_to_zero")


def test_a_clock_that_goes_backwards_loses_nothing():
    """What was seen holds the count for one window from then on, and no longer."""
    workload = Workload("queue:4,downwindow=60,max=8")
    workload.load = 20
    workload.advance(120)
    assert workload.replicas == 5
    workload.now_s -= 3600
    workload.born_s = {name: born_s - 3600 for name, born_s in workload.born_s.items()}
    workload.load = 4
    workload.advance(45)
    assert (workload.replicas, workload.reason) == (5, "stabilised")
    workload.advance(30)
    assert workload.replicas == 1
