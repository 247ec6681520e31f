"""The masters of one client: connecting, reconnecting, what is known of each.

Callers never connect. One connector thread per client looks after all masters; while a master is
being dialled there is one short-lived thread for it, so that a hung one delays no other.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Protocol

from ._clock import Clock
from ._dial import dial
from ._engine import FAULT, Engine, Votes
from ._guard import Electorate, Guard
from ._interview import CannotConnect, Server
from ._line import Line, Place
from ._linger import Lingering
from ._places import Places
from ._seat import SKIPPED, MasterHealth, Seat, fault_cause, fault_text
from ._target import Target
from .errors import ClientClosed, ConfigError
from .telemetry import EventLog, log_error

#: Seconds between two looks at the connections while replies are owed, and otherwise.
BUSY_TICK, IDLE_TICK = 0.1, 1.0
#: How long (seconds) the first call waits for more masters than a quorum.
GRACE = 0.05


class Lasting(Protocol):
    """Something that ends by the lease clock."""

    deadline: float


class Masters:
    """All masters of a client and the engine that serves them."""

    def __init__(
        self,
        targets: Sequence[Target],
        need: int,
        engine_class: type[Engine],
        *,
        connect_timeout: float,
        socket_timeout: float,
        key_prefix: bytes,
        guard: Guard,
        electorate: Electorate,
        line: Line,
        places: Places,
        wait: str,
        clock: Clock,
        release_at_exit: bool,
    ) -> None:
        self.need = need
        self.closed = False
        self.ending = False  # with the interpreter
        self.misconfigured = ""
        self.guard = guard
        self.electorate = electorate
        self.line = line
        self.places = places
        self.wait = wait
        self.clock = clock
        self.release_at_exit = release_at_exit
        self.events = EventLog()
        self._engine_class = engine_class
        self._connect_timeout = connect_timeout
        self._socket_timeout = socket_timeout
        self._key_prefix = key_prefix
        self.seats = [Seat(target) for target in targets]
        #: One for each process: what a parent of fork held is not the child's.
        self.generation = 0
        #: Called from any thread when a master connected or failed to, on close(), and now and then while
        #: something is held: an event loop's.
        self.on_change: Callable[[], None] = nothing
        self._begin()
        _all_masters.add(self)

    def _begin(self) -> None:
        self.ready = False  # a first quorum was there, or was waited for
        #: What is held; also what nobody refers to any more, until its lease has ended.
        self.held: set[Lasting] = set()
        self._next_prune = 0.0
        #: Guards the client's counters and what its locks hold: for a few instructions, never across
        #: I/O. Reentrant: a signal handler may use the client while its own thread is inside.
        self.mutex = threading.RLock()
        self._change = threading.Condition()
        # SimpleQueue.put may be called anywhere: in signal handlers, finalizers and callbacks.
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._idle = False  # the connector sleeps for long
        self._thread: threading.Thread | None = None
        self._lingering = Lingering(len(self.seats))
        self.engine = self._engine_class(len(self.seats), _waker(self._wake))
        weakref.finalize(self, self._wake.put, None).atexit = False  # a forgotten client's thread ends

    def names(self) -> list[str]:
        return [seat.target.name for seat in self.seats]

    # --- what callers use ---

    def start(self) -> None:
        """Begin to connect in the background; does nothing the second time."""
        with self._change:
            if self._thread is None and not self.closed:
                self._thread = threading.Thread(
                    target=_connector, args=(weakref.ref(self), self._wake), name="redlock-fast-connector"
                )
                self._thread.daemon = True
                self._thread.start()

    def wait_for_quorum(self, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds for a quorum of connections; remembers that it was waited for."""
        self.start()
        with self._change:
            for condition, seconds in self.quorum(timeout):
                self._change.wait_for(condition, seconds)
        return self.joined()

    def quorum(self, timeout: float) -> Sequence[tuple[Callable[[], bool], float]]:
        """What to wait for, one after the other, and for how many seconds; then say ``joined``."""
        return (
            (lambda: self._in_vain() or self.connected() >= self.need, timeout),
            # A lease on a bare quorum is lost with the first master: give the others a moment.
            (lambda: self._in_vain() or not self._connecting(), min(timeout, GRACE)),
        )

    def joined(self) -> bool:
        """A first quorum was waited for; whether it is there."""
        self.ready = not self.misconfigured
        return self.connected() >= self.need and not self.closed

    def _in_vain(self) -> bool:
        """Whether there is nothing to wait for: closed, or misconfigured."""
        return self.closed or bool(self.misconfigured)

    def _connecting(self) -> bool:
        """Whether a master is being connected for the first time."""
        return not all(seat.attached or seat.failures for seat in self.seats)

    def attend(self) -> None:
        """Replies may come that no caller waits for: let the connector look soon."""
        if self._idle:
            self._idle = False
            self._wake.put(None)

    def check_open(self) -> None:
        if self.closed:
            raise ClientClosed("this client was closed; make a new one")
        if self.misconfigured:
            raise ConfigError(self.misconfigured)

    def hold(self, lease: Lasting) -> None:
        """Granted: while there is any, the client is there, also if all have forgotten it."""
        held = self.held
        if not held:
            holders.add(self)
        held.add(lease)

    def let_go(self, lease: Lasting) -> None:
        """Released."""
        held = self.held
        held.discard(lease)
        if not held:
            holders.discard(self)

    def pause(self, seconds: float) -> None:
        """Sleep; raises ClientClosed as soon as the client is closed."""
        with self._change:
            self._change.wait_for(lambda: self.closed, seconds)
        self.check_open()

    def wait_for_turn(self, place: Place, seconds: float) -> None:
        """Wait until it is the first; raises ClientClosed as soon as the client is closed."""
        turn = threading.Event()
        place.stand.wake = turn.set
        if not place.first and not self.closed:
            turn.wait(min(seconds, threading.TIMEOUT_MAX))
        self.check_open()

    def connected(self) -> int:
        return sum(seat.attached for seat in self.seats)

    def note_faults(self, votes: Votes) -> None:
        """Count and log, rarely, what was wrong with masters in one exchange."""
        for master, detail in votes.details.items():
            if detail == "not asked":
                continue
            seat = self.seats[master]
            if detail in SKIPPED:
                seat.skipped[str(detail)] += 1
                continue
            seat.causes[fault_cause(detail)] += 1
            seat.error = fault_text(detail)
            self.events.warn("master-fault", seat.target.name, seat.error)

    def cause(self, master: int, votes: Votes) -> str:
        """Why this master did not vote in that exchange."""
        if votes.values[master] != FAULT:
            return "no reply in time"
        text = fault_text(votes.details.get(master, "failed"))
        seat = self.seats[master]
        if text == "not asked" and seat.guard():
            return f"it may have forgotten locks: no vote for {seat.guard():.1f} s more (restart_guard)"
        error = seat.error
        return f"{text}: {error}" if text == "not connected" and error else text

    def health(self) -> list[MasterHealth]:
        return [seat.health(self.engine.link(master)) for master, seat in enumerate(self.seats)]

    def close(self, timeout: float = 1.0) -> None:
        """Give back what those keep that wait, and close everything.

        ``timeout``: how many seconds to wait for each: what is under way, the connector, owed replies.
        """
        with self._change:
            if self.closed:
                return
            self.closed = True
            self._changed()
            thread = self._thread
        self.line.wake_all()
        self._wake.put(None)
        self._give_back(timeout)
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)
        self.engine.drain(timeout)
        self.engine.close()  # all at once: what others have under way is taken back
        for master in range(len(self.seats)):
            self._retire(master, "closed")
        self.held.clear()
        holders.discard(self)
        self._lingering.close()

    def _give_back(self, timeout: float) -> None:
        """The places of those that wait, which nobody else should have to wait for."""
        undo = self.places.close()
        if undo:
            self.engine.exchange(undo, 0, 0.0)
        self.places.wait_for_rounds(timeout)

    # --- the connector ---

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
            self._prune()
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

    def _prune(self) -> None:
        """Forget leases that have ended and that nobody let go of."""
        now = self.clock()
        for lease in list(self.held):
            if lease.deadline < now:
                self.held.discard(lease)
        if self.held:
            holders.add(self)
            self.on_change()  # what an event loop left behind must not live as long as the leases
        else:
            holders.discard(self)

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
                self.misconfigured = ""  # a seat that is still refused will say so again
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
            self.misconfigured = f"masters: {seat.target.name}: {why}"
            self.ready = False
        self._changed()

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

    def _after_fork(self) -> None:
        """The child has none of the parent's threads, connections or locks."""
        self.generation += 1
        self.line.abandon()
        self.places.abandon()
        self.on_change = nothing
        engine, lingering = self.engine, self._lingering
        now = time.monotonic()
        self.seats = [seat.heir(now) for seat in self.seats]
        self._begin()
        engine.abandon()
        lingering.abandon()


def nothing() -> None:
    pass


def _waker(wake: queue.SimpleQueue[None]) -> Callable[[], None]:
    def on_break() -> None:
        wake.put(None)

    return on_break


def _connector(masters: weakref.ref[Masters], wake: queue.SimpleQueue[None]) -> None:
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


#: The clients that hold something.
holders: set[Masters] = set()

_all_masters: weakref.WeakSet[Masters] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for masters in list(_all_masters):
        try:
            masters._after_fork()
        except Exception:  # one client's trouble must not leave the others with their parent's connections
            log_error("fork-error")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
