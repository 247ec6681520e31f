"""A proxy that forwards each piece of a connection SECONDS later.

    python latency_proxy.py PORT SECONDS       prints its own port; ends when its stdin does

It wakes up once a millisecond, which is exact enough for its delays. A proxy that wakes up for each piece,
such as delay.c, would take the core that the implementations are measured on.
"""

from __future__ import annotations

import collections
import contextlib
import select
import socket
import sys
import time

LOOK = 0.001

#: Source, destination, and the delayed pieces with the time at which each is due.
Pipe = tuple[socket.socket, socket.socket, collections.deque[tuple[float, bytes]]]


def main(port: int, seconds: float) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    print(listener.getsockname()[1], flush=True)
    pipes: list[Pipe] = []
    while not select.select([sys.stdin], [], [], LOOK)[0]:
        with contextlib.suppress(BlockingIOError):
            pipes += connect(listener.accept()[0], port)
        pipes = [pipe for pipe in pipes if move(pipe, seconds)]


def connect(client: socket.socket, port: int) -> list[Pipe]:
    server = socket.create_connection(("127.0.0.1", port))
    for sock in (client, server):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setblocking(False)
    return [(client, server, collections.deque()), (server, client, collections.deque())]


def move(pipe: Pipe, seconds: float) -> bool:
    """Receive, and forward what is due; False when this direction has ended."""
    source, sink, waiting = pipe
    now = time.monotonic()
    try:
        with contextlib.suppress(BlockingIOError):
            waiting.append((now + seconds, source.recv(1 << 20)))
        while waiting and waiting[0][0] <= now:
            due, data = waiting[0]
            if not data:
                sink.shutdown(socket.SHUT_WR)
                return False
            sent = sink.send(data)
            waiting.popleft()
            if sent < len(data):
                waiting.appendleft((due, data[sent:]))
    except BlockingIOError:
        return True
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
