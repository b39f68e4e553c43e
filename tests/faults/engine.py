"""A vLLM's metrics page as a process of its own, for a test that kills it: `python engine.py PORT`.

Says its port, then serves. The line `half` on its standard input makes it send half of each page and wait.
"""

from __future__ import annotations

import socket
import sys
import threading
import time

halves = threading.Event()


def serve(listener: socket.socket) -> None:
    """Answer one connection after the other."""
    tokens = 0
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            tokens += 10
            page = b"".join(
                b'vllm:%s{model_name="m"} %d\n' % pair
                for pair in (
                    (b"num_requests_running", 5),
                    (b"num_requests_waiting", 3),
                    (b"generation_tokens_total", tokens),
                )
            )
            answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(page), page)
            if halves.is_set():
                connection.sendall(answer[: len(answer) // 2])
                print("sent half", flush=True)
                time.sleep(3600)
            connection.sendall(answer)


def main() -> None:
    """Serve until killed."""
    listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
    print(listener.getsockname()[1], flush=True)
    threading.Thread(target=serve, args=(listener,), daemon=True).start()
    for line in sys.stdin:
        if line.strip() == "half":
            halves.set()
            print("half", flush=True)


if __name__ == "__main__":
    main()
