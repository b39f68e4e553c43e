"""The runner of the pages itself: what is wrong on a page fails its test, with the line."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.docs.fences import Command, parse
from tests.docs.shell import Shell


@pytest.fixture
def shell(tmp_path, stand_ins) -> Iterator[Shell]:
    """A shell for a page that supposes nothing."""
    opened = Shell("docs/none.md", tmp_path, stand_ins)
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (Command("false", 7), "docs/none.md:7: false\nended with 1"),
        (Command("infscale parse --no-such-flag x", 7), "no such option"),
        (Command("infscale sidecar", 7), "ended with 2"),
        (Command("infscale sidecar --engine-url http://127.0.0.1:8000/metrics --target", 7), "ended with 2"),
        (Command("sleep 60 &", 7), "may stay in the background"),
        (Command("echo 12", 7, "13"), "printed\n12"),
        (Command("echo twelve 12", 7, "eleven 12", exact=False), "printed\ntwelve 12"),
        (Command("cat no-such-file", 7), "ended with 1"),
    ],
)
def test_what_is_wrong_fails(shell, command, message):
    """A command that fails, does not serve, prints something else, or leaves a program behind."""
    with pytest.raises(AssertionError) as failed:
        shell.type(command)

    assert message in str(failed.value)


def test_what_is_right_passes(shell):
    """Files stay from one command to the next, and an address of the page comes back in what was printed."""
    for command in (
        Command("echo 12.5 >kept", 1),
        Command("cat kept", 2, "12.5"),
        Command("cat kept", 3, "99", exact=False),
        Command("echo http://127.0.0.1:8000/metrics   # the engine's", 4, "http://127.0.0.1:8000/metrics"),
        Command("infscale sidecar --engine-url http://127.0.0.1:8000/metrics", 5),
    ):
        shell.type(command)


def test_fence_that_types_nothing():
    """A console without a prompt has no command: `run_page` refuses it."""
    (fence,) = parse("page.md", "```console\nonly output\n```\n")

    assert fence.commands() == []
