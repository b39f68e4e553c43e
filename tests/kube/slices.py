"""EndpointSlices for the stand-in: by hand (`objects.endpoint_slice`), or kept from the Pods' readiness from now on."""

from __future__ import annotations

from tests.kube import objects
from tests.kube.apiserver import ApiServer
from tests.kube.store import Json
from tests.kube.victims import is_ready


def follow_endpoints(server: ApiServer, service: str, selector: str, namespace: str = "ml") -> None:
    """Make a Service's slice follow the Pods that a selector selects. Call it after `follow_replicas`.

    Source: k8s.io/endpointslice `podToEndpoint`: ready is serving and not terminating, but for Services that publish
    addresses that are not ready.
    """
    before = server.hook
    with server.lock:
        made = server.add(objects.endpoint_slice(f"{service}-x7k2p", namespace, service=service))
    name = made["metadata"]["name"]

    def step() -> None:
        before()
        pods = server.list("pods", selector, namespace)
        found = [_endpoint(pod) for pod in pods if pod["status"].get("podIP") and _runs(pod)]
        if server.get("endpointslices", name, namespace)["endpoints"] != found:
            server.change("endpointslices", name, lambda s: s.update(endpoints=found), namespace)

    server.hook = step
    with server.lock:
        step()


def _runs(pod: Json) -> bool:
    return pod["status"].get("phase") not in ("Failed", "Succeeded")


def _endpoint(pod: Json) -> Json:
    meta = pod["metadata"]
    serving, terminating = is_ready(pod), "deletionTimestamp" in meta
    return objects.endpoint(
        pod["status"]["podIP"],
        ready=serving and not terminating,
        serving=serving,
        terminating=terminating,
        pod={"name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"]},
    )
