"""`infscale decide`: what it decides for pages, what it keeps between two runs, and how each bad input is said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from infscale.cli import run
from infscale.core.grammar import parse_policy
from infscale.core.layer import decide as core_decide
from infscale.core.memory import MOST_READS, Read, ScaleState
from infscale.core.replicas import Fleet
from infscale.core.state import Recommendation, State
from infscale.normalise import read_page
from infscale.reads import kept
from infscale.state_file import read_state, write_state
from tests.raw_server import raw_server

MANIFESTS = Path(__file__).parent / "data" / "manifests"
KEYS = {
    *("desired", "current", "proposal", "hpa", "reason", "direction", "steps", "demand", "coverage", "policy"),
    *("replicas", "warnings"),
}
REPLICA_KEYS = [
    *("name", "engine", "state", "phase", "running", "waiting", "inflight", "kv", "tokens_per_second", "cpu", "error")
]
BOUNDS = ("0.5", "1.0", "+Inf")


def vllm(
    running: int = 2,
    waiting: int = 10,
    *,
    kv: float | None = None,
    tokens: tuple[int, int] | None = None,
    cpu_s: float | None = None,
    ttft: tuple[int, ...] = (),
) -> str:
    """A vLLM page: tokens are (prompt, generated), ttft the cumulative counts of BOUNDS."""
    series = {"num_requests_running": running, "num_requests_waiting": waiting, "kv_cache_usage_perc": kv}
    series |= dict(zip(("prompt_tokens_total", "generation_tokens_total"), tokens or (None, None), strict=True))
    lines = [f'vllm:{name}{{model_name="m"}} {value}' for name, value in series.items() if value is not None]
    lines += [
        f'vllm:time_to_first_token_seconds_bucket{{le="{le}",model_name="m"}} {count}'
        for le, count in zip(BOUNDS, ttft, strict=False)
    ]
    if cpu_s is not None:
        lines.append(f"process_cpu_seconds_total {cpu_s}")
    return "\n".join(lines) + "\n"


@pytest.fixture
def page(tmp_path, monkeypatch):
    """Writes a page into the present folder and returns its name."""
    monkeypatch.chdir(tmp_path)

    def write(content: str | bytes | None = None, name: str = "page.prom") -> str:
        text = vllm() if content is None else content
        Path(name).write_bytes(text.encode() if isinstance(text, str) else text)
        return name

    return write


class Decide:
    """Runs `infscale decide` in this process and keeps what it printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: object) -> tuple[int, str, str]:
        """Exit status, standard output, standard error."""
        status = run(["decide", *map(str, arguments)])
        out, err = self._capsys.readouterr()
        return status, out, err

    def json(self, *arguments: object) -> dict:
        """What `--format json` printed; nothing may be wrong."""
        status, out, err = self("--format", "json", *arguments)
        assert (status, err) == (0, "")
        answer = json.loads(out)
        assert isinstance(answer, dict)
        return answer


@pytest.fixture
def decide(capsys, page) -> Decide:
    """`infscale decide` with arguments, in a folder of its own."""
    return Decide(capsys)


def outcome(answer: dict) -> tuple:
    """The count and why."""
    return answer["desired"], answer["reason"]


def test_table_decision_and_steps(decide, page):
    """A row for each source, the line with the decision, and the steps numbered."""
    page(vllm(kv=0.5))
    status, out, err = decide("page.prom", "--target", "4", "--max", "3", "--explain")

    lines = out.splitlines()
    assert (status, err) == (0, "")
    assert lines[0].split() == ["SOURCE", "ENGINE", "STATE", "INFLIGHT", "RUNNING", "WAITING", "KV", "TOKENS/S", "CPU"]
    assert lines[1].split() == ["page.prom", "vllm", "ok", "12", "2", "10", "0.5", "-", "-"]
    assert lines[2] == "queue:4 (min 1, max 3): current 1 -> desired 3 (up; metric)"
    assert lines[3] == "  1. queue: 12 over 4 per replica at a count of 1 is a ratio of 3, proposes 3"
    assert [line[:5] for line in lines[3:]] == [f"  {number}. " for number in range(1, len(lines) - 2)]


def test_json_is_one_object(decide, page):
    """All keys, each source as an object; what is not known is null."""
    answer = decide.json(page(), "--policy", "queue:4,max=3")

    assert set(answer) == KEYS
    assert (answer["desired"], answer["current"], answer["proposal"], answer["hpa"]) == (3, 1, 3, 3)
    assert (answer["reason"], answer["direction"], answer["policy"]) == ("metric", "up", "queue:4,max=3")
    assert (answer["demand"], answer["coverage"], answer["warnings"]) == (12, 1, [])
    assert all(isinstance(words, str) for words in answer["steps"])
    (replica,) = answer["replicas"]
    assert list(replica) == REPLICA_KEYS
    assert list(replica.values()) == ["page.prom", "vllm", "ok", "serving", 2, 10, 12, None, None, None, None]


def test_held_requests_wake_from_zero(decide):
    """No source is needed where the count is given: 5 held requests at 4 each are 2 replicas."""
    answer = decide.json("--current", "0", "--held", "5", "--min", "0", "--target", "4")

    assert (answer["desired"], answer["reason"], answer["direction"]) == (2, "activate_from_zero", "up")
    assert answer["replicas"] == []
    text = decide("--current", "0", "--held", "5", "--min", "0", "--target", "4")[1]
    assert text == "queue:4 (min 0): current 0 -> desired 2 (up; activate_from_zero)\n"


@pytest.mark.parametrize(
    ("limits", "desired"),
    [
        (["--down-pods", "1"], 7),
        (["--down-percent", "50"], 4),
        (["--down-pods", "1", "--down-percent", "50"], 4),
    ],
)
def test_fall_is_limited(decide, page, limits, desired):
    """From 8 with a proposal of 2: at once without a state, for there is no history; held by one that begins."""
    arguments = [page(vllm(2, 6)), "--current", "8", "--target", "4", *limits]

    for window in ([], ["--down-window", "0"], ["--down-window", "300"]):
        limited = decide.json(*arguments, *window)
        assert (limited["proposal"], *outcome(limited)) == (2, desired, "rate_limited")
    held = decide.json(*arguments, "--state", "state.json")
    assert (held["proposal"], *outcome(held)) == (2, 8, "stabilised")


def test_current_is_the_number_of_sources_and_status_is_current(decide, page):
    """Within the tolerance the count stays: that of the status, as in the HPA."""
    sources = [page(vllm(2, 2), name) for name in ("a", "b")]

    assert decide.json(*sources, "--target", "4")["current"] == 2
    assert outcome(decide.json(*sources, "--target", "4")) == (2, "tolerance")
    assert outcome(decide.json(*sources, "--target", "4", "--current", "3", "--down-window", "0")) == (2, "metric")
    assert decide.json(*sources, "--target", "2.6", "--status", "3", "--current", "2")["proposal"] == 3


def test_window_needs_the_state(decide, page):
    """A fall goes once the window has passed since the last higher proposal, and is an event of the next run."""
    common = ["--target", "4", "--down-pods", "1", "--down-window", "20", "--state", "state.json", "page.prom"]
    page(vllm(12, 20))
    assert outcome(decide.json(*common, "--current", "8", "--now", "1000")) == (8, "tolerance")
    page(vllm(2, 6))
    assert outcome(decide.json(*common, "--current", "8", "--now", "1015")) == (8, "stabilised")
    assert outcome(decide.json(*common, "--current", "8", "--now", "1030")) == (7, "rate_limited")
    assert outcome(decide.json(*common, "--current", "7", "--now", "1040")) == (7, "rate_limited")
    assert outcome(decide.json(*common, "--current", "7", "--now", "1050")) == (6, "rate_limited")


def test_source_that_cannot_be_read_is_silent(decide, page):
    """The decision is printed all the same, nothing falls on the hole, and one line names the source."""
    arguments = ["--target", "4", "--down-window", "0", page(vllm(1, 0)), "none.prom"]
    status, out, err = decide(*arguments)

    assert (status, err) == (1, "infscale: none.prom: no such file\n")
    assert out.splitlines()[2].split() == ["none.prom", "-", "unreachable", "-", "-", "-", "-", "-", "-"]
    assert out.splitlines()[3] == "queue:4 (min 1): current 2 -> desired 2 (none; partial_samples)"
    status, out, err = decide("--format", "json", *arguments)
    replica = json.loads(out)["replicas"][1]
    assert (status, err.count("\n"), json.loads(out)["coverage"]) == (1, 1, 0.5)
    assert (replica["phase"], replica["inflight"], replica["error"]) == ("silent", None, "no such file")


def test_no_source_can_be_read(decide, page):
    """The count is held, each source has its line, and the exit status is 1."""
    status, out, err = decide("--format", "json", "--target", "4", "none.prom", page("<html>", "page.html"))

    assert status == 1
    assert outcome(json.loads(out)) == (2, "no_samples")
    assert [line.split(": ")[1] for line in err.splitlines()] == ["none.prom", "page.html"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--current", "3", "--target", "4"], "none of the 0 replicas that should gave a value"),
        (["--metric", "kv", "--target", "80", "page.prom"], "kv: "),
    ],
)
def test_nothing_to_decide_by(decide, page, arguments, said):
    """All was read and no metric has a value: the count is held, with a line on standard error and status 1."""
    page()
    status, out, err = decide("--format", "json", *arguments)

    answer = json.loads(out)
    assert (status, answer["desired"], answer["reason"]) == (1, answer["current"], "no_samples")
    assert err.startswith("infscale: nothing to decide by: ")
    assert said in err
    assert err.count("\n") == 1


def test_urls_are_read_at_once(decide):
    """Of two engines one hangs: it is silent after the time-out, and the other's page counts."""

    def answer(call):
        if call.path == "/hang":
            call.hang()
        call.page(vllm().encode())

    with raw_server(answer) as server:
        arguments = ["--engine.timeout", "0.5", "--format", "json", "--target", "4"]
        status, out, err = decide(*arguments, server.url("/hang"), server.url())

    answered = json.loads(out)
    assert (status, err.count("\n"), server.url("/hang") in err) == (1, 1, True)
    assert [(one["state"], one["phase"]) for one in answered["replicas"]] == [
        ("saturated", "silent"),
        ("ok", "serving"),
    ]
    assert answered["desired"] == 3


def test_loading_engine_is_starting(decide):
    """A replica on its way is no hole; it could not be read all the same, and is named."""
    with raw_server(lambda call: call.page(b"Loading model", status="503 Service Unavailable")) as server:
        status, out, _ = decide("--format", "json", "--target", "4", server.url())

    assert (status, json.loads(out)["replicas"][0]["phase"]) == (1, "starting")


def test_source_given_twice(decide, page):
    """It counts twice, under two names, and that is said."""
    name = page()
    answer = decide.json(name, name, "--target", "4")

    assert [one["name"] for one in answer["replicas"]] == ["page.prom", "page.prom#2"]
    assert answer["warnings"] == ["page.prom: given 2 times, counts as 2 replicas"]
    status, _, err = decide(name, name, "--target", "4")
    assert (status, err) == (0, "infscale: page.prom: given 2 times, counts as 2 replicas\n")


class TwoRuns:
    """The same source at two instants, with a state between them."""

    def __init__(self, decide: Decide, page) -> None:
        self._decide, self._page = decide, page

    def __call__(self, policy: str, first: str, second: str, *more: object, seconds: float = 60.0) -> dict:
        """What the second run printed."""
        arguments = [self._page(first), "--policy", policy, "--state", "state.json", *more]
        before = self._decide.json(*arguments, "--now", "1000")
        assert (before["replicas"][0]["tokens_per_second"], before["replicas"][0]["cpu"]) == (None, None)
        self._page(second)
        return self._decide.json(*arguments, "--now", 1000 + seconds)


@pytest.fixture
def two_runs(decide, page) -> TwoRuns:
    """Two runs of one policy over two pages."""
    return TwoRuns(decide, page)


def test_rates_come_from_two_runs(two_runs):
    """Tokens per second, and CPU over the request."""
    first, second = vllm(tokens=(100, 1000), cpu_s=10), vllm(tokens=(700, 7000), cpu_s=70)

    (replica,) = two_runs("queue:4", first, second, "--cpu-request", "2")["replicas"]

    assert (replica["tokens_per_second"], replica["cpu"]) == (110, 0.5)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (vllm(tokens=(100, 1000), cpu_s=10), vllm(tokens=(0, 50), cpu_s=1), (None, None)),
        (vllm(tokens=(100, 1000), cpu_s=10), vllm(tokens=(200, 50), cpu_s=11), (None, None)),
        (vllm(tokens=(100, 1000)), vllm(tokens=(100, 1000)), (0, None)),
        (vllm(), vllm(tokens=(100, 1000), cpu_s=10), (None, None)),
        (vllm(cpu_s=10), vllm(cpu_s=40), (None, 0.5)),
    ],
    ids=["restart", "one fell", "idle", "new counters", "cpu alone"],
)
def test_rates_that_are_not_known(two_runs, first, second, expected):
    """A counter that fell is a restart: no rate is made up; nor of a counter that was not there before."""
    (replica,) = two_runs("queue:4", first, second, "--cpu-request", "1")["replicas"]

    assert (replica["tokens_per_second"], replica["cpu"]) == expected


def test_rate_over_a_run_that_could_not_read(decide, page):
    """What a silent source had before is kept, and is what its next read is compared with."""
    arguments = ["--target", "4", "--state", "state.json", page(vllm(tokens=(0, 1000)))]
    decide.json(*arguments, "--now", "1000")
    Path("page.prom").unlink()
    assert decide(*arguments, "--now", "1030")[0] == 1
    page(vllm(tokens=(0, 7000)))

    assert decide.json(*arguments, "--now", "1060")["replicas"][0]["tokens_per_second"] == 100


def test_no_time_between_two_runs(two_runs):
    """Two runs of one instant have no rate."""
    pages = vllm(tokens=(0, 10)), vllm(tokens=(0, 20))

    assert two_runs("queue:4", *pages, seconds=0.0)["replicas"][0]["tokens_per_second"] is None


def test_cpu_policy(two_runs):
    """30 of 60 s on a request of one core are 50 percent: twice the target of 25."""
    answer = two_runs("cpu:25", vllm(cpu_s=10), vllm(cpu_s=40), "--cpu-request", "1")

    assert outcome(answer) == (2, "metric")


def test_work_policy(two_runs):
    """100 generated and a tenth of 100 prompt tokens a second, at 85 % of 50 per replica: 3."""
    answer = two_runs("work:50", vllm(tokens=(0, 0)), vllm(tokens=(6000, 6000)))

    assert outcome(answer) == (3, "metric")
    assert answer["replicas"][0]["tokens_per_second"] == 200


def test_kv_policy(decide, page):
    """The average over the replicas that told it: 0.9 of two is 1.5 times the target."""
    sources = [page(vllm(kv=0.9), name) for name in ("a", "b")]

    assert outcome(decide.json(*sources, "--metric", "kv", "--target", "60")) == (3, "metric")


HALFWAY = (90, 100, 100)
"""Of 100 new requests the 95th is the fifth of ten in the bucket from 0.5 to 1.0: 0.75 s."""


@pytest.mark.parametrize(
    ("first", "second"),
    [((7, 20, 21), (97, 120, 121)), ((400, 500, 500), HALFWAY)],
    ids=["difference", "reset between"],
)
def test_ttft_is_the_quantile_of_what_came(two_runs, first, second):
    """The p95 of the difference lies halfway through the le=1.0 bucket; after a reset all that is there is new."""
    answer = two_runs("ttft:0.5", vllm(ttft=first), vllm(ttft=second), "--current", "2")

    assert "ttft: 0.75 s over 0.5 s" in answer["steps"][0]
    assert outcome(answer) == (3, "metric")


def test_ttft_without_a_new_request(two_runs):
    """Nothing came: no recommendation, the count stays."""
    answer = two_runs("ttft:0.5", vllm(ttft=HALFWAY), vllm(ttft=HALFWAY), "--current", "2")

    assert outcome(answer) == (2, "no_samples")


def test_metric_of_two_runs_without_a_state_is_told(decide, page):
    """It can never have a value: a warning says what to give."""
    warnings = decide.json(page(), "--policy", "queue:4+ttft:1+work:50")["warnings"]

    assert warnings == ["ttft and work: measured between two runs; give --state FILE to both"]


def test_policy_out_of_a_manifest(decide, page):
    """An HPA in a file is a policy, with its bounds."""
    answer = decide.json("--from-manifest", MANIFESTS / "hpa-queue.yaml", page(vllm(40, 90, kv=0.5)), "--current", "4")

    assert (answer["proposal"], answer["current"]) == (6, 4)
    assert answer["policy"].startswith("queue:24+kv:80,min=2,max=12")


def test_what_a_manifest_has_and_infscale_has_not_is_told(decide, page):
    """Its warnings are the decision's: in the object, or a line each on standard error."""
    arguments = ["--from-manifest", MANIFESTS / "scaledobject-zero.yaml", page(), "--state", "state.json"]

    assert any("cron" in warning for warning in decide.json(*arguments)["warnings"])
    status, out, err = decide(*arguments)
    assert (status, "cron" in err, "cron" in out) == (0, True, False)


def test_policy_in_a_file_and_flags_of_a_configuration_file(decide, page):
    """--policy.file is YAML; --config.file serves this command and the sidecar alike, each with its own --format."""
    page("metrics: {queue: 4}\nmax: 3\n", "policy.yaml")
    page("format: text\nweb.listen-address: :10047\nengine: vllm\n", "infscale.yaml")

    assert outcome(decide.json("--policy.file", "policy.yaml", page())) == (3, "metric")
    status, out, _ = decide("--config.file", "infscale.yaml", "--target", "4", "page.prom")
    assert (status, out.splitlines()[1].split()[1]) == (0, "vllm")
    assert run(["check-config", "infscale.yaml"]) == 0
    assert run(["parse", "--config.file", "infscale.yaml", "page.prom"]) == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "no policy: expected --policy"),
        (["--target", "4"], "nothing to decide on: "),
        (["page.prom"], "no policy: expected --policy, as --policy queue:24, or --target"),
        (["--policy", "queue:4", "--target", "4", "page.prom"], "--policy and --target: "),
        (["--policy", "queue:4,mim=0", "page.prom"], "policy 'queue:4,mim=0': 'mim' at character 9: no such key"),
        (["--target", "4", "--min", "5", "--max", "2", "page.prom"], "--max: the maximum 2 is below the minimum 5"),
        (["--policy", "queue:4,min=5,max=2", "page.prom"], "policy 'queue:4,min=5,max=2': 'max=2' at character 15: "),
        (["--target", "4", "--down-window", "-1", "page.prom"], "--down-window: expected whole seconds from 0 to 3600"),
        (["--policy", "queue:4,upwindow=-3", "page.prom"], "policy 'queue:4,upwindow=-3': '-3' at character 18: "),
        (["--target", "0", "page.prom"], "--target: expected requests per replica above 0, as 24, got '0'"),
        (["--target", "nan", "page.prom"], "--target: expected requests per replica above 0, as 24, got 'nan'"),
        (["--metric", "cpu", "--min", "0", "--target", "60", "page.prom"], "--min: at 0 replicas cpu has no sample"),
        (["--policy", "kv:60,min=0", "page.prom"], "policy 'kv:60,min=0': 'min=0' at character 7: at 0 replicas kv"),
        (["--metric", "gpu", "--target", "60", "page.prom"], "--metric: no metric 'gpu'; "),
        (["--policy", "gpu:60", "page.prom"], "policy 'gpu:60': 'gpu' at character 1: no such metric; "),
        (["--policy", "cpu:60", "page.prom"], "the metric cpu is measured between two runs, over the Pods' request: "),
        (["--policy", "cpu:60", "--state", "s", "page.prom"], "the metric cpu is measured between two runs, "),
        (["--target", "4", "--current", "-1"], "invalid value for '--current'"),
        (["--target", "4", "--current", "2147483648"], "invalid value for '--current'"),
        (["--target", "4", "--status", "x", "page.prom"], "invalid value for '--status'"),
        (["--target", "4", "--held", "-1", "page.prom"], "invalid value for '--held'"),
        (["--target", "4", "--held", "inf", "page.prom"], "invalid value for '--held'"),
        (["--target", "4", "--now", "nan", "page.prom"], "invalid value for '--now'"),
        (["--target", "4", "--format", "table", "page.prom"], "invalid value for '--format'"),
        (["--target", "4", "--cpu-request", "0", "page.prom"], "invalid value for '--cpu-request'"),
        (["--target", "4", "--engine", "vlm", "page.prom"], "unknown engine 'vlm'"),
        (["--target", "4", "127.0.0.1:8000"], "'127.0.0.1:8000': no such file, and no URL without its scheme"),
        (["--target", "4", "http://u:secret@host/"], "URL 'http://***@host/' holds a user name or password"),
        (["--target", "4", "--state", "none/state.json", "page.prom"], "none/state.json: cannot be written: No such "),
        (["--target", "4", "--state", "page.prom/state", "page.prom"], "page.prom/state: cannot be read: Not a dir"),
        (["--target", "4", "--state", ".", "page.prom"], ".: not a regular file: expected a state file"),
        (["--policy.file", "none.yaml", "page.prom"], "none.yaml: "),
        (["--from-manifest", MANIFESTS / "hpa-by-keda.yaml", "page.prom"], f"{MANIFESTS}/hpa-by-keda.yaml: "),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, list) else "",
)
def test_bad_usage_is_one_line_and_2(decide, page, arguments, said):
    """A contradictory policy, a bad flag, a state that cannot be kept: exit 2, no output, one line that says it."""
    page()
    status, out, err = decide("--format", "json", *arguments) if "--format" not in arguments else decide(*arguments)

    assert (status, out) == (2, "")
    assert err.startswith(f"infscale: {said}")
    assert err.count("\n") == 1
    assert "secret" not in err
    assert sorted(path.name for path in Path().iterdir()) == ["page.prom"]


def state_text() -> str:
    """A state that can be used, as its file has it."""
    write_state(Path("good"), ScaleState(hpa=State((Recommendation(3, 900.0),)), evaluated_s=900.0))
    text = Path("good").read_text(encoding="utf-8")
    Path("good").unlink()
    return text


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda text: "", "empty"),
        (lambda text: text[:-9], "damaged (line 1"),
        (lambda text: '{"kind": "Deployment"}', "not a state of infscale"),
        (lambda text: "\0\0", "damaged ("),
        (lambda text: text.replace('"version":1', '"version":7', 1), "written by a later version"),
        (lambda text: text[:-1] + ',"reads":{"a":[1,2,3]}}', ".reads.a: expected a list of 4"),
        (lambda text: text[:-1] + ',"reads":{"a":[1,-2,3,4]}}', ".reads.a[1]: -2"),
        (lambda text: text[:-1] + ',"reads":' + json.dumps({n: [1, 2, 3, 4] for n in range(10_001)}) + "}",
         "10001 sources"),
    ],
    ids=["empty", "cut", "foreign", "zeros", "later version", "short read", "negative read", "too many reads"],
)  # fmt: skip
def test_state_that_cannot_be_used_is_refused(decide, page, damage, said):
    """One line names the file and the fault, no engine is asked, and the file is as it was."""
    page()
    text = damage(state_text())
    Path("state.json").write_text(text, encoding="utf-8")

    status, out, err = decide("--target", "4", "--state", "state.json", "page.prom")

    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("infscale: state.json")
    assert said in err
    assert Path("state.json").read_text(encoding="utf-8") == text


def test_clock_that_went_backwards_loses_nothing(decide, page):
    """A run at an earlier instant decides without what is to come, says so, and leaves the file alone."""
    arguments = ["--target", "4", "--state", "state.json", page(vllm(tokens=(0, 1000)))]
    decide.json(*arguments, "--now", "1000")
    before = Path("state.json").read_bytes()

    answer = decide.json(*arguments, "--now", "500")
    status, _, err = decide(*arguments, "--now", "500")

    assert "state.json: 6 entries lie in the future" in answer["warnings"][0]
    assert (answer["desired"], answer["replicas"][0]["tokens_per_second"]) == (3, None)
    assert (status, err.count("\n"), "lie in the future" in err) == (0, 1, True)
    assert Path("state.json").read_bytes() == before
    page(vllm(tokens=(0, 7000)))
    assert decide.json(*arguments, "--now", "1060")["replicas"][0]["tokens_per_second"] == 100


def test_state_keeps_what_the_long_running_roles_have_no_use_for(decide, page):
    """The counters of the sources go through the state of a role that does not look at them, and are bounded."""
    page(vllm(tokens=(5, 6), cpu_s=7))
    decide.json("--target", "4", "--state", "state.json", "page.prom", "--now", "1000")
    state = read_state(Path("state.json"), 1000.0).state

    assert list(state.reads) == ["page.prom"]
    _, after = core_decide(parse_policy("queue:4"), Fleet(1001.0, 1), state)
    write_state(Path("state.json"), after)
    assert read_state(Path("state.json"), 1001.0).state.reads == state.reads
    page(vllm(tokens=(5, 606)), "other.prom")
    decide.json("--target", "4", "--state", "state.json", "other.prom", "--now", "1010")
    assert list(read_state(Path("state.json"), 1010.0).state.reads) == ["other.prom"]


def test_reads_that_are_kept_are_bounded():
    """At most 10,000 sources, whatever a command line names; of one that gives none now, what it had before."""
    before = {"gone": Read(900.0, None, None, None), "silent": Read(900.0, 1.0, 2.0, 3.0)}
    reading, failure = read_page(vllm()), read_page("<html>")
    outcomes = [("silent", failure), ("new", failure), *((str(number), reading) for number in range(MOST_READS))]

    reads = kept(before, outcomes, 1000.0)

    assert (len(reads), reads["silent"]) == (MOST_READS, before["silent"])
    assert "gone" not in reads
    assert "new" not in reads
    assert reads["0"] == Read(1000.0, None, None, None)


def test_process_prints_one_object_and_nothing_else(page):
    """A real process at the present time: JSON alone on standard output, standard error empty, a state written."""
    page()
    done = subprocess.run(
        [sys.executable, "-m", "infscale", "decide", "--format", "json", "--state", "state.json", "page.prom"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "INFSCALE_POLICY": "queue:4,max=3"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["desired"] == 3
    assert Path("state.json").exists()
