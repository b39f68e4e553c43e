"""The scrape configuration of the guide, for a Prometheus without the operator: promtool takes it; what it keeps."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from tests.k8s.manifests import Object, blocks, build, containers, pods
from tests.rules.promtool import promtool


def snippet() -> Object:
    """The configuration as it stands in the guide."""
    (found,) = [block for block in blocks("docs/kubernetes.md") if block.startswith("scrape_configs:")]
    return dict(yaml.safe_load(found))


def by_file(folder: Path) -> Path:
    """The configuration with targets out of `found.json` in a folder: Debian's promtool knows no Kubernetes."""
    config = snippet()
    for job in config["scrape_configs"]:
        assert job.pop("kubernetes_sd_configs") == [{"role": "pod"}]
        job["file_sd_configs"] = [{"files": [str(folder / "found.json")]}]
    path = folder / "prometheus.yml"
    path.write_text(yaml.safe_dump(config))
    return path


def test_prometheus_takes_it(tmp_path: Path) -> None:
    """It is a whole configuration: promtool checks it with nothing to say."""
    (tmp_path / "found.json").write_text("[]")
    done = promtool("check", "config", by_file(tmp_path))
    assert done.returncode == 0, done.stdout
    assert "WARNING" not in done.stdout


def discovered(names: Sequence[str]) -> list[Object]:
    """What role `pod` of Prometheus' service discovery finds of some builds: a target for each port of a container.

    Source: prometheus discovery/kubernetes/pod.go; init containers count, one without a port is a target, too.
    """
    found = []
    for name in names:
        for number, (whose, metadata, spec) in enumerate(pods(build(name))):
            told = {"namespace": name.rpartition("/")[2], "pod_name": whose}
            for kind in ("label", "annotation"):
                for key, value in metadata.get(f"{kind}s", {}).items():
                    told[f"pod_{kind}_{re.sub('[^A-Za-z0-9_]', '_', key)}"] = value
            for container in containers(spec):
                for port in container.get("ports", [{}]):
                    labels = dict(told)
                    if port:
                        labels["pod_container_port_name"] = port["name"]
                    address = f"10.0.0.{number}" + (f":{port['containerPort']}" if port else "")
                    meta = {f"__meta_kubernetes_{key}": value for key, value in labels.items()}
                    found.append({"targets": [address], "labels": meta})
    return found


def kept(job: str, names: Sequence[str], folder: Path) -> list[Object]:
    """The labels of the targets that promtool's own relabelling keeps of those that are discovered."""
    (folder / "found.json").write_text(json.dumps(discovered(names)))
    done = promtool("check", "service-discovery", "--timeout=1s", by_file(folder), job)
    assert done.returncode == 0, done.stdout
    targets = json.loads(done.stdout[done.stdout.index("[\n") :])
    return [one["labels"] for one in targets if one.get("labels")]


EXAMPLES = ("examples/sim", "examples/vllm-zero", "examples/vllm-recommended", "retirement of groups")


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (
            "infscale",
            {
                ("sim", "Deployment/sim", "sim"),
                ("retirement of groups", "LeaderWorkerSet/vllm-multinode", "vllm-multinode"),
            },
        ),
        (
            "infscale-roles",
            {
                ("sim", "Deployment/infscale-recommender", None),
                ("vllm-zero", "Deployment/infscale-recommender", None),
                ("vllm-zero", "Deployment/infscale-activator", None),
                ("vllm-recommended", "Deployment/infscale-recommender", None),
                ("retirement of groups", "Deployment/infscale-recommender", None),
            },
        ),
    ],
)
def test_what_is_scraped(tmp_path: Path, job: str, expected: set[tuple[str, str, str | None]]) -> None:
    """Each sidecar with the annotation, and each recommender and activator: once, at 10047, with the rules' labels."""
    found = kept(job, EXAMPLES, tmp_path)
    assert sorted((one["namespace"], one["pod"], one.get("workload") or "") for one in found) == sorted(
        (space, pod, workload or "") for space, pod, workload in expected
    )
    assert all(one["__address__"].endswith(":10047") for one in found)
    assert {(one["__metrics_path__"], one["__scrape_interval__"]) for one in found} == {("/metrics", "15s")}
