"""Text Generation Inference (maintenance mode since December 2025). Read from `router/src/server.rs` and `backends/v3`.

`tgi_batch_current_size` is absent until the first decode (and 0 during the first prefill), so it may be missing beside
`tgi_queue_size`. Requests in prefill are in neither gauge. Its counters carry no `_total`.
"""

from __future__ import annotations

from infscale.engines.profile import Profile, metric

TGI = Profile(
    name="tgi",
    prefix="tgi",
    running=metric("batch_current_size"),
    waiting=metric("queue_size"),
    optional=("running",),
    prompt_tokens=metric("request_input_length_sum"),
    generation_tokens=metric("request_generated_tokens_sum"),
    finished=metric("request_success"),
    rejected=metric("request_failure", err="overloaded"),
    outcome_labels=("err",),
    progress=(metric("batch_inference_count"),),
    served=(metric("request_count"),),
)
