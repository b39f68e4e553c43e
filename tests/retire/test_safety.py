"""Nothing is taken away on a held or refused read, whatever goes wrong and whenever: random faults on the stand-in."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from infscale.retire.passes import Retirer
from infscale.retire.record import State
from tests.kube.controller import restart
from tests.kube.wire import Fault
from tests.retire.rig import Rig

TARGET = "vllm-00001"
EVENTS = st.sampled_from(
    [
        "busy",
        "idle",
        "false",
        "incomplete",
        "client",
        "html",
        "well",
        "killed",
        "slow",
        "api",
        "restart",
        "token",
        "good",
    ]
)


def happen(rig: Rig, event: str) -> bool:
    """Let something happen; whether the target may be proven idle after it, for all that this event says."""
    sidecar = rig.sidecar(TARGET)
    match event:
        case "busy":
            sidecar.inflight = 2
        case "false":
            sidecar.page = sidecar.metrics().replace(b'm"} 0', b'm"} 1')
        case "incomplete":
            sidecar.said = {"complete": False}
        case "client":
            sidecar.clients = 1
        case "html":
            sidecar.page = b"<html>"
        case "idle" | "well" | "good":
            sidecar.inflight, sidecar.page, sidecar.said, sidecar.clients = 0, None, {}, 0
        case "slow":
            rig.now_s += 25
        case "api":
            rig.api.faults.append(Fault("status", status=503, times=2))
        case "restart" if TARGET in rig.pods:
            restart(rig.api, TARGET, "engine")
    return sidecar.inflight == 0 and sidecar.page is None and not sidecar.said and not sidecar.clients


@settings(max_examples=10, phases=[Phase.generate], suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(EVENTS, st.integers(1, 3)), min_size=2, max_size=7))
def test_nothing_is_deleted_on_a_held_or_refused_read(events):
    """The scale goes down only in a pass that found the target idle, and nobody else ever leaves."""
    with tempfile.TemporaryDirectory() as folder:
        rig = Rig(Path(folder))
        try:
            retirer: Retirer = rig.retirer()
            rig.run(retirer, State.WITHDRAWING)
            for event, passes in events:
                if TARGET not in rig.pods:
                    break  # it left; what begins now is another retirement
                may, restarted = happen(rig, event), event == "restart"
                retirer = rig.retirer() if event == "killed" else retirer
                for _ in range(passes):
                    before = rig.replicas
                    rig.step(retirer)
                    assert rig.replicas == before or (may and not restarted)
                    assert {"vllm-00002", "vllm-00003"} <= set(rig.pods)
            assert rig.replicas in (2, 3)
        finally:
            rig.close()
