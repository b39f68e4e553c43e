"""llama.cpp's page and ways, March 2025 to October 2026.

Names as `tools/server/server-context.cpp` (before May 2025 `examples/server/server.cpp`) has them, held against pages
of three builds in the tests. No labels, no histograms. Generated tokens count at a request's end; `n_decode_total`
alone moves meanwhile. The rate gauges are lifetime averages.
"""

from __future__ import annotations

from functools import partial

from infscale_sim.engine_dialect import Dialect, State, Version, parse_version
from infscale_sim.engine_page import Page
from infscale_sim.engine_stats import Bounds

DEFAULT_VERSION = "2026-10"


def llamacpp(version: str) -> Dialect:
    """Return llama.cpp of a month: `2026-10`, `2025-08`, `2025-03`."""
    numbers = parse_version(version, DEFAULT_VERSION)
    public = ("/health",) if numbers >= (2026,) else ("/health", "/v1/models")
    return Dialect(
        name="llama.cpp",
        bounds=Bounds(),
        new_page=partial(Page, number=_number),
        write=partial(_write, numbers),
        content_type="text/plain; version=0.0.4",
        port=8080,
        on_sigterm="abort",
        drains_open=False,
        health_falls=False,
        checks_model=False,
        open_paths=lambda path: path in public,
        health_body=b'{"status":"ok"}',
        owner="llamacpp",
    )


def _number(value: float) -> str:
    """Return a number as C++ streams write it: whole ones whole, others with six digits."""
    return str(value) if isinstance(value, int) else f"{value:g}"


def _write(version: Version, page: Page, state: State) -> None:
    _counters(version, page, state)
    _gauges(version, page, state)


def _counters(version: Version, page: Page, state: State) -> None:
    stats = state.batch.stats
    predicted = stats.generation_tokens_done.total()
    page.counter("llamacpp:prompt_tokens_total", "Number of prompt tokens processed.", stats.prompt_tokens)
    if version >= (2026,):
        page.counter("llamacpp:prompt_tokens_cached_total", "Number of prompt tokens reused from the cache.", 0)
    page.counter("llamacpp:prompt_seconds_total", "Prompt process time", stats.prefill_s)
    page.counter("llamacpp:tokens_predicted_total", "Number of generation tokens processed.", predicted)
    page.counter("llamacpp:tokens_predicted_seconds_total", "Predict process time", stats.decode_s)
    page.counter("llamacpp:n_decode_total", "Total number of llama_decode() calls", stats.steps)
    busy = stats.step_sequences / stats.steps if stats.steps else 0.0
    text = "Average number of busy slots per llama_decode() call"
    if version >= (2026,):
        page.gauge("llamacpp:n_busy_slots_per_decode", text, busy)
    else:
        page.counter("llamacpp:n_busy_slots_per_decode", text, busy)


def _gauges(version: Version, page: Page, state: State) -> None:
    batch = state.batch
    stats = batch.stats
    rate = stats.prompt_tokens / stats.prefill_s if stats.prefill_s else 0.0
    page.gauge("llamacpp:prompt_tokens_seconds", "Average prompt throughput in tokens/s.", rate)
    rate = stats.generation_tokens_done.total() / stats.decode_s if stats.decode_s else 0.0
    page.gauge("llamacpp:predicted_tokens_seconds", "Average generation throughput in tokens/s.", rate)
    if version < (2025, 6):  # removed in May 2025, ggml-org/llama.cpp PR 13660
        page.gauge("llamacpp:kv_cache_usage_ratio", "KV-cache usage. 1 means 100 percent usage.", batch.kv_ratio)
        page.gauge("llamacpp:kv_cache_tokens", "KV-cache tokens.", batch.context_tokens())
    page.gauge("llamacpp:requests_processing", "Number of requests processing.", len(batch.running))
    page.gauge("llamacpp:requests_deferred", "Number of requests deferred.", len(batch.waiting))
