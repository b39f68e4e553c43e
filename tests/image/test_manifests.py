"""The Pod of k8s/examples/sim, container by container, as the manifest has it: from start to delete."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.image.pod import Image, Pod
from tests.k8s.manifests import build, containers, engine_pods


def probes_of(container: dict[str, Any]) -> list[tuple[int, str]]:
    """Where kubelet asks a container: port and path of each HTTP probe."""
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    gets = [container[kind]["httpGet"] for kind in container if kind.endswith("Probe")]
    return [(ports.get(get["port"], get["port"]), get["path"]) for get in gets]


def test_pod_of_the_sim_example(image: Image, tmp_path: Path) -> None:
    """Init containers in their order, every probe is answered, and a delete drains the engine before its SIGTERM."""
    ((_, _, spec, engine, sidecar),) = engine_pods(build("examples/sim"))
    with Pod(image, tmp_path, spec) as pod:
        for container in containers(spec):
            if container in spec["initContainers"] and "restartPolicy" not in container:
                done = pod.run(container["name"])
                assert done.returncode == 0, done.stderr
            else:
                pod.start(container["name"])
        for container in (sidecar, engine):
            for port, path in probes_of(container):
                pod.wait_for(port, path)

        reading = pod.ask(10047, "/api/v1/reading").json()
        assert [one["state"] for one in reading["engines"]] == ["ok"], reading
        assert pod.ask(10048, "/-/healthy").status == 200

        # As kubelet ends a Pod: both hooks, the engine's SIGTERM after its own, and the native sidecar's last.
        assert pod.execute("infscale", sidecar["lifecycle"]["preStop"]["exec"]["command"]).returncode == 0
        hook = pod.execute("engine", engine["lifecycle"]["preStop"]["exec"]["command"])
        assert (hook.returncode, hook.stderr) == (0, "")
        report = next(json.loads(line) for line in pod.log("engine").splitlines() if '"outcome"' in line)
        assert (report["outcome"], report["grace_s"]) == ("idle", 120)
        assert 'infscale_drains_total{outcome="idle"} 1' in pod.ask(10047, "/metrics").text
        assert pod.stop("engine") == 0
        assert pod.stop("infscale") == 0
