"""A metrics page out of a file or standard input, bounded. `infscale.cli.sources` reads its files through here."""

from __future__ import annotations

import sys
import zlib
from typing import BinaryIO

from infscale.reading import NOT_AN_ENGINE, UNREACHABLE, ReadFailure

MAX_BYTES = 8 << 20  # the largest page on record is vLLM's with 16 engines, 0.5 MB
_USUAL = 1 << 18  # asking for the whole bound at once costs 0.1 ms a file, for its buffer
_GZIP = b"\x1f\x8b"


def page_in_file(path: str) -> str | ReadFailure:
    """The text of a page, packed with gzip or not; `-` is standard input. A failure's message leaves the name out."""
    try:
        if path == "-":
            data = _bounded(sys.stdin.buffer)
        else:
            with open(path, "rb") as file:
                data = _bounded(file)
    except FileNotFoundError:
        return ReadFailure(UNREACHABLE, "missing", "no such file")
    except (EOFError, zlib.error) as exc:
        return ReadFailure(UNREACHABLE, "unusable", f"damaged gzip data: {str(exc) or 'cut off'}")
    except IsADirectoryError:
        return ReadFailure(UNREACHABLE, "missing", "a directory, expected a file")
    except OSError as exc:
        return ReadFailure(UNREACHABLE, "missing", f"cannot be read: {exc.strerror or exc}")
    if len(data) > MAX_BYTES:
        return ReadFailure(UNREACHABLE, "too_large", f"larger than {MAX_BYTES >> 20} MiB, not a metrics page")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        return ReadFailure(NOT_AN_ENGINE, "not_metrics", "a binary file, expected a metrics page in text")
    return text


def _bounded(file: BinaryIO) -> bytes:
    """At most one byte more than allowed, unpacked: a gzip bomb stops there too."""
    data = file.read(_USUAL)
    if len(data) == _USUAL:
        data += file.read(MAX_BYTES + 1 - _USUAL)
    if data[:2] != _GZIP or len(data) > MAX_BYTES:
        return data
    unpacked = bytearray()
    while data and len(unpacked) <= MAX_BYTES:  # a gzip file may have several members, and zeros after the last
        member = zlib.decompressobj(wbits=31)
        unpacked += member.decompress(data, MAX_BYTES + 1 - len(unpacked))
        if not member.eof and len(unpacked) <= MAX_BYTES:
            raise EOFError("cut off")
        data = member.unused_data.lstrip(b"\0")
    return bytes(unpacked)
