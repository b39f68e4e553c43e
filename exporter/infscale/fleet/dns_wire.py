"""DNS messages (RFC 1035, section 4): a question as bytes, and the addresses out of an answer. Called by `resolver`."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

A, AAAA = 1, 28
"""Record types: IPv4 and IPv6 addresses (RFC 3596)."""

NOERROR, NXDOMAIN = 0, 3

RCODES = {1: "FORMERR", 2: "SERVFAIL", 3: "NXDOMAIN", 4: "NOTIMP", 5: "REFUSED"}

_HEADER = struct.Struct("!6H")
_QUESTION_TAIL = struct.Struct("!2H")
_RECORD = struct.Struct("!2HIH")
_IN = 1
_RESPONSE, _TRUNCATED, _RECURSION_DESIRED = 0x8000, 0x0200, 0x0100
_FAMILIES = {A: (socket.AF_INET, 4), AAAA: (socket.AF_INET6, 16)}


class BrokenMessage(Exception):
    """An answer that breaks the format, in words; or one to another question, which is then not ours to read."""


@dataclass(frozen=True, slots=True)
class Response:
    """What a name server says.

    Attributes:
        rcode: the response code.
        truncated: the answer did not fit; ask over TCP.
        addresses: of the type asked for, in the order given, each once.
    """

    rcode: int
    truncated: bool
    addresses: tuple[str, ...]


def question(message_id: int, name: str, record_type: int) -> bytes:
    """A recursive question for the records of one type; `name` is ASCII, without the final dot."""
    labels = b"".join(bytes([len(label)]) + label.encode("ascii") for label in name.split("."))
    head = _HEADER.pack(message_id, _RECURSION_DESIRED, 1, 0, 0, 0)
    return head + labels + b"\0" + _QUESTION_TAIL.pack(record_type, _IN)


def response(data: bytes, asked: bytes) -> Response:
    """The answer to a question.

    A name may be an alias: the records behind it follow in the same answer, so their owner is not compared.

    Args:
        data: what came.
        asked: the question as it was sent.

    Raises:
        BrokenMessage: it is no answer, not to this question, or broken.
    """
    try:
        message_id, flags, questions, answers, _, _ = _HEADER.unpack_from(data)
        end = len(asked)
        if message_id != _HEADER.unpack_from(asked)[0] or not flags & _RESPONSE:
            raise BrokenMessage("it is no answer to the question")
        if questions and data[12:end].lower() != asked[12:].lower():
            raise BrokenMessage("it answers another question")
        truncated, rcode = bool(flags & _TRUNCATED), flags & 0xF
        if truncated or rcode != NOERROR:
            return Response(rcode, truncated, ())
        record_type = _QUESTION_TAIL.unpack_from(asked, end - 4)[0]
        return Response(rcode, False, _addresses(data, end if questions else 12, answers, record_type))
    except (struct.error, IndexError, ValueError):
        raise BrokenMessage(f"its {len(data)} bytes break the format") from None


def _addresses(data: bytes, at: int, answers: int, wanted: int) -> tuple[str, ...]:
    family, size = _FAMILIES[wanted]
    found: dict[str, None] = {}
    for _ in range(answers):
        at = _after_name(data, at)
        record_type, record_class, _, length = _RECORD.unpack_from(data, at)
        at += _RECORD.size
        if at + length > len(data):
            raise IndexError
        if record_type == wanted and record_class == _IN and length == size:
            found[socket.inet_ntop(family, data[at : at + length])] = None
        at += length
    return tuple(found)


def _after_name(data: bytes, at: int) -> int:
    """Where a name ends: at a zero, or behind a pointer, which is never followed."""
    while True:
        length = data[at]
        if length == 0:
            return at + 1
        if length & 0xC0 == 0xC0:
            return at + 2
        if length & 0xC0:
            raise IndexError
        at += 1 + length
