"""The text of a source, right and wrong."""

from __future__ import annotations

import pytest

from infscale.core.replicas import Phase
from infscale.errors import SourceError, UsageError
from infscale.fleet.dns import Dns
from infscale.fleet.engines import EngineSettings
from infscale.fleet.kubernetes import Kubernetes
from infscale.fleet.parse import KINDS, parse_source
from infscale.fleet.prometheus import Prometheus
from infscale.fleet.source import FleetSettings, WorkloadName
from infscale.fleet.static import Static
from tests.fleet.peers import reading

NAMED = FleetSettings(workload=WorkloadName("ml", "vllm"))


class NoCluster:
    """An API that is never asked."""

    def workload(self, kind, namespace, name):
        """Not asked."""
        raise AssertionError

    def pods(self, namespace, selector):
        """Not asked."""
        raise AssertionError


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("static:http://10.0.0.1:10047,http://10.0.0.2:10047/", Static),
        ("dns:vllm-peers.ml.svc:10047", Dns),
        ("dns:vllm-peers", Dns),
        ("prometheus:http://prometheus:9090", Prometheus),
        ("prometheus:https://prometheus/behind/a/path/", Prometheus),
        ("kubernetes:deployment/ml/vllm", Kubernetes),
        ("kubernetes:serving.kserve.io/v1beta1/inferenceservices/ml/vllm", Kubernetes),
    ],
)
def test_every_kind(text, kind):
    """Each text makes its source, which knows its workload and asks nobody before it observes."""
    source = parse_source(text, NAMED, cluster=NoCluster)
    assert type(source) is kind
    assert source.workload == WorkloadName("ml", "vllm")
    source.close()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", f"fleet source '': expected one of {KINDS}"),
        ("consul:x", f"expected one of {KINDS}"),
        ("single:x", f"expected one of {KINDS}"),
        ("static:", "nothing follows its kind: expected as in static:http://10.0.0.1:10047"),
        ("static", "nothing follows its kind"),
        ("static:,", "no URL: expected as in static:http"),
        ("static:10.0.0.1:10047", "has no scheme"),
        ("static:http://a:1,http://a:1/", "a:1 is listed twice, and would count twice"),
        ("static:http://a:1/api/v2/x", "expected a sidecar's address, or an engine's page"),
        ("dns:", "expected as in dns:vllm-peers"),
        ("dns:a b:1", "'a b' is no host name"),
        ("dns:peers:0", "port '0': expected 1 to 65535"),
        ("dns:peers:http", "port 'http': expected 1 to 65535"),
        ("prometheus:", "expected as in prometheus:http"),
        ("prometheus:prom:9090", "has no scheme"),
        ("prometheus:http://u:secret@prom:9090", "holds a user name or password"),
        ("prometheus:http://prom:9090/?x=y", "has a query"),
        ("kubernetes:ml/vllm", "expected KIND/NAMESPACE/NAME, as kubernetes:deployment/inference/vllm"),
        ("kubernetes:deployment//vllm", "expected KIND/NAMESPACE/NAME"),
        ("kubernetes:deployment/ml/vllm", "no access to a cluster"),
        ("single", "only a sidecar has a replica of its own"),
    ],
)
def test_text_that_names_no_source(text, says):
    """One line that says what was expected, without a password."""
    with pytest.raises(UsageError) as error:
        parse_source(text, NAMED)
    assert says in str(error.value)
    assert "\n" not in str(error.value)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (FleetSettings(timeout_s=0), "--fleet.timeout is 0 s"),
        (FleetSettings(spec_replicas=-1), "--spec-replicas is -1"),
        (FleetSettings(engines=EngineSettings(port=0)), "--fleet.engine-port is 0"),
        (FleetSettings(sidecar_port=70000), "--fleet.sidecar-port is 70000"),
        (FleetSettings(engines=EngineSettings(path="metrics")), "--fleet.engine-path is 'metrics': expected a path"),
        (FleetSettings(ca_file="none"), "CA file none"),
        (FleetSettings(engines=EngineSettings(token_file="none")), "token file none"),
        (FleetSettings(engines=EngineSettings(ca_file="none")), "CA file none"),
        (FleetSettings(dns_server="dns.test"), "name server 'dns.test'"),
    ],
)
def test_settings_that_cannot_be_used(settings, says):
    """The flag is named."""
    with pytest.raises(UsageError, match=says):
        parse_source("dns:peers", settings)


@pytest.mark.parametrize("workload", [WorkloadName(), WorkloadName("ml", 'x"} or up{a="'), WorkloadName("ml\n", "v")])
def test_prometheus_needs_a_workload(workload):
    """Without the labels it would sum every workload; and nothing gets into the query but a name."""
    with pytest.raises(UsageError, match="expected --workload NAMESPACE/NAME"):
        parse_source("prometheus:http://prom:9090", FleetSettings(workload=workload))


def test_prometheus_files_are_looked_at_now(tmp_path):
    """A token file that is not there is told at the start."""
    with pytest.raises(UsageError, match=r"token file .*none"):
        parse_source("prometheus:http://prom:9090", FleetSettings(workload=NAMED.workload, token_file="none"))


def test_single_is_the_whole_workload():
    """One replica, read in the process; its count is 1, or what --spec-replicas says; a fault makes it silent."""
    told = reading()
    source = parse_source("single", NAMED, reading=lambda: told)
    fleet = source.observe(100.0)
    assert (fleet.now_s, fleet.spec_replicas, fleet.ready_replicas, fleet.failure) == (100.0, 1, 1, "")
    assert [(replica.phase, replica.inflight) for replica in fleet.replicas] == [(Phase.SERVING, 7)]
    told = reading(inflight=None, state="unreachable", message="refused")
    assert [replica.phase for replica in source.observe(115.0).replicas] == [Phase.SILENT]

    def hangs() -> dict[str, object]:
        raise SourceError("no answer within 5 s")

    told_anew = parse_source("single", NAMED, reading=hangs).observe(130.0)
    assert (told_anew.failure, told_anew.replicas) == ("no answer within 5 s", ())
    assert source.names() == ()
    assert parse_source("single", FleetSettings(spec_replicas=2), reading=reading).observe(0).spec_replicas == 2
