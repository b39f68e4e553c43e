"""Twenty variants of every page, whose right values the generator knows because it wrote them.

The generator has its own table of what counts, from the engines' sources, and edits the page as text: new values, ranks
and copies added, families reordered, the model renamed, labels reordered, `:` and `_` exchanged.
"""

import json
import random
import re
from pathlib import Path

import pytest

from infscale.normalise import read_page
from infscale.reading import Reading

PAGES = Path(__file__).parent / "data" / "pages"
EXPECTED = json.loads((PAGES / "expected.json").read_text())
VARIANTS = 20

SGLANG_QUEUES = [
    "num_queue_reqs",
    "num_grammar_queue_reqs",
    "num_prefill_bootstrap_queue_reqs",
    "num_prefill_prealloc_queue_reqs",
    "num_prefill_inflight_queue_reqs",
    "num_prefill_infight_queue_reqs",
    "num_decode_prealloc_queue_reqs",
    "num_decode_transfer_queue_reqs",
]
# engine: (running, waiting and queues, KV use, labels of ranks with requests of their own)
COUNTS: dict[str, tuple[str, list[str], list[str], list[str]]] = {
    "vllm": (
        "num_requests_running",
        ["num_requests_waiting", "num_requests_swapped"],
        ["kv_cache_usage_perc", "gpu_cache_usage_perc"],
        ["engine", "ReplicaId"],
    ),
    "sglang": ("num_running_reqs", SGLANG_QUEUES, ["token_usage"], ["dp_rank"]),
    "llama.cpp": ("requests_processing", ["requests_deferred"], ["kv_cache_usage_ratio"], []),
    "lmdeploy": (
        "num_requests_running",
        ["num_requests_waiting", "num_api_requests_waiting"],
        ["gpu_cache_usage_perc"],
        ["engine"],
    ),
    "trtllm": ("num_requests_running", ["num_requests_waiting", "num_paused_requests"], ["kv_cache_utilization"], []),
    "mistralrs": ("sequences_running", ["sequences_waiting", "requests_pending_admission"], [], []),
    "tgi": ("batch_current_size", ["queue_size"], [], []),
}
COPIES = {"sglang": "tp_rank", "vllm": "pid"}
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

Line = tuple[str, list[tuple[str, str]], str]  # full name, labels as written, value


def split_page(text: str) -> tuple[list[str], list[Line]]:
    """The comments and the samples of a page, with the labels as they are written."""
    comments, lines = [], []
    for text_line in text.splitlines():
        head, _, value = text_line.rpartition(" ")
        if text_line.startswith("#") or not value:
            comments.append(text_line)
            continue
        name, _, labels = head.partition("{")
        lines.append((name, LABEL.findall(labels), value))
    return comments, lines


def write_page(comments: list[str], lines: list[Line]) -> str:
    """The page of these comments and samples."""
    written = []
    for name, labels, value in lines:
        text = ",".join(f'{label}="{own}"' for label, own in labels)
        written.append(f"{name}{{{text}}} {value}" if labels else f"{name} {value}")
    return "\n".join([*comments, *written]) + "\n"


class Variant:
    """One page changed at random, with the values that it must read as."""

    def __init__(self, name: str, seed: int) -> None:
        self.rng = random.Random(f"{name} {seed}")
        self.engine = EXPECTED[name]["engine"]
        self.running, self.queues, self.kv, self.ranks = COUNTS[self.engine]
        self.comments, self.lines = split_page((PAGES / name).read_text())
        self.model: str | None = None
        for change in (self.add_rank, self.add_copies, self.rename_model, self.shuffle, self.swap_separator):
            if self.rng.random() < 0.6:
                change()
        self.new_values()

    def base(self, full_name: str) -> str:
        """The metric's name without its prefix, if it is one that counts."""
        for name in [self.running, *self.queues, *self.kv]:
            if re.fullmatch(rf"(\w+[:_])?{re.escape(name)}", full_name) and not full_name.endswith("by_reason"):
                prefix = full_name[: -len(name)]
                if re.fullmatch(r"(\w*_)?(vllm|sglang|llamacpp|lmdeploy|trtllm|mistralrs|tgi)[:_]", prefix):
                    return name
        return ""

    def add_rank(self) -> None:
        """A further engine or data-parallel rank, where the page has the label."""
        for label in self.ranks:
            own = [line for line in self.lines if label in dict(line[1])]
            if own:
                last = dict(own[-1][1])[label]
                copy = [
                    (name, [(k, "7") if k == label else (k, v) for k, v in labels], value)
                    for name, labels, value in own
                    if dict(labels)[label] == last
                ]
                self.lines += copy
                return

    def add_copies(self) -> None:
        """A tensor-parallel rank (or a second process) that publishes the same series again."""
        label = COPIES.get(self.engine)
        if label:
            own = [line for line in self.lines if self.base(line[0])]
            self.lines += [(n, [*[p for p in ls if p[0] != label], (label, "9")], v) for n, ls, v in own]

    def rename_model(self) -> None:
        """Another model name, with every character that may confuse a reader."""
        model = self.rng.choice(["org/a b", "m{x}", "a,b=c", "é–模型", 'q\\"uote', "back\\\\slash", "#1 } 5"])
        self.lines = [(n, [(k, model) if k == "model_name" else (k, v) for k, v in ls], v) for n, ls, v in self.lines]
        if any("model_name" in dict(ls) for n, ls, _ in self.lines if self.base(n)):
            self.model = model.replace("\\\\", "\\").replace('\\"', '"')

    def shuffle(self) -> None:
        """Lines, families and labels in another order."""
        self.rng.shuffle(self.lines)
        for _, labels, _ in self.lines:
            self.rng.shuffle(labels)

    def swap_separator(self) -> None:
        """`vllm:` as `vllm_`, as a client library, Ray or an OpenTelemetry collector writes it."""
        self.lines = [(n.replace(":", "_"), ls, v) for n, ls, v in self.lines]

    def new_values(self) -> None:
        """New numbers: copies of a rank agree, parts of a total (priorities) are below it."""
        values: dict[tuple[str, ...], int] = {}
        kvs: dict[tuple[str, ...], float] = {}
        written = []
        for name, labels, value in self.lines:
            base, own = self.base(name), dict(labels)
            rank = tuple(own.get(label, "") for label in self.ranks)
            if not base:
                written.append((name, labels, value))
            elif own.get("priority"):
                written.append((name, labels, "1"))
            elif base in self.kv:
                kvs.setdefault((base, *rank), round(self.rng.random(), 4))
                written.append((name, labels, repr(kvs[base, *rank])))
            else:
                values.setdefault((base, *rank), self.rng.choice([0, 0, 1, self.rng.randrange(400)]))
                written.append((name, labels, self.rng.choice(["{}", "{}.0", "{}e0"]).format(values[base, *rank])))
        self.lines = written
        self.want_running = sum(value for key, value in values.items() if key[0] == self.running)
        self.want_waiting = sum(value for key, value in values.items() if key[0] != self.running)
        spelling = next((kv for kv in self.kv if any(key[0] == kv for key in kvs)), None)
        self.want_kv = max((value for key, value in kvs.items() if key[0] == spelling), default=None)


VARIED = [name for name, want in EXPECTED.items() if want["engine"] in COUNTS and want["state"] == "ok"]


@pytest.mark.parametrize("name", VARIED)
def test_variants_read_as_they_were_written(name: str) -> None:
    """Each of the variants of a page gives exactly the values that were written into it."""
    for seed in range(VARIANTS):
        variant = Variant(name, seed)
        page = write_page(variant.comments, variant.lines)
        reading = read_page(page, source=f"{name}#{seed}")
        assert isinstance(reading, Reading), (seed, reading)
        assert (reading.running, reading.waiting) == (variant.want_running, variant.want_waiting), seed
        assert reading.inflight == variant.want_running + variant.want_waiting
        if variant.kv:
            assert reading.kv == variant.want_kv, seed
        if variant.model is not None:
            assert [model.model for model in reading.models] == [variant.model]


def test_the_generator_changes_something() -> None:
    """A generator whose variants were all alike would prove nothing."""
    pages = {
        write_page(v.comments, v.lines) for v in (Variant("vllm-0.33.0-dp2.prom", seed) for seed in range(VARIANTS))
    }
    assert len(pages) == VARIANTS
