"""Which engine a container runs, and which commands forbid or hold a retirement."""

from __future__ import annotations

import pytest

from infscale.kube.objects import Container, Port, Role
from infscale.retire.command import Claim, claim
from infscale.retire.member import HELD, REFUSED, Verdict
from infscale.retire.rules import Rule
from tests.retire.pods import SIDECAR, engine, pod

VLLM = ("vllm", "serve", "m")
SGLANG = ("python3", "-m", "sglang.launch_server", "--model-path", "m")


def found(*containers: Container) -> Claim | Verdict:
    """What is found of a Pod with a sidecar and these containers."""
    return claim(pod("vllm-1", *containers, SIDECAR))


@pytest.mark.parametrize(
    ("command", "name", "port"),
    [
        (VLLM, "vllm", 8000),
        (("/usr/bin/env", "vllm", "serve", "m", "--port", "9000"), "vllm", 9000),
        (("python3", "-m", "vllm.entrypoints.openai.api_server", "--port=9001"), "vllm", 9001),
        (SGLANG, "sglang", 30000),
        ((*SGLANG, "--disaggregation-mode", "null"), "sglang", 30000),
        ((*SGLANG, "--disaggregation-mode=null", "--port", "31000"), "sglang", 31000),
        (("/app/llama-server", "-m", "model.gguf", "--metrics"), "llama.cpp", 8080),
        (("numactl", "--cpunodebind=0", "/llama-server", "--port", "8081"), "llama.cpp", 8081),
        (("sh", "-c", "ulimit -n 65536; exec vllm serve m --port 8002"), "vllm", 8002),
        (("/bin/bash", "-lc", "vllm serve m # --data-parallel-rank 0"), "vllm", 8000),
        (("trtllm-serve", "m"), "trtllm", 8000),
        (("text-generation-launcher",), "tgi", 80),
        (("infscale", "sim-engine", "--dialect", "sglang", "--port", "8000"), "sglang", 8000),
        (("infscale", "sim-engine"), "vllm", 8000),
        ((*VLLM, "--kv-transfer-config", '{"kv_connector": "LMCacheConnectorV1"}'), "vllm", 8000),
        ((*VLLM, "--kv-transfer-config.kv_connector", "LMCacheConnectorV1"), "vllm", 8000),
        ((*VLLM, "--data-parallel-size", "4"), "vllm", 8000),
        (("bash", "-euo", "pipefail", "-c", "vllm serve m --port 8004"), "vllm", 8004),
        (("bash", "--norc", "-c", "vllm serve m --port 8005"), "vllm", 8005),
        (("sh", "-c", "vllm serve m \\\n--port 8006"), "vllm", 8006),
        (("sh", "-c", "vllm serve m --name a#b '--note=c # d' --port 8007"), "vllm", 8007),
    ],
)
def test_claims(command, name, port):
    """The engine and its port, from the command."""
    said = found(engine(command, ports=()))

    assert isinstance(said, Claim)
    assert (said.engine, said.port) == (name, port)


@pytest.mark.parametrize(
    ("entry", "args", "name"),
    [
        ("vllm/vllm-openai:v0.11.0", ("--model", "m"), "vllm"),
        ("registry:5000/vllm-openai@sha256:abc", (), "vllm"),
        ("registry.example/ggml-org/llama.cpp:server-cuda", ("-m", "x.gguf"), "llama.cpp"),
        ("nvidia/base:1", ("python3", "-m", "sglang.launch_server"), "sglang"),
    ],
)
def test_claims_by_image(entry, args, name):
    """Where the image's own entry point is the engine, its name tells it; arguments alone may tell it too."""
    said = found(engine((), image=entry, args=args))

    assert isinstance(said, Claim)
    assert said.engine == name


@pytest.mark.parametrize("role", ["prefill", "decode"])
@pytest.mark.parametrize(
    "spelling", ["--disaggregation-mode {}", "--disaggregation-mode={}", "--disaggregation_mode={}"]
)
@pytest.mark.parametrize("where", ["command", "args"])
def test_refuses_sglang_roles(role, spelling, where):
    """SGLang's prefill and decode replicas, in either spelling, in command or args."""
    flags = tuple(spelling.format(role).split())
    container = engine((*SGLANG, *flags)) if where == "command" else engine(SGLANG, args=flags)

    assert_verdict(found(container), REFUSED, Rule.ROLE)


@pytest.mark.parametrize(
    "flags",
    [
        ("--data-parallel-external-lb",),
        ("--data-parallel-hybrid-lb",),
        ("--data-parallel-rank", "0"),
        ("--data-parallel-rank=3",),
        ("--data_parallel_rank", "3"),
        ("--data-parallel-multi-port-external-lb",),
        ("-dpn", "1"),
        ("--kv-transfer-config", '{"kv_connector": "NixlConnector", "kv_role": "kv_both"}'),
        ('--kv-transfer-config={"kv_role":"kv_producer"}',),
        ("--kv_transfer_config", '{"kv_connector_extra_config": {"kv_role": "kv_consumer"}}'),
        ("--kv-transfer-config.kv_role", "kv_both"),
        ("--kv-transfer-config.kv-role=kv_both",),
        ("--kv-transfer-config", "{kv_role: kv_both}"),
        ("--port", "8000", "--port", "8001"),
    ],
)
@pytest.mark.parametrize("where", ["command", "args"])
def test_refuses_vllm_roles(flags, where):
    """A vLLM behind an outer load balancer of data-parallel ranks, with a KV role, or with several ports."""
    container = engine((*VLLM, *flags)) if where == "command" else engine(VLLM, args=flags)

    assert_verdict(found(container), REFUSED, Rule.ROLE)


def test_refuses_several_ports_of_the_container():
    """Two ports named http: each is a rank."""
    ports = (Port("http", 8000), Port("http-1", 8001))

    assert_verdict(found(engine(ports=ports)), REFUSED, Rule.ROLE)


@pytest.mark.parametrize(
    "script",
    [
        'exec vllm serve m --kv-transfer-config \'{"kv_role": "kv_both"}\'',
        "python3 -m sglang.launch_server \\\n--model-path m \\\n--disaggregation-mode prefill\n",
        "python3 -m sglang.launch_server \\\n  --disaggregation-mode \\\n  decode\n",
        "vllm serve m --served-model-name a#b --data-parallel-rank 1",
    ],
)
def test_refuses_a_role_in_a_script(script):
    """A shell's script hides nothing: not on a line of its own, nor behind a # that begins no comment."""
    assert_verdict(found(engine(("sh", "-c", script))), REFUSED, Rule.ROLE)


@pytest.mark.parametrize(
    "container",
    [
        engine(("sh", "-c", "vllm serve m $EXTRA")),
        engine(("sh", "-c", 'exec vllm serve m "$@"'), args=("--", "x")),
        engine(("sh", "-c", "vllm serve $(cat /model)")),
        engine(("sh", "-c", "vllm serve `cat /model`")),
        engine(("sh", "-c", "vllm serve 'm")),
        engine(("sh", "-c", "MODE=decode; vllm serve --mode $MODE"), env={"MODE": "null"}),
        engine((*VLLM, "$(EXTRA)")),
        engine((*SGLANG, "--disaggregation-mode=$(MODE)")),
        engine((*SGLANG, "--disaggregation-mode")),
        engine((*VLLM, "--kv-transfer-config", "/etc/kv.json")),
        engine((*VLLM, "--config", "/etc/vllm.yaml")),
    ],
)
def test_holds_unreadable_commands(container):
    """Words from outside the manifest may be any flag."""
    assert_verdict(found(container), HELD, Rule.UNREADABLE)


def test_what_the_environment_tells_is_readable():
    """Plain values of the environment are put in, as the kubelet and the shell do it."""
    role = {"MODE": "decode"}
    plain = engine(("sh", "-c", "vllm serve $MODEL --port ${PORT}"), env={"MODEL": "m", "PORT": "8003"})

    assert_verdict(found(engine((*SGLANG, "--disaggregation-mode", "$(MODE)"), env=role)), REFUSED, Rule.ROLE)
    assert isinstance(found(plain), Claim)
    assert isinstance(found(engine((*VLLM, "--host=$(POD_IP)", "--name=$$(X)"))), Claim)


@pytest.mark.parametrize(
    "container",
    [
        engine(("/start.sh",)),
        engine(("sh", "/start.sh")),
        engine(("bash", "/start.sh", "-c", "vllm serve m")),
        engine(("sh", "-e")),
        engine(("python3", "serve.py")),
        engine((), image="example/own:1"),
        engine(("/start.sh",), image="vllm/vllm-openai:v0.11.0"),
        engine(("python3", "-m", "sglang_router.launch_router")),
    ],
)
def test_holds_what_no_profile_claims(container):
    """An own command, or an engine that nobody knows."""
    assert_verdict(found(container), HELD, Rule.UNCLAIMED)


@pytest.mark.parametrize("container", [engine(("ollama", "serve")), engine((), image="ollama/ollama:0.12")])
def test_refuses_an_engine_without_gauges(container):
    """There is no gauge list for Ollama: nothing can ever be proven."""
    assert_verdict(found(container), REFUSED, Rule.NO_GAUGES)


def test_a_pod_without_an_engine_is_held():
    """A sidecar alone is no engine."""
    assert_verdict(found(), HELD, Rule.UNCLAIMED)


def test_two_engines_disagree():
    """Two containers that run an engine, or one command that runs two, hold."""
    second = Container("second", Role.APP, None, command=SGLANG)
    first = Container("first", Role.APP, None, command=VLLM)

    assert_verdict(found(first, second), HELD, Rule.DISAGREE)
    assert_verdict(found(engine(("sh", "-c", "vllm serve a & python3 -m sglang.launch_server"))), HELD, Rule.DISAGREE)


def test_other_containers_do_not_matter():
    """A proxy beside the engine is no engine, whether the engine's port is named or not."""
    proxy = Container("proxy", Role.APP, None, command=("envoy",))

    assert isinstance(found(proxy, engine()), Claim)
    assert isinstance(found(proxy, engine(ports=())), Claim)


def assert_verdict(said: Claim | Verdict, kind: str, rule: Rule) -> None:
    """Compare."""
    assert isinstance(said, Verdict), said
    assert (said.kind, said.reason.rule) == (kind, rule), said.reason
