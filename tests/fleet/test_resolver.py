"""Names and their addresses, from a real name server that answers in every way."""

from __future__ import annotations

import contextlib
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infscale.errors import UsageError
from infscale.fleet.dns_wire import AAAA, A, BrokenMessage, question, response
from infscale.fleet.resolver import Config, NameFault, Resolver, read_config, split_server


def resolver(names, name: str, **config) -> Resolver:
    """A resolver of a name that asks the test's name server."""
    return Resolver(name, Config((("127.0.0.1", names.port),), **config))


def test_several_addresses(names):
    """Every A record, sorted, behind an alias too, each once."""
    names.zone["peers.test"] = ["10.0.0.2", "10.0.0.1", "10.0.0.2", "fd00::1"]
    assert resolver(names, "peers.test").addresses(9) == ("10.0.0.1", "10.0.0.2")
    assert names.asked == [("udp", "peers.test", A)]


def test_ipv6_only_where_there_is_no_ipv4(names):
    """A Pod of a dual-stack Service would count twice; one with IPv6 alone counts once."""
    names.zone["peers.test"] = ["fd00::2", "fd00::1"]
    assert resolver(names, "peers.test").addresses(9) == ("fd00::1", "fd00::2")
    assert [record_type for _, _, record_type in names.asked] == [A, AAAA]


def test_name_without_addresses(names):
    """A Service without Pods is no failure: nobody is there."""
    names.zone["peers.test"] = []
    assert resolver(names, "peers.test").addresses(9) == ()


def test_many_addresses_come_over_tcp(names):
    """An answer that does not fit into a datagram is asked for again over TCP: 1,000 replicas are all there."""
    many = [f"10.0.{number // 250}.{number % 250}" for number in range(1000)]
    names.zone["peers.test"] = many
    assert set(resolver(names, "peers.test").addresses(9)) == set(many)
    assert [transport for transport, _, _ in names.asked] == ["udp", "tcp"]


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("peers", ["peers.ns.svc.test", "peers.svc.test", "peers"]),
        ("peers.ns", ["peers.ns.ns.svc.test", "peers.ns.svc.test", "peers.ns"]),
        ("a.b.c.d", ["a.b.c.d", "a.b.c.d.ns.svc.test", "a.b.c.d.svc.test"]),
        ("peers.ns.svc.test.", ["peers.ns.svc.test"]),
    ],
)
def test_search_domains(names, name, asked):
    """Candidates as resolv.conf(5) has them: by ndots the name first or last, with a dot at its end alone."""
    with pytest.raises(NameFault, match=r"no such name \(NXDOMAIN\)"):
        resolver(names, name, search=("ns.svc.test", "svc.test"), ndots=3).addresses(9)
    assert [full for _, full, _ in names.asked] == asked


def test_first_name_that_exists_wins(names):
    """Also when it has no address now: the Service of our namespace and not a namesake."""
    names.zone |= {"peers.ns.test": [], "peers.test": ["10.0.0.1"]}
    assert resolver(names, "peers", search=("ns.test", "test")).addresses(9) == ()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("servfail", "answers SERVFAIL"),
        ("refused", "answers REFUSED"),
        ("garbage", "its 22 bytes break the format"),
        ("half", "break the format"),
    ],
)
def test_name_server_that_cannot_say(names, wrong, says):
    """No answer is not "no replicas": a fault that names the server and what it did."""
    names.zone["peers.test"] = wrong
    with pytest.raises(NameFault) as fault:
        resolver(names, "peers.test").addresses(0.4)
    assert str(fault.value).startswith(f"peers.test cannot be resolved: name server 127.0.0.1:{names.port} ")
    assert says in str(fault.value)


def test_silent_name_server_costs_the_time_given(names):
    """And no more."""
    names.zone["peers.test"] = "silent"
    before = time.monotonic()
    with pytest.raises(NameFault, match="does not answer"):
        resolver(names, "peers.test").addresses(0.3)
    assert 0.25 < time.monotonic() - before < 5


def test_forged_answers_are_passed_over(names):
    """Another id, or another question: anybody can send a datagram."""
    names.zone["peers.test"] = "forged"
    with pytest.raises(NameFault, match=r"it is no answer to the question|it answers another question"):
        resolver(names, "peers.test").addresses(0.3)


def test_next_name_server(names):
    """One where nothing listens does not keep the next from being asked."""
    names.zone["peers.test"] = ["10.0.0.1"]
    config = Config((("127.0.0.1", 1), ("127.0.0.1", names.port)))
    assert Resolver("peers.test", config).addresses(9) == ("10.0.0.1",)


def test_no_name_server_at_all():
    """Each that was asked is named with what it did."""
    with pytest.raises(NameFault, match=r"name server 127\.0\.0\.1:1 refuses: nothing listens there"):
        Resolver("peers.test", Config((("127.0.0.1", 1),))).addresses(9)


def test_configuration(tmp_path):
    """A Pod's resolv.conf; comments and what is unknown are passed over; without the file the system's default."""
    file = tmp_path / "resolv.conf"
    file.write_text(
        "# of the kubelet\nsearch inference.svc.cluster.local svc.cluster.local. bad..name\n"
        "nameserver 10.96.0.10\nnameserver fd00::a ; second\noptions edns0 ndots:5 timeout:2\nsortlist x\n"
    )
    assert read_config(str(file)) == Config(
        (("10.96.0.10", 53), ("fd00::a", 53)), ("inference.svc.cluster.local", "svc.cluster.local"), 5
    )
    assert read_config(str(tmp_path / "none")) == Config((("127.0.0.1", 53),))


@pytest.mark.parametrize(
    ("text", "server"),
    [
        ("10.96.0.10", ("10.96.0.10", 53)),
        ("10.96.0.10:5353", ("10.96.0.10", 5353)),
        ("fd00::a", ("fd00::a", 53)),
        ("[fd00::a]:5353", ("fd00::a", 5353)),
        ("[fd00::a]", ("fd00::a", 53)),
    ],
)
def test_name_server_given(text, server):
    """An address, with a port or without."""
    assert split_server(text) == server


@pytest.mark.parametrize("text", ["", "dns.test", "10.0.0.1:0", "10.0.0.1:x", "10.0.0.1:99999", "[dns]:53", ":53"])
def test_name_server_that_is_none(text):
    """One line, with an example."""
    with pytest.raises(UsageError, match="expected an IP address and perhaps a port"):
        split_server(text)


@pytest.mark.parametrize("name", ["", ".", "a..b", "-a", "a b", "ä", "a" * 64, "a." * 130, "peers/x"])
def test_name_that_is_none(name):
    """Refused before anybody is asked."""
    with pytest.raises(UsageError, match="is no host name"):
        Resolver(name, Config((("127.0.0.1", 1),)))


@given(st.binary(max_size=120), st.integers(0, 65535))
def test_any_bytes_are_an_answer_or_a_broken_one(data, message_id):
    """No bytes of a stranger raise anything else, or take for ever."""
    asked = question(message_id, "peers.test", A)
    for told in (data, asked[:2] + b"\x81\x80" + data, asked[:2] + b"\x81\x80\0\1\0\xff\0\0\0\0" + asked[12:] + data):
        with contextlib.suppress(BrokenMessage):
            assert isinstance(response(told, asked).addresses, tuple)
