"""The pure-Python engine, for where no compiler was."""

from __future__ import annotations

import contextlib
import os
import select
import socket
from collections.abc import Sequence
from time import monotonic

from ._commands import Dialect
from ._engine import Link, Request, Votes, Wait
from ._pure_hub import SLICE, Hub
from ._pure_link import Connection, Lane, Slot
from ._pure_op import Op, Template, Waiter

CLOSED = "connection closed by the client"


class PureEngine(Hub):
    """One ordered connection per master, shared by all threads, in Python."""

    # --- connections -------------------------------------------------------------------------

    def attach(self, master: int, sock: socket.socket, dialect: Dialect) -> None:
        lane = self._lane(master)

        def attach() -> None:
            if lane.connection is not None or lane.remains is not None:
                raise ValueError(f"master {master} has a connection: detach it first")
            connection = _connect(lane, sock, dialect)
            self._by_fd[connection.fd] = connection
            if self._kick is None:
                self._kick = _new_kick()
            lane.replay(connection, monotonic())
            lane.connection = connection
            self._poller = self._new_poller()
            self._work(connection, select.POLLIN, monotonic())
            self._flush()

        self._alone(attach)

    def detach(self, master: int, of: int, undo: int) -> socket.socket | None:
        lane = self._lane(master)
        ended: list[Connection | None] = []

        def detach() -> None:
            connection = lane.connection
            if connection is not None:
                self._end(connection, CLOSED)
                connection.undo(of, undo)
                self._bury()
            ended.append(lane.remains)
            lane.remains, lane.broken = None, ""

        self._alone(detach)
        if ended[0] is None:
            return None
        _half_close(ended[0].sock)
        return ended[0].sock

    def close(self) -> None:
        ended: list[socket.socket] = []

        def close() -> None:
            for lane in self._lanes:
                connection = lane.connection
                if connection is not None:
                    self._end(connection, CLOSED)
                    connection.undo(-1, -1)
            self._bury()
            for lane in self._lanes:
                if lane.remains is not None:
                    ended.append(lane.remains.sock)
                lane.remains, lane.broken = None, ""
            ended.extend(self._kick or ())
            self._kick = None
            self._poller = self._new_poller()

        self._alone(close)
        for sock in ended:
            _half_close(sock)
            sock.close()

    def abandon(self) -> None:
        connections = [c for lane in self._lanes for c in (lane.connection, lane.remains) if c is not None]
        for sock in [connection.sock for connection in connections] + list(self._kick or ()):
            fd = sock.detach()
            if fd >= 0:
                os.close(fd)
        self._reset()

    def link(self, master: int) -> Link:
        return self._lane(master).state()

    def _lane(self, master: int) -> Lane:
        if not 0 <= master < self._masters:
            raise IndexError(f"master {master} of {self._masters}")
        return self._lanes[master]

    # --- requests ----------------------------------------------------------------------------

    def exchange(
        self, requests: Sequence[Request], need: int, timeout: float, wait: int = Wait.EARLY
    ) -> list[Votes]:
        now = monotonic()
        me = Waiter(len(requests))
        ops = [Op(request, self._masters, need, wait, me, now + request.keep) for request in requests]
        undecided = ops[:]

        def done() -> bool:
            while undecided and undecided[-1].decided:
                undecided.pop()
            return not undecided

        try:
            for op in ops:
                self._submit(me, op, now)
            self._news = True
            if done():
                self._hand_over(now + SLICE)
            else:
                self._run(me, lambda: self._wait(me, done, now + timeout))
        finally:  # an interrupt too ends the waiting: what comes later is nobody's
            votes = [op.votes() for op in ops]
            self._sweep()
        return votes

    def drain(self, timeout: float) -> bool:
        def done() -> bool:
            return all(lane.idle() for lane in self._lanes)

        me = Waiter(1)
        self._run(me, lambda: self._wait(me, done, monotonic() + timeout))
        self._sweep()
        return done()

    def _submit(self, me: Waiter, op: Op, now: float) -> None:
        """Put the request on the lines of its masters."""
        request = op.request
        targets, lagging = [], []
        for lane in self._lanes:
            connection = lane.connection
            if not request.masters >> lane.index & 1:
                op.fault(lane.index, "not asked")
            elif connection is None:
                self._refuse(op, lane, lane.broken or "not connected", now)
            elif connection.busy and self._lead.interrupted(me):
                self._refuse(op, lane, "in use by what this signal handler interrupted", now)
            elif connection.lagging:
                lagging.append(connection)
            else:
                targets.append(connection)
        if lagging and (request.keep or len(targets) < op.need):
            targets += lagging
        else:
            for connection in lagging:
                op.fault(connection.lane.index, "lagging")
        ready, slots = [], dict[Template, Slot]()
        for connection in targets:
            template = connection.codec[request.verb]
            slot = slots.get(template)
            if slot is None:
                slot = slots[template] = (op, template, template.encode(request.args), now)
            if why := connection.full(len(slot[2])):
                self._refuse(op, connection.lane, why, now)
            else:
                op.sent |= 1 << connection.lane.index
                ready.append((connection, slot))
        op.owing = len(ready)
        op.settle()
        for connection, slot in ready:
            connection.line.append(slot)
            connection.queued += len(slot[2])
            if connection.lane.connection is not connection:  # it ended just now, perhaps before this
                self._dead.append(connection)

    def _refuse(self, op: Op, lane: Lane, why: str, now: float) -> None:
        """It cannot be sent to this master now."""
        op.fault(lane.index, why)
        if op.request.keep:
            lane.keep(op, now)


def _connect(lane: Lane, sock: socket.socket, dialect: Dialect) -> Connection:
    if hasattr(sock, "pending"):
        from ._pure_tls import TlsConnection

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
