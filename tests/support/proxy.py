"""A network on a bad day: a TCP proxy that delays, loses replies, refuses, and cuts connections.

One thread moves all bytes, and what one side sent arrives in order, as TCP has it::

    with Proxy(master.port, jitter(seed=1, longest=0.02)) as proxy:
        client = FastRedlock([proxy.url, ...])
        proxy.cut()
"""

from __future__ import annotations

import functools
import heapq
import itertools
import queue
import random
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Self

from support.scripted import Words, take_commands
from support.waiting import DEADLINE

#: Seconds that the next piece is held back.
Delay = Callable[[], float]


def at_once() -> float:
    return 0.0


def fixed(seconds: float) -> Delay:
    return lambda: seconds


def jitter(seed: int, longest: float) -> Delay:
    """Anything from 0 to ``longest`` seconds for each piece."""
    chance = random.Random(seed)
    return lambda: chance.uniform(0.0, longest)


class Pipe:
    """One direction of one connection."""

    def __init__(self, source: socket.socket, sink: socket.socket, from_client: bool) -> None:
        self.source = source
        self.sink = sink
        self.from_client = from_client
        self.ended = False
        self.due = 0.0
        self.unparsed = bytearray()
        self.back: Pipe = self


class Proxy:
    """Listens on ``port`` in front of the server on ``upstream``; may be changed at any time.

    ``delay``: for each piece of each direction. ``deaf``: replies are lost. ``refusing``: new
    connections are reset. ``requests``: the commands that went through, if ``record``.
    """

    def __init__(self, upstream: int, delay: Delay = at_once, *, record: bool = False) -> None:
        self.delay = delay
        self.deaf = False
        self.refusing = False
        self.requests: list[Words] = []
        self._record = record
        self._upstream = ("127.0.0.1", upstream)
        self._pipes: set[Pipe] = set()
        self._pending: list[tuple[float, int, Pipe, bytes | None]] = []
        self._number = itertools.count()
        self._closing = False
        self._orders: queue.SimpleQueue[tuple[Callable[[], None], threading.Event]] = queue.SimpleQueue()
        self._bell, self._ear = socket.socketpair()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._ear, selectors.EVENT_READ, self._obey)
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def sets(self) -> list[Words]:
        """The acquires among the recorded requests."""
        return [words for words in self.requests if words[0] == b"SET" and b"NX" in words]

    def cut(self) -> None:
        """Reset all connections, both ways; what was on its way is lost."""
        self._order(self._cut)

    def close(self) -> None:
        self._order(self._stop)
        self._thread.join(DEADLINE)
        for sock in (self._listener, self._bell, self._ear):
            sock.close()
        self._selector.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- in the proxy's thread ---

    def _run(self) -> None:
        while not self._closing:
            wait = max(0.0, self._pending[0][0] - time.monotonic()) if self._pending else None
            for key, _ in self._selector.select(wait):
                key.data()
            self._deliver()
        self._cut()  # also what was accepted in the same turn as the order to stop

    def _order(self, action: Callable[[], None]) -> None:
        done = threading.Event()
        self._orders.put((action, done))
        self._bell.send(b".")
        assert done.wait(DEADLINE), "the proxy is stuck"

    def _obey(self) -> None:
        self._ear.recv(1)
        action, done = self._orders.get()
        action()
        done.set()

    def _stop(self) -> None:
        self._closing = True

    def _cut(self) -> None:
        for pipe in list(self._pipes):
            self._reset(pipe)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        if self.refusing:
            return reset_socket(client)
        try:
            server = socket.create_connection(self._upstream, DEADLINE)
        except OSError:
            return reset_socket(client)
        there, back = Pipe(client, server, True), Pipe(server, client, False)
        there.back, back.back = back, there
        for pipe in (there, back):
            pipe.source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(pipe.source, selectors.EVENT_READ, functools.partial(self._read, pipe))
            self._pipes.add(pipe)

    def _read(self, pipe: Pipe) -> None:
        if pipe not in self._pipes:  # reset since the select
            return
        try:
            data = pipe.source.recv(1 << 16)
        except OSError:
            return self._reset(pipe)
        if not data:
            self._selector.unregister(pipe.source)
            pipe.ended = True
        elif pipe.from_client and self._record:
            pipe.unparsed += data
            self.requests.extend(take_commands(pipe.unparsed))
        elif self.deaf and not pipe.from_client:
            return None
        self.arrived(pipe, data)

    def arrived(self, pipe: Pipe, data: bytes) -> None:
        """For a proxy that does more than this one: a piece, or the end if it is empty."""
        self.carry(pipe, data)

    def carry(self, pipe: Pipe, data: bytes | None, later: float = 0.0) -> None:
        """Give ``data`` to the other side, in its turn and so much later. Empty: the end; None: a reset."""
        pipe.due = max(pipe.due, time.monotonic() + self.delay() + later)
        heapq.heappush(self._pending, (pipe.due, next(self._number), pipe, data))

    def _deliver(self) -> None:
        now = time.monotonic()
        while self._pending and self._pending[0][0] <= now:
            _, _, pipe, data = heapq.heappop(self._pending)
            if pipe not in self._pipes:
                continue
            try:
                if data:
                    pipe.sink.sendall(data)
                elif data is None:
                    self._reset(pipe)
                else:
                    self._finish(pipe)
            except OSError:
                self._reset(pipe)

    def _finish(self, pipe: Pipe) -> None:
        """The end of one direction, as it came: the other may go on."""
        self._pipes.discard(pipe)
        if pipe.back in self._pipes:
            pipe.sink.shutdown(socket.SHUT_WR)
        else:
            pipe.source.close()
            pipe.sink.close()

    def _reset(self, pipe: Pipe) -> None:
        self.forget(pipe)
        for one in (pipe, pipe.back):
            reset_socket(one.source)

    def forget(self, pipe: Pipe) -> None:
        """This connection's sockets are somebody else's from here on."""
        for one in (pipe, pipe.back):
            self._pipes.discard(one)
            if not one.ended:
                one.ended = True
                self._selector.unregister(one.source)


class Holding(Proxy):
    """Holds the requests or the replies back for a while, and the ends of connections in their turn."""

    def __init__(self, upstream: int) -> None:
        self._held: list[tuple[Pipe, bytes]] = []
        self._requests: bool | None = None  # or else the replies; None: neither
        super().__init__(upstream)

    def hold(self, *, requests: bool) -> None:
        """Requests, or else replies, from now on."""
        self._requests = requests

    def let_go(self) -> None:
        self._order(self._let_go)

    def arrived(self, pipe: Pipe, data: bytes) -> None:
        if pipe.from_client is self._requests:
            self._held.append((pipe, data))
        else:
            self.carry(pipe, data)

    def _let_go(self) -> None:
        self._requests = None
        while self._held:
            self.carry(*self._held.pop(0))


class Stranding(Proxy):
    """Holds what belongs to the connections that there are, and passes what belongs to newer ones.

    The client hears nothing on the old connections, and gives them up. What it wrote to them is delivered
    late, after what it wrote to their successors.
    """

    def __init__(self, upstream: int) -> None:
        self._stranded: set[Pipe] = set()
        self._held: list[tuple[Pipe, bytes]] = []
        super().__init__(upstream)

    def strand(self, *, requests: bool = True) -> None:
        """From now on hold the replies of the connections that there are; with ``requests`` these, too."""
        self._order(lambda: self._strand(requests))

    def _strand(self, requests: bool) -> None:
        self._stranded |= {pipe for pipe in self._pipes if requests or not pipe.from_client}

    def deliver(self) -> None:
        """Deliver the requests that were held, in their order, and the end of each connection."""
        self._order(self._deliver_held)

    def _deliver_held(self) -> None:
        for pipe, data in self._held:
            if pipe.from_client:
                self.carry(pipe, data)
        self._held.clear()
        self._stranded = {pipe for pipe in self._stranded if not pipe.from_client}

    def over(self) -> bool:
        """Whether the server has read all that was delivered, and closed its side of those connections."""
        return all(pipe.ended for pipe in self._stranded)

    def arrived(self, pipe: Pipe, data: bytes) -> None:
        if pipe in self._stranded:
            self._held.append((pipe, data))
        else:
            self.carry(pipe, data)


def reset_socket(sock: socket.socket) -> None:
    """RST instead of FIN."""
    if sock.fileno() >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()
