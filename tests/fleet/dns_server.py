"""A small name server for tests, over UDP and TCP: several addresses for a name, and all that can go wrong."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

A, AAAA, CNAME = 1, 28, 5
_CODES = {"servfail": 2, "nxdomain": 3, "refused": 5}


class DnsServer:
    """Answers for the names in `zone`; every other name does not exist.

    Attributes:
        zone: a name to its addresses, or to what goes wrong: `servfail`, `refused`, `silent`, `garbage`, `forged`
            (first an answer with another id, then one to another question, then none), `half` (cut over TCP).
        asked: (transport, name, record type) of each question so far.
        port: of both transports.
    """

    def __init__(self) -> None:
        self.zone: dict[str, list[str] | str] = {}
        self.asked: list[tuple[str, str, int]] = []
        self._udp, self._tcp = _one_port()
        self.port: int = self._tcp.getsockname()[1]
        self._threads = [threading.Thread(target=self._serve_udp), threading.Thread(target=self._serve_tcp)]
        for thread in self._threads:
            thread.start()

    @property
    def address(self) -> str:
        """Where it is, as `--fleet.dns-server` has it."""
        return f"127.0.0.1:{self.port}"

    def close(self) -> None:
        """Stops both."""
        self._udp.sendto(b"", ("127.0.0.1", self.port))
        with contextlib.suppress(OSError):
            self._tcp.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._udp.close()
        self._tcp.close()

    def _serve_udp(self) -> None:
        while True:
            data, sender = self._udp.recvfrom(4096)
            if not data:
                return
            for answer in self._answers(data, "udp"):
                self._udp.sendto(answer, sender)

    def _serve_tcp(self) -> None:
        while True:
            try:
                connection, _ = self._tcp.accept()
            except OSError:
                return
            with connection:
                (length,) = struct.unpack("!H", connection.recv(2))
                for answer in self._answers(connection.recv(length), "tcp"):
                    connection.sendall(struct.pack("!H", len(answer)) + answer)

    def _answers(self, data: bytes, transport: str) -> list[bytes]:
        name, record_type = _question(data)
        self.asked.append((transport, name, record_type))
        told = self.zone.get(name.lower(), "nxdomain")
        if isinstance(told, list):
            answer = _message(data, _records(name, told, record_type))
            fits = transport == "tcp" or len(answer) <= 512
            return [answer if fits else _message(data, [], flags=0x0200)]
        if told == "silent":
            return []
        if told == "garbage":
            return [data[:2] + b"\x81\x80\0\0\0\1\0\0\0\0" + b"\xff" * 10]
        if told == "half":
            return [_message(data, [], flags=0x0200)] if transport == "udp" else [data[:7]]
        if told == "forged":
            other = data[:12] + bytes([data[12]]) + b"x" + data[14:]
            forged = [bytes([data[0] ^ 1]) + data[1:], other]
            return [_message(question, _records(name, ["10.6.6.6"], record_type)) for question in forged]
        return [_message(data, [], flags=_CODES[told])]


def _one_port() -> tuple[socket.socket, socket.socket]:
    """A UDP and a TCP socket on one port; the kernel gives one that is free for TCP, and may be taken for UDP."""
    while True:
        tcp = socket.create_server(("127.0.0.1", 0))
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            udp.bind(tcp.getsockname())
        except OSError:
            tcp.close()
            udp.close()
        else:
            return udp, tcp


def _question(data: bytes) -> tuple[str, int]:
    labels, at = [], 12
    while data[at]:
        labels.append(data[at + 1 : at + 1 + data[at]].decode())
        at += 1 + data[at]
    return ".".join(labels), struct.unpack_from("!H", data, at + 1)[0]


def _message(question: bytes, records: list[bytes], flags: int = 0) -> bytes:
    head = question[:2] + struct.pack("!5H", 0x8180 | flags, 1, len(records), 0, 0)
    return head + question[12:] + b"".join(records)


def _records(name: str, addresses: list[str], record_type: int) -> list[bytes]:
    """An alias, written out, and the addresses of this type, with pointers to the question's name."""
    family = socket.AF_INET6 if record_type == AAAA else socket.AF_INET
    packed = [socket.inet_pton(family, text) for text in addresses if (":" in text) == (record_type == AAAA)]
    alias = b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"
    records = [b"\xc0\x0c" + struct.pack("!2HIH", record_type, 1, 5, len(data)) + data for data in packed]
    return [alias + struct.pack("!2HIH", CNAME, 1, 5, 2) + b"\xc0\x0c", *records] if records else []


@contextlib.contextmanager
def dns_server() -> Iterator[DnsServer]:
    """A name server for the time of a test."""
    server = DnsServer()
    try:
        yield server
    finally:
        server.close()
