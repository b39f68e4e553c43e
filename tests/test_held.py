"""What an activator holds, read off its page: a number, or unknown; never a 0 that nobody said."""

from __future__ import annotations

import logging
import socket

import pytest

from infscale.held import HeldReader
from infscale.scrape import Target
from tests.raw_server import Call, RawServer

ONE = 'infscale_pending_requests{workload_namespace="ml",workload="vllm"}'
TWO = 'infscale_pending_requests{workload_namespace="ml",workload="other"}'
ELSEWHERE = 'infscale_pending_requests{workload_namespace="dev",workload="vllm"}'

PAGES: dict[str, tuple[str, float | None, str]] = {
    "some": (f"{ONE} 5\n", 5.0, ""),
    "none held": (f"{ONE} 0\n", 0.0, ""),
    "several workloads": (f"{ONE} 5\n{TWO} 7\n{ELSEWHERE} 9\n", 5.0, ""),
    "several series of one": (
        'infscale_pending_requests{workload_namespace="ml",workload="vllm",model_name="a"} 2\n'
        'infscale_pending_requests{workload_namespace="ml",workload="vllm",model_name="b"} 3\n',
        5.0,
        "",
    ),
    "another's": (f"{TWO} 7\n", None, "expected that of ml/vllm"),
    "empty": ("", None, "0 workloads"),
    "a page of something else": ("<html>busy</html>", None, "0 workloads"),
    "not a number": (f"{ONE} NaN\n", None, "nan"),
    "negative": (f"{ONE} -1\n", None, "-1"),
    "infinite": (f"{ONE} +Inf\n", None, "inf"),
    "too large": (f"{ONE} 1e308\n", None, "1e+308"),
    "cut": (f'{ONE} 5\ninfscale_pending_requests{{workload="vl', None, "a quote that is not closed"),
}


@pytest.mark.parametrize("name", PAGES)
def test_pages(name, caplog):
    """Only a usable number of this workload counts; what is unknown has a reason in the log, once."""
    page, requests, says = PAGES[name]
    caplog.set_level(logging.INFO)
    with RawServer(lambda call: call.page(page.encode())) as server:
        reader = HeldReader(Target(server.url()), "ml", "vllm")
        assert [reader.read().requests for _ in range(3)] == [requests] * 3
    lines = [record.reason for record in caplog.records]
    assert all(record.url == server.url() for record in caplog.records)
    assert len(lines) == (1 if says else 0)
    assert says in "".join(lines)


@pytest.mark.parametrize(("page", "requests"), [(f"{ONE} 5\n", 5.0), (f"{ONE} 5\n{TWO} 7\n", None)])
def test_without_a_name_there_may_be_one_workload(page, requests):
    """Where nobody told whose requests are meant, those of two workloads are nobody's."""
    with RawServer(lambda call: call.page(page.encode())) as server:
        assert HeldReader(Target(server.url())).read().requests == requests


def hangs(call: Call) -> None:
    """Never answer."""
    call.hang()


ANSWERS = {
    "500": lambda call: call.page(f"{ONE} 5\n".encode(), status="500 Oops"),
    "404": lambda call: call.page(b"", status="404 Not Found"),
    "reset": lambda call: call.reset(),
    "hangs": hangs,
}


@pytest.mark.parametrize("name", ANSWERS)
def test_no_answer_is_unknown(name):
    """An activator that is in trouble is not one that holds nothing."""
    with RawServer(ANSWERS[name]) as server:
        assert HeldReader(Target(server.url(), timeout_s=0.3), "ml", "vllm").read().requests is None


def test_gone_and_back(caplog):
    """Nobody listens: unknown, said once; when it is back that is said too."""
    caplog.set_level(logging.INFO)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    reader = HeldReader(Target(f"http://127.0.0.1:{port}/metrics"), "ml", "vllm")
    assert [reader.read().requests for _ in range(2)] == [None, None]
    with RawServer(lambda call: call.page(f"{ONE} 5\n".encode())) as server:
        reader._target = Target(server.url())
        assert reader.read().requests == 5
    assert [record.getMessage() for record in caplog.records] == [
        "held requests not known",
        "held requests known again",
    ]
