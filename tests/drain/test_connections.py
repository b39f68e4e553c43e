"""The engine's clients out of the kernel's tables: the parser over text, and real sockets."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infscale.drain.connections import MAX_ROW_BYTES, MAX_ROWS, Clients, Connections, clients_of, own_sockets
from infscale.drain.options import DrainOptions
from infscale.drain.run import drain

from ..raw_server import Call, raw_server
from .driven import Clock
from .matrix import IDLE

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
ROW = "{:4}: {} {} {} {:08X}:{:08X} 00:00000000 00000000     0        0 {} 1 0000000000000000 20 4 30 10 -1\n"
ENGINE = "0100007F:1F40"  # 127.0.0.1:8000
LISTENING = ROW.format(0, "00000000:1F40", "00000000:0000", "0A", 0, 0, 11)


def table(*rows: tuple[str, str, str, int, int, int], listening: str = LISTENING) -> str:
    """A table of these rows: local end, remote end, state, bytes to send, bytes received, inode."""
    return HEAD + listening + "".join(ROW.format(number, *row) for number, row in enumerate(rows, 1))


def test_established_clients_are_counted() -> None:
    """Connections to the engine's port, whoever they are from; other states and ports are none."""
    text = table(
        (ENGINE, "0200000A:C000", "01", 0, 0, 21),
        (ENGINE, "0300000A:C001", "01", 0, 0, 22),
        (ENGINE, "0300000A:C002", "06", 0, 0, 0),  # TIME_WAIT
        (ENGINE, "0300000A:C003", "08", 0, 0, 23),  # CLOSE_WAIT: the client has left
        ("0100007F:1F41", "0300000A:C004", "01", 0, 0, 24),  # another port
        ("0100007F:C005", "0400000A:1F40", "01", 0, 0, 25),  # what the engine itself is a client of
    )
    assert clients_of([text], 8000) == Clients(2)


@pytest.mark.parametrize(("sending", "received"), [(1, 0), (0, 1), (4096, 512)])
def test_queued_bytes_are_told(sending: int, received: int) -> None:
    """A connection with bytes that either side has not taken counts as queued; a listener's queue does not."""
    text = table((ENGINE, "0200000A:C000", "01", sending, received, 21), (ENGINE, "0200000A:C001", "01", 0, 0, 22))
    assert clients_of([text], 8000) == Clients(2, queued=1)
    backlog = ROW.format(0, "00000000:1F40", "00000000:0000", "0A", 0, 5, 11)
    assert clients_of([table(listening=backlog)], 8000) == Clients(0)


def test_own_sockets_are_left_out() -> None:
    """What our own sockets are connected to is no client; one from elsewhere with the same port is."""
    text = table(
        ("0100007F:C000", ENGINE, "01", 0, 0, 31),
        (ENGINE, "0100007F:C000", "01", 0, 9, 21),
        (ENGINE, "0200000A:C000", "01", 0, 0, 22),
    )
    assert clients_of([text], 8000, own={"31"}) == Clients(1)
    assert clients_of([text], 8000) == Clients(2, queued=1)


def test_ipv4_client_of_an_ipv6_socket() -> None:
    """The two tables spell one IPv4 address in two ways; own sockets are found all the same."""
    mapped = "0000000000000000FFFF0000"
    four = HEAD + ROW.format(1, "0100007F:C000", ENGINE, "01", 0, 0, 31)
    six = table(
        (f"{mapped}{ENGINE}", f"{mapped}0100007F:C000", "01", 0, 0, 21),
        (f"{mapped}{ENGINE}", f"{mapped}0200000A:C000", "01", 0, 0, 22),
        listening=ROW.format(0, "0" * 32 + ":1F40", "0" * 32 + ":0000", "0A", 0, 0, 11),
    )
    assert clients_of([four, six], 8000, own={"31"}) == Clients(1)


def test_engine_elsewhere_is_unknown() -> None:
    """Where nothing listens on the port, as in another network namespace, nothing is known."""
    assert clients_of([table((ENGINE, "0200000A:C000", "01", 0, 0, 1), listening="")], 8000) is None
    assert clients_of([""], 8000) is None


def test_lines_that_are_cut_are_passed_over() -> None:
    """A table that ends in the middle of a line still tells of the lines before."""
    text = table((ENGINE, "0200000A:C000", "01", 0, 0, 21))
    last = text.splitlines()[-1]
    assert clients_of([text + last[:50]], 8000) == Clients(1)
    assert clients_of([f"{last[:50]}\n{text}"], 8000) == Clients(1), "and of the lines after it"
    inode = last.index(" 21 ") + len(" 21")
    assert clients_of([text + last[:inode]], 8000) == Clients(2), "up to the inode is enough"


@given(st.lists(st.text(alphabet=" 0123456789ABCDEF:x\t", max_size=60), max_size=5))
def test_any_text_is_taken(lines: list[str]) -> None:
    """No text makes the parser fail."""
    found = clients_of([LISTENING + "\n".join(f"{line}:1F40 " for line in lines)], 8000)
    assert found is None or 0 <= found.queued <= found.established


def test_tables_that_cannot_be_read() -> None:
    """Without /proc nothing is known; one of the two tables is enough."""
    assert Connections(8000, tables=("/no/such/table",))() is None
    with listener() as (port, _):
        assert Connections(port, tables=("/no/such/table", "/proc/net/tcp"))() == Clients(0)


def test_an_engine_that_closed_its_port(tmp_path) -> None:
    """Whoever knows that it is here counts its clients all the same; without tables nothing is known."""
    (tmp_path / "tcp").write_text(table((ENGINE, "0200000A:C000", "01", 0, 0, 21), listening=""))
    tables = (str(tmp_path / "tcp"),)
    assert Connections(8000, tables)() is None
    assert Connections(8000, tables, closed_too=True)() == Clients(1)
    assert Connections(8000, ("/no/such/table",), closed_too=True)() is None


def test_tables_are_read_within_bounds(tmp_path) -> None:
    """Up to 100,000 lines of each, whatever bytes stand there, and however long a line is."""
    rows = table((ENGINE, "0200000A:C000", "01", 0, 0, 21)).encode()
    (tmp_path / "odd").write_bytes(b"\xff\xfe :1F40 \n" + rows)
    (tmp_path / "long").write_bytes(b"\n" * MAX_ROWS + rows)
    (tmp_path / "wide").write_bytes(b"x" * MAX_ROWS * MAX_ROW_BYTES + b"\n" + rows)
    assert Connections(8000, (str(tmp_path / "odd"),))() == Clients(1)
    assert Connections(8000, (str(tmp_path / "long"),))() is None
    assert Connections(8000, (str(tmp_path / "wide"),))() is None


CLIENT = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
    connection.sendall(sys.argv[2].encode())
    print("connected", flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def client(port: int, sends: str = "") -> Iterator[None]:
    """A client in a process of its own, connected for as long as the block lasts."""
    command = [sys.executable, "-I", "-S", "-c", CLIENT, str(port), sends]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"connected\n"
        yield
        process.communicate(timeout=30)


@contextlib.contextmanager
def listener() -> Iterator[tuple[int, socket.socket]]:
    """A port that accepts nothing by itself: what clients send stays queued."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1], listening


def until(look: Callable[[], object], wanted: object) -> None:
    """Look until it shows what is wanted: the kernel's tables are a moment behind."""
    deadline = time.monotonic() + 20
    while (seen := look()) != wanted:
        assert time.monotonic() < deadline, seen
        time.sleep(0.02)


def test_real_client_is_seen_and_seen_to_leave() -> None:
    """A client's connection shows in the tables, its unread request as queued; our own connection does not show."""
    with listener() as (port, listening):
        look = Connections(port)
        until(look, Clients(0))
        with socket.create_connection(("127.0.0.1", port)):
            assert look() == Clients(0)
            with client(port, "GET /v1/completions"):
                until(look, Clients(1, queued=1))
                listening.settimeout(20)
                connections = [listening.accept()[0], listening.accept()[0]]
                for connection in connections:
                    connection.setblocking(False)
                    with contextlib.suppress(BlockingIOError):
                        connection.recv(100)
                until(look, Clients(1))
                for connection in connections:
                    connection.close()
            until(look, Clients(0))


def test_own_sockets_of_this_process() -> None:
    """A socket's inode stands in the listing, as the tables spell it."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = f":{listening.getsockname()[1]:04X} "
        with open("/proc/net/tcp", encoding="ascii") as file:
            inodes = {line.split()[9] for line in file if port in line}
        assert inodes
        assert inodes <= own_sockets()


def test_own_sockets_where_proc_does_not_tell(tmp_path) -> None:
    """Without /proc none are known; what is no socket, or is closed meanwhile, is passed over."""
    assert own_sockets(str(tmp_path / "no-such-folder")) == frozenset()
    (tmp_path / "0").symlink_to("/dev/null")
    (tmp_path / "1").write_text("no link")
    (tmp_path / "2").symlink_to("socket:[4711]")
    assert own_sockets(str(tmp_path)) == {"4711"}


def test_drain_goes_by_a_real_client_where_no_gauges_are() -> None:
    """An engine that wants a key for its page: the drain waits while a real client is connected, and no longer."""
    streams: list[Call] = []

    def engine(call: Call) -> None:
        if b"/metrics" in call.request:
            call.page(b"", status="401 Unauthorized")
        else:
            streams.append(call)
            call.connection.recv(1)  # until the client leaves

    clock = Clock()
    kinds: list[str] = []
    with raw_server(engine) as server, contextlib.ExitStack() as clients:
        clients.enter_context(client(server.port, "POST /v1/completions HTTP/1.1\r\n\r\n"))
        until(lambda: len(streams), 1)

        def sleep(seconds: float) -> None:
            clock.sleep(seconds)
            if len(kinds) == 4:
                clients.close()
                until(Connections(server.port), Clients(0))

        report = drain(
            DrainOptions(server.url()), clock=clock, sleep=sleep, on_read=lambda note: kinds.append(note.verdict.kind)
        )
    assert kinds == ["http"] * 5
    assert (report.outcome, report.connections) == ("http", 0)


def test_connections_can_be_left_alone() -> None:
    """`--no-connections` looks at none; without the flag they are looked at where the engine is on loopback."""
    with raw_server(lambda call: call.page(IDLE)) as server:
        for wanted, seen in ((False, None), (True, 0), (None, 0)):
            clock = Clock()
            report = drain(DrainOptions(server.url(), connections=wanted), clock=clock, sleep=clock.sleep)
            assert report.connections == seen
    assert not DrainOptions("http://10.0.0.7:8000/metrics").local
    assert not DrainOptions("http://127.0.0.1.example.com:8000/metrics").local
    assert DrainOptions("http://[::1]:8000/metrics").local
