"""The readers of text that comes from outside, each as a function of bytes: it raises what is not documented.

`TARGETS` has them by name; those that need sockets are in `http_targets`.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from infscale.config import load_config
from infscale.config_values import Setting
from infscale.core.grammar import parse_policy, policy_text
from infscale.drain.report import DrainReport
from infscale.errors import ConfigError, ExpositionError, InfscaleError, PolicyError, StateError
from infscale.exposition import parse
from infscale.kube.objects import Workload
from infscale.kube.transport import Target as KubeTarget
from infscale.manifest import manifest_policy
from infscale.outcome import outcome
from infscale.policy_yaml import load_policy, policy_from_mapping, policy_to_mapping
from infscale.retire.persisted import decode, encode
from infscale.scrape import Page
from infscale.state_file import read_state, write_state
from infscale.web.webconfig import WebConfig
from tests.fuzz import http_targets, role_targets

NOW_S = 1_800_000_000.0
MOST_CHARACTERS = 2000
"""Of an error: it is one line for a person."""

WORKLOAD = Workload(
    "Deployment", KubeTarget("apps", "v1", "deployments", "ml", "vllm"), "uid", 3, 3, 3, "app=vllm", 1, 1, "9", ()
)


@dataclass(frozen=True)
class Target:
    """What is fuzzed.

    Attributes:
        run: one input.
        words: what its inputs are made of, for a fuzzer's dictionary.
        most_bytes: of an input.
        elsewhere: the work is done on another thread.
        waits: for what may still come, so that its time on the clock says nothing.
    """

    run: Callable[[bytes], object]
    words: str
    most_bytes: int = 4096
    elsewhere: bool = False
    waits: bool = False


@contextlib.contextmanager
def refusing(*faults: type[InfscaleError]):
    """Only these faults may be raised, and each is one line of a bounded length."""
    try:
        yield
    except faults as fault:
        check_words(str(fault))


def check_words(told: str) -> None:
    """What is told to a person is one line of a bounded length."""
    assert "\n" not in told, f"more than a line: {told[:300]!r}"
    assert len(told) <= MOST_CHARACTERS, f"too long: {told[:300]!r}"


@cache
def _folder() -> Path:
    """A folder of this process."""
    folder = tempfile.TemporaryDirectory(prefix="infscale-fuzz-")
    _KEPT.append(folder)
    return Path(folder.name)


_KEPT: list[tempfile.TemporaryDirectory[str]] = []


def _file(data: bytes) -> str:
    path = _folder() / "input"
    path.write_bytes(data)
    return str(path)


def exposition(data: bytes) -> None:
    """A whole page, strictly in both formats, and as what an engine answered."""
    text = data.decode("utf-8", "replace")
    for openmetrics in (None, False, True):
        with refusing(ExpositionError):
            parse(text, openmetrics=openmetrics)
    found = outcome(Page(200, "", data, 0.1), source="http://127.0.0.1:8000/metrics", histograms=True)
    check_words(getattr(found, "message", ""))


def policy(data: bytes) -> None:
    """A policy's text; what was read is written and read again, in both forms."""
    with refusing(PolicyError):
        read = parse_policy(data.decode("utf-8", "replace"))
        assert parse_policy(policy_text(read)) == read
        assert policy_from_mapping(policy_to_mapping(read)) == read


def policy_yaml(data: bytes) -> None:
    """A policy in YAML; what was read can be written in the grammar."""
    with refusing(ConfigError):
        read = load_policy(_file(data))
        assert parse_policy(policy_text(read)) == read


@cache
def _settings() -> dict[str, Setting]:
    from infscale.cli.config_file import every_setting

    return every_setting()


def config(data: bytes) -> None:
    """A configuration file, with flags and engine profiles."""
    with refusing(ConfigError):
        load_config(_file(data), _settings())


def web_config(data: bytes) -> None:
    """A web configuration file."""
    with refusing(ConfigError):
        WebConfig(_file(data)).current()


def manifest(data: bytes) -> None:
    """A file of manifests, as `--from-manifest` takes it."""
    with refusing(ConfigError):
        read = manifest_policy(data.decode("utf-8", "replace"), "manifest.yaml")
        assert parse_policy(policy_text(read.policy)) == read.policy


def state(data: bytes) -> None:
    """A state file; what was read is written and read again."""
    with refusing(StateError):
        path = Path(_file(data))
        read = read_state(path, NOW_S)
        write_state(path, read.state)
        again = read_state(path, NOW_S)
        assert again.state == read.state
        assert not again.dropped


def retirement(data: bytes) -> None:
    """A retirement's record."""
    with refusing(StateError):
        read = decode(data.decode("utf-8", "replace"), "here", WORKLOAD, NOW_S)
        assert decode(encode(read), "here", WORKLOAD, NOW_S) == read


def drain_report(data: bytes) -> None:
    """What a hook tells of its drain."""
    with refusing(ConfigError):
        read = DrainReport.from_json(data)
        assert DrainReport.from_json(read.to_json()) is not None


_YAML = "- : , {} [] | > # ' \" ! !!int !!float !!timestamp !!bool !!binary !!null & * --- ~ null true 0x 1:2 .inf 1e9"

TARGETS = {
    "exposition": Target(
        exposition,
        'vllm:num_requests_running{model_name="m"} vllm:num_requests_waiting sglang: llamacpp: # HELP TYPE UNIT EOF'
        ' gauge counter histogram _bucket le= _sum _count NaN +Inf 1e3 process_start_time_seconds 1700000000 \\" \\n',
    ),
    "policy": Target(
        policy,
        "queue: waiting: running: kv: ttft: work: cpu: hpa: learned min= max= up= down= upselect= downselect="
        " lookahead= auto cooldown= coverage= guard= knee= promptweight= quantile= tolerance= upwindow= % / + , 1e9",
    ),
    "policy_yaml": Target(
        policy_yaml,
        f"metrics: queue: behavior: scaleUp: scaleDown: policies: type: Pods Percent value: periodSeconds:"
        f" selectPolicy: Max tolerance: stabilizationWindowSeconds: 500m 1Ki min: max: hpa: {_YAML}",
    ),
    "config": Target(
        config,
        "engine-url: web.listen-address: profiles: name: running: waiting: prefix: metric: where: label: value:"
        f" log.level: grace: policy: {_YAML}",
    ),
    "web_config": Target(
        web_config,
        "tls_server_config: cert_file: key_file: client_ca_file: client_auth_type: min_version: basic_auth_users:"
        f" http_server_config: headers: http2: X-Frame-Options: deny rate_limit: {_YAML}",
    ),
    "manifest": Target(
        manifest,
        "apiVersion: autoscaling/v2 keda.sh/v1alpha1 kind: HorizontalPodAutoscaler ScaledObject List items: metadata:"
        " name: spec: scaleTargetRef: minReplicas: maxReplicas: metrics: type: Pods External target: averageValue:"
        f" triggers: prometheus threshold: query: behavior: advanced: {_YAML}",
    ),
    "state": Target(
        state,
        '"format" "infscale-state" "version" "hpa" "plain" "evaluated_s" "last_activity_s" "samples" "replicas" "marks"'
        ' "ttft" "bounds" "counts" "starting" "cold_starts_s" "learned" "reads" 1e999 NaN Infinity null true [ ] { }',
    ),
    "retirement": Target(
        retirement,
        '"kind" "infscale retirement" "version" "workload_uid" "uid" "state" "Draining" "members" "idle" "cut" "done"'
        ' "before" "after" "at_s" "reason" "started_s" "since_s" 1e999 NaN null true [ ] { }',
    ),
    "drain_report": Target(
        drain_report,
        '"outcome" "idle" "deadline" "seconds" "reads" "inflight" "connections" "note" "engine" "restarted" 1e999 NaN'
        " null true false \\u0000",
    ),
    "answer": Target(
        http_targets.answer,
        "HTTP/1.1 200 OK 100 Content-Length: Transfer-Encoding: chunked Content-Encoding: gzip Location: / 302 \\r\\n",
    ),
    "http_main": Target(http_targets.main, http_targets.WORDS),
    "http_kubelet": Target(http_targets.kubelet, http_targets.WORDS + ' {"outcome":"idle"} {"event":"started"}'),
    "http_locked": Target(role_targets.locked, f"{http_targets.WORDS} {role_targets.CREDENTIALS.decode()}"),
    "http_recommender": Target(role_targets.recommender, http_targets.WORDS),
    "http_held": Target(role_targets.held, f"{http_targets.WORDS} /api/v1/held"),
    "http_stand_in": Target(
        role_targets.stand_in,
        f"{http_targets.WORDS} /v1/completions /v1/chat/completions /v1/models /fault /health prompt messages"
        ' max_tokens stream true null { } [ ] " : ,',
        elsewhere=True,
    ),
    "http_activator": Target(
        http_targets.activator, f'{http_targets.WORDS} {{"stream":true}}', elsewhere=True, waits=True
    ),
}
