"""An API server stand-in, and both ways to it: every test that takes `cluster` or `rest` runs over each."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from infscale.kube.cluster import RestCluster
from infscale.kube.incluster import InCluster
from infscale.kube.kubectl import Kubectl
from infscale.kube.rest import Rest
from infscale.kube.transport import Transport
from tests.certs import Certs, make_certs
from tests.kube.apiserver import ApiServer

TOKEN = "t0ken-that-nobody-may-see"
"""The stand-in's bearer token."""


@pytest.fixture(scope="session")
def kube_certs(tmp_path_factory: pytest.TempPathFactory) -> Certs:
    """Certificates for the stand-in."""
    return make_certs(tmp_path_factory.mktemp("kube-certs"))


@pytest.fixture(scope="session")
def kubectl_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home for kubectl's caches, so that it never touches the person's own."""
    assert shutil.which("kubectl"), "these tests run the real kubectl: install it and put it on the PATH"
    return tmp_path_factory.mktemp("kubectl-home")


@pytest.fixture
def server(kube_certs) -> Iterator[ApiServer]:
    """A stand-in with no objects."""
    with ApiServer(kube_certs.server, token=TOKEN) as api:
        yield api


@pytest.fixture
def kubeconfig(
    server: ApiServer, kube_certs: Certs, tmp_path: Path, kubectl_home: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A kubeconfig for the stand-in, and a kubectl that sees no other."""
    monkeypatch.setenv("HOME", str(kubectl_home))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    return server.kubeconfig(tmp_path, kube_certs.ca)


@pytest.fixture
def account(kube_certs: Certs, tmp_path: Path) -> Path:
    """The folder of a service account."""
    folder = tmp_path / "serviceaccount"
    folder.mkdir()
    (folder / "token").write_text(TOKEN + "\n")
    (folder / "ca.crt").write_bytes(kube_certs.ca.read_bytes())
    return folder


@pytest.fixture
def in_cluster(server, account) -> InCluster:
    """The Pod's way to the stand-in."""
    return InCluster(server.host, server.port, account / "token", account / "ca.crt")


@pytest.fixture(params=["in-cluster", "kubectl"])
def transport(request: pytest.FixtureRequest) -> Transport:
    """Each of the two ways."""
    if request.param == "in-cluster":
        pod: InCluster = request.getfixturevalue("in_cluster")
        return pod
    return Kubectl(kubeconfig=str(request.getfixturevalue("kubeconfig")))


@pytest.fixture
def rest(transport) -> Callable[..., Rest]:
    """Makes a Rest over the transport; its pauses are short."""

    def make(timeout_s: float = 20.0, **options: Any) -> Rest:
        return Rest(transport, timeout_s=timeout_s, jitter=lambda: 0.0, **options)

    return make


@pytest.fixture
def cluster(rest) -> RestCluster:
    """The cluster, over each transport."""
    return RestCluster(rest())
