"""The connector: it connects the masters of one client, notices what breaks, and connects again.

Callers never connect. One connector thread per client looks after all masters; while a master is
being dialled there is one short-lived thread for it, so that a hung one delays no other.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
import weakref
from collections.abc import Callable, Sequence

from ._dial import dial
from ._engine import Engine
from ._guard import Electorate, Guard
from ._interview import CannotConnect, Server
from ._ledger import Ledger
from ._linger import Lingering
from ._seat import Seat
from ._target import Target
from .telemetry import EventLog, log_error

#: Seconds between two looks at the connections while replies are owed, and otherwise.
BUSY_TICK, IDLE_TICK = 0.1, 1.0


class Connector(Ledger):
    """The masters' seats, the engine that serves them, and who sits where."""

    def __init__(
        self,
        targets: Sequence[Target],
        engine_class: type[Engine],
        *,
        connect_timeout: float,
        socket_timeout: float,
        key_prefix: bytes,
        guard: Guard,
        electorate: Electorate,
        wait: str,
    ) -> None:
        super().__init__()
        self.misconfigured = ""
        self.guard = guard
        self.electorate = electorate
        self.wait = wait
        self.events = EventLog()
        self._engine_class = engine_class
        self._connect_timeout = connect_timeout
        self._socket_timeout = socket_timeout
        self._key_prefix = key_prefix
        self.seats = [Seat(target) for target in targets]
        #: Called from any thread when a master connected or failed to, on close(), and now and then while
        #: something is held: an event loop's.
        self.on_change: Callable[[], None] = nothing
        self._begin()

    def _begin(self) -> None:
        """In a new process."""
        self._change = threading.Condition()
        # SimpleQueue.put may be called anywhere: in signal handlers, finalizers and callbacks.
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._idle = False  # the connector sleeps for long
        self._next_prune = 0.0
        self._thread: threading.Thread | None = None
        self._lingering = Lingering(len(self.seats))
        self.engine = self._engine_class(len(self.seats), _waker(self._wake))
        weakref.finalize(self, self._wake.put, None).atexit = False  # a forgotten client's thread ends

    def prune(self) -> None:
        """Now and then: forget what is over."""

    def abandon(self) -> None:
        """In a child of fork, which has none of the parent's threads, connections or locks."""
        self.generation += 1
        self.open()
        self.on_change = nothing
        engine, lingering = self.engine, self._lingering
        now = time.monotonic()
        self.seats = [seat.heir(now) for seat in self.seats]
        self._begin()
        engine.abandon()
        lingering.abandon()

    def start(self) -> None:
        """Begin to connect in the background; does nothing the second time."""
        with self._change:
            if self._thread is None and not self.closed:
                self._thread = threading.Thread(
                    target=_connector, args=(weakref.ref(self), self._wake), name="redlock-fast-connector"
                )
                self._thread.daemon = True
                self._thread.start()

    def attend(self) -> None:
        """Replies may come that no caller waits for: let the connector look soon."""
        if self._idle:
            self._idle = False
            self._wake.put(None)

    def names(self) -> list[str]:
        return [seat.target.name for seat in self.seats]

    def connected(self) -> int:
        return sum(seat.attached for seat in self.seats)

    def _connecting(self) -> bool:
        """Whether a master is being connected for the first time."""
        return not all(seat.attached or seat.failures for seat in self.seats)

    # --- a look at all of them ---

    def look_after(self) -> float:
        """One round over all masters. Returns in how many seconds to look again."""
        self.engine.tend()
        now = time.monotonic()
        busy = False
        due = now + IDLE_TICK
        for master, seat in enumerate(self.seats):
            if seat.attached:
                busy |= self._check(master, seat)
            if seat.guarded_until:
                due = min(due, self._end_guard(seat, now))
            if not seat.attached and not seat.dialling:
                if seat.next_try <= now:
                    self._dial_in_background(master)
                else:
                    due = min(due, seat.next_try)
        self._lingering.reap(now)
        if now >= self._next_prune:
            self._next_prune = now + IDLE_TICK
            self.prune()
        self._idle = not (busy or self._lingering)
        return max(0.0, min(due - now, IDLE_TICK if self._idle else BUSY_TICK))

    def _check(self, master: int, seat: Seat) -> bool:
        """Let go of a broken or hopelessly lagging connection. True: replies are owed."""
        link = self.engine.link(master)
        if link.broken:
            self._fail(master, link.broken)
        elif link.lag > self._socket_timeout:
            self._fail(master, f"no reply for {link.lag:.1f} s")
        return link.owed > 0

    def _fail(self, master: int, why: str) -> None:
        seat = self.seats[master]
        self.events.warn("master-lost", seat.target.name, why)
        self._retire(master, why)

    def _retire(self, master: int, why: str) -> None:
        sock = self.engine.detach(master)
        if sock is not None:
            self._lingering.add(sock)
        with self._change:
            seat = self.seats[master]
            seat.lost_at = time.monotonic() if seat.attached else seat.lost_at
            seat.attached = False
            seat.fail(why, 1)

    # --- connecting one ---

    def _dial_in_background(self, master: int) -> None:
        self.seats[master].dialling = True
        threading.Thread(
            target=self._dial, args=(master, self.generation), name="redlock-fast-dial", daemon=True
        ).start()

    def _dial(self, master: int, generation: int) -> None:
        seat = self.seats[master]
        try:
            sock, server, dialect = dial(
                seat.target,
                self._connect_timeout,
                self._key_prefix,
                self.guard,
                known=seat.known,
                push=self.wait != "poll",
            )
        except CannotConnect as error:
            with self._change:
                seat.fail(str(error), seat.failures + 1)
                seat.dialling = False
                self._changed()
            self.events.warn("master-unreachable", seat.target.name, str(error))
        else:
            with self._change:
                if self.closed or generation != self.generation:
                    sock.close()
                    return
                twin = self._twin(seat, server)
                if twin:
                    sock.close()
                    self._refuse(seat, f"it is the same server as {twin}, which has one vote")
                    return
                if self.wait == "push" and not server.can.push:
                    sock.close()
                    self._refuse(seat, "wait='push' needs RESP3 and CLIENT TRACKING there; use wait='auto'")
                    return
                seat.admit(server, self.guard, time.monotonic())
                self._check_configuration()
                self._elect()  # before anybody can ask it
                self.engine.attach(master, sock, dialect)
                seat.failures = 0
                seat.connections += 1
                seat.error = ""
                seat.attached = True  # before dialling ends: else it could be dialled twice
                seat.dialling = False
                self._changed()
            seat.introduce(self.events, self.guard)
        self._wake.put(None)

    def _twin(self, seat: Seat, server: Server) -> str:
        """The name of another seat that the same process sits on, or ""."""
        others = (other for other in self.seats if other.attached and other is not seat)
        return next((o.target.name for o in others if o.server.run_id == server.run_id != ""), "")

    def _refuse(self, seat: Seat, why: str) -> None:
        seat.fail(why, seat.failures + 1)
        seat.dialling = False
        if not seat.known:  # it was never otherwise: not a master's trouble, but the configuration's
            seat.refused = f"masters: {seat.target.name}: {why}"
            self._check_configuration()
        self._changed()

    def _check_configuration(self) -> None:
        """It is at fault as long as a seat is refused for it: until that one is admitted."""
        self.misconfigured = next((seat.refused for seat in self.seats if seat.refused), "")
        if self.misconfigured:
            self.ready = False

    def _elect(self) -> None:
        self.electorate.mask = sum(1 << n for n, seat in enumerate(self.seats) if not seat.guarded_until)
        self.electorate.pushing = all(seat.server.can.push for seat in self.seats if seat.known)

    def _end_guard(self, seat: Seat, now: float) -> float:
        """When its guard ends, or ended."""
        end = seat.guarded_until
        if end <= now:
            with self._change:
                seat.guarded_until = 0.0
                self._elect()
            self.events.info("master-trusted", seat.target.name, "its restart guard has ended")
        return end

    def _changed(self) -> None:
        self._change.notify_all()
        self.on_change()


def nothing() -> None:
    pass


def _waker(wake: queue.SimpleQueue[None]) -> Callable[[], None]:
    def on_break() -> None:
        wake.put(None)

    return on_break


def _connector(masters: weakref.ref[Connector], wake: queue.SimpleQueue[None]) -> None:
    """The connector thread: ends when its client is closed or forgotten."""
    while True:
        alive = masters()
        if alive is None or alive.closed:
            return
        try:
            pause = alive.look_after()
        except Exception:  # a client without its connector would never recover
            log_error("connector-error")
            pause = IDLE_TICK
        del alive
        with contextlib.suppress(queue.Empty):
            wake.get(timeout=pause)
            while True:
                wake.get_nowait()
