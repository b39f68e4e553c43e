"""The API server stand-in and both ways to it, as the tests of `infscale.kube` have them."""

from __future__ import annotations

from tests.kube.conftest import (
    account,
    cluster,
    in_cluster,
    kube_certs,
    kubeconfig,
    kubectl_home,
    rest,
    server,
    transport,
)

__all__ = [
    "account", "cluster", "in_cluster", "kube_certs", "kubeconfig", "kubectl_home", "rest", "server", "transport",
]  # fmt: skip
