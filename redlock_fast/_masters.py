"""The masters of one client: connecting, reconnecting, what is known of each.

Callers never connect. One connector thread per client looks after all masters; while a master is
being dialled there is one short-lived thread for it, so that a hung one delays no other.
"""

from __future__ import annotations

import contextlib
import os
import queue
import random
import socket
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ._dial import CannotConnect, Server, Target, dial
from ._engine import FAULT, Engine, Votes
from ._resp import decode
from .errors import ClientClosed
from .telemetry import EventLog, logger

#: Seconds between attempts to reconnect, doubled each time, with jitter.
MIN_BACKOFF, MAX_BACKOFF = 0.05, 2.0
#: Seconds between two looks at the connections while replies are owed, and otherwise.
BUSY_TICK, IDLE_TICK = 0.1, 1.0
#: How long (seconds) the first call waits for more masters than a quorum.
GRACE = 0.05
#: A half-closed connection is given this long to be read by the master.
LINGER = 60.0

#: Faults that say nothing new about a master.
_NO_NEWS = frozenset({"not asked", "lagging", "not connected"})


@dataclass(frozen=True, slots=True)
class MasterHealth:
    """One master as this client sees it.

    ``state``: "connected", "lagging" (replies are overdue), "connecting" or "down". ``release_path``:
    DELIFEQ, DELEX or EVALSHA. ``round_trip``: smoothed, seconds. ``owed``: replies due. ``faults``:
    failed votes so far. ``connections``: how often it was connected. ``error``: the last trouble.
    ``kept``: releases sent again after a reconnect; ``dropped``: those that could not be kept.
    """

    name: str
    state: str
    server: str
    version: str
    role: str
    run_id: str
    uptime: int
    protocol: int
    release_path: str
    round_trip: float
    owed: int
    faults: int
    connections: int
    error: str
    kept: int
    dropped: int


@dataclass(slots=True)
class _Seat:
    """One master's place: who sits there and since when not."""

    target: Target
    attached: bool = False
    dialling: bool = False
    failures: int = 0
    next_try: float = 0.0
    server: Server = field(default_factory=Server)
    connections: int = 0
    faults: int = 0
    error: str = ""


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
    ) -> None:
        self.need = need
        self.closed = False
        self.events = EventLog()
        self._engine_class = engine_class
        self._connect_timeout = connect_timeout
        self._socket_timeout = socket_timeout
        self._key_prefix = key_prefix
        self._targets = list(targets)
        #: One for each process: what a parent of fork held is not the child's.
        self.generation = 0
        #: Called from any thread when a master connected or failed to, and on close(): an event loop's.
        self.on_change: Callable[[], None] = nothing
        self._begin()
        _all_masters.add(self)

    def _begin(self) -> None:
        self.ready = False  # a first quorum was there, or was waited for
        self.seats = [_Seat(target) for target in self._targets]
        #: Guards the client's counters and what its locks hold: for a few instructions, never across
        #: I/O. Reentrant: a signal handler may use the client while its own thread is inside.
        self.mutex = threading.RLock()
        self._change = threading.Condition()
        # SimpleQueue.put may be called anywhere: in signal handlers, finalizers and callbacks.
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._idle = False  # the connector sleeps for long
        self._thread: threading.Thread | None = None
        self._lingering: list[tuple[float, socket.socket]] = []
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
            (lambda: self.closed or self.connected() >= self.need, timeout),
            # A lease on a bare quorum is lost with the first master: give the others a moment.
            (lambda: self.closed or not self._connecting(), min(timeout, GRACE)),
        )

    def joined(self) -> bool:
        """A first quorum was waited for; whether it is there."""
        self.ready = True
        return self.connected() >= self.need and not self.closed

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

    def pause(self, seconds: float) -> None:
        """Sleep; raises ClientClosed as soon as the client is closed."""
        with self._change:
            self._change.wait_for(lambda: self.closed, seconds)
        self.check_open()

    def connected(self) -> int:
        return sum(seat.attached for seat in self.seats)

    def note_faults(self, votes: Votes) -> None:
        """Count and log, rarely, what was wrong with masters in one exchange."""
        for master, detail in votes.details.items():
            if detail in _NO_NEWS:
                continue
            seat = self.seats[master]
            seat.faults += 1
            seat.error = fault_text(detail)
            self.events.warn("master-fault", seat.target.name, seat.error)

    def cause(self, master: int, votes: Votes) -> str:
        """Why this master did not vote in that exchange."""
        if votes.values[master] != FAULT:
            return "no reply in time"
        text = fault_text(votes.details.get(master, "failed"))
        error = self.seats[master].error
        return f"{text}: {error}" if text == "not connected" and error else text

    def health(self) -> list[MasterHealth]:
        return [self._health(master) for master in range(len(self.seats))]

    def _health(self, master: int) -> MasterHealth:
        seat, link = self.seats[master], self.engine.link(master)
        up = seat.attached and link.attached
        state = ("lagging" if link.lag else "connected") if up else "down" if seat.failures else "connecting"
        server = seat.server
        return MasterHealth(
            name=seat.target.name,
            state=state,
            server=server.kind,
            version=server.version,
            role=server.role,
            run_id=server.run_id,
            uptime=server.uptime,
            protocol=server.protocol,
            release_path=server.can.release_path if seat.connections else "",
            round_trip=link.round_trip,
            owed=link.owed,
            faults=seat.faults,
            connections=seat.connections,
            error=link.broken or seat.error,
            kept=link.replayed,
            dropped=link.dropped,
        )

    def close(self, timeout: float = 1.0) -> None:
        """Wait up to ``timeout`` seconds for owed replies, then close everything."""
        with self._change:
            if self.closed:
                return
            self.closed = True
            self._changed()
            thread = self._thread
        self._wake.put(None)
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)
        self.engine.drain(timeout)
        for master in range(len(self.seats)):
            self._retire(master, "closed")
        self.engine.close()
        for _, sock in self._lingering:
            sock.close()
        self._lingering.clear()

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
            if not seat.attached and not seat.dialling:
                if seat.next_try <= now:
                    self._dial_in_background(master)
                else:
                    due = min(due, seat.next_try)
        self._reap(now)
        self._idle = not (busy or self._lingering)
        return max(0.0, min(due - now, IDLE_TICK if self._idle else BUSY_TICK))

    def _check(self, master: int, seat: _Seat) -> bool:
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
            self._lingering.append((time.monotonic() + LINGER, sock))
        with self._change:
            seat = self.seats[master]
            seat.attached = False
            seat.error = why
            seat.failures = 1
            seat.next_try = time.monotonic() + _backoff(1)

    def _reap(self, now: float) -> None:
        """Close half-closed connections that the master has read to the end."""
        staying = []
        for until, sock in self._lingering:
            if now < until and not _at_end(sock):
                staying.append((until, sock))
            else:
                sock.close()
        self._lingering = staying

    def _dial_in_background(self, master: int) -> None:
        self.seats[master].dialling = True
        threading.Thread(
            target=self._dial, args=(master, self.generation), name="redlock-fast-dial", daemon=True
        ).start()

    def _dial(self, master: int, generation: int) -> None:
        seat = self.seats[master]
        try:
            sock, server, dialect = dial(seat.target, self._connect_timeout, self._key_prefix)
        except CannotConnect as error:
            with self._change:
                seat.error = str(error)
                seat.failures += 1
                seat.next_try = time.monotonic() + _backoff(seat.failures)
                seat.dialling = False
                self._changed()
            self.events.warn("master-unreachable", seat.target.name, str(error))
        else:
            with self._change:
                if self.closed or generation != self.generation:
                    sock.close()
                    return
                self.engine.attach(master, sock, dialect)
                seat.server = server
                seat.failures = 0
                seat.connections += 1
                seat.error = ""
                seat.attached = True  # before dialling ends: else it could be dialled twice
                seat.dialling = False
                self._changed()
            version = f"{server.kind} {server.version}".strip() or "unknown server"
            self.events.info("master-connected", seat.target.name, f"{version}, {server.can.release_path}")
        self._wake.put(None)

    def _changed(self) -> None:
        self._change.notify_all()
        self.on_change()

    def _after_fork(self) -> None:
        """The child has none of the parent's threads, connections or locks."""
        self.generation += 1
        self.on_change = nothing
        engine, lingering = self.engine, self._lingering
        self._begin()
        engine.abandon()
        for _, sock in lingering:
            fd = sock.detach()
            if fd >= 0:  # not closed by a thread that the fork cut off
                os.close(fd)


def fault_text(detail: str | bytes) -> str:
    """A fault for people: an error reply as it was said, any other reply as what it was."""
    if isinstance(detail, str):
        return detail
    if detail[:1] == b"-":
        return detail[1:-2].decode(errors="replace")
    return f"unexpected reply {decode(detail)!r:.200}"


def _backoff(failures: int) -> float:
    return min(MAX_BACKOFF, MIN_BACKOFF * 2.0 ** min(failures - 1, 10)) * random.uniform(0.5, 1.0)


def _at_end(sock: socket.socket) -> bool:
    try:
        sock.setblocking(False)
        while sock.recv(65536):
            pass
    except (BlockingIOError, InterruptedError):
        return False
    except OSError:
        pass
    return True


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
            logger.exception("connector-error")
            pause = IDLE_TICK
        del alive
        with contextlib.suppress(queue.Empty):
            wake.get(timeout=pause)
            while True:
                wake.get_nowait()


_all_masters: weakref.WeakSet[Masters] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for masters in list(_all_masters):
        try:
            masters._after_fork()
        except Exception:  # one client's trouble must not leave the others with their parent's connections
            logger.exception("fork-error")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
