"""The knee of a replica under a traffic: the tokens per second it carries when its batch is full.

What `infscale load --sweep` measures on an engine follows here from the physics; `guard` and `work` use it where a
policy gives no number of its own.
"""

from __future__ import annotations

from infscale_sim.hardware import Hardware
from infscale_sim.traffic import Requests


def knee_tokens_per_s(hardware: Hardware, requests: Requests, prompt_weight: float) -> float:
    """Generated tokens and, weighted, prompt tokens per second at the largest batch, for requests of mean length.

    In a full batch each request costs the computation of its prompt and its share of as many decode steps as it has
    tokens; with chunked prefill the two add up in the same way.
    """
    prompt, output = _mean_tokens(requests)
    batch = full_batch(hardware, requests)
    step_s = hardware.decode_step_s(batch, prompt + output / 2)
    request_s = prompt * hardware.prefill_token_s + (output - 1) * step_s / batch
    return (output + prompt * prompt_weight) / request_s


def full_batch(hardware: Hardware, requests: Requests) -> int:
    """How many requests of mean length run at once: as many as there are slots, or as the KV cache holds."""
    return max(1, min(hardware.slots, int(hardware.kv_tokens / sum(_mean_tokens(requests)))))


def _mean_tokens(requests: Requests) -> tuple[float, float]:
    count = max(1, len(requests))
    return max(1.0, sum(requests.prompt_tokens) / count), max(1.0, sum(requests.output_tokens) / count)
