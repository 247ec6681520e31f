"""A TCP proxy in front of one master: it delays, holds and resets connections.

One thread moves all bytes. The bytes of one side arrive in order, also after they were held: TCP never
reorders, and a lock depends on that order.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import queue
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable

#: Returns the seconds that the next piece is held back.
Delay = Callable[[], float]
#: Tells one thread that an order is done. Unlike an Event, an exception may interrupt it at any moment.
Signal = queue.SimpleQueue[None]

#: Seconds to connect to the master, and for the thread to answer a call.
TIMEOUT = 20.0
RECEIVE_SIZE = 1 << 16


class Pipe:
    """One direction of one connection. ``ended``: the source has closed, or is not read any more."""

    def __init__(self, source: socket.socket, sink: socket.socket, from_client: bool) -> None:
        self.source = source
        self.sink = sink
        self.from_client = from_client
        self.ended = False
        self.due: float = 0.0
        self.back: Pipe = self


class Proxy:
    """Listens on ``port`` of 127.0.0.1, in front of the server on the port ``upstream``.

    ``delay`` is called for each piece of each direction.
    """

    def __init__(self, upstream: int) -> None:
        self.delay: Delay = float  # none
        self._upstream = ("127.0.0.1", upstream)
        self._pipes: set[Pipe] = set()
        self._held: list[tuple[Pipe, bytes]] = []
        self._holding: frozenset[bool] = frozenset()  # the directions: True for requests, False for replies
        self._pending: list[tuple[float, int, Pipe, bytes | None]] = []
        self._number = itertools.count()
        self._closing = False
        self._orders: queue.SimpleQueue[tuple[Callable[[], None], Signal]] = queue.SimpleQueue()
        self._wake, self._woken = socket.socketpair()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._woken, selectors.EVENT_READ, self._run_order)
        self._thread = threading.Thread(target=self._run, name="redlock-fast-proxy", daemon=True)
        self._thread.start()

    def hold(self, *, requests: bool = True, replies: bool = True) -> None:
        """From now on deliver no requests, and no replies: a partition. It keeps the bytes and the ends."""
        directions = frozenset(way for way, chosen in ((True, requests), (False, replies)) if chosen)
        self._order(lambda: self._set_holding(directions))

    def deliver(self) -> None:
        """Hold nothing any more, and deliver what was held."""
        self._order(self._deliver_held)

    def cut(self) -> None:
        """Reset all connections, on both sides; bytes that were held or delayed are lost."""
        self._order(self._cut)

    def close(self) -> None:
        """Reset all connections, and end."""
        self._order(self._stop)
        self._thread.join(TIMEOUT)
        for sock in (self._listener, self._wake, self._woken):
            sock.close()
        self._selector.close()

    # --- in the proxy's thread ---

    def _run(self) -> None:
        while not self._closing:
            wait = max(0.0, self._pending[0][0] - time.monotonic()) if self._pending else None
            for key, _ in self._selector.select(wait):
                key.data()
            self._deliver_due()
        self._cut()  # also the connections that were accepted in the turn of the order to stop

    def _order(self, action: Callable[[], None]) -> None:
        """Have the thread do it, and wait for that."""
        done: Signal = queue.SimpleQueue()
        self._orders.put((action, done))
        self._wake.send(b".")
        try:
            done.get(timeout=TIMEOUT)
        except queue.Empty:
            raise TimeoutError("the thread of the proxy does not answer") from None

    def _run_order(self) -> None:
        self._woken.recv(1)
        action, done = self._orders.get()
        action()
        done.put(None)

    def _stop(self) -> None:
        self._closing = True

    def _cut(self) -> None:
        self._held.clear()
        for pipe in list(self._pipes):
            self._reset(pipe)

    def _set_holding(self, directions: frozenset[bool]) -> None:
        self._holding = directions

    def _deliver_held(self) -> None:
        self._holding = frozenset()
        held, self._held = self._held, []
        for pipe, data in held:
            self.carry(pipe, data)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        try:
            server = socket.create_connection(self._upstream, TIMEOUT)
        except OSError:
            return reset_socket(client)
        there, back = Pipe(client, server, True), Pipe(server, client, False)
        there.back, back.back = back, there
        for pipe in (there, back):
            self._watch(pipe)

    def _watch(self, pipe: Pipe) -> None:
        pipe.source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._selector.register(pipe.source, selectors.EVENT_READ, functools.partial(self._read, pipe))
        self._pipes.add(pipe)

    def _read(self, pipe: Pipe) -> None:
        if pipe not in self._pipes:  # reset since the select
            return
        try:
            data = pipe.source.recv(RECEIVE_SIZE)
        except OSError:
            return self._reset(pipe)
        if not data:
            self._selector.unregister(pipe.source)
            pipe.ended = True
        self._received(pipe, data)

    def _received(self, pipe: Pipe, data: bytes) -> None:
        self.arrived(pipe, data)

    def arrived(self, pipe: Pipe, data: bytes) -> None:
        """Pass a piece on, or hold it. ``data``: empty for the end. Subclasses may change it or drop it."""
        if pipe.from_client in self._holding:
            self._held.append((pipe, data))
        else:
            self.carry(pipe, data)

    def carry(self, pipe: Pipe, data: bytes | None, later: float = 0.0) -> None:
        """Deliver ``data`` in its turn, so many seconds later. Empty: the end; None: a reset."""
        pipe.due = max(pipe.due, time.monotonic() + self.delay() + later)
        heapq.heappush(self._pending, (pipe.due, next(self._number), pipe, data))

    def _deliver_due(self) -> None:
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
        """Pass on the end of one direction: the other direction may go on."""
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
        """Move no more bytes of this connection; its sockets stay open."""
        for one in (pipe, pipe.back):
            self._pipes.discard(one)
            if not one.ended:
                one.ended = True
                self._selector.unregister(one.source)


def reset_socket(sock: socket.socket) -> None:
    """Close with RST instead of FIN."""
    if sock.fileno() >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()
