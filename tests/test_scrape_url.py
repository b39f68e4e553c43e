"""URLs of metrics pages: what is taken, and what is refused with which words."""

from __future__ import annotations

from urllib.parse import urljoin, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infscale.errors import UsageError
from infscale.scrape_url import Url, add_query, join_url, show_url, split_url


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:8000/metrics", Url("http", "127.0.0.1", 8000, "/metrics")),
        ("HTTP://LocalHost/metrics", Url("http", "localhost", 80, "/metrics")),
        ("https://engine.ns.svc.cluster.local./a/b", Url("https", "engine.ns.svc.cluster.local.", 443, "/a/b")),
        ("http://my_engine:1", Url("http", "my_engine", 1, "/")),
        ("http://h?model=a%20b", Url("http", "h", 80, "/?model=a%20b")),
        ("http://h:80/m?a=/b#part", Url("http", "h", 80, "/m?a=/b")),
        ("http://[::1]:30000/metrics", Url("http", "::1", 30000, "/metrics")),
        ("http://[fe80::1%eth0]/metrics", Url("http", "fe80::1%eth0", 80, "/metrics")),
        ("http://h/@metrics", Url("http", "h", 80, "/@metrics")),
    ],
)
def test_split_url_takes_it_apart(url, expected):
    """Scheme and host in lower case, the scheme's port where there is none, a path that begins with a slash."""
    assert split_url(url) == expected


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("", "no scheme"),
        ("localhost:8000/metrics", "no scheme"),
        ("127.0.0.1:8000", "no scheme"),
        ("/metrics", "no scheme"),
        ("http:/127.0.0.1/metrics", "no scheme"),
        ("ftp://h/metrics", "scheme that cannot be read"),
        ("unix:///run/engine.sock", "scheme that cannot be read"),
        ("http://", "no host"),
        ("http:///metrics", "no host"),
        ("http://:8000/metrics", "no host"),
        ("http://a..b/metrics", "no name and no address"),
        ("http://a,b/metrics", "no name and no address"),
        (f"http://{'a' * 64}/metrics", "no name and no address"),
        (f"http://{'a.' * 130}b/metrics", "no name and no address"),
        ("http://h:0/metrics", "port out of range"),
        ("http://h:65536/metrics", "port out of range"),
        ("http://h:0080000/metrics", "port out of range"),
        ("http://h:/metrics", "port out of range"),
        ("http://h:-1/metrics", "port out of range"),
        ("http://h:8o/metrics", "port out of range"),
        ("http://h:+80/metrics", "port out of range"),
        ("http://::1/metrics", "in brackets"),
        ("http://::1:8000/metrics", "in brackets"),
        ("http://[::1/metrics", "IPv6"),
        ("http://[::g]/metrics", "IPv6"),
        ("http://[]/metrics", "IPv6"),
        ("http://[::1%]/metrics", "IPv6"),
        ("http://[::1%a b]/metrics", "blank"),
        ("http://[::1]8000/metrics", "IPv6"),
        ("http://[127.0.0.1]/metrics", "IPv6"),
        ("http://h/a b", "percent-encoded"),
        ("http://h/a\r\nX-Injected: 1", "percent-encoded"),
        ("http://h/\x00", "percent-encoded"),
        ("http://h/\x7f", "percent-encoded"),
        ("http://hôte/metrics", "percent-encoded"),
        (" http://h/metrics", "percent-encoded"),
        ("http://h/metrics\n", "percent-encoded"),
        ("http://user@h/metrics", "--engine.token-file"),
    ],
)
def test_split_url_refuses_in_one_line(url, why):
    """Each fault has one line that says what is wrong with which URL."""
    with pytest.raises(UsageError) as refused:
        split_url(url)

    assert why in str(refused.value)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize(
    "url",
    [
        "http://user:s3cret@h/metrics",
        "http://user:s3cret@h:99999/metrics",
        "user:s3cret@h/metrics",
        "http://user:s3/s3cret@h/metrics",
        "http://user:a b s3cret@h/",
        "http://u:s3\ns3cret@h/",
    ],
)
def test_a_password_in_a_url_never_shows(url):
    """Whatever is wrong with it, the message has no password."""
    with pytest.raises(UsageError) as refused:
        split_url(url)

    assert "s3" not in str(refused.value)
    assert "s3" not in show_url(url)


def test_long_urls_are_cut_in_messages():
    """A message stays a line."""
    with pytest.raises(UsageError) as refused:
        split_url("gopher://" + "h" * 5000)

    assert len(str(refused.value)) < 300


@given(st.text(max_size=40) | st.text(alphabet="htps:/[]@?#.%0189a-_ \n", max_size=40).map("http://".__add__))
def test_split_url_answers_or_refuses_anything(text):
    """No text makes it fall over; what it takes can be sent as a request line."""
    try:
        url = split_url(text)
    except UsageError as refused:
        message = str(refused)
    else:
        message = ""
        assert 1 <= url.port <= 65535
        assert url.path.startswith("/")
        assert (url.path + url.host_header).isascii()
        assert not set(url.path + url.host_header) & set(" \r\n")
    assert message.isprintable()


@pytest.mark.parametrize(
    ("url", "place", "header"),
    [
        ("http://h/m", "h:80", "h"),
        ("https://h:443/m", "h:443", "h"),
        ("https://h:80/m", "h:80", "h:80"),
        ("http://[::1]:8000/m", "[::1]:8000", "[::1]:8000"),
        ("http://[fe80::1%eth0]/m", "[fe80::1%eth0]:80", "[fe80::1]"),
    ],
)
def test_place_and_host_header(url, place, header):
    """Messages always name the port; the Host header leaves out the scheme's own and an IPv6 zone."""
    assert (split_url(url).place, split_url(url).host_header) == (place, header)


@pytest.mark.parametrize(
    "location", ["/metrics/", "metrics/", "?a=b", "//h:8000/x", "http://h:8000/m?q=1", "sub/x?y#z"]
)
def test_join_url_agrees_with_the_standard_library(location):
    """Relative and absolute locations lead where `urllib.parse.urljoin` says."""
    base = "http://h:8000/a/metrics?old=1"
    expected = urlsplit(urljoin(base, location))

    joined = join_url(split_url(base), location)

    assert joined == Url("http", "h", 8000, expected.path + ("?" + expected.query if expected.query else ""))


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://h/metrics", "http://h/metrics?autoload=false"),
        ("http://h/metrics?", "http://h/metrics?autoload=false"),
        ("http://h/metrics?model=a", "http://h/metrics?model=a&autoload=false"),
        ("http://h/metrics?model=a#part", "http://h/metrics?model=a&autoload=false#part"),
        ("http://h/metrics?autoload=true", "http://h/metrics?autoload=true"),
    ],
)
def test_add_query(url, expected):
    """A profile's query is appended once; what the user wrote stays."""
    assert add_query(url, "autoload=false") == expected
    assert add_query(expected, "autoload=false") == expected
    assert add_query(url, "") == url.replace("?#", "#").removesuffix("?")
