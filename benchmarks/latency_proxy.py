"""A server that is far away: hands on each piece of a connection so many seconds later.

    python latency_proxy.py PORT SECONDS       prints its own port; ends when its stdin does

It looks once a millisecond instead of at every piece: what it delays is late enough for that, and a
proxy that woke up for each, as the exact delay.c does, would take the core that the others are
measured on.
"""

from __future__ import annotations

import collections
import contextlib
import select
import socket
import sys
import time

LOOK = 0.001

#: Where from, where to, and what is on its way, each with the time that it is due.
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
    """Takes what has come, hands on what is due; False when this direction is over."""
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
