"""A replica of several Pods (examples/vllm-multinode): its leader alone publishes; it counts and leaves as one."""

from __future__ import annotations

import copy
from pathlib import Path

from infscale.retire.record import State
from tests.k8s.manifests import Object, build, compose, containers, flags, is_ours, of_kind, pods, words_of
from tests.k8s.test_objects import labels_of, selects
from tests.retire.rig import Rig
from tests.rules.promtool import promtool, write
from tools.prometheus_rule import RULES

EXAMPLE = "examples/vllm-multinode"
LEADER, WORKER = "LeaderWorkerSet/vllm-multinode", "LeaderWorkerSet/vllm-multinode worker"


def templates() -> Object:
    """Labels of the leader's and of the workers' template."""
    return {whose: labels_of(metadata) for whose, metadata, _ in pods(build(EXAMPLE))}


def test_the_leader_alone_publishes() -> None:
    """Only its template has the workload's label, the sidecar and the hook; all that selects Pods selects leaders."""
    objects = build(EXAMPLE)
    found = templates()
    assert found[LEADER]["infscale.dev/workload"] == "vllm-multinode"
    assert "infscale.dev/workload" not in found[WORKER]
    selectors = [obj["spec"]["selector"] for obj in of_kind(objects, "PodMonitor", "PodDisruptionBudget")]
    (service,) = of_kind(objects, "Service")
    for selector in (*selectors, {"matchLabels": service["spec"]["selector"]}):
        assert not selects(selector, found[WORKER])
    (worker,) = [spec for whose, _, spec in pods(objects) if whose == WORKER]
    assert not any(map(is_ours, containers(worker)))


def test_the_set_and_its_services() -> None:
    """The group begins anew as a whole; its own headless Service, called like it, stays the controller's."""
    objects = build(EXAMPLE)
    (group,) = of_kind(objects, "LeaderWorkerSet")
    assert group["spec"]["leaderWorkerTemplate"]["restartPolicy"] == "RecreateGroupOnPodRestart"
    assert group["metadata"]["name"] not in {obj["metadata"]["name"] for obj in of_kind(objects, "Service")}
    assert of_kind(objects, "Deployment") == [], "the leader's template is no Deployment in a cluster"
    assert of_kind(objects, "NetworkPolicy") == [], "it would close the ports by which the nodes of a group talk"


def test_members_run_one_engine() -> None:
    """Leader and workers are told the same but for who serves, by what the controller sets in each Pod."""
    told = {whose: words_of(spec["containers"][0]) for whose, _, spec in pods(build(EXAMPLE))}
    own = {"--headless", "--port=8000", "--shutdown-timeout=110", *words_of_hook(told[LEADER])}
    assert set(told[LEADER]) - own == set(told[WORKER]) - own
    for words in told.values():
        assert flags(words, "--nnodes") == flags(words, "--pipeline-parallel-size") == ["$(LWS_GROUP_SIZE)"]
        assert flags(words, "--node-rank") == ["$(LWS_WORKER_INDEX)"]
        assert flags(words, "--master-addr") == ["$(LWS_LEADER_ADDRESS)"]


def words_of_hook(words: list[str]) -> list[str]:
    """The part of a container's words that is its preStop command."""
    return words[words.index("sh") :]


def test_grace_period_is_set_in_one_place() -> None:
    """What the components patch into a Deployment reaches the leader: one setting moves the Pod, sidecar and hook."""
    parts = ("sidecar", "drain-exec", "leader-template")
    (leader,) = [
        spec for whose, _, spec in pods(compose("vllm-multinode", parts, settings={"grace": "300"})) if whose == LEADER
    ]
    assert leader["terminationGracePeriodSeconds"] == 300
    assert [value for one in containers(leader) for value in flags(words_of(one), "--grace")] == ["300"] * 3


def test_rules_count_groups(tmp_path: Path) -> None:
    """Two groups of two Pods are two replicas by the rules, by the sidecars and by the leaders' StatefulSet."""
    series = []
    for group, requests in ((0, 7), (1, 5)):
        own = f'job="sidecars",instance="{group}",pod="big-{group}",namespace="llm",workload="big"'
        series += [
            {"series": f"up{{{own}}}", "values": "1+0x10"},
            {"series": f"infscale_up{{{own}}}", "values": "1+0x10"},
            {"series": f"infscale_draining{{{own}}}", "values": "0+0x10"},
            {"series": f'infscale_inflight_requests{{model_name="m",{own}}}', "values": f"{requests}+0x10"},
        ]
        # kube-state-metrics tells of a group's workers, too: they have a StatefulSet, which is named like the leader.
        series += counts(f"big-{group}", 1)
    series += counts("big", 2)
    expected = {
        "workload:infscale_expected_replicas:count": 2,
        "workload:infscale_spec_replicas:max": 2,
        "workload:infscale_status_replicas:max": 2,
        "infscale_workload_demand_requests": 12,
    }
    checks = [
        {
            "expr": f'{name}{{workload!~"(sidecars)?"}}',
            "eval_time": "120s",
            "exp_samples": [{"labels": f'{name}{{workload_namespace="llm",workload="big"}}', "value": value}],
        }
        for name, value in expected.items()
    ]
    test = {"interval": "15s", "input_series": series, "promql_expr_test": checks}
    done = promtool("test", "rules", write(tmp_path / "groups.json", [test], [RULES / "workload.yaml"]))
    assert done.returncode == 0, done.stdout


def counts(name: str, replicas: int) -> list[Object]:
    """What kube-state-metrics tells of a StatefulSet."""
    own = f'{{job="kube-state-metrics",namespace="llm",statefulset="{name}"}}'
    return [
        {"series": f"{series}{own}", "values": f"{replicas}+0x10"}
        for series in ("kube_statefulset_replicas", "kube_statefulset_status_replicas")
    ]


def test_a_group_of_the_example_is_retired(tmp_path: Path) -> None:
    """Its commands are read as those of one engine, its Service is what counts, and the highest group leaves whole."""
    (service,) = of_kind(build(EXAMPLE), "Service")
    selector = ",".join(f"{key}={value}" for key, value in service["spec"]["selector"].items())
    rig = Rig(tmp_path, plural="leaderworkersets", replicas=2, service=selector)
    try:
        rig.api.change("leaderworkersets", "vllm", lambda lws: lws["spec"].update(leaderWorkerTemplate=as_admitted()))
        for pod in rig.api.list("pods"):
            rig.api.remove("pods", pod["metadata"]["name"])
        retirer = rig.retirer()
        rig.step(retirer)  # the controller makes them anew
        rig.now_s += 60
        steps = rig.run(retirer)
        assert (steps[-1].state, steps[-1].target) == (State.COMPLETED, "vllm-1")
        assert rig.pods == ["vllm-0", "vllm-0-1"]
    finally:
        rig.close()


def as_admitted() -> Object:
    """The templates of the example with what the controller's webhook sets in the environment of each container."""
    (group,) = copy.deepcopy(of_kind(build(EXAMPLE), "LeaderWorkerSet"))
    template: Object = group["spec"]["leaderWorkerTemplate"]
    told = {"LWS_LEADER_ADDRESS": "vllm-0.vllm.ml", "LWS_GROUP_SIZE": "2"}
    for seat, key in enumerate(("leaderTemplate", "workerTemplate")):
        for container in containers(template[key]["spec"]):
            env = [{"name": name, "value": value} for name, value in {**told, "LWS_WORKER_INDEX": str(seat)}.items()]
            container["env"] = [*env, *container.get("env", ())]
    return template
