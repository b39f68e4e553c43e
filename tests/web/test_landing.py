"""The landing page is small, whole, escaped and needs nothing from elsewhere."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from infscale.web.landing import Link, Section, State, landing_page

EVIL = """<script>alert("x")</script>&'"""


class Outline(HTMLParser):
    """Collects texts and attributes, and checks that tags are closed in order."""

    VOID = ("meta", "link", "br")

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.links: list[str] = []
        self.tags: set[str] = set()
        self._open: list[str] = []
        self.feed(page.decode())
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open a tag."""
        self.tags.add(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Close the tag that was opened last."""
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Keep a text."""
        self.texts.append(data.strip())


def page(**changes):
    """A page with something in every place."""
    return landing_page(
        "infscale sidecar",
        "0.1.0",
        **{
            "state": State("saturated", "the read timed out", "warn"),
            "facts": [("in flight", "12"), ("waiting", "not known")],
            "sections": [Section("Decision", [("replicas", "3")])],
            "links": [Link("/metrics", "Metrics", "what Prometheus scrapes")],
            **changes,
        },
    )


def test_says_everything():
    """Everything given stands on the page, the state in words and in the title."""
    outline = Outline(page())
    for text in ("infscale sidecar", "version 0.1.0", "saturated", "the read timed out", "in flight", "12",
                 "not known", "Decision", "replicas", "3", "Metrics", "what Prometheus scrapes"):  # fmt: skip
        assert text in outline.texts
    assert "saturated · infscale sidecar" in outline.texts
    assert "/metrics" in outline.links
    assert {"main", "h1", "nav", "title"} <= outline.tags


def test_nothing_from_elsewhere():
    """No script, no image, no font, no style from anywhere; at most 8 kB."""
    text = page(links=[]).decode()
    assert Outline(text.encode()).links == ["data:,"]
    assert not re.search(r"<script|<img|url\(|@import|https?:", text)
    assert len(text) < 8192


def test_light_and_dark():
    """The page follows the reader's choice of light or dark."""
    assert b"prefers-color-scheme:dark" in page()


def test_escaped():
    """Nothing that is shown can become markup, wherever it stands."""
    text = landing_page(
        EVIL, EVIL, state=State(EVIL, EVIL), facts=[(EVIL, EVIL)],
        sections=[Section(EVIL, [(EVIL, EVIL)])], links=[Link(EVIL, EVIL, EVIL)],
    )  # fmt: skip
    outline = Outline(text)
    assert "script" not in outline.tags
    assert outline.links == ["data:,", EVIL]
    assert outline.texts.count(EVIL) == 10


@pytest.mark.parametrize(("refresh_s", "times"), [(0, 0), (5, 1)])
def test_refresh(refresh_s, times):
    """The page asks for itself anew only when told to."""
    assert page(refresh_s=refresh_s).count(b'http-equiv="refresh" content="5"') == times


def test_bare():
    """Without numbers, sections and links the page is just the state."""
    outline = Outline(landing_page("infscale", "1", state=State("ok")))
    assert "nav" not in outline.tags
    assert "ok" in outline.texts


def test_unknown_tone():
    """A tone that the style does not know is a mistake of the program."""
    with pytest.raises(ValueError, match="unknown tone 'great'"):
        page(state=State("ok", tone="great"))
