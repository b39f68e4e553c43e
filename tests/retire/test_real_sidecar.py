"""The sidecar itself, a process of its own, says what a retirement reads; and both forms of access carry it."""

from __future__ import annotations

import pytest

from infscale.kube.cluster import RestCluster
from infscale.kube.incluster import InCluster
from infscale.kube.kubectl import Kubectl
from infscale.kube.rest import Rest
from infscale.retire.envelope import Envelope
from infscale.retire.member import IDLE
from infscale.retire.reader import MemberReader
from infscale.retire.record import Frozen
from infscale.retire.rules import Rule
from infscale.retire.target import freeze
from infscale.retire.withdrawer import Withdrawer
from tests.certs import make_certs
from tests.kube import objects
from tests.kube.apiserver import ApiServer
from tests.kube.controller import follow_replicas
from tests.raw_server import raw_server
from tests.retire.rig import engine, sidecar_container
from tests.sidecar_process import sidecar

PAGE = """\
vllm:num_requests_running{{model_name="m",engine="0"}} {running}
vllm:num_requests_waiting{{model_name="m",engine="0"}} 0
vllm:generation_tokens_total{{model_name="m",engine="0"}} 7
process_start_time_seconds 1000
"""


@pytest.fixture(params=["in-cluster", "kubectl"])
def api(request, tmp_path, monkeypatch):
    """A stand-in with one Pod, and a cluster over each form of access."""
    certs = make_certs(tmp_path)
    with ApiServer(certs.server, token="t0ken") as server:
        deployment = objects.deployment()
        deployment["spec"]["template"]["spec"] = {"containers": [engine()], "initContainers": [sidecar_container()]}
        server.add(deployment)
        follow_replicas(server, "deployments", "vllm")
        if request.param == "in-cluster":
            (tmp_path / "kube").write_text("t0ken")
            yield server, RestCluster(Rest(InCluster(server.host, server.port, tmp_path / "kube", certs.ca)))
        else:
            monkeypatch.setenv("HOME", str(tmp_path))
            yield server, RestCluster(Rest(Kubectl(kubeconfig=str(server.kubeconfig(tmp_path, certs.ca)))))


def test_a_real_sidecar_is_withdrawn_read_and_put_back(api, tmp_path):
    """Its lease, its word and its page, over the Pod proxy."""
    server, cluster = api
    token = tmp_path / "token"
    token.write_text("s3cret")
    running = [0]
    uid = server.get("pods", "vllm-00001")["metadata"]["uid"]
    with raw_server(lambda call: call.page(PAGE.format(running=running[0]).encode())) as page:
        flags = ("--engine-url", page.url(), "--engine.min-interval=0.001", "--withdraw.token-file", str(token))
        with sidecar(*flags, POD_UID=uid, POD_NAME="vllm-00001", POD_NAMESPACE="ml") as process:
            server.route("vllm-00001", 10047, int(process.address.rpartition(":")[2]))
            pod = cluster.pod("ml", "vllm-00001")
            frozen = freeze(pod, "engine")
            assert isinstance(frozen, Frozen)
            reader, withdrawer = MemberReader(cluster, "ml"), Withdrawer(cluster, "ml", str(token))
            assert withdrawer.keep(pod) is None
            envelope = reader.envelope(pod)
            idle = reader.read(frozen, pod).verdict
            running[0] = 2
            busy = reader.read(frozen, pod).verdict
            assert withdrawer.put_back(pod) is None
            back = reader.envelope(pod)
            refused = Withdrawer(cluster, "ml", str(server.kubeconfig(tmp_path, token))).keep(pod)

    assert isinstance(envelope, Envelope)
    assert isinstance(back, Envelope)
    assert (envelope.withdrawn, back.withdrawn, envelope.pod_uid) == (True, False, uid)
    assert envelope.clients
    assert (idle.kind, idle.started_at_s) == (IDLE, 1000.0)
    assert (busy.reason.rule, busy.inflight) == (Rule.SERVING, 2.0)
    assert refused
    assert refused.rule is Rule.NOT_WITHDRAWN
