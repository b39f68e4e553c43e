"""`infscale gpu`: the figures of hardware profiles."""

from __future__ import annotations

import json
from typing import Any

import click

from infscale.cli.options import option
from infscale.cli.table import aligned
from infscale_sim.hardware import DEFAULT, Hardware, load_profile, profile_names

CONTEXT_TOKENS = 1000
"""The context of each sequence for the decode figures."""


@click.command("gpu")
@option(
    "--profile",
    multiple=True,
    metavar="NAME|FILE",
    help=f"A built-in profile, or a YAML file; repeat for several.  [default: {DEFAULT}]",
)
@click.option("--list", "names", is_flag=True, help="Print the names of the built-in profiles instead.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list instead of text.")
def command(profile: tuple[str, ...], names: bool, as_json: bool) -> None:
    """Print what one replica of a profile can do.

    It follows from the facts of the card and the model alone: memory for weights and KV cache, prefill and decode
    speeds, the cold start, and the CPU that the Pod shows.
    """
    if names:
        click.echo("\n".join(profile_names()))
        return
    hardware = [load_profile(name) for name in profile or (DEFAULT,)]
    click.echo(_json(hardware) if as_json else "\n\n".join(map(_text, hardware)))


def figures(hardware: Hardware) -> dict[str, Any]:
    """The figures of a profile, in the units of their names."""
    batch = hardware.slots
    full_step_s = hardware.decode_step_s(batch, CONTEXT_TOKENS)
    return {
        "profile": hardware.name,
        "tensor_parallel": hardware.tensor_parallel,
        "slots": batch,
        "weights_gb": hardware.weights_gb,
        "kv_gb": hardware.kv_gb,
        "kv_tokens": hardware.kv_tokens,
        "kv_bytes_per_token": hardware.kv_bytes_per_token,
        "prefill_tokens_per_s": 1 / hardware.prefill_token_s,
        "decode_step_s_batch_1": hardware.decode_step_s(1, CONTEXT_TOKENS),
        "decode_step_s_full_batch": full_step_s,
        "output_tokens_per_s": batch / full_step_s,
        "cold_start_s": hardware.cold_start_s,
        "cpu_percent_idle": 100 * hardware.cpu_ratio(0, 0),
        "cpu_percent_busy": 100 * hardware.cpu_ratio(0),
        "cpu_percent_full": 100 * hardware.cpu_ratio(batch),
    }


def _json(hardware: list[Hardware]) -> str:
    rows = [{key: _short(value) for key, value in figures(one).items()} for one in hardware]
    return json.dumps(rows, indent=2)


def _short(value: Any) -> Any:
    """Ten digits, without the rounding of float64 behind them."""
    return float(f"{value:.10g}") if isinstance(value, float) else value


def _text(hardware: Hardware) -> str:
    seen = figures(hardware)
    cards = f"{hardware.tensor_parallel} cards with " if hardware.tensor_parallel > 1 else ""
    first, full = 1000 * seen["decode_step_s_batch_1"], 1000 * seen["decode_step_s_full_batch"]
    cpu = [f"{seen[f'cpu_percent_{state}']:.0f} %" for state in ("idle", "busy", "full")]
    rows = [
        ("profile", hardware.name),
        ("memory", f"{cards}{hardware.gpu.memory_gb:g} GB, {hardware.usable_gb:.1f} GB of it usable"),
        ("weights", f"{seen['weights_gb']:.1f} GB"),
        ("KV cache", f"{seen['kv_gb']:.1f} GB = {seen['kv_tokens']:,} tokens"),
        ("prefill", f"{seen['prefill_tokens_per_s']:,.0f} tokens/s"),
        (
            "decode step",
            f"{first:.1f} ms at batch 1, {full:.1f} ms at batch {hardware.slots} ({CONTEXT_TOKENS:,}-token contexts)",
        ),
        ("throughput", f"{seen['output_tokens_per_s']:,.0f} output tokens/s at batch {hardware.slots}"),
        ("cold start", f"{seen['cold_start_s']:.0f} s"),
        ("CPU", f"{cpu[0]}, {cpu[1]} and {cpu[2]} of the request (idle, busy, all slots busy)"),
    ]
    return "\n".join(aligned(rows))
