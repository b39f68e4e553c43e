"""Which engine a Pod runs, as its command says, and whether it has a role in which its gauges prove nothing. Pure.

A prefill or decode replica hands requests on: at 0 it may still hold what another needs. A vLLM with an outer load
balancer over data-parallel ranks is one rank of an engine, and the others wait for it. Sources: SGLang
`server_args.py`, vLLM `engine/arg_utils.py` (both spell a flag with - or _, and its value after = or a blank).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from infscale.engines import PROFILES
from infscale.kube.objects import Container, Pod, Role
from infscale.retire.member import Verdict, held, refused
from infscale.retire.rules import Rule
from infscale.retire.words import UnreadableError, words_of

SIDECAR_CONTAINER, SIDECAR_PORT_NAME, ENGINE_PORT_NAME = "infscale", "infscale", "http"

OLLAMA = "ollama"
"""An engine without a metrics page: there is no gauge list for it."""

_DEFAULT_PORTS = {"vllm": 8000, "sglang": 30000, "llama.cpp": 8080, "lmdeploy": 23333, "tgi": 80, "mistral.rs": 1234}
_PROGRAMS = {
    "llama-server": "llama.cpp", "text-generation-launcher": "tgi", "trtllm-serve": "trtllm", "tritonserver": "triton",
    "mistralrs-server": "mistral.rs", "llm-d-inference-sim": "vllm",
}  # fmt: skip
_PROGRAMS_WITH = {
    ("vllm", "serve"): "vllm", ("sglang", "serve"): "sglang", ("lmdeploy", "serve"): "lmdeploy",
    ("aphrodite", "run"): "aphrodite", ("mistralrs", "serve"): "mistral.rs", ("ollama", "serve"): OLLAMA,
}  # fmt: skip
_MODULES = {
    "vllm.entrypoints": "vllm", "sglang.launch_server": "sglang", "aphrodite.endpoints": "aphrodite",
    "lmdeploy.serve": "lmdeploy", "dynamo": "dynamo",
}  # fmt: skip
_IMAGES = {
    "vllm-openai": "vllm", "vllm-openai-rocm": "vllm", "vllm-cpu-release-repo": "vllm", "llm-d-inference-sim": "vllm",
    "text-generation-inference": "tgi", "aphrodite-openai": "aphrodite", "ollama": OLLAMA,
}  # fmt: skip
"""Images whose entry point is the engine: they are given arguments only."""

_CONFIG_FLAGS = ("--config", "--yaml-config")
_RANK_FLAGS = (
    "--data-parallel-external-lb", "--data-parallel-hybrid-lb", "--data-parallel-rank",
    "--data-parallel-multi-port-external-lb", "-dpe", "-dph", "-dpn",
)  # fmt: skip
_SIM_ENGINE, _SIM_DIALECT = "sim-engine", "INFSCALE_SIM_DIALECT"
_UNSET = ("null", "none", "")


@dataclass(frozen=True, slots=True)
class Claim:
    """The engine of a Pod.

    Attributes:
        engine: the profile's name.
        container: that runs it.
        port: where it serves its API and its page.
        nodes: of how many Pods it is, as its own command says.
    """

    engine: str
    container: Container
    port: int
    nodes: int = 1


def claim(pod: Pod) -> Claim | Verdict:
    """The engine of a Pod, or the verdict where it cannot be told or may never be retired."""
    candidates = [c for c in pod.containers if c.role is Role.APP and c.name != SIDECAR_CONTAINER]
    serving = [c for c in candidates if any(port.name == ENGINE_PORT_NAME for port in c.ports)] or candidates
    found = [_claim_of(container) for container in serving]
    claims = [each for each in found if isinstance(each, Claim)]
    if len(claims) > 1:
        names = ", ".join(each.container.name for each in claims)
        return held(Rule.DISAGREE, f"several containers of the Pod run an engine: {names}")
    verdicts = [each for each in found if isinstance(each, Verdict)]
    worst = [v for v in verdicts if v.reason.rule is not Rule.UNCLAIMED]
    if claims and not worst:
        return claims[0]
    return (worst or verdicts or [held(Rule.UNCLAIMED, "the Pod has no container that could be an engine")])[0]


def sidecar_port(pod: Pod) -> int | None:
    """The port of the Pod's sidecar: the one named `infscale`; None where there is no sidecar."""
    return pod.port(SIDECAR_PORT_NAME)


def _claim_of(container: Container) -> Claim | Verdict:
    where = f"container {container.name}"
    try:
        words = words_of(container)
    except UnreadableError as error:
        return held(Rule.UNREADABLE, f"{where}: {error}")
    engines = set(_engines(words)) or _engines_by_image(container)
    if not engines:
        shown = " ".join(words)[:60] or f"the entry point of image {container.image}"
        return held(Rule.UNCLAIMED, f"{where} runs {shown!r}, which no engine profile claims")
    if len(engines) > 1:
        return held(Rule.DISAGREE, f"{where}: its command runs {' and '.join(sorted(engines))}")
    engine = engines.pop()
    if engine == _SIM_ENGINE:
        engine = _value_of(words, "--dialect") or container.env.get(_SIM_DIALECT) or "vllm"
    if engine not in PROFILES:
        return refused(Rule.NO_GAUGES, f"{where} runs {engine}, for which there is no gauge list")
    flags = list(flags_of(words))
    return _forbidden(where, engine, flags, container) or _claimed(engine, flags, container)


def _claimed(engine: str, flags: Sequence[tuple[str, str | None]], container: Container) -> Claim:
    named = [port.number for port in container.ports if port.name == ENGINE_PORT_NAME]
    told = [value for name, value in flags if name == "--port" and value and value.isdigit()]
    port = int(told[0]) if told else (named or [_DEFAULT_PORTS.get(engine, 8000)])[0]
    nodes = [value for name, value in flags if name == "--nnodes" and value and value.isdigit()]
    return Claim(engine, container, port, int(nodes[0]) if nodes else 1)


def _engines(words: Sequence[str]) -> Iterator[str]:
    """Every engine that the words start."""
    for position, word in enumerate(words):
        program, after = word.rpartition("/")[2], words[position + 1] if position + 1 < len(words) else ""
        if word == "-m":
            yield from (name for module, name in _MODULES.items() if f"{after}.".startswith(f"{module}."))
        elif found := _PROGRAMS.get(program) or _PROGRAMS_WITH.get((program, after)):
            yield found
        elif word == _SIM_ENGINE:
            yield _SIM_ENGINE


def _engines_by_image(container: Container) -> set[str]:
    """The engine of an image whose own entry point runs; a command of the manifest's replaces that."""
    if container.command:
        return set()
    name, _, tag = container.image.partition("@")[0].rpartition("/")[2].partition(":")
    if name == "llama.cpp" and (tag.startswith("server") or "--metrics" in container.args):
        return {"llama.cpp"}  # its other images (full, light) have another entry point, and no metrics
    return {_IMAGES[name]} if name in _IMAGES else set()


def flags_of(words: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Every flag with its value: `--flag=value` or `--flag value`; with - for _ in its name."""
    for position, word in enumerate(words):
        if not word.startswith("-") or word == "--":
            continue
        name, equals, value = word.partition("=")
        after = words[position + 1] if position + 1 < len(words) else "-"
        follows = None if after.startswith("-") else after
        yield name.replace("_", "-"), value if equals else follows


def _value_of(words: Sequence[str], flag: str) -> str | None:
    return next((value for name, value in flags_of(words) if name == flag), None)


def _forbidden(
    where: str, engine: str, flags: Sequence[tuple[str, str | None]], container: Container
) -> Verdict | None:
    """The verdict for a role in which the gauges prove nothing, or a command that does not tell; None for neither."""
    for name, value in flags:
        if name in _RANK_FLAGS:
            return refused(Rule.ROLE, f"{where} has {name}: it is one data-parallel rank of an engine")
        if name == "--disaggregation-mode" and (found := _disaggregated(where, name, value)):
            return found
        if name.startswith("--kv-transfer-config") and (found := _kv_transfer(where, name, value)):
            return found
        if name in _CONFIG_FLAGS and engine != "llama.cpp":
            return held(Rule.UNREADABLE, f"{where} has {name}: what is in that file cannot be seen from here")
    ports = {value for name, value in flags if name == "--port"}
    named = {port.number for port in container.ports if port.name.startswith(ENGINE_PORT_NAME)}
    if engine == "vllm" and (len(ports) > 1 or len(named) > 1):
        shown = ", ".join(sorted(map(str, ports if len(ports) > 1 else named)))
        return refused(Rule.ROLE, f"{where} has several ports ({shown}): each is a data-parallel rank of its own")
    return None


def _disaggregated(where: str, flag: str, value: str | None) -> Verdict | None:
    if value is None or "$" in value:
        return held(Rule.UNREADABLE, f"{where}: the value of {flag} cannot be seen from here")
    if value.lower() in _UNSET:
        return None
    return refused(Rule.ROLE, f"{where} has {flag} {value}: the other role may still need what it holds")


def _kv_transfer(where: str, flag: str, value: str | None) -> Verdict | None:
    """`--kv-transfer-config '{"kv_role": ...}'`, and with dots `--kv-transfer-config.kv_role ...`."""
    role = refused(Rule.ROLE, f"{where} has {flag} with a kv_role: another replica may still need what it holds")
    if flag.endswith(".kv-role"):
        return role
    if "." in flag:
        return None
    try:
        config = json.loads(value or "")
    except (ValueError, RecursionError):
        if value and re.search(r"kv[_-]role", value):
            return role
        return held(Rule.UNREADABLE, f"{where}: the value of {flag} is not JSON that can be read from here")
    return role if _has_role(config) else None


def _has_role(config: object) -> bool:
    if isinstance(config, Mapping):
        return config.get("kv_role") is not None or any(map(_has_role, config.values()))
    return isinstance(config, list) and any(map(_has_role, config))
