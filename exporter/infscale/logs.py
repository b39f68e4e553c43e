"""Log lines on standard error: one event a line, logfmt or JSON, on top of the standard library's logging.

Every module logs with `logging.getLogger(__name__)` and gives the facts as fields, not in the text:

    log.warning("engine unreachable", extra={"url": url, "reason": "refused"})
    ts=2026-11-30T10:00:00.000Z level=warn msg="engine unreachable" url=http://127.0.0.1:8000/metrics reason=refused

The command line calls `setup` once (`infscale.cli.options.log_options`). Secrets never get out: see `redact`.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING, "error": logging.ERROR}
FORMATS = ("logfmt", "json")

_HIDDEN = "***"
_SECRET_KEY = re.compile(
    r"authorization|cookie|password|passwd|secret|credential|api[-_]?key|(^|[-_.])token$", re.IGNORECASE
)
_SECRET_TEXT = (
    (re.compile(r"(://)[^/\s@]+@"), rf"\1{_HIDDEN}@"),
    (re.compile(r"\b(Bearer|Basic)\s+[^\s\"',]+", re.IGNORECASE), rf"\1 {_HIDDEN}"),
    (re.compile(r"([?&](?:api[-_]?key|access[-_]token|token|password)=)[^&\s\"']+", re.IGNORECASE), rf"\1{_HIDDEN}"),
)
_STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime"}
"""What every record has; anything else came by `extra`."""


def setup(level: str = "info", form: str = "logfmt") -> None:
    """Log infscale's events from a level on to standard error; those of libraries from warnings on.

    Args:
        level: a key of LEVELS.
        form: one of FORMATS.
    """
    root = logging.getLogger()
    for old in [handler for handler in root.handlers if isinstance(handler, StderrHandler)]:
        root.removeHandler(old)
    handler = StderrHandler()
    handler.setFormatter(EventFormatter(form))
    root.addHandler(handler)
    for name in ("infscale", "infscale_sim"):
        logging.getLogger(name).setLevel(LEVELS[level])


class StderrHandler(logging.Handler):
    """Writes to what is standard error now; a reader that has gone away is no reason to stop."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except (OSError, ValueError):  # closed or full: there is nowhere left to say so
            return


class EventFormatter(logging.Formatter):
    """One record as one line of logfmt or JSON: ts, level, msg, then the fields in the order given."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self._line = _json_line if form == "json" else _logfmt_line

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        return self._line(event_of(record))


def event_of(record: logging.LogRecord) -> dict[str, object]:
    """The fields of a record, redacted. An exception becomes `error` (type and text) and `at` (file:line)."""
    when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").removesuffix("+00:00")
    level = "warn" if record.levelno == logging.WARNING else record.levelname.lower()
    event: dict[str, object] = {"ts": f"{when}Z", "level": level, "msg": redact("msg", record.getMessage())}
    event.update((key, redact(key, value)) for key, value in vars(record).items() if key not in _STANDARD)
    if record.exc_info and record.exc_info[1] is not None:
        error = record.exc_info[1]
        event["error"] = redact("error", f"{type(error).__name__}: {error}")
        event["at"] = _where(error)
    return event


def redact(key: str, value: object) -> object:
    """A field's value without secrets.

    The value of a field named like one (`authorization`, `api_key`, `token`, but neither `token_file` nor
    `prompt_tokens`) is hidden whole; in any text a URL's user and password, its key parameters and what follows
    `Bearer` or `Basic` are.
    """
    if _SECRET_KEY.search(key) and not key.endswith(("_file", ".file", "-file")):
        return _HIDDEN
    if value is None or isinstance(value, bool | int | float):
        return value
    text = str(value)
    for pattern, instead in _SECRET_TEXT:
        text = pattern.sub(instead, text)
    return text


def _where(error: BaseException) -> str:
    """The place that raised, as `scrape.py:120`."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return ""
    return f"{trace.tb_frame.f_code.co_filename.rsplit('/', 1)[-1]}:{trace.tb_lineno}"


def _json_line(event: dict[str, object]) -> str:
    return json.dumps(event)


def _logfmt_line(event: dict[str, object]) -> str:
    return " ".join(f"{key}={_logfmt_value(value)}" for key, value in event.items())


def _logfmt_value(value: object) -> str:
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    text = str(value)
    if text and text.isprintable() and not any(mark in text for mark in ' ="\\'):
        return text
    return json.dumps(text, ensure_ascii=not text.isprintable())
