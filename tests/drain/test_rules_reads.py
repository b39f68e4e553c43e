"""The drain's rules 9 to 16: what one read says."""

from __future__ import annotations

from pathlib import Path

import pytest

from infscale.drain.verdict import BUSY, IDLE, judge
from infscale.engines import PROFILES
from infscale.engines.profile import Metric, Profile
from infscale.normalise import counted
from infscale.scrape import Page, Target
from infscale.sidecar import Engine, EngineSettings

from ..certs import Certs, make_certs
from ..raw_server import Call, RawServer, raw_server
from .driven import run
from .matrix import BUSY as BUSY_PAGE
from .matrix import IDLE as IDLE_PAGE
from .matrix import in_turn, page, reset, serving, status

PACKAGE = Path(__file__).parent.parent.parent / "exporter" / "infscale" / "drain"


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Certs:
    """Certificates, good and bad."""
    return make_certs(tmp_path_factory.mktemp("certs"))


def kind_of(text: str, profile: Profile | None = None) -> str:
    """The verdict on a page."""
    return judge(Page(200, "text/plain", text.encode(), 0.01), source="127.0.0.1:8000", profile=profile).kind


def test_rule_09_reset_is_busy() -> None:
    """A reset is busy, not a refusal: the engine is held on to."""
    with raw_server(reset) as server:
        report = run(server.url(), grace_s=15)
    assert (report.outcome, report.busy_reads) == ("deadline", 5)


def test_rule_09_one_refusal_ends_nothing() -> None:
    """One transient refusal never ends a drain; two in a row do, as `gone` if the engine had answered."""
    server = RawServer(serving(BUSY_PAGE))
    url = server.url()
    kinds = []

    def on_read(note) -> None:
        kinds.append(note.verdict.kind)
        if note.number == 2:
            server.close()

    report = run(url, on_read=on_read)
    assert kinds == ["busy", "busy", "refused", "refused"]
    assert (report.outcome, report.inflight) == ("gone", 3)


def test_rule_09_refused_once_then_idle() -> None:
    """A listener that comes back between two refusals is read on."""
    with raw_server(serving(IDLE_PAGE)) as server:
        kinds: list[str] = []
        answers = iter([None, True, None, True, True])
        report = run_with_refusals(server, answers, kinds)
    assert kinds == ["refused", "idle", "refused", "idle", "idle"]
    assert report.outcome == "idle"


def run_with_refusals(server: RawServer, answers, kinds: list[str]):
    """A drain whose reads go to a port where nothing listens whenever `answers` says None."""
    from infscale import scrape
    from infscale.drain.options import DrainOptions
    from infscale.drain.run import drain

    from .driven import Clock

    clock = Clock()

    def fetch(target: Target, *, timeout_s: float) -> scrape.Page | scrape.ScrapeFailure:
        return scrape.fetch(target if next(answers) else Target("http://127.0.0.1:1/"), timeout_s=timeout_s)

    return drain(
        DrainOptions(server.url()),
        clock=clock,
        sleep=clock.sleep,
        fetch=fetch,
        connections=lambda: None,
        on_read=lambda note: kinds.append(note.verdict.kind),
    )


def test_rule_09_one_500_ends_nothing() -> None:
    """One transient 500 never ends a drain, and it breaks a row of idle reads."""
    with raw_server(in_turn(serving(IDLE_PAGE), status("500 Oops"), serving(IDLE_PAGE))) as server:
        report = run(server.url())
    assert (report.outcome, report.reads) == ("idle", 4)


@pytest.mark.parametrize("name", ["self_signed", "expired", "wrong_host"])
def test_rule_10_certificates_do_not_matter_on_loopback(name: str, certs: Certs) -> None:
    """A self-signed, expired or mismatched certificate is not a failure: the read stays on loopback."""
    with raw_server(serving(IDLE_PAGE), tls=getattr(certs, name).server_context()) as server:
        assert run(server.url()).outcome == "idle"


@pytest.mark.parametrize("variable", ["http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"])
def test_rule_11_proxies_never_apply(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Proxy variables in the environment never apply to the read."""
    with raw_server(lambda call: call.page(BUSY_PAGE)) as proxy, raw_server(serving(IDLE_PAGE)) as server:
        monkeypatch.setenv(variable, f"http://127.0.0.1:{proxy.port}")
        assert run(server.url()).outcome == "idle"
        assert proxy.calls == []


def test_rule_12_redirects_stay_on_loopback() -> None:
    """Redirects are not followed off the loopback address; one to another path of the engine is."""
    with raw_server(serving(IDLE_PAGE)) as elsewhere:

        def away(call: Call) -> None:
            call.page(b"", f"Location: http://localhost.example:{elsewhere.port}/", status="302 Found")

        with raw_server(away) as server:
            report = run(server.url())
        assert elsewhere.calls == []
    assert report.outcome == "http"
    assert "not followed" in report.note

    def onward(call: Call) -> None:
        if call.path == "/metrics":
            call.page(b"", "Location: /metrics/", status="307 Temporary Redirect")
        else:
            call.page(IDLE_PAGE)

    with raw_server(onward) as server:
        assert run(server.url()).outcome == "idle"


def test_rule_13_ranks_add_up_and_copies_do_not() -> None:
    """Label sets are summed (data-parallel ranks); series that are copies (tensor ranks) are not."""
    line = 'sglang:{}{{dp_rank="{}",tp_rank="{}"}} {}\n'
    ranks = [(dp, tp) for dp in (0, 1) for tp in (0, 1)]
    text = "".join(line.format("num_queue_reqs", dp, tp, 0) for dp, tp in ranks)
    text += "".join(line.format("num_running_reqs", dp, tp, 3 * dp) for dp, tp in ranks)
    with raw_server(serving(text.encode())) as server:
        report = run(server.url(), grace_s=15)
    assert (report.outcome, report.inflight) == ("deadline", 3)


@pytest.mark.parametrize(
    "line",
    [
        'vllm:num_requests_waiting_by_reason{reason="deferred"} 4',
        'vllm:num_requests_kv_fetch_by_stage{stage="load"} 4',
        "vllm:num_requests_running_total 4",
        "myvllm:num_requests_running 4",
    ],
)
def test_rule_14_name_that_merely_begins_alike_is_not_counted(line: str) -> None:
    """A name that merely begins like a counted gauge is not counted."""
    assert kind_of(IDLE_PAGE.decode() + line + "\n") == IDLE


@pytest.mark.parametrize("zero", ["0", "0.0", "0e0", "-0", "+0.0", "0.000", "00"])
@pytest.mark.parametrize(
    "line",
    [
        "vllm:num_requests_running {}",
        "\tvllm:num_requests_running\t{}\t",
        "  vllm:num_requests_running {} 1700000000000",
        'vllm:num_requests_running{{model_name="a b}}c{{d"}} {}',
        'vllm:num_requests_running{{model_name="a\\"b\\\\c\\nd",}} {}',
        'vllm:num_requests_running{{ model_name = "m" }} {}',
        "vllm:num_requests_running {}\r",
        "vllm_num_requests_running {}",
    ],
)
def test_rule_15_every_legal_spelling_counts(line: str, zero: str) -> None:
    """All legal spellings count: tabs, blanks, timestamps, braces in label values, escapes, `0`, `0.0`, `0e0`."""
    rest = "\nvllm:num_requests_waiting 0\n"
    assert kind_of(line.format(zero) + rest) == IDLE
    assert kind_of(line.format("1e-7") + rest) == BUSY


def spelt(profile: Profile, metric: Metric, value: float) -> str:
    """A sample of one of a profile's gauges."""
    name = f"{profile.prefix}:{metric.names[-1]}" if profile.prefix else metric.names[-1]
    labels = ",".join(f'{label}="{content}"' for label, content in metric.where)
    return f"{name}{{{labels}}} {value}\n" if labels else f"{name} {value}\n"


GAUGES = [(profile, busy) for profile in PROFILES.values() for busy in counted(profile)]


@pytest.mark.parametrize(("profile", "busy"), GAUGES, ids=lambda value: getattr(value, "name", None) or value.names[0])
def test_rule_16_drain_and_sidecar_have_one_gauge_list(profile: Profile, busy: Metric) -> None:
    """Counted gauges are those of the engine profile, one list for everything.

    Each of them alone above 0 is in flight for the sidecar and busy for the drain; all at 0 is idle for both.
    """
    idle = "".join(spelt(profile, metric, 0) for metric in counted(profile))
    text = "".join(spelt(profile, metric, 2 if metric is busy else 0) for metric in counted(profile))
    assert kind_of(idle) == IDLE
    assert kind_of(text) == BUSY
    with raw_server(serving(text.encode(), idle.encode())) as server:
        engine = Engine(Target(server.url()), EngineSettings(min_interval_s=0))
        busy_view, idle_view = engine.view(), engine.view()
    assert busy_view.reading is not None
    assert busy_view.reading.inflight == 2
    assert idle_view.reading is not None
    assert idle_view.reading.inflight == 0


def test_rule_16_the_drain_names_no_gauge_of_its_own() -> None:
    """No module of the drain spells a counted gauge: there is no second list to fall behind."""
    sources = {path.name: path.read_text(encoding="utf-8") for path in PACKAGE.glob("*.py")}
    names = {name for profile in PROFILES.values() for metric in counted(profile) for name in metric.names}
    assert {(file, name) for file, text in sources.items() for name in names if name in text} == set()


def test_rule_16_disaggregated_and_older_queues_count() -> None:
    """SGLang's prefill and decode queues in older spellings too, and vLLM's `swapped`."""
    for more in ("num_grammar_queue_reqs", "num_prefill_prealloc_queue_reqs", "num_prefill_infight_queue_reqs"):
        text = "sglang:num_running_reqs 0\nsglang:num_queue_reqs 0\nsglang:{} {}\n"
        assert kind_of(text.format(more, 0)) == IDLE
        assert kind_of(text.format(more, 1)) == BUSY
    assert kind_of(page().decode() + "vllm:num_requests_swapped 1\n") == BUSY
