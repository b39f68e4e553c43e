"""The turns of `infscale kube` on a driven clock, in a Pod's form of access: the loop, Pods that come and go, seams."""

from __future__ import annotations

import pytest

from infscale.applier import KubeApplier
from infscale.core.grammar import parse_policy
from infscale.core.memory import ScaleState
from infscale.engines import PROFILES
from infscale.errors import SourceError, StateError
from infscale.kube.cluster import RestCluster
from infscale.kube.rest import Rest
from infscale.kube_command import TRIES, KubeTurns, PlainScaler, Scaled
from infscale.pod_pages import PageSettings, PodPages
from infscale.state_file import read_state
from tests.kube.street import Street
from tests.kube.wire import Fault

POLICY = "queue:4,max=3,downwindow=20"


@pytest.fixture
def street(server):
    """One replica; new ones are ready after 5 s, and one that leaves takes 5 s."""
    with Street(server, ready_after_s=5, gone_after_s=5) as made:
        made.now_s += 10
        yield made


@pytest.fixture
def cluster(in_cluster):
    """Access from a Pod."""
    return RestCluster(Rest(in_cluster, sleep=lambda _: None))


@pytest.fixture
def turns(street, cluster, tmp_path):
    """Makes turns that scale; their state is in the file `s`."""

    def make(policy=POLICY, **options):
        applier = KubeApplier(cluster, "deployment", "ml", "vllm", "me", wall_clock=lambda: street.now_s)
        settings = PageSettings(port="8000", profiles=tuple(PROFILES.values()), timeout_s=2.0)
        pages = PodPages(cluster, "deployment", "ml", "vllm", settings)
        plain = PlainScaler(applier, cluster)
        given = {"state": ScaleState(), "state_path": tmp_path / "s", "scaler": plain, **options}
        return KubeTurns(pages, parse_policy(policy), wall_clock=lambda: street.now_s, **given)

    return make


def test_the_loop(street, turns):
    """Load makes 1 to 3; zero is held, stabilised, until 20 s have gone by since the last look at load; then 1."""
    loop, began_s = turns(), street.now_s
    counts, reasons = {}, {}
    for second in (0, 5, 10, 25, 30, 35, 40, 44.9, 45, 60):
        street.now_s, street.load = began_s + second, 12 if 5 <= second < 30 else 0
        turn = loop.turn()
        counts[second], reasons[second] = street.replicas, turn.decision.reason.value
    loop.stop()

    assert list(counts.values()) == [1, 3, 3, 3, 3, 3, 3, 3, 1, 1]
    assert {reasons[second] for second in (30, 35, 40, 44.9)} == {"stabilised"}
    assert street.server.get("leases", "infscale-deployments.apps-vllm")["spec"]["holderIdentity"] is None


def test_pods_that_start_and_leave(street, turns):
    """A Pod without an address, one that never was ready and one that leaves have rows, and are no holes."""
    street.load = 12
    loop = turns()
    loop.turn()
    street.now_s += 1
    street.quiet.update({"vllm-00002", "vllm-00003"})

    starting = loop.turn()
    rows = [(seen.pod.name, seen.replica.phase.value) for seen in starting.look.pods]

    assert rows == [("vllm-00001", "serving"), ("vllm-00002", "starting"), ("vllm-00003", "starting")]
    assert (starting.look.ready_with_metrics, starting.change) == (1, False)
    street.quiet.clear()
    street.now_s += 30
    street.load = 0
    street.server.change("deployments", "vllm", lambda d: d["spec"].update(replicas=2))
    leaving = loop.turn()
    assert sorted(seen.replica.phase.value for seen in leaving.look.pods) == ["draining", "serving", "serving"]


def test_a_silent_pod_takes_nothing_down(street, turns):
    """A Pod that was ready and does not answer counts as at its target: it neither lowers the count nor raises it."""
    street.load = 12
    loop = turns("queue:4,max=3,downwindow=0")
    loop.turn()
    street.now_s += 30
    assert loop.turn().look.ready_with_metrics == 3
    street.quiet.update({"vllm-00001", "vllm-00002"})
    street.load = 0
    street.now_s += 15

    turn = loop.turn()

    assert [seen.replica.phase.value for seen in turn.look.pods] == ["silent", "silent", "serving"]
    assert (turn.decision.reason.value, street.replicas) == ("partial_samples", 3)
    assert "refused" in turn.look.pods[0].error


def test_a_read_that_fails_ends_the_turn(street, turns, tmp_path):
    """The API's own refusal of a Pod's page is an error of the whole look: nothing is decided, kept or scaled."""
    street.load = 12
    loop = turns()
    street.server.faults = [Fault("status", path="/proxy/", status=500, times=9)]

    with pytest.raises(SourceError, match="HTTP 500"):
        loop.turn()

    assert street.replicas == 1
    assert not (tmp_path / "s").exists()
    street.server.faults.clear()
    assert loop.turn().scaled == Scaled(applied=True)


def test_a_state_that_cannot_be_kept(street, turns, tmp_path):
    """Without a place for the state nothing is scaled: the change could not be remembered."""
    street.load = 12

    with pytest.raises(StateError, match="cannot be written"):
        turns(state_path=tmp_path / "none" / "s").turn()

    assert street.replicas == 1


def before_writes_of_the_scale(server, rival):
    """Let a rival write before each write of the scale."""
    server.before_write = lambda: rival() if server.requests[-1].path.endswith("/scale") else None


def test_a_conflict_is_decided_anew(street, turns):
    """When another set the count in between, its count is what the next decision is made on."""
    street.load = 12
    counts = iter([2])

    def rival():
        if count := next(counts, None):
            street.server.change("deployments", "vllm", lambda d: d["spec"].update(replicas=count))

    before_writes_of_the_scale(street.server, rival)

    turn = turns().turn()

    assert (turn.decision.current, turn.decision.desired, turn.scaled) == (2, 3, Scaled(applied=True))
    assert street.replicas == 3


def test_conflicts_without_end(street, turns, tmp_path):
    """Against one who writes all the time it gives up after three looks, says so, and remembers no change."""
    street.load, count = 12, [0]

    def rival():
        count[0] += 1
        street.server.change("deployments", "vllm", lambda d: d["metadata"].update(labels={"n": str(count[0])}))

    before_writes_of_the_scale(street.server, rival)

    turn = turns("queue:4,max=3,uppods=4").turn()

    assert (street.replicas, count, turn.scaled.applied) == (1, [TRIES], False)
    assert "it has changed since it was read" in turn.scaled.message
    assert read_state(tmp_path / "s", street.now_s).state.hpa.scale_up_events == ()


def test_a_dry_run_counts_against_no_limit(street, turns, tmp_path):
    """What was not done is not remembered as done: later turns may still add what was asked for."""
    street.load = 400
    dry, policy = {"scaler": None}, "queue:4,uppods=4"
    watched = turns(policy, **dry)
    for _ in range(3):
        turn = watched.turn()
        assert (turn.decision.current, turn.decision.desired, turn.scaled) == (1, 5, None)
        street.now_s += 1
    assert read_state(tmp_path / "s", street.now_s).state.hpa.scale_up_events == ()

    turns(policy, state=read_state(tmp_path / "s", street.now_s).state).turn()

    assert [event.change for event in read_state(tmp_path / "s", street.now_s).state.hpa.scale_up_events] == [4]


class Retiring:
    """A scaler that needs several turns for a step down, as the retirement protocol does."""

    def __init__(self, server, passes):
        self.asked, self.stopped = [], 0
        self._server, self._passes = server, passes

    def scale(self, workload, decision, now_s):
        """A pass; the last one takes one replica away."""
        self.asked.append((decision.current, decision.desired))
        if len(self.asked) < self._passes:
            return Scaled(False, f"retiring: pass {len(self.asked)}")
        self._server.change("deployments", "vllm", lambda d: d["spec"].update(replicas=decision.current - 1))
        return Scaled(True)

    def stop(self):
        """Count."""
        self.stopped += 1


def test_another_way_down(street, turns, tmp_path):
    """Scaling down is one object: each turn it goes a step on; a step is no change yet."""
    street.server.change("deployments", "vllm", lambda d: d["spec"].update(replicas=2))
    retiring = Retiring(street.server, 3)
    loop = turns("queue:4,max=2,downwindow=0,downpods=1", scaler=retiring)
    messages = []
    for _ in range(3):
        street.now_s += 15
        messages.append(loop.turn().scaled.message)
        events = read_state(tmp_path / "s", street.now_s).state.hpa.scale_down_events
    loop.stop()

    assert messages == ["retiring: pass 1", "retiring: pass 2", ""]
    assert retiring.asked == [(2, 1)] * 3
    assert ([event.change for event in events], street.replicas, retiring.stopped) == ([1], 1, 1)


def test_a_pod_that_is_stale(street, turns):
    """An engine whose gauges stand still for two minutes is stale, and nothing falls on that."""
    street.load = 1
    page = b'vllm:num_requests_running{model_name="m"} 1\nvllm:num_requests_waiting{model_name="m"} 0\n'
    page += b'vllm:generation_tokens_total{model_name="m"} 7\n'
    street.pages["vllm-00001"] = ("200 OK", page)
    loop = turns("queue:4,max=3,downwindow=0")
    states = []
    for _ in range(3):
        states.append(loop.turn().look.pods[0].replica.state)
        street.now_s += 100

    assert states == ["ok", "ok", "stale"]
