"""Asks a router that ignores readiness whether it still knows the target: `--rotation llm-d:URL`.

llm-d's endpoint picker chooses among the Pods of an InferencePool by itself. What it chooses among stands on a page of
its own: the metrics page of the gateway-api-inference-extension has a series for each Pod (label `model_server_pod`),
and its datastore can be shown as JSON. Both are read here in the same way: a Pod is known where its address or its name
stands on the page as a word of its own. The page must name one of the target's siblings too, or be an empty JSON list:
a page that names nobody we know proves nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from infscale.errors import UsageError
from infscale.kube.objects import Pod
from infscale.retire.rules import Reason, Rule
from infscale.scrape import Page, ScrapeFailure, Target, fetch

LLM_D = "llm-d"
MAX_BYTES = 8 * 2**20
TIMEOUT_S = 2.0


def parse_rotation(text: str) -> Target:
    """Where the router's page is, from `llm-d:URL`.

    Raises:
        UsageError: another kind of router, or no URL.
    """
    kind, colon, url = text.partition(":")
    if kind != LLM_D or not colon or not url:
        raise UsageError(f"--rotation {text[:100]!r}: expected llm-d:URL, as llm-d:http://epp.ml:9090/metrics")
    return Target(url, timeout_s=TIMEOUT_S, max_bytes=MAX_BYTES, accept="*/*")


def still_routed(target: Target, pods: Iterable[Pod], siblings: Iterable[Pod]) -> Reason | None:
    """Why the router may still send requests to the Pods; None if its own page says that it does not know them.

    Args:
        target: the page.
        pods: of the target.
        siblings: the workload's other Pods.
    """
    answer = fetch(target)
    if isinstance(answer, ScrapeFailure):
        return Reason(Rule.ROUTER, f"the router cannot be asked: {answer.message}")
    return judge_page(answer, pods, list(siblings))


def judge_page(page: Page, pods: Iterable[Pod], siblings: list[Pod]) -> Reason | None:
    """See `still_routed`. Pure."""
    if page.status != 200:
        return Reason(Rule.ROUTER, f"the router cannot be asked: HTTP {page.status}: expected its list of endpoints")
    text = page.body.decode("utf-8", "replace")
    for pod in pods:
        for word in (pod.ip, pod.name):
            if word and _names(text, word):
                return Reason(Rule.ROUTER, f"the router still knows {word}")
    if any(word and _names(text, word) for pod in siblings for word in (pod.ip, pod.name)) or _is_empty_list(text):
        return None
    return Reason(Rule.ROUTER, "the router's page names no Pod of this workload: expected its list of endpoints")


def _names(text: str, word: str) -> bool:
    """Whether a word stands in the text whole: 10.0.0.1 is not in 10.0.0.12, `vllm-0` not in `vllm-0-1`."""
    return re.search(rf"(?<![\w.-]){re.escape(word)}(?![\w-]|\.\w)", text) is not None


def _is_empty_list(text: str) -> bool:
    """`[]`, or an object whose only list is empty."""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return False
    if isinstance(said, dict):
        lists = [value for value in said.values() if isinstance(value, list)]
        return lists == [[]]
    return isinstance(said, list) and not said
