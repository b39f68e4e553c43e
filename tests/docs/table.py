"""What is other in a test than at a reader's: addresses, files and durations. The pages know nothing of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from tests.docs.stand_ins import TOKEN

PAGES = Path(__file__).parents[1] / "data" / "pages"

ADDRESSES: tuple[tuple[str, str], ...] = (
    (r"(?:127\.0\.0\.1|localhost|10\.0\.0\.\d+):8000\b", "vllm"),
    (r"(?:127\.0\.0\.1|localhost):30000\b", "sglang"),
    (r"(?:127\.0\.0\.1|localhost):8080\b", "llama.cpp"),
    (r"(?:127\.0\.0\.1|localhost|POD):10047\b", "sidecar"),
    (r"(?:127\.0\.0\.1|localhost):10049\b", "activator"),
    (r"(?:127\.0\.0\.1|localhost|prometheus\.monitoring\.svc):9090\b", "prometheus"),
)
"""Where a page supposes something to listen, and the stand-in for it. What the page itself has started comes first."""

OTHER_STAND_INS: Mapping[str, Mapping[str, str]] = {
    "README.md": {"vllm": "busy"},
    "docs/decide.md": {"vllm": "busy"},
    "docs/keda.md": {"vllm": "busy"},
    "docs/sidecar-vllm.md": {"vllm": "busy"},
}
"""Pages that show the numbers of an engine with 12 requests in flight."""

APPENDED: tuple[tuple[str, str], ...] = (
    (r"infscale load\b", "--duration 0.8"),
    (r"infscale parse --interval", "--interval 1"),
    (r"infscale (simulate|tune) --prometheus", "--range 2h --limit 300"),
    (r"infscale tune\b", "--runs 4 --seeds 1"),
    (r"infscale sim-engine\b", "--port 0"),
)
"""Flags that a command gets at its end, where they win: so that nobody waits, and no port is taken twice."""

ENVIRONMENT: Mapping[str, str] = {
    "INFSCALE_WEB_LISTEN_ADDRESS": "127.0.0.1:0",
    "INFSCALE_KUBELET_LISTEN_ADDRESS": "127.0.0.1:0",
    "INFSCALE_LISTEN_ADDRESS": "127.0.0.1:0",
    "INFSCALE_WEB_SHUTDOWN_DELAY": "0",
    "INFSCALE_FLEET_DNS_SERVER": "127.0.0.1",
    "KUBECONFIG": "/dev/null",
}
"""Of every command: free ports of this machine alone, no name server and no cluster of anybody's."""

_WEEK = "arrival_s,prompt_tokens,output_tokens\n" + "".join(f"{n / 4},100,{40 + n % 9}\n" for n in range(60))
_VLLM = (PAGES / "vllm-0.33.0-single.prom").read_text(encoding="utf-8")
_SGLANG = (PAGES / "sglang-0.5.23-single.prom").read_text(encoding="utf-8")

BESIDE = ("k8s", "rules")
"""Folders of the repository that a reader has at hand."""

FILES: Mapping[str, Mapping[str, str]] = {
    "README.md": {"saved-page.txt": _VLLM},
    "docs/parse.md": {"pages/vllm.prom": _VLLM, "pages/sglang.prom": _SGLANG},
    "docs/load.md": {"week.csv": _WEEK},
    "docs/tune.md": {"week.csv": _WEEK},
    "docs/choose-target.md": {"week.csv": _WEEK},
    "docs/scale-to-zero.md": {"week.csv": _WEEK},
    "docs/sidecar.md": {"token": TOKEN},
    "docs/sidecar-llamacpp.md": {"key": TOKEN},
}
"""What a page supposes to lie in the folder in which a reader types, by page and path."""

SERVES: Mapping[str, int] = {"sidecar": 2, "recommender": 2, "activator": 3, "sim-engine": 1}
"""Commands that go on until they are told to stop, and on how many ports they listen."""

SIMULATOR = ("docs/simulate.md", "docs/cpu-scaling.md")
MEASURING = ("docs/load.md", "docs/drain.md", "docs/choose-target.md", "docs/traces.md", "docs/tune.md")
"""Pages with test files of their own, since theirs takes longest; all others, new ones too, share a third."""


def command_name(text: str) -> str:
    """The subcommand of infscale that a line begins with; empty for another program, and for a question (`--help`)."""
    found = re.match(r"infscale ([a-z-]+)", text)
    return found[1] if found and not re.search(r"--help|--config\.check", text) else ""
