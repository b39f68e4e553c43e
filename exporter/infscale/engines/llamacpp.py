"""llama.cpp's server. Read from `tools/server/server-task.cpp` and by running builds of March 2025 to October 2026.

What misleads there: the rate gauges are averages since anybody's last scrape (or over the server's life, by build), so
only the two request gauges and the counters are used; `kv_cache_usage_ratio` (up to May 2025) does not return to 0 when
idle; `tokens_predicted_total` jumps at a request's end, `n_decode_total` alone moves meanwhile. A scrape has side
effects (llama.cpp#23096), hence the longer interval. A full HTTP thread pool hides requests and stalls the page
(llama.cpp#20684).
"""

from __future__ import annotations

from infscale.engines.profile import Hints, Profile, metric

LLAMACPP = Profile(
    name="llama.cpp",
    prefix="llamacpp",
    running=metric("requests_processing"),
    waiting=metric("requests_deferred"),
    kv=metric("kv_cache_usage_ratio"),
    prompt_tokens=metric("prompt_tokens_total"),
    generation_tokens=metric("tokens_predicted_total"),
    progress=(metric("n_decode_total"),),
    min_interval_s=2.0,
    hints=Hints(
        not_found="start llama-server with --metrics; behind its router add ?model=NAME&autoload=false",
        unauthorized="llama-server wants its --api-key on /metrics too: give it with --engine.token-file",
        disabled="start llama-server with --metrics",
        timeout="raise llama-server's --threads-http above slots + queue: its HTTP threads may all be held by requests",
    ),
)
