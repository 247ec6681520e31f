"""The pure-Python engine: the hub of src/hub.h in Python, for where no compiler was.

Threads put requests on the masters' lines and wait. One of them leads: it sends everybody's
bytes, polls, receives, matches replies to requests, wakes those whose requests are decided, and
hands the lead on. Nothing is locked: what is shared changes in single steps (see ``_pure_op``), and
all else belongs to who leads. Whenever nobody leads, somebody who waits has been rung; each slice
of waiting ends with a look, for when a signal handler raised just there.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
from collections.abc import Callable, Iterator, Sequence
from time import monotonic

from ._commands import Dialect
from ._engine import MAX_BUFFER, MAX_OWED, MAX_REPLAY, Link, Request, Votes, Wait
from ._pure_link import Connection, Lane
from ._pure_op import Op, Waiter
from ._resp import ProtocolError

#: While replies are expected within this (seconds), newcomers need not interrupt the leader.
EXPECT_WITHIN = 0.001
#: No wait is longer than this without a look around.
SLICE = 0.05
#: How often a leader looks for lagging masters at least.
LOOK_EVERY = 0.01

CLOSED = "connection closed by the client"


class PureEngine:
    """One ordered connection per master, shared by all threads, in Python."""

    def __init__(
        self,
        masters: int,
        on_break: Callable[[], None],
        *,
        max_owed: int = MAX_OWED,
        max_buffer: int = MAX_BUFFER,
        max_replay: int = MAX_REPLAY,
    ) -> None:
        self._masters = masters
        self._on_break = on_break
        self._bounds = (max_owed, max_buffer, max_replay)
        self._reset()

    def _reset(self) -> None:
        self._lanes = tuple(Lane(index, self._bounds) for index in range(self._masters))
        self._by_fd: dict[int, Lane] = {}
        self._lead: dict[None, Waiter] = {}  # who leads; a dict, for its setdefault is atomic
        self._waiters: dict[Waiter, None] = {}
        self._urgent: dict[Waiter, None] = {}
        self._kick: tuple[socket.socket, socket.socket] | None = None
        self._poller = select.poll()
        self._dead: list[Connection] = []  # whose requests have to be failed
        self._breaks = 0  # not yet told
        self._news = False  # requests on a line, or something kept, that the leader has not seen
        self._expecting = self._kicked = False
        self._polled = self._look_at = 0.0

    # --- connections -------------------------------------------------------------------------

    def attach(self, master: int, sock: socket.socket, dialect: Dialect) -> None:
        lane = self._lane(master)
        with self._seized() as me:
            if lane.connection or lane.remains:
                raise ValueError(f"master {master} has a connection: detach it first")
            connection = _connection(lane, sock, dialect)
            if self._kick is None:
                self._kick = socket.socketpair()
                for end in self._kick:
                    end.setblocking(False)
                self._poller.register(self._kick[0], select.POLLIN)
            self._by_fd[connection.fd] = lane
            self._poller.register(connection.fd, select.POLLIN)
            lane.replay(connection, monotonic())
            lane.connection = connection
            self._news = True
            self._turn(me, 0.0)

    def detach(self, master: int, of: int, undo: int) -> socket.socket | None:
        lane = self._lane(master)
        with self._seized():
            if lane.connection is not None:
                lane.connection.undo(of, undo)
                self._end(lane.connection, CLOSED)
                self._bury()
            sock = lane.remains.sock if lane.remains is not None else None
            lane.remains, lane.broken = None, ""
        if sock is not None:
            _half_close(sock)
        return sock

    def close(self) -> None:
        with self._seized():
            for lane in self._lanes:
                if lane.connection is not None:
                    lane.connection.undo(-1, -1)
                    self._end(lane.connection, CLOSED)
            self._bury()
            ended = [lane.remains.sock for lane in self._lanes if lane.remains is not None]
            for lane in self._lanes:
                lane.remains, lane.broken = None, ""
            if self._kick is not None:
                self._poller.unregister(self._kick[0])
                ended += self._kick
                self._kick = None
        for sock in ended:
            _half_close(sock)
            sock.close()

    def abandon(self) -> None:
        for lane in self._lanes:
            for connection in (lane.connection, lane.remains):
                if connection is not None:
                    _close_copy(connection.sock)
        for end in self._kick or ():
            _close_copy(end)
        self._reset()

    def link(self, master: int) -> Link:
        return self._lane(master).state()

    # --- requests ----------------------------------------------------------------------------

    def exchange(
        self, requests: Sequence[Request], need: int, timeout: float, wait: int = Wait.EARLY
    ) -> list[Votes]:
        now = monotonic()
        me = Waiter(len(requests))
        ops = [Op(request, self._masters, need, wait, me, now + request.keep) for request in requests]
        try:
            for op in ops:
                self._submit(op, now)
            self._news = True
            undecided = ops if len(ops) > 1 else ops[:]

            def done() -> bool:
                while undecided and undecided[-1].decided:
                    undecided.pop()
                return not undecided

            if done():
                self._flush_soon()
            else:
                self._wait(me, done, now + timeout)
        finally:
            votes = [op.votes() for op in ops]
        return votes

    def tend(self) -> None:
        if not self._lead:
            me = Waiter(0)
            try:
                if self._claim(me):
                    self._turn(me, 0.0)
            finally:
                self._leave(me)

    def drain(self, timeout: float) -> bool:
        def done() -> bool:
            return not any(self._due(lane) for lane in self._lanes)

        self._wait(Waiter(1), done, monotonic() + timeout)
        return done()

    @staticmethod
    def _due(lane: Lane) -> bool:
        connection = lane.connection
        return connection is not None and not connection.lagging and (connection.owed() > 0 or connection.out != b"")
