"""Triton with the TensorRT-LLM backend (port 8002). Read from tensorrtllm_backend (its issues 479 and 49).

`active` is scheduled + waiting and `max` is the capacity; neither is added. Requests that wait in Triton before the
backend are `nv_inference_pending_request_count`; an ensemble counts them once more, so the largest is taken.
"""

from __future__ import annotations

from infscale.engines.profile import Profile, metric

TRITON = Profile(
    name="triton",
    prefix="nv",
    running=metric("trt_llm_request_metrics", request_type="scheduled"),
    waiting=metric("trt_llm_request_metrics", request_type="waiting"),
    front=metric("inference_pending_request_count"),
    sum_over=("version",),
    model_labels=("model",),
    kv=metric("trt_llm_kv_cache_block_metrics", kv_cache_block_type="fraction"),
    served=(metric("inference_request_success"), metric("inference_request_failure")),
    capacity=metric("trt_llm_request_metrics", request_type="max"),
)
