"""The connector: it connects the masters of one client, notices what breaks, and connects again.

Callers never connect. One connector thread per client looks after all masters; while a master is
being dialled there is one short-lived thread for it, so that a hung one delays no other.
"""

from __future__ import annotations

import contextlib
import math
import os
import queue
import threading
import time
import weakref
from collections.abc import Callable, Sequence

from ..algorithm.voting_masters import Electorate
from ..engine.contract import FLUSHED, NOT_NOW, Engine, Request
from ..telemetry import EventLog, log_error
from ..wire.commands import Verb
from ..wire.resp import error_code
from .address import Target
from .connect import Dialled, dial, error_text
from .held_leases import Ledger
from .lingering_close import Lingering
from .probe import CannotConnect, Flushed, Server
from .restart_guard import Guard
from .sentinel import Unknown
from .state import Seat

#: Seconds between two looks at the connections while replies are owed, and otherwise.
BUSY_TICK, IDLE_TICK = 0.1, 1.0
#: A key that is written to one master and looked for on another: its prefix, and milliseconds that it lives.
PROBE, PROBE_TTL = b"redlock-fast:", 10_000


class Connector(Ledger):
    """The masters' seats, the engine that serves them, and who sits where."""

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
        wait: str,
        allow_split: bool,
    ) -> None:
        super().__init__()
        self.need = need
        self.allow_split = allow_split
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
        self._hasty_until = 0.0  # a caller waits for a quorum of connections
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
            # Whether it is alive: see ThreadRenewal.attend.
            if (self._thread is None or not self._thread.is_alive()) and not self.closed:
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

    def hasten(self, seconds: float) -> None:
        """Connect masters without their backoff, for so long: a caller has no quorum."""
        self._hasty_until = max(self._hasty_until, time.monotonic() + seconds)
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
                if seat.target.named and seat.ask_at <= now:
                    self._ask_in_background(master)
            if seat.guarded_until:
                due = min(due, self._end_guard(seat, now))
            if not seat.attached and not seat.dialling:
                next_try = seat.next_try
                if now < self._hasty_until:
                    next_try = min(next_try, seat.failed_at + seat.haste())
                if next_try <= now:
                    self._dial_in_background(master)
                else:
                    due = min(due, next_try)
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
        seat.flushed |= self.engine.link(master).broken == FLUSHED
        self.events.warn("master-lost", seat.target.name, why)
        self._retire(master, why)

    def _retire(self, master: int, why: str) -> None:
        sock = self.engine.detach(master)
        if sock is not None:
            self._lingering.add(sock)
        with self._change:
            self.seats[master].lose(why)

    def _ask_in_background(self, master: int) -> None:
        seat = self.seats[master]
        thread = threading.Thread(
            target=self._ask_sentinels, args=(seat, master), name="redlock-fast-ask", daemon=True
        )
        ask_at, seat.ask_at = seat.ask_at, math.inf
        try:
            thread.start()
        except Exception:  # no more threads, or memory; perhaps with the next look
            seat.ask_at = ask_at
            raise

    def _ask_sentinels(self, seat: Seat, master: int) -> None:
        """A master that they do not name any more has no vote. That they are gone says nothing of it."""
        assert seat.target.named
        connections = seat.connections
        try:
            host, port = seat.target.named(self._connect_timeout)
            with self._change:
                here = seat.attached and seat.connections == connections and seat is self.seats[master]
                if here and seat.server.where != (host, port):
                    self._fail(master, f"the Sentinels name another master: {host}:{port}")
                    self._wake.put(None)
        except Unknown:
            pass
        except Exception:  # memory is short
            log_error("connector-error")
        finally:
            seat.ask_at = time.monotonic() + self.guard.max_ttl / 4

    # --- connecting one ---

    def _dial_in_background(self, master: int) -> None:
        thread = threading.Thread(
            target=self._dial, args=(master, self.generation), name="redlock-fast-dial", daemon=True
        )
        self.seats[master].dialling = True
        try:
            thread.start()
        except Exception:  # no more threads, or memory; perhaps with the next look
            self.seats[master].dialling = False
            raise

    def _dial(self, master: int, generation: int) -> None:
        seat = self.seats[master]
        try:
            one = dial(
                seat.target,
                self._connect_timeout,
                self._key_prefix,
                self.guard,
                known=seat.server if seat.known else None,
                push=self.wait != "poll",
            )
            try:
                self._check_fit(seat, one.server)
                while (rival := self._admit(master, one, generation)) is not None:
                    if self._one_server(rival, one):
                        why = f"it is the same server as {self.seats[rival].target.name}, which has one vote"
                        seat.twin = "" if seat.known else f"masters: {seat.target.name}: {why}"
                        raise CannotConnect(why)
            finally:
                one.close()
        except Exception as error:  # CannotConnect; or memory is short
            why = error_text(error)
            with self._change:
                seat.flushed |= isinstance(error, Flushed)
                seat.fail(why, seat.failures + 1)
                seat.dialling = False
                self._check_configuration()
                self._changed()
            self.events.warn("master-unreachable", seat.target.name, why)
        else:
            if seat.attached:
                seat.introduce(self.events, self.guard)
        self._wake.put(None)

    def _check_fit(self, seat: Seat, server: Server) -> None:
        """Whether a master can do what the configuration asks for. Raises CannotConnect."""
        why = ""
        if self.wait == "push" and not server.can.push:
            why = "wait='push' needs RESP3 and CLIENT TRACKING there; use wait='auto'"
        elif seat.target.named and not server.min_replicas and not self.allow_split:
            why = (
                "a master behind Sentinels needs min-replicas-to-write >= 1, and CONFIG GET to see it: "
                "else a partition gives two holders (allow_split=True accepts that)"
            )
        if why:
            if not seat.known:  # it was never otherwise: not a master's trouble, but the configuration's
                seat.refused = f"masters: {seat.target.name}: {why}"
            raise CannotConnect(why)

    def _admit(self, master: int, one: Dialled, generation: int) -> int | None:
        """From now on it may be asked, unless another master that is connected has its run_id: then which."""
        seat = self.seats[master]
        with self._change:
            if self.closed or generation != self.generation:
                return None
            for number, other in enumerate(self.seats):
                same = other.attached and other.server.run_id == one.server.run_id != ""
                if same and other is not seat and (number, other.connections) not in one.distinct:
                    return number
            sock = one.take()
            seat.admit(one.server, self.guard, time.monotonic())
            seat.ask_at = time.monotonic() + self.guard.max_ttl / 4
            self._check_configuration()
            self._elect()  # before anybody can ask it
            self.engine.attach(master, sock, one.dialect)
            seat.failures = 0
            seat.connections += 1
            seat.error = ""
            seat.attached = True  # before dialling ends: else it could be dialled twice
            seat.dialling = False
            self._changed()
            return None

    def _one_server(self, rival: int, one: Dialled) -> bool:
        """Whether what is written there is seen here: a run_id alone anybody can claim.

        Where the rival writes nothing for now, what is written here must not be there. Any other that cannot
        be written to has to go: it may have nothing to be believed for.
        """
        seat = self.seats[rival]
        place = rival, seat.connections
        key, value = self._key_prefix + PROBE + os.urandom(16).hex().encode(), os.urandom(16).hex().encode()
        probe = Request(Verb.REFILL, (key, value, b"%d" % PROBE_TTL), 1 << rival)
        votes = self.engine.exchange([probe], 1, self._connect_timeout)[0]
        if votes.granted:
            one.distinct.add(place)
            return one.get(key) == value
        detail = votes.details.get(rival, b"")
        if isinstance(detail, bytes) and error_code(detail) in NOT_NOW:
            one.put(key, value, PROBE_TTL)
            look = Request(Verb.EXISTS, (key,), 1 << rival)
            if self.engine.exchange([look], 1, self._connect_timeout)[0].refused:
                one.distinct.add(place)
                return False
        with self._change:
            if seat.attached and place == (rival, seat.connections):
                self._fail(rival, "another master has its run_id, and it did not answer which of them it is")
        return False

    def _check_configuration(self) -> None:
        """It is at fault while it has a seat refused, and while less than a quorum are distinct servers."""
        twins = [seat.twin for seat in self.seats if seat.twin]
        refused = [seat.refused for seat in self.seats if seat.refused]
        if len(self.seats) - len(twins) < self.need:
            refused += twins
        self.misconfigured = refused[0] if refused else ""
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
                if seat.guarded_until > now:  # it was admitted meanwhile, and has forgotten locks again
                    return seat.guarded_until
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
        if alive is None or alive.closed or alive._thread is not threading.current_thread():
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
