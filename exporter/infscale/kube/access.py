"""How to get a `Cluster` here: in a Pod with its service account, for a person through kubectl. Commands call this."""

from __future__ import annotations

import os
from collections.abc import Mapping

from infscale.kube.cluster import Cluster, RestCluster
from infscale.kube.kubectl import Kubectl
from infscale.kube.rest import Rest
from infscale.kube.transport import Transport


def connect(
    *, context: str = "", kubeconfig: str = "", timeout_s: float = 10.0, environ: Mapping[str, str] = os.environ
) -> Cluster:
    """The cluster that this process is in, or the one that kubectl would talk to.

    Args:
        context: of the kubeconfig; with it, or with a kubeconfig, a process in a Pod uses kubectl too.
        kubeconfig: the file.
        timeout_s: for one call.
        environ: where the kubelet says that this is a Pod.

    Raises:
        KubeError: it is not a Pod, and there is no kubectl.
    """
    transport: Transport
    if environ.get("KUBERNETES_SERVICE_HOST") and not context and not kubeconfig:
        from infscale.kube.incluster import InCluster  # only here is requests needed: it takes 100 ms to import

        transport = InCluster.from_environment(environ)
    else:
        transport = Kubectl(context=context, kubeconfig=kubeconfig)
    return RestCluster(Rest(transport, timeout_s=timeout_s))
