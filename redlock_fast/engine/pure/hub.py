"""The hub of the pure-Python engine: who leads, and what the leader does. The twin of src/hub.c.

Threads put requests on the masters' lines and wait. One of them leads: it sends everybody's bytes, polls,
receives, matches replies to requests, wakes those whose requests are decided, and hands the lead on.
Nothing is locked: what is shared changes in single steps (see ``engine/pure/requests.py``), and all else
belongs to who leads. Whenever nobody leads, somebody who waits has been rung; each slice of waiting ends
with a look, for when a signal handler raised just there.
"""

from __future__ import annotations

import contextlib
import select
import socket
import weakref
from collections.abc import Callable
from time import monotonic

from ...wire.resp import ProtocolError
from ...wire.text import clean
from ..contract import LAG_AFTER, MAX_BUFFER, MAX_MASTERS, MAX_OWED, MAX_REPLAY, PROTOCOL_ERROR
from .connection import Connection, Lane
from .poller import Watch
from .requests import Lead, Waiter, new_bell
from .watches import Vigils

#: While replies are expected within this (seconds), newcomers need not interrupt the leader.
EXPECT_WITHIN = 0.001
#: No wait is longer than this without a look around.
SLICE = 0.05
#: On the lookout, so long after somebody led: where many are busy, they see what comes by themselves.
PAUSE = 0.001
#: How often a leader looks for lagging masters at least.
LOOK_EVERY = 0.01


class Hub:
    """The connections of one engine, and the threads that wait for what comes from them."""

    def __init__(
        self,
        masters: int,
        on_break: Callable[[], None],
        *,
        max_owed: int = MAX_OWED,
        max_buffer: int = MAX_BUFFER,
        max_replay: int = MAX_REPLAY,
        lag_after: float = LAG_AFTER,
    ) -> None:
        if not 1 <= masters <= MAX_MASTERS:
            raise ValueError(f"1 to {MAX_MASTERS} masters, not {masters}")
        self._masters = masters
        self._on_break = on_break
        self._bounds = (max_owed, max_buffer, max_replay)
        self._lag_after = lag_after
        #: All sockets that are this engine's: a forgotten engine lets go of them without a warning.
        self._open: set[socket.socket] = set()
        weakref.finalize(self, _close_all, self._open).atexit = False
        self._reset()

    def _reset(self) -> None:
        self._vigils = Vigils()
        self._lanes = tuple(
            Lane(index, self._bounds, self._lag_after, self._vigils) for index in range(self._masters)
        )
        self._by_fd: dict[int, Connection] = {}
        self._lead = Lead()
        self._kick: tuple[socket.socket, socket.socket] | None = None
        self._poller = select.poll()
        self._dead: list[Connection] = []  # whose requests have to be failed
        self._breaks = 0  # not yet told
        self._news = False  # requests on a line, or something kept, that the leader has not seen
        self._flushes = 0  # how often it has looked
        self._torn = False  # something was raised in the middle of leading
        self._expecting = self._kicked = False
        self._polled = self._look_at = 0.0
        self._watch: Watch | None = None  # of an event loop

    # --- leading and waiting -----------------------------------------------------------------

    def maintain(self) -> None:
        me = Waiter(0, brief=True)

        def maintain() -> None:
            if self._claim(me):
                self._flush()
                self._poll(0.0)

        now = monotonic()
        if [lane for lane in self._lanes if lane.connection and lane.retry(now)]:
            self._news = True
            self._kick_leader()
        if not self._lead.holder:
            self._run(me, maintain)

    def _run(self, me: Waiter, body: Callable[[], None]) -> None:
        """Do something that may lead, and whatever happens then leave."""
        try:
            body()
            self._leave(me)
        except BaseException:
            # What a signal handler raises comes anywhere, in leaving too: leave again. Who leads
            # next has to look at everything.
            self._torn = self._news = True
            self._leave(me)
            raise

    def _alone(self, body: Callable[[], None]) -> None:
        """Do something as the leader: no other thread touches a connection meanwhile."""
        me = Waiter(1, brief=True, urgent=True)
        me.bell = bell = new_bell()

        def seize() -> None:
            self._lead.urgent[me] = None
            while not self._claim(me):
                self._kick_leader()
                bell.acquire(True, SLICE)
            body()

        self._run(me, seize)
        self._sweep()

    def _hand_over(self, deadline: float) -> None:
        """See to it that requests are sent for which nobody waits."""
        leader, flushes = self._lead.holder.get(None), self._flushes
        me = Waiter(1, brief=True)
        me.limit = deadline
        if leader is None or leader.brief or leader.thread == me.thread:
            self._run(me, lambda: self._wait(me, lambda: not self._news or self._flushes != flushes))
        else:
            self._kick_leader()

    def _sweep(self) -> None:
        """The same, where they were left to a leader that has left. It may be me."""
        if self._news and self._lead.unclaimed():
            self.maintain()

    def _wait(self, me: Waiter, done: Callable[[], bool]) -> None:
        """Lead, or wait to be rung by who leads, until ``done()`` or I am due."""
        while True:
            if self._claim(me):
                if self._serve(me, done):
                    return
                self._release(me)
            now = monotonic()
            if done() or now >= me.due():
                return
            if me.bell is None:
                # Then look again: whoever led may have left without seeing me.
                me.bell = new_bell()
                self._lead.waiters[me] = None
            else:
                self._kick_leader()
                me.bell.acquire(True, min(SLICE, me.due() - now))

    def _serve(self, me: Waiter, done: Callable[[], bool]) -> bool:
        """Lead until ``done()`` or I am due; False if somebody urgent wants the lead."""
        now = 0.0
        while True:
            if self._news:
                self._flush()
            if done():
                if me.brief:  # else nobody might read, while none but such requests are made
                    self._poll(0.0)
                return True
            if self._lead.urgent and me.outer is None:
                return False
            if self._expecting and not any(lane.prompt() for lane in self._lanes):
                self._expecting = False
            wait = EXPECT_WITHIN if self._expecting else SLICE
            if self._news:  # from those who saw me expecting, and so did not kick
                wait = 0.0
            now = self._poll(max(0.0, min(wait, me.due() - (now or monotonic()))))
            if done() or now >= me.due():
                return True

    def _look_out(self, me: Waiter, done: Callable[[], bool]) -> None:
        """Wait without the lead, until ``done()``: whoever has more haste takes it at any time.

        One of those that wait so watches the connections, and leads when something came. As long as others
        lead again and again they see what comes; then it only looks now and then whether they still do.
        """
        me.bell = bell = new_bell()
        self._lead.watchers[me] = None
        while not done():
            now = monotonic()
            wait = min(SLICE, me.expire(now) - now)
            if wait <= 0:
                continue
            led = bool(self._lead.holder or self._lead.urgent)
            if self._news and led:
                self._kick_leader()
            if self._news and not led:
                self._lead_once(me)
            elif not self._lead.keep_lookout(me):
                bell.acquire(True, wait)
            elif led or me.seen != self._lead.count:
                me.seen = self._lead.count
                bell.acquire(True, min(PAUSE, wait))
            else:
                self._see(me, wait, done)

    def _see(self, me: Waiter, wait: float, done: Callable[[], bool]) -> None:
        poller = self._new_poller()
        me.kick = self._kick[1] if self._kick is not None else None
        if not done():  # else nobody may have kicked
            poller.poll(wait * 1000)
        me.kick = None
        self._lead_once(me)

    def _lead_once(self, me: Waiter) -> None:
        if self._claim(me):
            self._flush()
            self._poll(0.0)
        self._release(me)
        me.seen = self._lead.count

    def _claim(self, me: Waiter) -> bool:
        if not self._lead.claim(me):
            return False
        self._kicked = False
        if me.outer is not None:
            # The frame that a signal handler interrupted may be in the middle of poll(), or of anything.
            self._poller = self._new_poller()
            for connection in self._by_fd.values():
                if connection.busy:
                    self._poller.unregister(connection.fd)
            self._news = True
        elif self._torn:
            self._mend()
        return True

    def _release(self, me: Waiter) -> None:
        """Give the lead up, if I have it, and first of all see to it that somebody takes it."""
        if self._lead.holder.get(None) is me:
            if me.outer is not None:
                self._poller = self._new_poller()
                self._news = self._expecting = True
            self._lead.give_up(me)
        self._lead.pass_on()
        if self._breaks:
            self._tell()

    def _leave(self, me: Waiter) -> None:
        self._lead.forget(me)
        self._release(me)

    def _mend(self) -> None:
        """Something was raised in the middle of leading: make good what it may have cut short."""
        self._torn = False
        self._news = True
        for lane in self._lanes:
            if lane.connection is not None and lane.connection.busy:
                self._break(lane.connection, ConnectionError("interrupted by a signal handler"))
        self._poller = self._new_poller()

    def _kick_leader(self) -> None:
        """Wake it, if it is not about to look anyway."""
        if self._lead.holder and not self._expecting and not self._kicked and self._kick is not None:
            self._kicked = True
            with contextlib.suppress(OSError):
                self._kick[1].send(b"!")

    # --- what the leader does ----------------------------------------------------------------

    def _flush(self) -> None:
        """Send what is new."""
        self._news = False
        self._flushes += 1
        if self._dead:
            self._bury()
        for lane in self._lanes:
            connection = lane.connection
            if connection is None or connection.busy:
                continue
            if lane.kept:
                lane.replay(connection, monotonic())
            if connection.tail < len(connection.line):
                connection.take()
                if not connection.lagging:
                    self._expecting = True
            if connection.out and not connection.blocked:
                self._send(connection)
            if connection.incoming:  # half a reply, or what who read it was kept from matching
                self._work(connection, select.POLLIN, monotonic())

    def _send(self, connection: Connection) -> None:
        blocked = connection.blocked
        try:
            connection.send()
        except OSError as error:
            self._break(connection, error)
        else:
            if connection.blocked is not blocked:
                self._register(self._poller, connection)
                if self._watch is not None:
                    self._watch.output(connection.fd, connection.blocked)

    def _poll(self, timeout: float) -> float:
        """Wait for something to come, and see to it. Returns the time."""
        events = self._poller.poll(timeout * 1000)
        now = monotonic()
        for fd, event in events:
            connection = self._by_fd.get(fd)
            if connection is None:
                self._read_kick()
            elif connection.lane.connection is not connection:
                self._forget(connection)
            elif not connection.busy:
                self._work(connection, event, now)
        if not events:
            self._expecting = False
        if not events or now >= self._look_at:
            self._look_at = now + LOOK_EVERY
            for fd in {*self._by_fd}.difference(fd for fd, _ in events):
                if (silent := self._by_fd.get(fd)) is not None:
                    silent.lag(now)
        self._polled = now
        if self._breaks:
            self._tell()
        return now

    def _work(self, connection: Connection, event: int, now: float) -> None:
        """Read what is there; and if it takes bytes again, send."""
        if event & select.POLLOUT:
            self._send(connection)
        try:
            connection.receive(now, self._polled)
            # There may be room again for what is kept; or a reply may ask for another request.
            if not connection.match():
                connection.lag(now)
            elif connection.lane.kept or connection.tail < len(connection.line):
                self._news = True
        except (OSError, ProtocolError) as error:
            self._break(connection, error)

    def _read_kick(self) -> None:
        if self._kick is not None:
            with contextlib.suppress(OSError):
                self._kick[0].recv(64)
        self._kicked = False

    def _break(self, connection: Connection, error: Exception) -> None:
        why = clean(getattr(error, "strerror", None) or str(error))
        if isinstance(error, ProtocolError):
            why = f"{PROTOCOL_ERROR}: {why}"
        if connection.lane.connection is connection:
            self._end(connection, why, broken=True)
            self._bury()

    def _end(self, connection: Connection, why: str, broken: bool = False) -> None:
        lane = connection.lane
        connection.why = why  # together
        lane.connection, lane.remains = None, connection
        lane.broken = why if broken else ""
        self._breaks += broken
        self._dead += [connection]
        self._forget(connection)

    def _forget(self, connection: Connection) -> None:
        self._by_fd.pop(connection.fd, None)
        with contextlib.suppress(KeyError):
            self._poller.unregister(connection.fd)
        if self._watch is not None:
            self._watch.remove(connection.fd)

    def _bury(self) -> None:
        """Fail what ended connections owe. First all of it, then the decisions."""
        for connection in self._dead[:]:
            connection.condemn()
        while self._dead:
            connection = self._dead[0]
            connection.fail(monotonic())
            if self._dead and self._dead[0] is connection:
                del self._dead[0]

    def _tell(self) -> None:
        while self._breaks > 0:
            self._breaks -= 1
            try:
                self._on_break()
            except BaseException:
                self._breaks += 1
                raise

    def _new_poller(self) -> select.poll:
        poller = select.poll()
        if self._kick is not None:
            poller.register(self._kick[0], select.POLLIN)
        for lane in self._lanes:
            if lane.connection is not None:
                self._register(poller, lane.connection)
        return poller

    def _register(self, poller: select.poll, connection: Connection) -> None:
        events = select.POLLIN | select.POLLOUT if connection.blocked else select.POLLIN
        poller.register(connection.fd, events)


def _close_all(sockets: set[socket.socket]) -> None:
    for sock in sockets:
        sock.close()
