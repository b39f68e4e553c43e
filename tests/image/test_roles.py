"""Each role is run inside the image: as 65532, on a read-only root, in a network of its own."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

from tests.image.pod import Image, Pod

ENGINE = {
    "name": "engine",
    "args": ["sim-engine", "--port", "8000", "--time-to-first-token", "0.5", "--inter-token-latency", "0.05"],
    "volumeMounts": [{"name": "infscale-hook", "mountPath": "/infscale", "readOnly": True}],
}
SIDECAR = {
    "name": "infscale",
    "args": ["sidecar", "--engine-url=http://127.0.0.1:8000/metrics", "--grace=20"],
    "volumeMounts": [{"name": "infscale-run", "mountPath": "/run/infscale"}],
}
HOOK = {
    "name": "infscale-hook",
    "args": ["install-hook", "/infscale", "--url=http://127.0.0.1:8000/metrics", "--grace=20"],
    "volumeMounts": [{"name": "infscale-hook", "mountPath": "/infscale"}],
}
VOLUMES = [{"name": "infscale-hook"}, {"name": "infscale-run"}]


def spec(*containers: dict[str, Any]) -> dict[str, Any]:
    """A Pod of these containers."""
    return {"containers": list(containers), "volumes": VOLUMES}


def value(page: str, name: str) -> float:
    """The sum of a metric's samples on a page."""
    return sum(
        float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith((f"{name} ", f"{name}{{"))
    )


def completion(pod: Pod, tokens: int) -> threading.Thread:
    """A request that the engine works on meanwhile: half a second, and 50 ms for each token."""
    body = json.dumps({"prompt": "a b c", "max_tokens": tokens})
    thread = threading.Thread(
        target=pod.ask, args=(8000, "/v1/completions"), kwargs={"method": "POST", "body": body, "timeout_s": 60}
    )
    thread.start()
    return thread


def test_sidecar_reads_an_engine(image: Image, tmp_path: Path) -> None:
    """Probes answer, a request in flight is counted, its hook sets the mark, SIGTERM ends it with 0."""
    with Pod(image, tmp_path, spec(ENGINE, SIDECAR)) as pod:
        pod.start("infscale")
        pod.wait_for(10048, "/-/healthy")  # with no engine there yet
        assert pod.ask(10048, "/-/ready").status == 200
        pod.start("engine")
        pod.wait_for(8000, "/health")
        request = completion(pod, tokens=60)
        time.sleep(1)
        page = pod.ask(10047, "/metrics").text
        assert (value(page, "infscale_up"), value(page, "infscale_inflight_requests")) == (1, 1)
        request.join()
        marked = pod.execute("infscale", ["infscale", "mark-terminating"])
        assert (marked.returncode, marked.stderr) == (0, "")
        time.sleep(1.1)
        page = pod.ask(10047, "/metrics").text
        assert (value(page, "infscale_draining"), value(page, "infscale_inflight_requests")) == (1, 0)
        assert pod.stop("infscale") == 0


def test_hook_drains_an_engine(image: Image, tmp_path: Path) -> None:
    """The bundle that the image installs holds SIGTERM back while a request runs; the report reaches the sidecar."""
    with Pod(image, tmp_path, spec(ENGINE, SIDECAR, HOOK)) as pod:
        assert pod.run("infscale-hook").returncode == 0
        for name in ("infscale", "engine"):
            pod.start(name)
        pod.wait_for(8000, "/health")
        pod.wait_for(10048, "/-/healthy")
        request = completion(pod, tokens=140)
        time.sleep(0.5)
        began = time.monotonic()
        hook = pod.execute("engine", ["sh", "/infscale/infscale-drain"])
        took_s = time.monotonic() - began
        assert (hook.returncode, hook.stderr) == (0, "")
        assert not request.is_alive()
        request.join()
        assert 6 <= took_s <= 18, "settled, waited for the request, and was back 2 s before the grace period's end"
        report = next(json.loads(line) for line in pod.log("engine").splitlines() if '"outcome"' in line)
        assert report["outcome"] == "idle"
        assert report["busy_reads"] >= 1
        assert value(pod.ask(10047, "/metrics").text, "infscale_drains_total") == 1


def test_hook_of_the_image_itself(image: Image, tmp_path: Path) -> None:
    """The bundle at /usr/share/infscale/hook runs as it stands there, and the sidecar's HTTP form beside it."""
    with Pod(image, tmp_path, spec(ENGINE, SIDECAR)) as pod:
        for name in ("infscale", "engine"):
            pod.start(name)
        pod.wait_for(8000, "/health")
        pod.wait_for(10048, "/-/healthy")
        hook = pod.execute("engine", ["sh", "/usr/share/infscale/hook/infscale-drain"])
        assert (hook.returncode, hook.stderr) == (0, "")
        answer = pod.ask(10048, "/drain", timeout_s=30)
        assert (answer.status, answer.json()["outcome"]) == (200, "idle")


def test_recommender_reads_a_sidecar(image: Image, tmp_path: Path) -> None:
    """It answers its probes and publishes the replicas for what the sidecar sees."""
    recommender = {
        "name": "recommender",
        "args": [
            "recommender",
            *(
                "--fleet.source",
                "static:http://127.0.0.1:10047",
                "--workload",
                "inference/sim",
                "--policy",
                "queue:1,max=4",
            ),
            *("--spec-replicas", "1", "--interval", "1"),
            *("--web.listen-address", ":10057", "--kubelet.listen-address", ":10058"),
        ],
    }
    with Pod(image, tmp_path, spec(ENGINE, SIDECAR, recommender)) as pod:
        for name in ("engine", "infscale", "recommender"):
            pod.start(name)
        pod.wait_for(8000, "/health")
        requests = [completion(pod, tokens=200) for _ in range(3)]
        pod.wait_for(10058, "/-/healthy")
        pod.wait_for(10058, "/-/ready")
        end = time.monotonic() + 30
        while value(page := pod.ask(10057, "/metrics").text, "infscale_recommended_replicas") != 3:
            assert time.monotonic() < end, page
            time.sleep(0.5)
        for request in requests:
            request.join()
        assert pod.stop("recommender") == 0


def test_activator_holds_and_releases(image: Image, tmp_path: Path) -> None:
    """A request that comes before the engine is held, counted, and answered when the engine is there."""
    activator = {
        "name": "activator",
        "args": ["activator", "--upstream", "http://127.0.0.1:8000", "--workload", "inference/sim"],
    }
    with Pod(image, tmp_path, spec(ENGINE, activator)) as pod:
        pod.start("activator")
        pod.wait_for(10048, "/-/healthy")
        answers: list[Any] = []
        body = json.dumps({"prompt": "a b c", "max_tokens": 2})
        client = threading.Thread(
            target=lambda: answers.append(pod.ask(10049, "/v1/completions", method="POST", body=body, timeout_s=60))
        )
        client.start()
        end = time.monotonic() + 20
        while value(page := pod.ask(10047, "/metrics").text, "infscale_pending_requests") != 1:
            assert time.monotonic() < end, page
            time.sleep(0.2)
        pod.start("engine")
        client.join(60)
        assert answers[0].status == 200
        assert "token" in answers[0].text
        assert pod.stop("activator") == 0
