"""What a read is told: tokens and where they do not go, and targets that cannot be used."""

from __future__ import annotations

import os

import pytest

from infscale.errors import UsageError
from infscale.scrape import ScrapeFailure, Target, check_target, fetch
from tests.raw_server import raw_server
from tests.scrape_reads import OK, PAGE, failed, read


def test_the_token_is_read_again_for_each_page(tmp_path):
    """A token that is rotated, in place or by a rename, is sent from the next read on, without its newline."""
    token, other = tmp_path / "token", tmp_path / "other"
    with raw_server(lambda call: call.page(PAGE)) as server:
        target = Target(server.url(), timeout_s=20, token_file=str(token))
        for write in ("one\n", "two", "three\r\n"):
            token.write_text(write)
            fetch(target)
        other.write_text("four")
        other.replace(token)
        fetch(target)

    assert [call.header("authorization") for call in server.calls] == [
        "Bearer one", "Bearer two", "Bearer three", "Bearer four"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"s3cret\r\nX-Injected: 1", "holds no token"),
        (b"s3cret more", "holds no token"),
        (b"s3cret\x00", "holds no token"),
        (b"s3cret\x7f", "holds no token"),
        ("s3crét".encode(), "holds no token"),
        (b"s3cret" * 5000, "holds no token"),
        (None, "No such file"),
    ],
)
def test_a_token_file_that_cannot_be_used(tmp_path, content, says):
    """At the start a UsageError, later a failure; both name the file, and never show what is in it."""
    token = tmp_path / "token"
    if content is not None:
        token.write_bytes(content)
    with raw_server(lambda call: call.page(PAGE)) as server:
        target = Target(server.url(), timeout_s=20, token_file=str(token))
        with pytest.raises(UsageError, match=says) as refused:
            check_target(target)
        page = fetch(target)

    failed(page, "http", says=says, connected=False)
    assert isinstance(page, ScrapeFailure)
    assert server.calls == []
    for message in (str(refused.value), page.message):
        assert str(token) in message
        assert "s3cr" not in message


def test_a_token_file_that_is_no_file(tmp_path):
    """A folder or a named pipe is told at once and never waited for."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(UsageError, match=f"{path}"):
            check_target(Target("http://h/", token_file=str(path)))


def test_an_unreadable_token_file(tmp_path):
    """A file that the user may not read is told with the reason."""
    token = tmp_path / "token"
    token.write_text("s3cret")
    denied = PermissionError(13, "Permission denied")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", lambda *args: (_ for _ in ()).throw(denied))
        with pytest.raises(UsageError, match="Permission denied"):
            check_target(Target("http://h/", token_file=str(token)))


@pytest.mark.parametrize(
    "answer",
    [
        lambda call: call.send(b"s3cret s3cret"),
        lambda call: call.page(b"", "Location: http://elsewhere.example/s3cret", status="302 x"),
        lambda call: call.send(b"HTTP/1.1 s3cret\r\n\r\n"),
        lambda call: call.send(call.request),
        lambda call: call.send(OK + call.request.split(b"\r\n", 1)[1].replace(b"Authorization:", b"Authorization")),
    ],
)
def test_the_token_is_in_no_message(tmp_path, answer):
    """A server that repeats the token does not bring it into the log."""
    token = tmp_path / "token"
    token.write_text("s3cret")

    page = read(answer, token_file=str(token))

    failed(page, "http", says="")
    assert "s3cret" not in page.message
    assert "s3cret" not in repr(Target("http://h/", token_file=str(token)))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"url": "127.0.0.1:8000"}, "no scheme"),
        ({"url": "http://user:pw@h/"}, "--engine.token-file"),
        ({"url": "http://h/\r\nX: y"}, "percent-encoded"),
        ({"timeout_s": 0}, "expected more than 0"),
        ({"timeout_s": float("nan")}, "expected more than 0"),
        ({"timeout_s": float("inf")}, "expected more than 0"),
        ({"max_bytes": 0}, "expected 1 or more"),
        ({"accept": "text/plain\r\nX-Injected: 1"}, "Accept header"),
        ({"server_name": "a\nb"}, "server name"),
        ({"server_name": "hôte"}, "server name"),
    ],
)
def test_a_target_that_cannot_be_used(fields, says):
    """What cannot be read, or would break out of the request, is refused when the target is built."""
    with pytest.raises(UsageError, match=says):
        Target(**{"url": "http://h/", **fields})
