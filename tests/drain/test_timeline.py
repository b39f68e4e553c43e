"""The timeline and the run around it, beyond the numbered rules: properties, the leader, what a watcher is told."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from infscale import scrape
from infscale.drain.connections import Clients
from infscale.drain.options import DrainOptions
from infscale.drain.report import DrainReport
from infscale.drain.run import ReadNote, drain
from infscale.drain.timeline import GONE, OUTCOMES, READ_S, Done, Timeline, Wait
from infscale.drain.verdict import BUSY, HTTP, IDLE, KINDS, REFUSED, Verdict, judge
from infscale.engines import PROFILES
from infscale.engines.custom import profile_from_mapping
from infscale.reading import ReadFailure
from infscale.scrape import Page, ScrapeFailure

from ..raw_server import raw_server
from .driven import Clock, run
from .matrix import BUSY as BUSY_PAGE
from .matrix import IDLE as IDLE_PAGE
from .matrix import serving

URL = "http://127.0.0.1:8000/metrics"


def idle() -> Verdict:
    """The verdict on an idle page."""
    return judge(Page(200, "", IDLE_PAGE, 0.01), source="engine")


verdicts = st.builds(
    lambda kind, clients: Verdict(kind, clients=clients, answered=kind in (HTTP, BUSY)) if kind != IDLE else idle(),
    st.sampled_from(KINDS),
    st.sampled_from([None, Clients(0), Clients(2)]),
)


@given(
    st.floats(15, 3600),
    st.floats(0, 5),
    st.lists(st.tuples(verdicts, st.floats(0, 1)), min_size=1, max_size=30),
)
def test_drain_always_returns_in_time(
    grace_s: float, exit_reserve_s: float, listener: list[tuple[Verdict, float]]
) -> None:
    """Whatever the listener says, and whatever share of its budget each read takes, the drain is back by G-R+2."""
    schedule = DrainOptions(URL, grace_s=grace_s, exit_reserve_s=exit_reserve_s).schedule
    timeline = Timeline(schedule)
    now_s, read = 0.0, 0
    step = timeline.next(now_s)
    for _ in range(100_000):
        if isinstance(step, Done):
            break
        if isinstance(step, Wait):
            assert step.seconds > 0
            now_s += step.seconds
            step = timeline.next(now_s)
            continue
        assert 5.0 <= now_s < grace_s - exit_reserve_s
        assert 0 < step.budget_s <= READ_S
        verdict, share = listener[read % len(listener)]
        read += 1
        now_s += step.budget_s * share
        step = timeline.next(now_s, verdict)
    assert isinstance(step, Done)
    assert step.outcome in OUTCOMES
    assert now_s <= min(grace_s, grace_s - exit_reserve_s + 2)


def test_refusals_before_and_after_an_answer() -> None:
    """Two refusals in a row end the drain; whether the engine had answered before makes the outcome."""
    away = Verdict(REFUSED)
    for first, outcome in ((Verdict(BUSY), "refused"), (Verdict(HTTP, answered=True), GONE)):
        timeline = Timeline(DrainOptions(URL).schedule)
        assert timeline.next(5.0, first) == Wait(1.0)
        assert timeline.next(6.0, away) == Wait(1.0)
        assert timeline.next(7.0, away) == Done(outcome)


def test_what_shows_no_gauges_is_waited_for_while_clients_are_connected() -> None:
    """By itself the drain goes by connections; told to return it does, at the second answer without gauges."""
    unmeasured = Verdict(HTTP, answered=True, clients=Clients(1))
    for told, step in (({}, Wait(1.0)), ({"http_error_returns": True}, Done("http"))):
        timeline = Timeline(DrainOptions(URL).schedule, **told)
        assert timeline.next(5.0, unmeasured) == Wait(1.0)
        assert timeline.next(6.0, unmeasured) == step


def test_clients_are_seen_beside_a_read_that_failed() -> None:
    """Where TLS fails the drain goes by them."""
    failure = ScrapeFailure("tls", "handshake failed", True, 0.01)
    assert judge(failure, source="engine", clients=Clients(2)) == Verdict("tls", "handshake failed", clients=Clients(2))


def test_leader_is_read_instead_of_the_worker() -> None:
    """A worker of a multi-Pod replica waits for its leader, whose clients it cannot see."""
    with raw_server(serving(BUSY_PAGE, BUSY_PAGE, IDLE_PAGE)) as leader:
        report = run("http://127.0.0.1:1/metrics", leader_url=leader.url(), connections=None)
    assert (report.outcome, report.reads) == ("idle", 4)


def test_leader_that_is_gone() -> None:
    """A leader whose name vanished after it had answered is gone; one that never answered is not given up."""
    lost = ScrapeFailure("reset", "no such host", False, 0.01)
    busy = Page(200, "", BUSY_PAGE, 0.01)
    for first, outcome in ((busy, "gone"), (lost, "deadline")):
        answers = iter([first])
        clock = Clock()
        report = drain(
            DrainOptions("", leader_url="http://leader.llm.svc:8000/metrics", grace_s=15),
            clock=clock,
            sleep=clock.sleep,
            fetch=lambda _target, *, timeout_s, answers=answers: next(answers, lost),
        )
        assert report.outcome == outcome


def drain_of(*answers: Page | ScrapeFailure, grace_s: float = 15, engine: str = "") -> DrainReport:
    """A drain whose reads give these answers in turn, and the last again and again."""
    left = list(answers)
    clock = Clock()
    return drain(
        DrainOptions("http://leader.llm.svc:8000/metrics", grace_s=grace_s, engine=engine),
        clock=clock,
        sleep=clock.sleep,
        fetch=lambda _target, *, timeout_s: left.pop(0) if len(left) > 1 else left[0],
    )


def test_what_is_not_gone() -> None:
    """A host that does not answer in time, or a connection that breaks, may be an engine that is too busy."""
    for failure in (
        ScrapeFailure("timeout", "timed out", False, 2.0),
        ScrapeFailure("timeout", "timed out", True, 2.0),
        ScrapeFailure("reset", "connection reset", True, 0.01),
    ):
        report = drain_of(Page(200, "", BUSY_PAGE, 0.01), failure)
        assert (report.outcome, report.timeouts) == ("deadline", 4 if failure.kind == "timeout" else 0)


def test_an_engine_that_wants_a_key_has_answered() -> None:
    """Its 401 is an answer: when the port is closed after it, the engine is gone, and was not moved elsewhere."""
    refused = ScrapeFailure("refused", "nothing listens", False, 0.01)
    assert drain_of(Page(401, "", b"", 0.01), refused).outcome == "gone"
    assert drain_of(Page(302, "", b"", 0.01), refused).outcome == "gone"
    assert drain_of(ScrapeFailure("http", "no HTTP", True, 0.01), refused).outcome == "refused"


def test_what_a_report_says() -> None:
    """A line for a person where the numbers do not say it, and none where they do; each fault under its name."""
    report = drain_of(Page(200, "", BUSY_PAGE, 0.01))
    assert (report.outcome, report.note, report.connections) == ("deadline", "3 request(s) still in flight", None)
    assert (report.timeouts, report.missing, report.unusable) == (0, 0, 0)
    assert drain_of(Page(200, "", IDLE_PAGE, 0.01)).note == ""
    report = drain_of(ScrapeFailure("refused", "nothing listens", False, 0.01))
    assert report.note == (
        "nothing listens: only the settle time was waited for; was the engine moved by its own --port?"
    )
    report = drain_of(Page(200, "", IDLE_PAGE + b"vllm:num_requests_running NaN\n", 0.01))
    assert (report.outcome, report.unusable, report.missing, report.timeouts) == ("deadline", 5, 0, 0)
    report = drain_of(Page(401, "", b"", 0.01))
    assert report.note.endswith("; clients' connections cannot be seen, so it returned")


def test_why_no_page_came_names_the_engines_own_flag() -> None:
    """The address, the status and what to start the engine with; without the engine's name, what any may need."""
    page = Page(501, "", b"", 0.01)
    told = drain_of(page, engine="llama.cpp")
    assert (told.outcome, told.engine) == ("http", "llama.cpp")
    assert told.note.startswith("leader.llm.svc:8000: HTTP 501: ")
    assert "start llama-server with --metrics" in told.note
    assert "SGLang --enable-metrics" in drain_of(page).note
    assert "expected 200" in drain_of(Page(400 + 99, "", b"", 0.01)).note
    assert drain_of(Page(399, "", b"", 0.01)).outcome == "deadline"
    assert drain_of(Page(400, "", b"", 0.01)).outcome == "http"


def test_leaders_certificate_is_checked_where_a_token_is_sent(tmp_path) -> None:
    """Off the loopback address a token goes to nobody who cannot prove to be the leader."""
    token = tmp_path / "token"
    token.write_text("secret")
    for url, token_file, unverified in (
        ("https://leader:8000/metrics", str(token), False),
        ("https://leader:8000/metrics", None, True),
        ("https://127.0.0.1:8000/metrics", str(token), True),
    ):
        seen: list[scrape.Target] = []
        clock = Clock()

        def fetch(target: scrape.Target, *, timeout_s: float, seen: list[scrape.Target] = seen) -> ScrapeFailure:
            seen.append(target)
            return ScrapeFailure("refused", "refused", False, 0.0)

        told = DrainOptions("", leader_url=url, token_file=token_file)
        drain(told, clock=clock, sleep=clock.sleep, fetch=fetch)
        assert {(target.insecure_skip_verify, target.token_file) for target in seen} == {(unverified, token_file)}


def test_router_page_does_not_load_a_model() -> None:
    """A URL that names a model of llama.cpp's router asks not to load it."""
    assert DrainOptions("http://127.0.0.1:8080/metrics?model=a").page_url.endswith("?model=a&autoload=false")


def test_engine_told_or_found() -> None:
    """An engine that is told is read as that; one that is found is remembered; a custom profile works as any."""
    own = profile_from_mapping({"name": "mine", "prefix": "mine", "running": "busy", "waiting": "queue"})
    with raw_server(serving(b"mine:busy 0\nmine:queue 0\n")) as server:
        assert run(server.url(), profiles=(own, *PROFILES.values())).engine == "mine"
        assert run(server.url(), profile=own).outcome == "idle"
        told = run(server.url(), engine="vllm", grace_s=15)
    assert (told.outcome, told.engine, told.missing) == ("deadline", "vllm", 5)


def test_watcher_is_told_of_each_read() -> None:
    """`on_read` gets the number, the time and the verdict of each read."""
    notes: list[ReadNote] = []
    with raw_server(serving(BUSY_PAGE, IDLE_PAGE)) as server:
        run(server.url(), on_read=notes.append)
    assert [(note.number, note.at_s, note.verdict.kind) for note in notes] == [
        (1, 5.0, "busy"),
        (2, 6.0, "idle"),
        (3, 7.0, "idle"),
    ]


def test_report_of_the_worst_engine_has_a_note() -> None:
    """What was wrong with the last read stands in the report, in one line."""
    with raw_server(serving(b"<html>")) as server:
        report = run(server.url(), grace_s=15)
    assert "HTML" in report.note
    assert "\n" not in report.note


def test_failure_of_a_page_is_the_sidecars_failure() -> None:
    """The drain makes its verdict from the same reading as the sidecar: the message is the same."""
    from infscale.outcome import outcome

    page = Page(200, "", b"vllm:num_requests_running 0\n", 0.01)
    failure = outcome(page, source="x")
    assert isinstance(failure, ReadFailure)
    assert judge(page, source="x").why == failure.message
