"""The pure-Python engine: the contract's operations, on the hub. It runs where nothing is compiled."""

from __future__ import annotations

import contextlib
import socket
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import Any, TypeVar

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
from ..descriptors import FileId, close_copy, close_own, file_of
from .channel import MasterChannel
from .connection import Connection, TlsConnection
from .hub import Hub
from .request import PendingRequest
from .waiter import Ticket, Waiter, answers

T = TypeVar("T")

CLOSED = "connection closed by the client"
INSIDE = "called from a signal handler"
#: Seconds of a refused exchange: a handler that tries again does not spin.
REFUSED_PAUSE = 0.01


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
        self._on_break = on_break
        self._reported_breaks = 0
        self._hub = Hub(masters, (max_owed, max_buffer, max_resend), lag_after)
        self._deferred: deque[Callable[[], object]] = deque()
        #: An engine that is freed closes them without a warning.
        self._open: dict[socket.socket, FileId] = self._hub.sockets
        weakref.finalize(self, _close_all, self._open).atexit = False

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
        if self._hub.interrupted():
            self._refuse(me)
            time.sleep(max(0.0, min(timeout, REFUSED_PAUSE)))
        else:
            self._call(self._exchange, me)
        me.requests = []  # they refer to the waiter
        return answers(requests, pending)

    def _exchange(self, me: Waiter) -> None:
        hub = self._hub
        try:
            hub.locked(hub.submit, me, me.last_reply)
            hub.wait(me)
        except BaseException:
            try:
                hub.locked(hub.abandon_waiter, me)
                hub.output_pending = True  # perhaps the thread took output and has not sent it
                hub.wait(me)  # what was submitted is sent
            finally:
                hub.locked(hub.leave, me)  # also if that raised: a leader that is gone would lead for ever
            raise

    def drain(self, timeout: float) -> bool:
        return not self._hub.interrupted() and self._call(self._hub.drain, monotonic() + timeout)

    # --- for an event loop -----------------------------------------------------------------------

    def fileno(self) -> int:
        loop = self._hub.loop
        if loop.fd is None:
            self._call(self._hub.locked, self._hub.watch_all)
        assert loop.fd is not None
        return loop.fd.fileno()

    def close_loop_fd(self) -> None:
        for ticket in list(self._hub.tickets):
            self.cancel(ticket)
        self._hub.locked(self._hub.loop.close)

    def submit(
        self,
        requests: Sequence[Request] | Batch,
        need: int | Quorums,
        timeout: float,
        wait: int,
        stall: float,
        context: object,
    ) -> object:
        ticket = Ticket(requests, context, self._hub.loop)
        waiter = ticket if need else Waiter()
        self._fill(waiter, requests, need, wait, timeout, stall)
        if need:
            self._hub.tickets[ticket] = None
        if self._hub.interrupted():
            self._refuse(waiter)
        else:
            self._call(self._hub.locked, self._submit, waiter)
        return ticket if need else None

    def _submit(self, waiter: Waiter) -> None:
        self._hub.submit(waiter, waiter.last_reply)
        if isinstance(waiter, Ticket):
            waiter.on_deadline_moved(waiter.expire(waiter.last_reply))
            if not waiter.requests:
                waiter.notify()

    def cancel(self, ticket: object) -> None:
        assert isinstance(ticket, Ticket)
        ticket.context = None
        if self._hub.tickets.pop(ticket, ticket) is None:
            self._hub.locked(self._hub.abandon_waiter, ticket)

    def flush(self) -> None:
        if not self._hub.interrupted():
            self._call(self._hub.flush)

    def on_ready(self) -> list[tuple[object, Any]]:
        return [] if self._hub.interrupted() else self._call(self._on_ready)

    def _on_ready(self) -> list[tuple[object, Any]]:
        hub, loop = self._hub, self._hub.loop
        hub.locked(loop.begin_collecting)
        try:
            hub.flush()
            hub.locked(hub.expire_tickets)
        finally:
            loop.collecting = False
        result = []
        while loop.decided:
            ticket = loop.decided.popleft()
            if hub.tickets.pop(ticket, ticket) is None:
                result.append((ticket.context, answers(ticket.submitted, ticket.requests)))
                ticket.requests, ticket.context = [], None
        return result

    def next_timeout(self) -> float | None:
        deadline = self._hub.loop.deadline
        return max(0.0, deadline - monotonic()) if self._hub.tickets and deadline < inf else None

    # --- connections -----------------------------------------------------------------------------

    def maintain(self) -> None:
        if not self._hub.interrupted():
            self._call(self._hub.maintain)

    def attach(self, master: int, sock: socket.socket, dialect: Dialect) -> None:
        channel = self._channel(master)
        connection = _connection(channel, sock, dialect)
        self._open[sock] = file_of(sock.fileno())
        if not self._call(self._hub.exclusively, partial(self._attach, connection)):
            del self._open[sock]
            raise ValueError(f"master {master} has a connection: detach it first")

    def _attach(self, connection: Connection) -> bool:
        channel, hub = connection.channel, self._hub
        if channel.connection is not None or channel.remains is not None:
            return False
        if hub.kick_pair is None:
            hub.open_kick()
        hub.add_connection(connection)
        channel.resend_all(monotonic())
        hub.subscriptions.end()
        return True

    def detach(self, master: int) -> socket.socket | None:
        channel = self._channel(master)
        if self._hub.interrupted():
            self._deferred.append(partial(self._detach_and_close, master))
            return None
        sock: socket.socket | None = self._call(self._hub.exclusively, partial(self._detach, channel, False))
        return None if sock is None else self._half_closed(sock)

    def _half_closed(self, sock: socket.socket) -> socket.socket | None:
        """The socket of a connection that has ended; None if its descriptor is a stranger's by now."""
        ours = self._hub.is_ours(sock)
        del self._open[sock]
        if not ours:
            sock.detach()
            return None
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_WR)
        return sock

    def _detach_and_close(self, master: int) -> None:
        sock = self.detach(master)
        if sock is not None:
            sock.close()

    def _detach(self, channel: MasterChannel, closing: bool) -> socket.socket | None:
        """Ends the connection of a master.

        Returns its socket, also that of a connection that broke before.
        """
        self._hub.check_descriptors()
        connection = channel.connection
        if connection is not None:
            connection.append_rollbacks(closing)
            self._hub.end_connection(connection, CLOSED)
            connection.send_remaining()
        remains, channel.remains, channel.broken = channel.remains, None, ""
        return None if remains is None else remains.sock

    def close(self, on_socket: Callable[[socket.socket], object] = socket.socket.close) -> None:
        if self._hub.interrupted():
            self._deferred.append(partial(self.close, on_socket))
        else:
            self._call(self._close, on_socket)

    def _close(self, on_socket: Callable[[socket.socket], object]) -> None:
        kick, sockets = self._hub.exclusively(self._detach_all)
        for sock in kick:
            close_own(sock, self._open.pop(sock))
        for sock in sockets:
            if self._half_closed(sock) is not None:
                on_socket(sock)

    def _detach_all(self) -> tuple[Sequence[socket.socket], list[socket.socket]]:
        self._hub.roll_back_undecided()
        sockets = [self._detach(channel, True) for channel in self._hub.channels]
        return self._hub.close_kick(), [sock for sock in sockets if sock is not None]

    def after_fork_in_child(self) -> None:
        while self._open:
            close_copy(*self._open.popitem())
        self._hub.loop.close()
        self._hub.reset(len(self._hub.channels))
        self._deferred.clear()
        self._reported_breaks = 0

    def grow(self, masters: int) -> None:
        if masters > MAX_MASTERS:
            raise ValueError(f"{MAX_MASTERS} masters at most, not {masters}")
        self._hub.locked(self._hub.grow, masters)

    def connection_state(self, master: int) -> ConnectionState:
        return self._hub.locked(self._channel(master).state)

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

    def _call(self, operation: Callable[..., T], *args: object) -> T:
        """Calls an operation of the hub, then reports broken connections and does what was deferred."""
        try:
            return self._hub.safe_points.call(operation, *args)
        finally:
            if self._reported_breaks != (breaks := self._hub.breaks):
                self._reported_breaks = breaks
                self._on_break()
            # The call of a handler inside the engine leaves them to the call that the handler interrupted.
            while self._deferred and not self._hub.interrupted():
                self._call_deferred()

    def _call_deferred(self) -> None:
        """Does what was deferred. Each call ends here, too, and must find no other one: it would recurse."""
        calls, self._deferred = self._deferred, deque()
        try:
            _call_each(calls)
        finally:
            self._deferred.extendleft(reversed(calls))  # the next call goes on, if one raised

    def _refuse(self, waiter: Waiter) -> None:
        """Nothing is sent for a signal handler that interrupted the engine.

        What must arrive is sent afterwards.
        """
        waiter.undecided = len(waiter.requests)
        for pending in waiter.requests:
            for master in range(len(pending.values)):
                pending.count(master, FAULT, INSIDE)
            pending.decide()
            if pending.request.resend_for:
                self._deferred.append(partial(self.exchange, [pending.request], 0, 0.0))


def _call_each(calls: deque[Callable[[], object]]) -> None:
    while calls:
        calls.popleft()()


def _connection(channel: MasterChannel, sock: socket.socket, dialect: Dialect) -> Connection:
    kind = TlsConnection if hasattr(sock, "handshake") else Connection
    return kind(channel, sock, dialect)


def _close_all(sockets: dict[socket.socket, FileId]) -> None:
    for sock, file in sockets.items():
        close_own(sock, file)
