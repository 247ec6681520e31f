"""The pure-Python engine, for where no compiler was."""

from __future__ import annotations

import contextlib
import os
import select
import socket
from collections.abc import Callable
from time import monotonic

from ...wire.commands import Dialect
from ..contract import ConnectionState
from .connection import Connection, Lane
from .submission import Desk

CLOSED = "connection closed by the client"


class PureEngine(Desk):
    """One ordered connection per master, shared by all threads, in Python: how they come and go."""

    def attach(self, master: int, sock: socket.socket, dialect: Dialect) -> None:
        lane = self._lane(master)

        def attach() -> None:
            if lane.connection is not None or lane.remains is not None:
                raise ValueError(f"master {master} has a connection: detach it first")
            connection = _connect(lane, sock, dialect)
            self._by_fd[connection.fd] = connection
            self._open.add(sock)
            if self._watch is not None:
                self._watch.add(connection.fd)
            if self._kick is None:
                self._kick = _new_kick()
                self._open.update(self._kick)
            lane.resume()
            lane.replay(connection, monotonic())
            lane.connection = connection
            self._poller = self._new_poller()
            self._work(connection, select.POLLIN, monotonic())
            self._flush()
            self._vigils.end()

        self._alone(attach)

    def detach(self, master: int) -> socket.socket | None:
        lane = self._lane(master)
        ended: list[Connection | None] = []

        def detach() -> None:
            connection = lane.connection
            if connection is not None:
                self._end(connection, CLOSED)
                connection.undo(closing=False)
                self._bury()
            ended.append(lane.remains)
            lane.remains, lane.broken = None, ""

        self._alone(detach)
        if ended[0] is None:
            return None
        sock = ended[0].sock
        _half_close(sock)
        self._open.discard(sock)
        return sock

    def close(self, on_socket: Callable[[socket.socket], object] = socket.socket.close) -> None:
        ended: list[socket.socket] = []
        kick: list[socket.socket] = []

        def close() -> None:
            self._call_off()
            for lane in self._lanes:
                connection = lane.connection
                if connection is not None:
                    self._end(connection, CLOSED)
                    connection.undo(closing=True)
            self._bury()
            for lane in self._lanes:
                if lane.remains is not None:
                    ended.append(lane.remains.sock)
                lane.remains, lane.broken = None, ""
            kick.extend(self._kick or ())
            self._kick = None
            self._poller = self._new_poller()

        self._alone(close)
        for sock in kick:
            sock.close()
        for sock in ended:
            _half_close(sock)
            self._open.discard(sock)
            on_socket(sock)

    def _call_off(self) -> None:
        """What is under way will fail: its undo goes also to those that have granted it."""
        up = [lane.connection for lane in self._lanes if lane.connection is not None]
        owed = {op for connection in up for op, *_ in connection.line[connection.head : connection.tail]}
        for op in owed:
            for connection in up:
                if not op.decided and op.granted < op.need and op.values[connection.lane.index] > 0:
                    connection.take_back(op)

    def after_fork_in_child(self) -> None:
        while self._open:
            fd = self._open.pop().detach()
            if fd >= 0:
                os.close(fd)
        self.close_loop_fd()
        self._reset()

    def connection_state(self, master: int) -> ConnectionState:
        return self._lane(master).state()

    def _lane(self, master: int) -> Lane:
        if not 0 <= master < self._masters:
            raise IndexError(f"master {master} of {self._masters}")
        return self._lanes[master]


def _connect(lane: Lane, sock: socket.socket, dialect: Dialect) -> Connection:
    if hasattr(sock, "pending"):
        from .tls import TlsConnection

        return TlsConnection(lane, sock, dialect)
    return Connection(lane, sock, dialect)


def _new_kick() -> tuple[socket.socket, socket.socket]:
    """Sockets to read from and to write to, for a newcomer to wake the leader."""
    kick = socket.socketpair()
    for end in kick:
        end.setblocking(False)
    return kick


def _half_close(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_WR)
