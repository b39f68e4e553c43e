"""Objects of the Kubernetes API to the values of `objects`; every function raises BrokenAnswer for what cannot be.

Called by `cluster` only. The defaults are those that the API server or the controller in question applies.
"""

from __future__ import annotations

from collections.abc import Mapping

from infscale.kube.fields import Fields
from infscale.kube.objects import Container, Endpoint, Owner, OwnerReference, Pod, Port, Role, Scale, Workload
from infscale.kube.selector import selector_text
from infscale.kube.transport import Target


def scale_of(scale: Fields) -> Scale:
    """A Scale (autoscaling/v1). It leaves out what is 0: `spec: {}` asks for no replica."""
    return Scale(
        spec_replicas=scale.at("spec").whole("replicas", 0),
        status_replicas=scale.at("status").whole("replicas", 0),
        selector=scale.at("status").text("selector", ""),
        resource_version=scale.at("metadata").text("resourceVersion"),
    )


def workload_of(workload: Fields, target: Target, scale: Scale | None = None) -> Workload:
    """A Deployment or StatefulSet (apps/v1); with a scale, anything: counts and selector are then the scale's.

    An apps/v1 object without `spec.replicas` asks for 1 (pkg/apis/apps/v1/defaults.go).
    """
    metadata, spec, status = workload.at("metadata"), workload.at("spec"), workload.at("status")
    return Workload(
        kind=workload.text("kind"),
        target=target,
        uid=metadata.text("uid"),
        spec_replicas=scale.spec_replicas if scale else spec.whole("replicas", 1),
        status_replicas=scale.status_replicas if scale else status.whole("replicas", 0),
        ready_replicas=status.whole("readyReplicas", 0),
        selector=scale.selector if scale else selector_text(spec.at("selector")),
        generation=metadata.whole("generation", 0),
        observed_generation=status.whole("observedGeneration", 0),
        resource_version=metadata.text("resourceVersion"),
        containers=_containers(spec.at("template", "spec"), Fields({}, "no status")),
        annotations=metadata.pairs("annotations"),
        pod_annotations=spec.at("template", "metadata").pairs("annotations"),
        paused=spec.flag("paused"),
    )


def pod_of(pod: Fields) -> Pod:
    """A Pod (v1)."""
    metadata, status = pod.at("metadata"), pod.at("status")
    ready = [condition for condition in status.items("conditions") if condition.text("type") == "Ready"]
    return Pod(
        name=metadata.text("name"),
        uid=metadata.text("uid"),
        phase=status.text("phase", "Unknown"),
        creation_s=metadata.time_s("creationTimestamp") or 0.0,
        start_s=status.time_s("startTime"),
        deletion_s=metadata.time_s("deletionTimestamp"),
        ready=ready[0].text("status") if ready else None,
        ready_since_s=ready[0].time_s("lastTransitionTime") if ready else None,
        ip=status.text("podIP", ""),
        labels=metadata.pairs("labels"),
        annotations=metadata.pairs("annotations"),
        containers=_containers(pod.at("spec"), status),
        namespace=metadata.text("namespace", ""),
        resource_version=metadata.text("resourceVersion", ""),
        owner=_owner_of(metadata),
    )


def endpoints_of(endpoint_slice: Fields, pod: Pod) -> list[Endpoint]:
    """The endpoints of an EndpointSlice (discovery.k8s.io/v1) that are a Pod, by its UID or, without one, its address.

    Source of the defaults: k8s.io/api/discovery/v1 `EndpointConditions`: ready unknown is ready, serving unknown is as
    ready, terminating unknown is not terminating.
    """
    metadata = endpoint_slice.at("metadata")
    found = []
    for endpoint in endpoint_slice.items("endpoints"):
        addresses, uid = endpoint.texts("addresses"), endpoint.at("targetRef").text("uid", "")
        if uid != pod.uid and not (pod.ip and pod.ip in addresses):
            continue
        conditions = endpoint.at("conditions")
        ready = conditions.flag("ready", default=True)
        found.append(
            Endpoint(
                slice_name=metadata.text("name"),
                service=metadata.pairs("labels").get("kubernetes.io/service-name", ""),
                address=addresses[0] if addresses else "",
                ready=ready,
                serving=conditions.flag("serving", default=ready),
                terminating=conditions.flag("terminating"),
            )
        )
    return found


def hpa_of(hpa: Fields, target: Target, kind: str) -> Owner | None:
    """A HorizontalPodAutoscaler (autoscaling/v2), if it scales the workload of this kind."""
    spec = hpa.at("spec")
    if not _refers(spec.at("scaleTargetRef"), target, kind, default_kind=""):
        return None
    return Owner(
        kind="HorizontalPodAutoscaler",
        name=hpa.at("metadata").text("name"),
        min_replicas=spec.whole("minReplicas", 1),
        max_replicas=spec.whole("maxReplicas"),
        scale_down_disabled=_down_disabled(spec),
    )


def scaled_object_of(scaled: Fields, target: Target, kind: str) -> Owner | None:
    """A ScaledObject (keda.sh/v1alpha1), if it scales the workload of this kind.

    Source of the defaults: KEDA apis/keda/v1alpha1/scaledobject_types.go: a Deployment, minimum 0, maximum 100.
    """
    spec = scaled.at("spec")
    if not _refers(spec.at("scaleTargetRef"), target, kind, default_kind="Deployment"):
        return None
    return Owner(
        kind="ScaledObject",
        name=scaled.at("metadata").text("name"),
        min_replicas=spec.whole("minReplicaCount", 0),
        max_replicas=spec.whole("maxReplicaCount", 100),
        scale_down_disabled=_down_disabled(spec.at("advanced", "horizontalPodAutoscalerConfig")),
    )


def _refers(reference: Fields, target: Target, kind: str, *, default_kind: str) -> bool:
    """Whether a scaleTargetRef means the workload: by group, kind and name; versions of one group are one object.

    A reference without a group matches by kind and name alone: to see one writer too many is the safe side.
    """
    group = reference.text("apiVersion", "").rpartition("/")[0]
    same = reference.text("kind", default_kind) == kind and reference.text("name") == target.name
    return same and group in ("", target.group)


def _down_disabled(owner: Fields) -> bool:
    return owner.at("behavior", "scaleDown").text("selectPolicy", "") == "Disabled"


def _owner_of(metadata: Fields) -> OwnerReference | None:
    for reference in metadata.items("ownerReferences"):
        if reference.flag("controller"):
            return OwnerReference(reference.text("kind"), reference.text("name"), reference.text("uid"))
    return None


def _containers(spec: Fields, status: Fields) -> tuple[Container, ...]:
    apps = [(container, Role.APP) for container in spec.items("containers")]
    inits = [
        (container, Role.SIDECAR if container.text("restartPolicy", "") == "Always" else Role.INIT)
        for container in spec.items("initContainers")
    ]
    states = [*status.items("containerStatuses"), *status.items("initContainerStatuses")]
    by_name = {state.text("name"): state for state in states}
    return tuple(_container(container, role, by_name) for container, role in apps + inits)


def _container(container: Fields, role: Role, states: Mapping[str, Fields]) -> Container:
    name = container.text("name")
    state = states.get(name, Fields({}, "no status"))
    return Container(
        name,
        role,
        container.at("resources", "requests").quantity_milli("cpu"),
        image=container.text("image", ""),
        command=tuple(container.texts("command")),
        args=tuple(container.texts("args")),
        ports=tuple(Port(port.text("name", ""), port.whole("containerPort")) for port in container.items("ports")),
        env={
            entry.text("name"): entry.text("value", "")
            for entry in container.items("env")
            if not entry.has("valueFrom")
        },
        container_id=state.text("containerID", "") or None,
        restart_count=state.whole("restartCount", 0),
        running=state.at("state").has("running"),
    )
