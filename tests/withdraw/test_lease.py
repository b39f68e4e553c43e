"""The lease of `/withdraw` on a driven clock, and its endpoint by requests as the listener hands them over."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from pathlib import Path

import pytest

from infscale.web.message import Headers, Request, Response
from infscale.web.routes import Router
from infscale.withdraw import Withdrawal, WithdrawEndpoint
from tests.sidecar_process import LONG_S

TOKEN = "s3cret-t0ken"
START_S = 1_800_000_000.0


class Clock:
    """A clock that the test drives."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def mono(self) -> float:
        """Monotonic seconds."""
        return self.now_s

    def wall(self) -> float:
        """Unix seconds."""
        return START_S + self.now_s


class Desk:
    """An endpoint, its router and its clock."""

    def __init__(self, token_file: Path | None) -> None:
        self.clock, self.looks = Clock(), 0
        self.looked = threading.Event()
        self.withdrawal = Withdrawal(self.clock.mono, self.clock.wall)
        path = None if token_file is None else str(token_file)
        self.endpoint = WithdrawEndpoint(self.withdrawal, path, look=self._look, look_s=0.01)
        self.router = Router()
        self.endpoint.add_routes(self.router)

    def _look(self) -> None:
        self.looks += 1
        self.looked.set()

    def ask(self, method: str, query: str = "", token: str | None = TOKEN, **headers: str) -> Response:
        """One request."""
        fields = headers if token is None else {"X-Infscale-Token": token, **headers}
        return self.router.dispatch(Request(method, "/withdraw", query, Headers(fields), client="10.0.0.9"))


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    """The token's file."""
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n")
    return path


@pytest.fixture
def desk(token_file):
    """An endpoint with a token; its thread has ended afterwards."""
    made = Desk(token_file)
    yield made
    assert made.endpoint.stop(LONG_S)


def said(response: Response) -> object:
    """The JSON of a 200."""
    assert (response.status, response.content_type) == (200, "application/json"), response.body
    return json.loads(response.body)


def test_withdraw_and_put_back(desk):
    """POST withdraws for 60 s and says until when, DELETE puts back."""
    assert said(desk.ask("POST")) == {"withdrawn": True, "until": START_S + 60}
    assert (desk.withdrawal.active(), desk.withdrawal.until_s()) == (True, START_S + 60)
    assert desk.withdrawal.why_not_ready() == "withdrawn until 2027-01-15T08:01:00Z"
    assert said(desk.ask("DELETE")) == {"withdrawn": False, "until": None}
    assert (desk.withdrawal.active(), desk.withdrawal.why_not_ready()) == (False, "")


def test_delete_without_a_withdrawal(desk):
    """It answers the same, so that a retirement that starts again need not know."""
    assert said(desk.ask("DELETE")) == {"withdrawn": False, "until": None}
    assert said(desk.ask("DELETE")) == {"withdrawn": False, "until": None}


def test_a_lease_runs_out_by_itself(desk):
    """At its end to the second, without anybody's doing; equality is the end."""
    desk.ask("POST", "lease=5")
    desk.clock.now_s = 4.999
    assert desk.withdrawal.active()
    desk.clock.now_s = 5.0
    assert (desk.withdrawal.active(), desk.withdrawal.until_s(), desk.withdrawal.why_not_ready()) == (False, None, "")


def test_a_second_withdrawal_is_a_renewal(desk):
    """The lease counts from the last one on, longer or shorter than what was left."""
    desk.ask("POST", "lease=60")
    desk.clock.now_s = 50.0
    assert said(desk.ask("POST", "lease=60")) == {"withdrawn": True, "until": START_S + 110}
    desk.clock.now_s = 109.0
    assert desk.withdrawal.active()
    assert said(desk.ask("POST", "lease=5")) == {"withdrawn": True, "until": START_S + 114}
    desk.clock.now_s = 114.0
    assert not desk.withdrawal.active()
    assert said(desk.ask("POST")) == {"withdrawn": True, "until": START_S + 174}, "and again after it ran out"


def test_a_wall_clock_that_jumps_changes_no_lease():
    """The lease is on the monotonic clock; what was promised as its end stays."""
    wall = [START_S]
    mono = [0.0]
    withdrawal = Withdrawal(lambda: mono[0], lambda: wall[0])
    withdrawal.renew(60.0)
    wall[0] += 86_400
    assert withdrawal.until_s() == START_S + 60
    mono[0] = 60.0
    wall[0] -= 2 * 86_400
    assert not withdrawal.active()


@pytest.mark.parametrize("lease", ["5", "300", "5.0", "60.5", "3e2"])
def test_leases_within_the_bounds(desk, lease):
    """5 to 300 s, both included."""
    assert said(desk.ask("POST", f"lease={lease}")) == {"withdrawn": True, "until": START_S + float(lease)}


@pytest.mark.parametrize(
    "query",
    ["lease=4.99", "lease=300.1", "lease=0", "lease=-60", "lease=nan", "lease=inf", "lease=", "lease=1m", "lease=9" * 2,
     "lease=60&lease=60", "lease=" + "9" * 5000, "lease=%00"],
)  # fmt: skip
def test_leases_out_of_bounds(desk, query):
    """Refused in one line that says what was expected; nothing changes."""
    answer = desk.ask("POST", query)
    assert answer.status == 400
    assert b"expected seconds, 5 to 300" in answer.body
    assert answer.body.count(b"\n") == 1
    assert len(answer.body) < 200
    assert not desk.withdrawal.active()


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        "",
        "S3cret-t0ken",
        TOKEN[:-1],
        TOKEN + "x",
        f"{TOKEN}, {TOKEN}",
        "x" * 60_000,
        "\xff\xfe",
        "Bearer " + TOKEN,
    ],
    ids=["missing", "empty", "case", "shorter", "longer", "twice", "huge", "not ascii", "bearer"],
)
@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_wrong_tokens(desk, wrong, method):
    """403 for both methods, before anything else is looked at; the answer never holds the token."""
    desk.withdrawal.renew(60.0)
    answer = desk.ask(method, "lease=nonsense", wrong)
    assert answer.status == 403
    assert TOKEN.encode() not in answer.body
    assert desk.withdrawal.until_s() == START_S + 60


def test_without_a_token_configured_everything_is_refused():
    """Whatever the header says, an empty one too; the answer names the flag."""
    desk = Desk(None)
    for token in (None, "", TOKEN, "None"):
        for method in ("POST", "DELETE"):
            answer = desk.ask(method, token=token)
            assert answer.status == 403
            assert b"--withdraw.token-file" in answer.body
    assert desk.endpoint.stop(LONG_S)


def test_token_is_read_anew(desk, token_file):
    """A rotated token counts from the next request on, the old one no more."""
    assert desk.ask("POST").status == 200
    token_file.write_text("an0ther")
    assert desk.ask("POST").status == 403
    assert desk.ask("DELETE", token="an0ther").status == 200


@pytest.mark.parametrize("content", [None, b"", b" \n", b"two words", b"x" * 20_000, b"\xff\xfe\x00", b"a\nb"])
def test_unusable_token_files(desk, token_file, content, caplog):
    """403 whatever is sent, an empty header too; the fault is logged once, and never what the file holds."""
    if content is None:
        token_file.unlink()
    else:
        token_file.write_bytes(content)
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            for token in ("", "x" * 20_000, "two words", TOKEN):
                assert desk.ask("POST", token=token).status == 403
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert str(token_file) in caplog.records[0].reason
    assert "two words" not in caplog.text
    token_file.write_text(TOKEN)
    assert desk.ask("POST").status == 200


def test_a_pipe_as_token_file_does_not_block(desk, token_file):
    """What nobody writes to is no token."""
    token_file.unlink()
    os.mkfifo(token_file)
    assert desk.ask("POST").status == 403


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "PATCH", "OPTIONS"])
def test_other_methods(desk, method):
    """405 with the two that there are."""
    answer = desk.ask(method)
    assert (answer.status, answer.headers["Allow"]) == (405, "DELETE, POST")


def test_clients_are_looked_at_only_while_withdrawn(desk):
    """By one thread, that is there from the withdrawal to its end, however often it is renewed."""
    assert threads() == 0
    for _ in range(3):
        desk.ask("POST")
    assert desk.looked.wait(LONG_S)
    assert threads() == 1
    desk.ask("DELETE")
    assert gone()
    looks = desk.looks
    time.sleep(0.05)
    assert desk.looks == looks
    desk.looked.clear()
    desk.ask("POST")
    assert desk.looked.wait(LONG_S), "and again with the next one"


def test_a_lease_that_runs_out_is_logged(desk, caplog):
    """Somebody should know that a retirement died; the one who puts back needs no warning."""
    with caplog.at_level(logging.INFO):
        desk.ask("POST")
        desk.clock.now_s = 61.0
        assert gone()
        desk.ask("POST")
        desk.ask("DELETE")
        assert gone()
    told = [(record.levelname, record.message) for record in caplog.records]
    assert told == [
        ("INFO", "withdrawn: not ready on request"),
        ("WARNING", "back in rotation"),
        ("INFO", "withdrawn: not ready on request"),
        ("INFO", "back in rotation"),
    ]
    assert caplog.records[1].reason == "the lease ran out and was not renewed"
    assert TOKEN not in caplog.text


def test_a_look_that_fails_ends_nothing(token_file, caplog):
    """A bug there is logged; the lease holds and is looked on."""
    looks = threading.Semaphore(0)

    def look() -> None:
        looks.release()
        raise RuntimeError("broken")

    withdrawal = Withdrawal()
    endpoint = WithdrawEndpoint(withdrawal, str(token_file), look=look, look_s=0.01)
    router = Router()
    endpoint.add_routes(router)
    router.dispatch(Request("POST", "/withdraw", "", Headers({"X-Infscale-Token": TOKEN})))
    for _ in range(2):
        assert looks.acquire(timeout=LONG_S)
    assert withdrawal.active()
    assert endpoint.stop(LONG_S)
    assert "look at the engine's clients failed" in caplog.text


def threads() -> int:
    """How many look now."""
    return sum(thread.name == "withdrawn" for thread in threading.enumerate())


def gone() -> bool:
    """Whether none looks any more, soon."""
    end = time.monotonic() + LONG_S
    while threads() and time.monotonic() < end:
        time.sleep(0.005)
    return not threads()
