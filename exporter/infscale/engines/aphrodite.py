"""Aphrodite: vLLM's V1 metrics under its own prefix (`aphrodite/v1/metrics/loggers.py`)."""

from __future__ import annotations

from dataclasses import replace

from infscale.engines.profile import Hints
from infscale.engines.vllm import VLLM

APHRODITE = replace(
    VLLM,
    name="aphrodite",
    prefix="aphrodite",
    hints=Hints(disabled="start Aphrodite without --disable-log-stats: with it the page has no engine metrics"),
)
