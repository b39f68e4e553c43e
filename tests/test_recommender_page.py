"""What the recommender shows to a person and answers to KEDA."""

from __future__ import annotations

import json
import math
import threading
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from infscale.metrics.catalogue_workload import REASON_MEANINGS
from infscale.metrics.workload import Counts, WorkloadView
from infscale.recommender_answers import HISTORY_LENGTH, MAX_AGE_S, History, load, recommendation, status_of
from infscale.recommender_page import NAMES_SHOWN, decision_sections, decision_state, recommender_page
from tests.metrics.workload_cases import HELD, NOW_S, VIEWS

each_view = pytest.mark.parametrize("name", VIEWS)


def history_of(*views: WorkloadView) -> History:
    """A history with these evaluations, the last one last."""
    history = History()
    for view in views:
        history.add(view)
    return history


class Rows(HTMLParser):
    """The texts of a page, and its table rows as (what, value)."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.rows: list[tuple[str, str]] = []
        self._cell = ""
        self._head = ""
        self.feed(page.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin a cell."""
        self._cell = ""

    def handle_data(self, data: str) -> None:
        """Keep a text."""
        self.texts.append(data.strip())
        self._cell += data

    def handle_endtag(self, tag: str) -> None:
        """End a cell."""
        if tag == "th":
            self._head = self._cell
        elif tag == "td":
            self.rows.append((self._head, self._cell))


def shown(view: WorkloadView, history: History | None = None, now_s: float = NOW_S) -> Rows:
    """The page of a view."""
    return Rows(recommender_page(view, history or history_of(view), now_s))


def test_the_page_says_what_a_person_on_call_asks():
    """Recommended beside current, the reason in words, the steps with their numbers, replicas, the decisions before."""
    view = VIEWS["up"]
    page = shown(view, history_of(replace(HELD, evaluated_at_s=NOW_S - 15), view))

    for text in ("infscale recommender inference/llama", "3 -> 5", "desired", "current", "133", "plain HPA"):
        assert text in page.texts
    assert f"rate_limited: {REASON_MEANINGS['rate_limited']}" in page.texts
    assert ("evaluated at", "2025-10-09 08:53:20 UTC") in page.rows
    assert ("step 1", "queue: 133 over 24: 6") in page.rows
    assert ("step 2", "limit: 5, at most 2 a minute") in page.rows
    assert ("ready", "3") in page.rows
    assert page.rows[-2:] == [
        ("2025-10-09 08:53:20 UTC", "3 -> 5 (up; rate_limited): queue: 133 over 24: 6; limit: 5, at most 2 a minute"),
        ("2025-10-09 08:53:05 UTC", "3 -> 3 (none; tolerance): queue: 71 over 3 x 24: 0.986, within the tolerance"),
    ]


def test_silent_replicas_are_named():
    """Who is silent stands beside the count; of very many the first, and how many more."""
    many = tuple(f"llama-{number}" for number in range(NAMES_SHOWN + 3))

    assert ("silent", "3: llama-a, llama-b, llama-c") in shown(VIEWS["all-silent"]).rows
    assert ("silent", "2") in shown(replace(VIEWS["held-by-coverage"], silent_names=())).rows
    (row,) = [value for name, value in shown(replace(VIEWS["all-silent"], silent_names=many)).rows if name == "silent"]
    assert row.endswith(f"{many[NAMES_SHOWN - 1]} and 3 more")
    assert many[NAMES_SHOWN] not in row


@pytest.mark.parametrize(
    ("name", "state", "tone"),
    [
        ("typical", "3 -> 3", "good"),
        ("up", "3 -> 5", "good"),
        ("lookahead", "3 -> 4", "good"),
        ("zero", "0 -> 0", "good"),
        ("zero-held", "0 -> 1", "good"),
        ("zero-activator-silent", "0 -> 0", "warn"),
        ("all-silent", "3 -> 3", "warn"),
        ("held-by-coverage", "3 -> 3", "warn"),
        ("no-spec", "no recommendation", "bad"),
        ("not-evaluated", "no recommendation", "bad"),
    ],
)
def test_the_state_in_one_line(name, state, tone):
    """The head of the page says what is asked for, and whether it stands on firm ground."""
    said = decision_state(VIEWS[name], NOW_S)

    assert (said.name, said.tone) == (state, tone)
    assert said.reason


def test_an_error_is_bad():
    """A policy that could not be evaluated is bad, though a count is held."""
    assert decision_state(replace(HELD, reason="error"), NOW_S).tone == "bad"


def test_an_old_evaluation_is_bad():
    """A loop that hangs is told, with what to do, and its last numbers stay below."""
    page = shown(HELD, now_s=NOW_S + MAX_AGE_S + 15)

    assert "no recommendation" in page.texts
    assert any("75 s ago, expected at most 60 s" in text and "restart" in text for text in page.texts)
    assert ("serving", "3") in page.rows


@each_view
def test_every_situation_has_a_page(name):
    """No situation breaks the page, and none shows a nothing of Python's; unknown numbers are told in words."""
    page = recommender_page(VIEWS[name], history_of(VIEWS[name]), NOW_S).decode()

    assert "None" not in page
    assert "nan" not in page
    assert ("not known" in page) == (None in (VIEWS[name].recommended, VIEWS[name].current, VIEWS[name].inflight))


def test_everything_is_escaped():
    """Names and words from outside are text on the page, never markup."""
    evil = "<script>alert('x')</script>"
    view = replace(VIEWS["all-silent"], namespace=evil, name=evil, silent_names=(evil,), steps=(evil,), message=evil)
    page = recommender_page(view, history_of(view), NOW_S).decode()

    assert "<script" not in page
    assert page.count("&lt;script&gt;") >= 5


def test_sections_without_rows_are_left_out():
    """Before the first evaluation there is nothing to explain."""
    assert decision_sections(VIEWS["not-evaluated"], ()) == []


def test_history_is_bounded_and_newest_first():
    """The last decisions are kept, the newest first; an evaluation that did not happen is none."""
    history = History()
    history.add(VIEWS["not-evaluated"])
    for number in range(HISTORY_LENGTH + 10):
        history.add(replace(HELD, recommended=number, evaluated_at_s=NOW_S + number))
    entries = history.entries()

    assert len(entries) == HISTORY_LENGTH
    assert [entry.desired for entry in entries[:2]] == [HISTORY_LENGTH + 9, HISTORY_LENGTH + 8]


def test_the_same_again_is_one_line():
    """A decision made again and again is one entry with its first and last time, its count and its latest steps."""
    views = [replace(HELD, evaluated_at_s=NOW_S + 15 * number, steps=(f"load {number}",)) for number in range(4)]
    history = history_of(*views[:3], VIEWS["up"], views[3])
    newest, up, first = history.entries()

    assert (first.since_s, first.until_s, first.times, first.steps) == (NOW_S, NOW_S + 30, 3, ("load 2",))
    assert (up.direction, up.times) == ("up", 1)
    assert (newest.since_s, newest.times) == (NOW_S + 45, 1)
    assert any(
        what == "2025-10-09 08:53:20 UTC to 2025-10-09 08:53:50 UTC, 3 times" for what, _ in shown(HELD, history).rows
    )


def test_history_from_many_threads():
    """Additions while others read lose nothing."""
    history = History(maxlen=10_000)

    def work(start: int) -> None:
        for number in range(200):
            history.add(replace(HELD, recommended=start + number))
            history.entries()

    threads = [threading.Thread(target=work, args=(1000 * each,)) for each in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert sum(entry.times for entry in history.entries()) == 800


def test_recommendation():
    """The answer is one object; what KEDA reads is a plain whole number at `desired`."""
    view = VIEWS["up"]
    answer = recommendation(view, history_of(HELD, view), NOW_S + 5)

    assert status_of(answer) == 200
    assert json.loads(json.dumps(answer, allow_nan=False)) == {
        "workload_namespace": "inference",
        "workload": "llama",
        "desired": 5,
        "current": 3,
        "direction": "up",
        "reason": "rate_limited",
        "message": "",
        "steps": ["queue: 133 over 24: 6", "limit: 5, at most 2 a minute"],
        "hpa": 6,
        "inflight": 133.0,
        "demand": 133.0,
        "lookahead_demand": None,
        "target": 24.0,
        "coverage": 1.0,
        "replicas": {"spec": 3, "ready": 3, "serving": 3, "starting": 0, "silent": 0, "draining": 0},
        "silent": [],
        "evaluated_at": NOW_S,
        "history": [entry(5, "up", "rate_limited", view.steps), entry(3, "none", "tolerance", HELD.steps)],
    }


def entry(desired: int, direction: str, reason: str, steps: tuple[str, ...]) -> dict[str, object]:
    """A decision of NOW_S about three replicas, as the history tells it."""
    times = {"time": NOW_S, "until": NOW_S, "times": 1}
    return {**times, "current": 3, "desired": desired, "direction": direction, "reason": reason, "steps": list(steps)}


@each_view
def test_answers_are_json_without_surprises(name):
    """Every answer is strict JSON; with an error its status is 503 and what KEDA reads is null, and never 0."""
    for answer in (recommendation(VIEWS[name], history_of(VIEWS[name]), NOW_S), load(VIEWS[name], NOW_S)):
        json.dumps(answer, allow_nan=False)
        if "error" in answer:
            assert (status_of(answer), "\n" in answer["error"]) == (503, False)
            assert [answer.get(key) for key in ("desired", "hpa")] == [None, None]
        else:
            assert status_of(answer) == 200


@pytest.mark.parametrize(
    ("name", "inflight", "demand"),
    [
        ("typical", 71.0, 71.0),
        ("zero", 0.0, 0.0),
        ("zero-held", 5.0, 5.0),
        ("all-silent", None, 72.0),
        ("held-by-coverage", 3.0, 51.0),
    ],
)
def test_load(name, inflight, demand):
    """The load is two plain numbers; one that alone is not known is null, which KEDA refuses to act on."""
    answer = load(VIEWS[name], NOW_S)

    assert (answer, status_of(answer)) == ({"inflight": inflight, "demand": demand}, 200)


@pytest.mark.parametrize(
    ("view", "now_s", "why"),
    [
        (VIEWS["not-evaluated"], NOW_S, "not evaluated yet"),
        (HELD, NOW_S + 61, "the last evaluation was 61 s ago, expected at most 60 s"),
        (VIEWS["zero-activator-silent"], NOW_S, "the activator did not answer"),
        (replace(HELD, measured=None, filled=None, replicas=Counts(spec=2, starting=2)), NOW_S, "no load is known"),
    ],
    ids=["not-evaluated", "hung", "activator-silent", "all-starting"],
)
def test_a_load_that_is_not_known_is_an_error(view, now_s, why):
    """KEDA sees an error and not 0, and the person who asks sees why."""
    answer = load(view, now_s)

    assert status_of(answer) == 503
    assert why in answer["error"]
    assert (answer["inflight"], answer["demand"]) == (None, None)


@pytest.mark.parametrize(
    ("view", "now_s", "why"),
    [
        (VIEWS["not-evaluated"], NOW_S, "not evaluated yet"),
        (VIEWS["no-spec"], NOW_S, "give --spec-replicas"),
        (replace(VIEWS["no-spec"], message=""), NOW_S, "replica count was not read"),
        (HELD, NOW_S + 61, "the last evaluation was 61 s ago"),
    ],
    ids=["not-evaluated", "no-spec", "no-spec-no-message", "hung"],
)
def test_no_recommendation_is_an_error(view, now_s, why):
    """Without a recommendation there is an error and no number; what is known besides is still told."""
    answer = recommendation(view, history_of(view), now_s)

    assert status_of(answer) == 503
    assert next(iter(answer)) == "error"
    assert why in answer["error"]
    assert (answer["desired"], answer["hpa"], answer["direction"]) == (None, None, "none")
    assert answer["replicas"]["serving"] == view.replicas.serving


def test_how_old_is_too_old_can_be_said():
    """A loop with a longer interval is not hung because of it."""
    assert status_of(load(HELD, NOW_S + 100, max_age_s=180)) == 200
    assert status_of(recommendation(HELD, History(), NOW_S + 100, max_age_s=180)) == 200
    assert b"no recommendation" not in recommender_page(HELD, History(), NOW_S + 100, max_age_s=180)


def test_no_number_is_null():
    """What JSON has no number for is null."""
    view = replace(HELD, measured=math.nan, filled=math.inf)

    assert load(view, NOW_S)["error"].startswith("no load is known")
    assert recommendation(view, History(), NOW_S)["demand"] is None
