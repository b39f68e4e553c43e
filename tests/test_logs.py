"""Log lines: one event a line, in both forms, without secrets."""

from __future__ import annotations

import json
import logging

import pytest

from infscale import logs


def record(msg: str, level: int = logging.INFO, exc_info=None, **fields) -> logging.LogRecord:
    """A log record of a fixed instant."""
    made = logging.getLogger("infscale.test").makeRecord(
        "infscale.test", level, "f.py", 1, msg, (), exc_info, extra=fields
    )
    made.created = 1_700_000_000.25
    return made


def test_logfmt_line():
    """Fields stand after ts, level and msg; what needs quotes has them."""
    line = logs.EventFormatter("logfmt").format(
        record(
            "engine unreachable", logging.WARNING, url="http://x/m", port=1, ok=True, gone=None, why='a "b"=c', empty=""
        )
    )

    assert line == (
        'ts=2023-11-14T22:13:20.250Z level=warn msg="engine unreachable" url=http://x/m port=1 ok=true gone=null'
        r' why="a \"b\"=c" empty=""'
    )


def test_json_line():
    """The same event as one JSON object with its types kept."""
    line = logs.EventFormatter("json").format(record("up", port=1, ratio=0.5, ok=False))

    assert json.loads(line) == {
        "ts": "2023-11-14T22:13:20.250Z", "level": "info", "msg": "up", "port": 1, "ratio": 0.5, "ok": False,
    }  # fmt: skip


@pytest.mark.parametrize("form", logs.FORMATS)
def test_one_event_is_one_line(form):
    """Whatever a value holds, the event stays on one line and can be written in any encoding."""
    line = logs.EventFormatter(form).format(record("a\nb\r\x85\u2028", text="\ud800\x00\x1b[31m"))

    assert line.isprintable()
    assert line.encode("ascii")


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("authorization", "Bearer abc", "***"),
        ("Proxy-Authorization", "x", "***"),
        ("api_key", "abc", "***"),
        ("token", "abc", "***"),
        ("engine_token", "abc", "***"),
        ("password", "abc", "***"),
        ("set-cookie", "abc", "***"),
        ("token_file", "/etc/token", "/etc/token"),
        ("prompt_tokens", 17, 17),
        ("url", "http://me:secret@x:80/metrics", "http://***@x:80/metrics"),
        ("url", "http://x/metrics?api_key=abc&y=1", "http://x/metrics?api_key=***&y=1"),
        ("header", "Authorization: Bearer abc.def", "Authorization: Bearer ***"),
        ("header", "basic dXNlcjpwYXNz", "basic ***"),
        ("text", "mail a@b.c about http://x/y", "mail a@b.c about http://x/y"),
    ],
)
def test_secrets_are_hidden(key, value, shown):
    """Fields named like secrets, URL passwords, key parameters and credentials in text never get out; the rest does."""
    assert logs.redact(key, value) == shown


def test_exception_is_one_line_with_its_place():
    """An exception in a record becomes its type, text and place, not a traceback."""
    try:
        raise ValueError("http://me:secret@x/ is bad")
    except ValueError as error:
        line = logs.EventFormatter("logfmt").format(
            record("failed", exc_info=(type(error), error, error.__traceback__))
        )

    assert 'error="ValueError: http://***@x/ is bad" at=test_logs.py:' in line


def test_setup_twice_logs_once(capsys):
    """Setting logging up again replaces the first set-up; libraries are heard from warnings on."""
    logs.setup("debug", "json")
    logs.setup("warn", "logfmt")
    logging.getLogger("infscale.a").info("not shown")
    logging.getLogger("urllib3").info("not shown")
    logging.getLogger("infscale.a").warning("shown", extra={"n": 1})

    assert [line.partition(" ")[2] for line in capsys.readouterr().err.splitlines()] == ["level=warn msg=shown n=1"]
