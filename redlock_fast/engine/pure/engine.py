"""The pure-Python engine: the contract's operations, on the hub. It runs where nothing is compiled."""

from __future__ import annotations

import contextlib
import socket
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import Any

from ...wire.commands import Dialect
from ..clock import monotonic
from ..contract import (
    FAULT,
    LAG_AFTER,
    MAX_BUFFER,
    MAX_MASTERS,
    MAX_OWED,
    MAX_RESEND,
    Batch,
    ConnectionState,
    Quorums,
    Request,
    Wait,
)
from ..descriptors import close_copy, file_of
from .channel import MasterChannel
from .connection import Connection
from .hub import Hub
from .request import PendingRequest
from .waiter import Ticket, Waiter, answers

#: Why nothing is sent for a finalizer that the garbage collector runs in the engine's own thread.
INSIDE = "called from a finalizer in the engine's thread"

#: In place of the context of a ticket that was cancelled.
GONE = object()


class PureEngine:
    """One ordered connection per master, shared by all threads, in Python."""

    def __init__(
        self,
        masters: int,
        on_break: Callable[[], None],
        *,
        max_owed: int = MAX_OWED,
        max_buffer: int = MAX_BUFFER,
        max_resend: int = MAX_RESEND,
        lag_after: float = LAG_AFTER,
    ) -> None:
        if not 1 <= masters <= MAX_MASTERS:
            raise ValueError(f"1 to {MAX_MASTERS} masters, not {masters}")
        self._hub = Hub(masters, (max_owed, max_buffer, max_resend), lag_after, on_break)
        #: What an event loop submitted and ``on_ready`` has not returned, and its context. The hub has no
        #: context: it may outlive the engine, which the context may refer to.
        self._tickets: dict[Ticket, object] = {}
        weakref.finalize(self, self._hub.free).atexit = False

    # --- for threads -----------------------------------------------------------------------------

    def exchange(
        self,
        requests: Sequence[Request] | Batch,
        need: int | Quorums,
        timeout: float,
        wait: int = Wait.EARLY,
        stall: float = 0.0,
    ) -> Any:
        me = Waiter()
        self._fill(me, requests, need, wait, timeout, stall)
        pending = me.requests
        if self._hub.is_own_thread():
            self._refuse(me)
        elif pending:
            self._hub.exchange(me)
        me.requests = []  # they refer to the waiter
        return answers(requests, pending)

    def drain(self, timeout: float) -> bool:
        return not self._hub.is_own_thread() and self._hub.drain(monotonic() + timeout)

    # --- for an event loop -----------------------------------------------------------------------

    def fileno(self) -> int:
        return self._hub.loop.fileno()

    def close_loop_fd(self) -> None:
        for ticket in list(self._tickets):
            self.cancel(ticket)
        loop = self._hub.loop
        if loop.pipe is None or self._hub.is_own_thread():
            loop.close()
        else:
            self._hub.call(loop.close)

    def submit(
        self,
        requests: Sequence[Request] | Batch,
        need: int | Quorums,
        timeout: float,
        wait: int,
        stall: float,
        context: object,
    ) -> object:
        ticket = Ticket(requests, self._hub.loop)
        waiter = ticket if need else Waiter()
        self._fill(waiter, requests, need, wait, timeout, stall)
        if need:
            self._tickets[ticket] = context
        self._hub.jobs.append(partial(self._hub.submit, waiter))
        if not self._hub.by_fd:  # it is decided at once
            self.flush()
        return ticket if need else None

    def cancel(self, ticket: object) -> None:
        assert isinstance(ticket, Ticket)
        if self._tickets.pop(ticket, GONE) is not GONE:
            self._hub.jobs.append(partial(self._hub.abandon, ticket))

    def flush(self) -> None:
        self._hub.flush()

    def on_ready(self) -> list[tuple[object, Any]]:
        loop = self._hub.loop
        if self._hub.jobs or not loop.notified:
            self._hub.flush()
        loop.begin_collecting()
        result = []
        while loop.decided:
            ticket = loop.decided.popleft()
            if (context := self._tickets.pop(ticket, GONE)) is not GONE:
                result.append((context, answers(ticket.submitted, ticket.requests)))
                ticket.requests = []
        return result

    def next_timeout(self) -> float | None:
        end = min([ticket.end() for ticket in list(self._tickets)], default=inf)
        return max(0.0, end - monotonic()) if end < inf else None

    # --- connections -----------------------------------------------------------------------------

    def maintain(self) -> None:
        self._hub.maintain()

    def attach(self, master: int, sock: socket.socket, dialect: Dialect) -> None:
        connection = Connection(self._channel(master), sock, dialect)
        self._hub.sockets[sock] = file_of(sock.fileno())
        try:
            self._hub.call(self._hub.attach, connection)
        except BaseException:
            self._hub.sockets.pop(sock, None)
            raise

    def detach(self, master: int) -> socket.socket | None:
        channel = self._channel(master)
        if self._hub.rests():
            return None
        if self._hub.is_own_thread():
            self._hub.put(partial(self._detach_and_close, channel))
            return None
        sock: socket.socket | None = self._hub.call(self._hub.detach, channel)
        return None if sock is None else self._half_closed(sock)

    def _half_closed(self, sock: socket.socket) -> socket.socket | None:
        """The socket of a connection that has ended; None if its descriptor is a stranger's by now."""
        ours = self._hub.is_ours(sock)
        self._hub.sockets.pop(sock, None)
        if not ours:
            sock.detach()
            return None
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_WR)
        return sock

    def _detach_and_close(self, channel: MasterChannel) -> None:
        sock = self._hub.detach(channel)
        if sock is not None and self._half_closed(sock) is not None:
            sock.close()

    def close(self, on_socket: Callable[[socket.socket], object] = socket.socket.close) -> None:
        if self._hub.is_own_thread():
            self._hub.put(lambda: self._end(self._hub.close(), on_socket))
        elif not self._hub.rests():
            self._end(self._hub.call(self._hub.close), on_socket)

    def _end(self, sockets: list[socket.socket], on_socket: Callable[[socket.socket], object]) -> None:
        for sock in sockets:
            if self._half_closed(sock) is not None:
                on_socket(sock)

    def after_fork_in_child(self) -> None:
        hub = self._hub
        while hub.sockets:
            close_copy(*hub.sockets.popitem())
        if hub.pipe is not None:
            hub.pipe.close_copies()
        hub.loop.close()
        self._tickets.clear()
        hub.reset(len(hub.channels))

    def grow(self, masters: int) -> None:
        if masters > MAX_MASTERS:
            raise ValueError(f"{MAX_MASTERS} masters at most, not {masters}")
        self._hub.grow(masters)

    def connection_state(self, master: int) -> ConnectionState:
        return self._channel(master).state()

    # --- inside ----------------------------------------------------------------------------------

    def _channel(self, master: int) -> MasterChannel:
        channels = self._hub.channels
        if not 0 <= master < len(channels):
            raise IndexError(f"master {master} of {len(channels)}")
        return channels[master]

    def _fill(
        self,
        waiter: Waiter,
        requests: Sequence[Request] | Batch,
        need: int | Quorums,
        wait: int,
        timeout: float,
        stall: float,
    ) -> None:
        """Sets what the waiter waits for. Raises TypeError for an argument that is not bytes."""
        rows = requests.requests() if isinstance(requests, Batch) else requests
        for request in rows:
            for arg in request.args:
                if type(arg) is not bytes:
                    raise TypeError(f"an argument is {type(arg).__name__}, not bytes")
        now, masters = monotonic(), len(self._hub.channels)
        waiter.begin(now, timeout, stall)
        waiter.requests = [
            PendingRequest(
                request, masters, need if request.awaited else 0, wait, waiter, now + request.resend_for
            )
            for request in rows
        ]

    def _refuse(self, waiter: Waiter) -> None:
        """A finalizer in the I/O thread cannot wait for it. What must arrive is sent afterwards."""
        for pending in waiter.requests:
            for master in range(len(pending.values)):
                pending.count(master, FAULT, INSIDE)
            pending.decided = True
            if pending.request.resend_for:
                self.submit([pending.request], 0, 0.0, Wait.EARLY, 0.0, None)
        self._hub.begin_jobs()
