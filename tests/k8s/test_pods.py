"""The Pods that the manifests make: confined, probed, and with one grace period for all who count by it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from urllib.parse import urlsplit

import click
import pytest

from infscale.cli import cli
from tests.k8s.manifests import (
    BUILDS,
    Object,
    build,
    compose,
    containers,
    engine_pods,
    flags,
    grace_faults,
    is_ours,
    of_kind,
    pods,
    words_of,
)

SLOTS = ("--max-num-seqs", "--max-running-requests", "--parallel")
"""How the engines call the number of requests that they work on at once."""

VOLUMES = {"configMap", "downwardAPI", "emptyDir", "persistentVolumeClaim", "projected", "secret"}
"""Kinds of volumes that the restricted standard allows and a manifest may use."""


def findings(name: str, rule: Callable[[Object, Object], Iterator[str]], *, ours: bool = True) -> list[str]:
    """What a rule finds wrong with the containers (ours, or all of them) of a build's Pods."""
    return [
        f"{whose} {container['name']}: {fault}"
        for whose, _, spec in pods(build(name))
        for container in containers(spec)
        if is_ours(container) or not ours
        for fault in rule(spec, container)
    ]


def unprivileged(spec: Object, container: Object) -> Iterator[str]:
    """What everybody keeps to: no new privileges, no capabilities, the runtime's system calls, nothing of the host."""
    own = container.get("securityContext", {})
    if own.get("allowPrivilegeEscalation") is not False:
        yield "allowPrivilegeEscalation is not false"
    if own.get("capabilities") != {"drop": ["ALL"]}:
        yield "capabilities are not dropped, all of them"
    if {"privileged", "procMount", "seLinuxOptions", "windowsOptions"} & own.keys():
        yield f"has one of {sorted(own)}"
    if {"hostNetwork", "hostPID", "hostIPC"} & spec.keys() or any(
        "hostPort" in port for port in container.get("ports", ())
    ):
        yield "is on the host"
    for volume in spec.get("volumes", ()):
        if not volume.keys() - {"name"} <= VOLUMES:
            yield f"volume {volume}"


def restricted(spec: Object, container: Object) -> Iterator[str]:
    """The whole restricted Pod Security Standard, and beyond it a read-only root and one user."""
    yield from unprivileged(spec, container)
    of_pod, own = spec.get("securityContext", {}), container.get("securityContext", {})
    told = {**of_pod, **own}
    if told.get("runAsNonRoot") is not True or told.get("runAsUser") != 65532:
        yield "does not run as 65532"
    if told.get("seccompProfile") != {"type": "RuntimeDefault"}:
        yield "seccompProfile is not RuntimeDefault"
    if own.get("readOnlyRootFilesystem") is not True:
        yield "its root can be written to"


@pytest.mark.parametrize("name", BUILDS)
def test_our_containers_are_restricted(name: str) -> None:
    """Each of ours, init containers too, keeps to restricted Pod Security; engines drop what they can do without."""
    assert findings(name, restricted) == []
    assert findings(name, unprivileged, ours=False) == []


def test_a_loose_container_is_found() -> None:
    """The rule bites: each part of the confinement, taken away, is a finding."""
    ((_, _, spec, _, sidecar),) = engine_pods(build("examples/sim"))
    assert list(restricted(spec, sidecar)) == []
    for key in sidecar["securityContext"].keys() - {"runAsGroup"}:
        loose = {**sidecar, "securityContext": {k: v for k, v in sidecar["securityContext"].items() if k != key}}
        assert list(restricted({**spec, "securityContext": {}}, loose)), key
    assert list(restricted({**spec, "hostNetwork": True}, sidecar))
    assert list(restricted({**spec, "volumes": [{"name": "root", "hostPath": {"path": "/"}}]}, sidecar))


def test_namespace_that_enforces_it_could_hold_the_pods() -> None:
    """Where a namespace says `restricted`, every Pod in it is, also the engines."""
    enforcing = [
        (name, space["metadata"]["name"])
        for name in BUILDS
        for space in of_kind(build(name), "Namespace")
        if space["metadata"]["labels"].get("pod-security.kubernetes.io/enforce") == "restricted"
    ]
    assert enforcing
    for _, space in enforcing:
        inside = [name for name in BUILDS if any(obj["metadata"].get("namespace") == space for obj in build(name))]
        assert [fault for name in inside for fault in findings(name, restricted, ours=False)] == []


@pytest.mark.parametrize("name", BUILDS)
def test_resources_of_our_containers(name: str) -> None:
    """Requests for both, a limit of memory, none of the CPU: a throttled sidecar would be late at its probes."""

    def rule(_: Object, container: Object) -> Iterator[str]:
        told = container.get("resources", {})
        if told.get("requests", {}).keys() != {"cpu", "memory"} or told.get("limits", {}).keys() != {"memory"}:
            yield f"resources {told}"

    assert findings(name, rule) == []


@pytest.mark.parametrize("name", BUILDS)
def test_command_lines_are_understood(name: str) -> None:
    """Each of our containers' arguments, and each hook that calls infscale, is one that the command line takes."""

    def rule(_: Object, container: Object) -> Iterator[str]:
        hook = container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", [])
        for words in (container.get("args", []), hook[1:] if hook[:1] == ["infscale"] else None):
            if words is None:
                continue
            command = cli.get_command(click.Context(cli), words[0])
            if command is None:
                yield f"no command {words[0]}"
                continue
            try:
                command.make_context(words[0], list(words[1:]))
            except click.ClickException as error:
                yield error.format_message()

    assert findings(name, rule) == []


@pytest.mark.parametrize("name", BUILDS)
def test_sidecar_is_native_and_has_no_startup_probe(name: str) -> None:
    """An init container that restarts, or the classic one that waits for the engine; a crash holds no engine up."""
    for whose, _, spec, _, sidecar in engine_pods(build(name)):
        native = sidecar in spec.get("initContainers", ())
        assert native is (name != "examples/vllm-classic"), whose
        assert (sidecar.get("restartPolicy") == "Always") is native, whose
        assert "startupProbe" not in sidecar, whose
        marking = ["infscale", "mark-terminating"] + ([] if native else ["--wait"])
        assert sidecar["lifecycle"]["preStop"]["exec"]["command"] == marking, whose


@pytest.mark.parametrize("name", BUILDS)
def test_probes(name: str) -> None:
    """Every container that stays has probes at ports of its own, and ends within seconds when it hangs."""
    for whose, _, spec in pods(build(name)):
        for container in containers(spec):
            one_shot = container in spec.get("initContainers", ()) and "restartPolicy" not in container
            if one_shot or spec.get("restartPolicy") == "Never":
                continue
            where = f"{whose} {container['name']}"
            if whose.endswith(" worker"):
                assert not {"ports", "readinessProbe", "livenessProbe", "startupProbe"} & container.keys(), where
                continue  # it serves nothing, and ends with its leader
            ports = {port.get("name"): port["containerPort"] for port in container["ports"]}
            assert "readinessProbe" in container, where
            assert "livenessProbe" in container or not is_ours(container), where
            for kind in {"readinessProbe", "livenessProbe", "startupProbe"} & container.keys():
                probe = container[kind]
                port = (probe.get("httpGet") or probe["tcpSocket"])["port"]
                assert port in {*ports, *ports.values()}, f"{where}: {kind} at {port}"
                if kind != "readinessProbe":
                    assert probe["terminationGracePeriodSeconds"] <= 30 < 1 + spec["terminationGracePeriodSeconds"], (
                        where
                    )
            if is_ours(container) and container["args"][0] != "sim-engine":
                assert container["readinessProbe"]["httpGet"] == {"path": "/-/ready", "port": 10048}, where
                assert container["livenessProbe"]["httpGet"] == {"path": "/-/healthy", "port": 10048}, where
                assert ports["infscale"] == 10047, where
                assert ports["infscale-probe"] == 10048, where


@pytest.mark.parametrize("name", BUILDS)
def test_withdrawal_fits_its_budget(name: str) -> None:
    """The sidecar's readiness is asked every 2 s and one failure suffices: 30 s are all that a withdrawal has."""
    for whose, _, _, _, sidecar in engine_pods(build(name)):
        probe = sidecar["readinessProbe"]
        assert (probe["periodSeconds"], probe["failureThreshold"]) == (2, 1), whose


@pytest.mark.parametrize("name", BUILDS)
def test_one_grace_period(name: str) -> None:
    """`--grace` of sidecar and hook is the Pod's own; vLLM's shutdown time-out is below it; 120 s unless set."""
    assert [fault for whose, _, spec in pods(build(name)) for fault in grace_faults(whose, spec)] == []
    for whose, _, spec, engine, sidecar in engine_pods(build(name)):
        assert spec["terminationGracePeriodSeconds"] == 120, whose
        assert flags(words_of(sidecar), "--grace") == ["120"], whose
        if engine["image"].startswith("vllm/"):
            assert flags(words_of(engine), "--shutdown-timeout"), f"{whose}: vLLM aborts at once without it"


@pytest.mark.parametrize(
    "components", [("sidecar", "drain-exec"), ("sidecar", "drain-http"), ("sidecar-classic", "drain-exec")]
)
def test_grace_period_is_set_in_one_place(components: Sequence[str]) -> None:
    """One setting moves the Pod's grace period, the sidecar's and the hook's, default and call alike."""
    objects = compose("vllm", components, settings={"grace": "300", "exit-reserve": "8"})
    ((whose, _, spec, engine, sidecar),) = engine_pods(objects)
    assert spec["terminationGracePeriodSeconds"] == 300
    told = [value for container in containers(spec) for value in flags(words_of(container), "--grace")]
    assert set(told) == {"300"}
    assert len(told) == (3 if "drain-exec" in components else 1)
    assert {value for container in containers(spec) for value in flags(words_of(container), "--exit-reserve")} == {"8"}
    assert list(grace_faults(whose, {**spec, "terminationGracePeriodSeconds": 301}))
    assert engine is not sidecar


@pytest.mark.parametrize("name", BUILDS)
def test_roles_of_a_pair_have_time_to_exit(name: str) -> None:
    """Prefill and decode replicas need 20 s after SIGTERM, and then a grace period of at least 45 s."""
    for whose, _, spec, engine, _ in engine_pods(build(name)):
        role = flags(words_of(engine), "--disaggregation-mode")
        reserves = {value for one in containers(spec) for value in flags(words_of(one), "--exit-reserve")}
        assert reserves == ({"20"} if role else {"5"}), whose
        assert spec["terminationGracePeriodSeconds"] >= 45 or not role, whose


@pytest.mark.parametrize("name", BUILDS)
def test_sidecar_hook_and_engine_agree(name: str) -> None:
    """Sidecar and hook read the page where the engine's arguments put it; an annotation names that page or ours."""
    for whose, metadata, spec, engine, sidecar in engine_pods(build(name)):
        (port,) = flags(words_of(engine), "--port")
        assert {one["containerPort"] for one in engine["ports"] if one["name"] == "http"} == {int(port)}, whose
        page = f"http://127.0.0.1:{port}/metrics"
        assert flags(words_of(sidecar), "--engine-url") == [page], whose
        hook = [one for one in containers(spec) if one.get("args", [""])[0] == "install-hook"]
        told = [value for one in (*hook, engine) for value in flags(words_of(one), "--url")]
        assert told == [page] * (2 * len(hook)), whose
        annotations = metadata.get("annotations", {})
        if "prometheus.io/port" in annotations:
            read = (annotations["prometheus.io/port"], annotations.get("prometheus.io/path", "/metrics"))
            own = {one["name"]: str(one["containerPort"]) for one in sidecar["ports"]}["infscale"]
            assert read in {(own, "/metrics"), (port, urlsplit(page).path)}, whose
            assert annotations.get("prometheus.io/scheme", "http") == "http", whose


@pytest.mark.parametrize("name", BUILDS)
def test_sidecar_is_told_the_slots(name: str) -> None:
    """No page tells them: the sidecar's capacity is the number of the engine's own flag, empty where it has none."""
    for whose, _, _, engine, sidecar in engine_pods(build(name)):
        (capacity,) = [one["value"] for one in sidecar["env"] if one["name"] == "INFSCALE_CAPACITY"]
        slots = [value for flag in SLOTS for value in flags(words_of(engine), flag)]
        assert [capacity] == (slots or [""]), whose


@pytest.mark.parametrize("name", BUILDS)
def test_every_engine_has_one_drain(name: str) -> None:
    """By a numeric port of the sidecar, or by the hook that an init container wrote into a volume mounted read-only."""
    for whose, _, spec, engine, sidecar in engine_pods(build(name)):
        hook = engine["lifecycle"]["preStop"]
        if "httpGet" in hook:
            probe = {one["name"]: one["containerPort"] for one in sidecar["ports"]}["infscale-probe"]
            assert hook == {"httpGet": {"port": probe, "path": "/drain"}}, whose
            assert isinstance(hook["httpGet"]["port"], int), whose
            continue
        command = hook["exec"]["command"]
        (writer,) = [one for one in spec["initContainers"] if one["args"][0] == "install-hook"]
        folder = writer["args"][1]
        assert command[:2] == ["sh", f"{folder}/infscale-drain"], whose
        assert command[2:] == writer["args"][2:], f"{whose}: the hook is called as it was written"
        (written,) = [one for one in writer["volumeMounts"] if one["mountPath"] == folder]
        (read,) = [one for one in engine["volumeMounts"] if one["mountPath"] == folder]
        assert read == {"name": written["name"], "mountPath": folder, "readOnly": True}, whose


@pytest.mark.parametrize("name", BUILDS)
def test_termination_mark_is_the_sidecars_alone(name: str) -> None:
    """Its socket is in a volume that nobody else mounts; the token is optional and read-only."""
    for whose, _, spec, _, sidecar in engine_pods(build(name)):
        mounted = [
            one["name"]
            for one in containers(spec)
            for at in one.get("volumeMounts", ())
            if at["mountPath"] == "/run/infscale"
        ]
        assert mounted == [sidecar["name"]], whose
        token = next(one for one in sidecar["volumeMounts"] if one["name"] == "infscale-token")
        assert token["readOnly"] is True, whose
        volume = next(one for one in spec["volumes"] if one["name"] == "infscale-token")
        assert volume["secret"] == {"secretName": "infscale-token", "optional": True}, whose
        file = next(one["value"] for one in sidecar["env"] if one["name"] == "INFSCALE_WITHDRAW_TOKEN_FILE")
        assert file == f"{token['mountPath']}/token", whose


@pytest.mark.parametrize("name", BUILDS)
def test_pods_carry_their_workload(name: str) -> None:
    """The label that every series and trigger selects by is the workload's own name; the sidecar knows its Pod."""
    for whose, metadata, _, _, sidecar in engine_pods(build(name)):
        kind, _, owner = whose.partition("/")
        expected = f"{owner}-predictor" if kind == "InferenceService" else owner
        assert metadata["labels"]["infscale.dev/workload"] == expected
        paths = {one["name"]: one["valueFrom"]["fieldRef"]["fieldPath"] for one in sidecar["env"] if "valueFrom" in one}
        assert paths == {f"POD_{word.upper()}": f"metadata.{word}" for word in ("namespace", "name", "uid")}, whose


@pytest.mark.parametrize("name", BUILDS)
def test_only_the_callers_of_the_api_have_a_token(name: str) -> None:
    """No Pod has an account's token but the recommender's; `enableServiceLinks` is off beside our variables."""
    for whose, _, spec in pods(build(name)):
        if not any(map(is_ours, containers(spec))):
            continue
        calls = whose == "Deployment/infscale-recommender"
        assert spec["automountServiceAccountToken"] is calls, whose
        assert spec["enableServiceLinks"] is False, whose


@pytest.mark.parametrize("name", BUILDS)
def test_mounts_and_ports_fit(name: str) -> None:
    """Each mount has its volume and each volume its mount; names of ports are legal, no port is taken twice."""
    for whose, _, spec in pods(build(name)):
        mounts = {at["name"] for one in containers(spec) for at in one.get("volumeMounts", ())}
        assert mounts == {one["name"] for one in spec.get("volumes", ())}, whose
        ports = [port for one in containers(spec) for port in one.get("ports", ())]
        assert all(re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,13}[a-z0-9])?", port["name"]) for port in ports), whose
        for key in ("name", "containerPort"):
            assert len({port[key] for port in ports}) == len(ports), whose
