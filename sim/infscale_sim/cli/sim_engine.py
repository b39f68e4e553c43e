"""`infscale sim-engine`: an engine without a model, with the metrics page, the speed and the manners of a real one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from infscale.cli.options import FILE, PORT, SECONDS, Amount, log_options, option
from infscale.errors import UsageError
from infscale_sim import engine_llamacpp, engine_sglang, engine_vllm
from infscale_sim.engine_dialect import Dialect
from infscale_sim.engine_faults import FAULTS, check_faults
from infscale_sim.engine_process import ABORT, DRAIN, HANG, Ending
from infscale_sim.hardware import DEFAULT, Hardware, load_profile
from infscale_sim.keyfile import read_key

DIALECTS: Mapping[str, tuple[Callable[[str], Dialect], str]] = {
    "vllm": (engine_vllm.vllm, engine_vllm.DEFAULT_VERSION),
    "sglang": (engine_sglang.sglang, engine_sglang.DEFAULT_VERSION),
    "llama.cpp": (engine_llamacpp.llamacpp, engine_llamacpp.DEFAULT_VERSION),
}
DEFAULT_MODEL = "meta-llama/Llama-3.1-8B-Instruct"

_EXAMPLES = """\b
Examples:
  infscale sim-engine --port 8000
  infscale sim-engine --port 8000 --max-num-seqs 2 --time-to-first-token 0.5 --inter-token-latency 0.05
  infscale sim-engine --dialect sglang --version 0.5.9 --profile h100-70b --speed 10
"""

_NOT_NEGATIVE = Amount(0, max=86_400)


def _option(flag: str, **settings: Any) -> Callable[..., Any]:
    """A flag whose variable is INFSCALE_SIM_...: Kubernetes sets INFSCALE_PORT itself for a Service `infscale`."""
    name = flag.removeprefix("--").replace("-", "_").upper()
    return option(flag, envvar=f"INFSCALE_SIM_{name}", **settings)


@click.command("sim-engine", epilog=_EXAMPLES)
@_option("--port", type=PORT, help="Where to listen; 0 takes a free one. [default: the engine's own]")
@_option("--host", default="127.0.0.1", metavar="ADDRESS", help="Address to listen on; 0.0.0.0 or :: for all.")
@_option("--dialect", type=click.Choice(list(DIALECTS)), default="vllm", help="The engine to stand for.")
@_option("--version", metavar="V", help="Its version, as 0.33.0; llama.cpp: a month, as 2026-10. [default: the newest]")
@_option("--model", default=DEFAULT_MODEL, metavar="NAME", help="The model's name, served and in the metrics.")
@_option("--profile", default=DEFAULT, metavar="NAME|FILE", help="Hardware and model: `infscale gpu` lists them.")
@_option("--max-num-seqs", type=click.IntRange(1, 100_000), metavar="N", help="Batch slots. [default: the profile's]")
@_option("--speed", type=Amount(0.01, 1000), default=1.0, metavar="X", help="How much faster than real.")
@_option("--time-to-first-token", type=_NOT_NEGATIVE, metavar="SECONDS", help="From slot to first token, always.")
@_option("--inter-token-latency", type=_NOT_NEGATIVE, metavar="SECONDS", help="From token to token, always.")
@_option("--on-sigterm", type=click.Choice([ABORT, DRAIN, HANG]), help="[default: as the engine does]")
@_option("--shutdown-timeout", type=SECONDS, metavar="SECONDS", help="Most time to drain; with vllm it means drain.")
@_option("--api-key-file", type=FILE, metavar="FILE", help="Holds the key that clients must bring.")
@_option("--fault", multiple=True, type=click.Choice(list(FAULTS)), help="Misbehave from the start; repeat it.")
@log_options
def command(host: str, port: int | None, **flags: Any) -> int:
    """Serve OpenAI's API and a metrics page like a real engine's, at the speed of real hardware, without a model.

    A POST of {"faults": ["nan"]} to /fault changes the faults at run time, from the machine itself only.
    """
    from infscale.web.bind import listen
    from infscale_sim.engine_process import run
    from infscale_sim.engine_server import Settings

    make, newest = DIALECTS[flags["dialect"]]
    dialect = make(flags["version"] or newest)
    hardware = _hardware(flags["profile"])
    first_s, inter_s = flags["time_to_first_token"], flags["inter_token_latency"]
    fixed = first_s is not None or inter_s is not None
    settings = Settings(
        dialect=dialect,
        model=flags["model"],
        hardware=hardware,
        slots=flags["max_num_seqs"] or hardware.slots,
        speed=flags["speed"],
        first_token_s=first_s or 0.0 if fixed else None,
        inter_token_s=inter_s or 0.0 if fixed else None,
        api_key=read_key(flags["api_key_file"], "--api-key-file"),
        faults=check_faults(flags["fault"]),
    )
    ending = _ending(dialect, flags["on_sigterm"], flags["shutdown_timeout"])
    shown = f"[{host}]" if ":" in host else host
    return run(settings, ending, listen(f"{shown}:{dialect.port if port is None else port}", "--port"))


def _hardware(name: str) -> Hardware:
    hardware = load_profile(name)
    if hardware.prefill != "stall":
        raise UsageError(f"--profile {name}: prefill {hardware.prefill} is not played by sim-engine; expected stall")
    return hardware


def _ending(dialect: Dialect, way: str | None, drain_s: float | None) -> Ending:
    """What SIGTERM does: as told; else vLLM drains where it is given the time; else the engine's own way."""
    if way is None:
        way = DRAIN if drain_s is not None and dialect.name == "vllm" else dialect.on_sigterm
    if drain_s is not None and way != DRAIN:
        raise UsageError(f"--shutdown-timeout is for --on-sigterm drain; this engine is set to {way}")
    return Ending(way, drain_s)
