"""Access from a Pod: its token and CA as they are now, no proxy, bounds, TLS."""

from __future__ import annotations

import logging
import shutil
import sys
from subprocess import run

import pytest

from infscale.kube.access import connect
from infscale.kube.cluster import RestCluster
from infscale.kube.errors import BrokenAnswer, KubeError, NotAllowed, Throttled, Unreachable
from infscale.kube.incluster import InCluster
from infscale.kube.rest import Rest
from infscale.kube.transport import Target
from tests.kube import objects
from tests.kube.apiserver import ApiServer
from tests.kube.conftest import TOKEN
from tests.kube.wire import Fault
from tests.raw_server import RawServer

PODS = Target("", "v1", "pods", "ml")


def read(transport: InCluster, timeout_s: float = 10.0, **options):
    """The Pods of the namespace."""
    return RestCluster(Rest(transport, timeout_s=timeout_s, **options)).pods("ml", "app=vllm")


def test_token_is_read_anew(server, account, in_cluster):
    """The kubelet renews the token within the hour: each call sends the one that is there now."""
    assert read(in_cluster) == []
    server.token = "the-next-one"
    with pytest.raises(NotAllowed):
        read(in_cluster)

    (account / "token").write_text("the-next-one")

    assert read(in_cluster) == []


def test_ca_is_read_anew(server, account, in_cluster, kube_certs):
    """A CA file that changes counts from the next call on."""
    assert read(in_cluster) == []
    shutil.copy(kube_certs.other_ca, account / "ca.crt")
    with pytest.raises(KubeError, match=r"^TLS with the API server https://127.0.0.1:\d+: .*ca.crt this cluster's CA"):
        read(in_cluster)

    shutil.copy(kube_certs.ca, account / "ca.crt")

    assert read(in_cluster) == []


@pytest.mark.parametrize("pair", ["wrong_host", "expired", "self_signed"])
def test_only_the_right_certificate_will_do(kube_certs, account, pair):
    """Another's certificate, an old one or an unknown one: the token is not sent."""
    with ApiServer(getattr(kube_certs, pair), token=TOKEN) as server:
        transport = InCluster(server.host, server.port, account / "token", account / "ca.crt")
        with pytest.raises(KubeError, match="certificate verify failed"):
            read(transport)

        assert server.requests == []


def test_no_proxy_and_no_netrc(server, in_cluster, monkeypatch, tmp_path):
    """Proxy variables, CA bundles and .netrc of the environment do not apply."""
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login x password y\n")
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/nowhere")
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    monkeypatch.setenv("NO_PROXY", "")

    assert read(in_cluster) == []
    assert {request.authorization for request in server.requests} == {f"Bearer {TOKEN}"}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, "No such file or directory: is automountServiceAccountToken off"),
        (b"", "expected one line with a token"),
        (b"a\nb", "expected one line with a token"),
        (b"a\xff", "not ASCII text"),
        (b"x" * 20_000, "expected one line with a token"),
    ],
    ids=["absent", "empty", "two lines", "not text", "long"],
)
def test_token_file_that_is_none(server, account, in_cluster, content, text):
    """A token file that is absent or holds no token is named, without what is in it, and no call is made."""
    (account / "token").unlink()
    if content is not None:
        (account / "token").write_bytes(content)

    with pytest.raises(KubeError, match=f"^service account token .*token: {text}"):
        read(in_cluster)

    assert server.requests == []


@pytest.mark.parametrize("content", [None, b"", b"not PEM"])
def test_ca_file_that_is_none(account, in_cluster, content):
    """A CA file that is absent or holds no certificate is named."""
    (account / "ca.crt").unlink()
    if content is not None:
        (account / "ca.crt").write_bytes(content)

    with pytest.raises(KubeError, match=r"ca\.crt"):
        read(in_cluster)


def test_not_in_a_pod(account):
    """Outside a Pod the error says so, and that there is kubectl."""
    with pytest.raises(KubeError, match=r"this is not a Pod .* use kubectl"):
        InCluster.from_environment({})


def test_environment_of_a_pod(server, account):
    """The kubelet's variables and the mounted account are enough."""
    environ = {"KUBERNETES_SERVICE_HOST": server.host, "KUBERNETES_SERVICE_PORT": str(server.port)}

    assert read(InCluster.from_environment(environ, account)) == []


def test_ipv6(account):
    """An IPv6 address goes into brackets."""
    with pytest.raises(Unreachable, match=r"https://\[::1\]:9 cannot be reached: .*refused"):
        read(InCluster("::1", 9, account / "token", account / "ca.crt"), sleep=lambda _: None)


def test_a_large_answer(server, account):
    """An answer over the bound is refused before it is read whole."""
    for number in range(40):
        server.add(objects.pod(f"p{number}"))
    transport = InCluster(server.host, server.port, account / "token", account / "ca.crt", max_bytes=5000)

    with pytest.raises(BrokenAnswer, match="GET pods in namespace ml: the answer is larger than 5000 bytes"):
        read(transport)


def test_retry_after_longer_than_the_call(server, in_cluster):
    """A wait that does not fit into the call is not waited for: the error says how long."""
    server.faults = [Fault("status", status=429, retry_after=60)]
    pauses: list[float] = []

    with pytest.raises(Throttled, match="too busy, wait 60 s") as caught:
        read(in_cluster, sleep=pauses.append)

    assert (caught.value.retry_after_s, caught.value.status, pauses) == (60.0, 429, [])


def test_retry_after_is_honoured(server, in_cluster):
    """A wait that fits is waited for, although the own pause would be shorter."""
    server.faults = [Fault("status", status=503, retry_after=3)]
    pauses: list[float] = []

    assert read(in_cluster, sleep=pauses.append) == []
    assert pauses == [3.0]


def test_plain_http_on_the_port(account):
    """A server that speaks no TLS is an API server that cannot be reached, not a traceback."""
    with RawServer(lambda call: call.page(b"{}"), read_request=False) as raw:
        transport = InCluster("127.0.0.1", raw.port, account / "token", account / "ca.crt")
        with pytest.raises(Unreachable, match="cannot be reached"):
            read(transport, sleep=lambda _: None)


def test_a_handshake_that_hangs(account):
    """A peer that accepts and never says a word costs the time of one call."""
    with RawServer(lambda call: call.hang(), read_request=False) as raw:
        transport = InCluster("127.0.0.1", raw.port, account / "token", account / "ca.crt")
        with pytest.raises(KubeError, match=r"within 0\.5 s"):
            read(transport, timeout_s=0.5)


def test_a_redirect_is_not_followed(kube_certs, account):
    """A redirect would take the token elsewhere: it is an error."""
    with RawServer(
        lambda call: call.page(b"", "Location: https://127.0.0.1:9/", status="302 Found"),
        tls=kube_certs.server.server_context(),
    ) as raw:
        transport = InCluster("127.0.0.1", raw.port, account / "token", account / "ca.crt")
        with pytest.raises(KubeError, match=r"redirected \(HTTP 302\)"):
            read(transport)


def test_an_echo_of_the_token_is_not_shown(kube_certs, account):
    """A page that echoes the request's headers does not bring the token into an error or a log."""
    echo = lambda call: call.page(b"<html>" + call.request, status="400 Bad Request")  # noqa: E731
    with RawServer(echo, tls=kube_certs.server.server_context()) as raw:
        transport = InCluster("127.0.0.1", raw.port, account / "token", account / "ca.crt")
        with pytest.raises(KubeError, match="HTTP 400") as caught:
            read(transport)

    assert TOKEN not in str(caught.value)


def test_nothing_logs_the_token(server, in_cluster, caplog):
    """Even with all logging on, the token is in no line."""
    caplog.set_level(logging.DEBUG)

    read(in_cluster)

    assert TOKEN not in caplog.text


def test_connect_chooses(server, account, kubeconfig, monkeypatch):
    """A Pod uses its service account unless a context or kubeconfig is named; elsewhere it is kubectl."""
    environ = {"KUBERNETES_SERVICE_HOST": server.host, "KUBERNETES_SERVICE_PORT": str(server.port)}

    with pytest.raises(KubeError, match="service account token"):
        connect(environ=environ).pods("ml", "a=b")
    assert connect(environ=environ, kubeconfig=str(kubeconfig)).pods("ml", "a=b") == []
    assert connect(environ={}, kubeconfig=str(kubeconfig), context="stand-in").pods("ml", "a=b") == []


def test_requests_is_imported_in_a_pod_only():
    """Who never needs the service account does not pay for the import of requests."""
    code = "import sys, infscale.kube.access; sys.exit('requests' in sys.modules)"

    assert run([sys.executable, "-c", code], check=False, timeout=30).returncode == 0
