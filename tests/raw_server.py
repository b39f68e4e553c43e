"""A server of raw bytes for tests of clients: a function says what it does with a connection, so all can go wrong."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from types import TracebackType


class Call:
    """One connection to a `RawServer`: the request that came, and ways to answer it badly.

    Attributes:
        connection: the socket.
        request: request line and headers as received, empty with `read_request=False` or where none came.
        number: of the connection, from 0.
    """

    def __init__(self, connection: socket.socket, number: int, stop: threading.Event) -> None:
        self.connection = connection
        self.number = number
        self.request = b""
        self._stop = stop

    @property
    def path(self) -> str:
        """The request's path."""
        return self.request.split(b" ")[1].decode()

    def header(self, name: str) -> str | None:
        """A request header's value."""
        for line in self.request.decode("latin-1").split("\r\n")[1:]:
            key, _, value = line.partition(":")
            if key.lower() == name.lower():
                return value.strip()
        return None

    def send(self, *parts: bytes) -> None:
        """Sends bytes."""
        self.connection.sendall(b"".join(parts))

    def page(self, body: bytes, *headers: str, status: str = "200 OK") -> None:
        """Sends a whole answer with its length."""
        head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
        self.send("\r\n".join(head).encode(), body)

    def hang(self, seconds: float = 30.0) -> None:
        """Does nothing until the test ends."""
        self._stop.wait(seconds)

    def drip(self, data: bytes, every_s: float) -> None:
        """Sends a byte at a time."""
        for byte in data:
            if self._stop.wait(every_s):
                return
            self.send(bytes([byte]))

    def forever(self, data: bytes) -> None:
        """Sends the same bytes until the client leaves or the test ends."""
        while not self._stop.is_set():
            self.send(data)

    def reset(self) -> None:
        """Ends the connection with RST instead of FIN."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def read_request(self) -> None:
        """Reads up to the blank line."""
        while b"\r\n\r\n" not in self.request:
            data = self.connection.recv(65536)
            if not data:
                return
            self.request += data


class RawServer:
    """Listens on a port of its own and gives each connection, in a thread of its own, to `answer`.

    `port` is for one that comes back where it was.

    Attributes:
        calls: the connections so far.
        port: where it listens.
    """

    def __init__(
        self,
        answer: Callable[[Call], object],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
        read_request: bool = True,
    ) -> None:
        self.calls: list[Call] = []
        self._answer, self._tls, self._read_request = answer, tls, read_request
        self._stop = threading.Event()
        self._listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def url(self, path: str = "/metrics", host: str = "127.0.0.1") -> str:
        """The address of a page of it."""
        return f"{'https' if self._tls else 'http'}://{host}:{self.port}{path}"

    def close(self) -> None:
        """Stops listening, ends what is under way and waits for it."""
        self._stop.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for call in self.calls:
            with contextlib.suppress(OSError):
                call.connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)

    def forget(self) -> None:
        """Let go of the connections that have ended; `calls` has them no more."""
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        self.calls = self.calls[-1:]

    def __enter__(self) -> RawServer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            call = Call(connection, len(self.calls), self._stop)
            self.calls.append(call)
            thread = threading.Thread(target=self._serve, args=(call,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, call: Call) -> None:
        with contextlib.suppress(OSError):  # the client may leave at any time
            try:
                if self._tls:
                    call.connection = self._tls.wrap_socket(call.connection, server_side=True)
                if self._read_request:
                    call.read_request()
                self._answer(call)
            finally:
                call.connection.close()


@contextlib.contextmanager
def raw_server(
    answer: Callable[[Call], object],
    *,
    host: str = "127.0.0.1",
    tls: ssl.SSLContext | None = None,
    read_request: bool = True,
) -> Iterator[RawServer]:
    """A `RawServer` for as long as the block lasts."""
    server = RawServer(answer, host=host, tls=tls, read_request=read_request)
    try:
        yield server
    finally:
        server.close()
