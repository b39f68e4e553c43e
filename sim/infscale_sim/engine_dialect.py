"""What tells one engine's server from another's: its page, its probes, its key, its way to end.

`engine_vllm`, `engine_sglang` and `engine_llamacpp` each make a `Dialect` of a version; `engine_server` acts on it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from infscale.errors import UsageError
from infscale_sim.engine_batch import Batch
from infscale_sim.engine_page import Page
from infscale_sim.engine_stats import Bounds

Version = tuple[int, ...]


@dataclass(frozen=True)
class State:
    """What a page is written from.

    Attributes:
        model: the name that the engine serves.
        batch: brought up to now.
        cpu_s: CPU time of the engine so far.
        start_unix_s: when it started.
    """

    model: str
    batch: Batch
    cpu_s: float
    start_unix_s: float


@dataclass(frozen=True)
class Dialect:
    """One engine in one version.

    Attributes:
        name: as infscale names the engine.
        bounds: of its histograms.
        new_page: an empty page in its way to write numbers.
        write: puts everything on the page.
        content_type: of the page.
        port: where it listens by default.
        on_sigterm: `abort`, `drain` or `hang`, by default.
        drains_open: whether it takes new requests while it drains (SGLang does).
        health_falls: whether `/health` is 503 while it drains.
        checks_model: whether a request for another model's name is refused.
        open_paths: what can be asked without the API key.
        health_body: of a good `/health`.
        owner: `owned_by` in `/v1/models`.
    """

    name: str
    bounds: Bounds
    new_page: Callable[..., Page]
    write: Callable[[Page, State], None]
    content_type: str
    port: int
    on_sigterm: str
    drains_open: bool
    health_falls: bool
    checks_model: bool
    open_paths: Callable[[str], bool]
    health_body: bytes
    owner: str


def parse_version(text: str, example: str) -> Version:
    """Return the numbers of a version: `0.8.5.post1` is (0, 8, 5), `2026-10` is (2026, 10).

    Raises:
        UsageError: it does not begin with two numbers.
    """
    match = re.match(r"v?(\d{1,6})[.-](\d{1,6})(?:[.-](\d{1,6}))?", text)
    if match is None:
        raise UsageError(f"--version {text!r} is not a version of this engine; expected as in {example}")
    return tuple(int(part) for part in match.groups() if part is not None)
