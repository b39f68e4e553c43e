"""Basic authentication: who is let in, what the rest is told, and what it costs."""

from __future__ import annotations

import base64
import threading
import time

import bcrypt
import pytest

from infscale.web.auth import BasicAuth

HASH = bcrypt.hashpw(b"right", bcrypt.gensalt(4))


def basic(user: str, password: str) -> str:
    """The header of a client."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def status(auth: BasicAuth, authorization: str) -> int:
    """The status of an answer, 200 where there is no refusal."""
    refusal = auth.refusal(authorization)
    return refusal.status if refusal else 200


@pytest.fixture
def auth() -> BasicAuth:
    """One user, alice, whose password is `right`, and one with a colon and an umlaut in his."""
    return BasicAuth({"alice": HASH, "bob": bcrypt.hashpw("a:ü".encode(), bcrypt.gensalt(4))})


def test_right(auth):
    """User and password are right: no refusal, the first time and after that."""
    assert auth.refusal(basic("alice", "right")) is None
    assert auth.refusal(basic("alice", "right")) is None
    assert auth.refusal(basic("bob", "a:ü").replace("Basic", "bASIC")) is None


@pytest.mark.parametrize("first_right", [False, True])
@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("alice", ""), ("mallory", "right"), ("", "")])
def test_wrong(auth, first_right, user, password):
    """A wrong user and a wrong password get the same 401, also after the right one was seen."""
    if first_right:
        assert auth.refusal(basic("alice", "right")) is None
    answer = auth.refusal(basic(user, password))
    assert answer.status == 401
    assert answer.body == b"user or password is wrong\n"
    assert answer.headers["WWW-Authenticate"].startswith("Basic ")


@pytest.mark.parametrize(
    "header", ["", "Basic", "Basic !!!", "Basic " + base64.b64encode(b"no colon").decode(), "Bearer abc",
               "Basic " + base64.b64encode(b"\xff:x").decode()]
)  # fmt: skip
def test_no_credentials(auth, header):
    """Without readable credentials the client is asked for them."""
    assert status(auth, header) == 401


def test_long_and_odd_passwords():
    """Only the first 72 bytes count, as in bcrypt itself; a NUL byte is no fault of the server."""
    auth = BasicAuth({"alice": bcrypt.hashpw(b"x" * 72, bcrypt.gensalt(4))})
    assert auth.refusal(basic("alice", "x" * 200)) is None
    assert status(auth, basic("alice", "a\0b")) == 401


def test_right_password_is_hashed_once():
    """A client that was right before costs no hash: 1,000 requests take less than 20 hashes would."""
    cost_12 = bcrypt.hashpw(b"right", bcrypt.gensalt(12))
    auth = BasicAuth({"alice": cost_12})
    header = basic("alice", "right")
    began = time.process_time()
    assert auth.refusal(header) is None
    one_hash = time.process_time() - began
    began = time.process_time()
    assert all(auth.refusal(header) is None for _ in range(1000))
    assert time.process_time() - began < 20 * one_hash


def test_unknown_user_costs_a_hash():
    """An unknown user takes the work of a known one, so that the time tells nothing."""
    auth = BasicAuth({"alice": HASH, "carol": bcrypt.hashpw(b"right", bcrypt.gensalt(10))})

    def cost(user: str) -> float:
        began = time.thread_time()
        assert status(auth, basic(user, "wrong")) == 401
        return time.thread_time() - began

    known, unknown = min(cost("carol") for _ in range(3)), min(cost("nobody") for _ in range(3))
    assert known / 4 < unknown < known * 4


def test_flood_of_wrong_passwords():
    """Guesses are hashed one at a time with a short queue; the rest are told to come back, and right ones get in."""
    auth = BasicAuth({"alice": bcrypt.hashpw(b"right", bcrypt.gensalt(9))})
    assert auth.refusal(basic("alice", "right")) is None
    statuses: list[int] = []
    guesses = [
        threading.Thread(target=lambda n=n: statuses.append(status(auth, basic("alice", f"guess {n}"))))
        for n in range(40)
    ]
    for guess in guesses:
        guess.start()
    assert auth.refusal(basic("alice", "right")) is None
    for guess in guesses:
        guess.join(20)
    assert set(statuses) <= {401, 503}
    assert 503 in statuses
