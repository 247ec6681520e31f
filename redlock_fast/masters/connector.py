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

from ..algorithm.policy import VotingMasters
from ..engine.contract import FLUSHED, TRANSIENT_ERRORS, Engine, Request
from ..telemetry import EventLog, log_error
from ..wire.commands import Verb
from ..wire.resp import error_code
from .address import Target
from .connect import ProbedConnection, connect, error_text
from .held_leases import ClientState
from .lingering_close import LingeringSockets
from .probe import ConnectError, Flushed, Server
from .restart_guard import Guard
from .sentinel import Unknown
from .state import MasterState

#: Seconds between two looks at the connections while replies are owed, and otherwise.
BUSY_TICK, IDLE_TICK = 0.1, 1.0
#: A key that is written to one master and looked for on another: its prefix, and milliseconds that it lives.
PROBE, PROBE_TTL = b"redlock-fast:", 10_000


class Connector(ClientState):
    """The state of each master, and the engine that serves them."""

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
        voters: VotingMasters,
        wait: str,
        allow_split: bool,
    ) -> None:
        super().__init__()
        self.need = need
        self.allow_split = allow_split
        self.misconfigured = ""
        self.guard = guard
        self.voters = voters
        self.wait = wait
        self.events = EventLog()
        self._engine_class = engine_class
        self._connect_timeout = connect_timeout
        self._socket_timeout = socket_timeout
        self._key_prefix = key_prefix
        self.states = [MasterState(target) for target in targets]
        #: Called from any thread when a master connected or failed to, on close(), and now and then while
        #: something is held: an event loop's.
        self.on_change: Callable[[], None] = do_nothing
        self._begin()

    def _begin(self) -> None:
        """In a new process."""
        self._change = threading.Condition()
        # SimpleQueue.put may be called anywhere: in signal handlers, finalizers and callbacks.
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._idle = False  # the connector sleeps for long
        self._next_prune = 0.0
        self._urgent_until = 0.0  # a caller waits for a quorum of connections
        self._thread: threading.Thread | None = None
        self._lingering_sockets = LingeringSockets(len(self.states))
        self.engine = self._engine_class(len(self.states), _waker(self._wake))
        weakref.finalize(self, self._wake.put, None).atexit = False  # a forgotten client's thread ends

    def prune(self) -> None:
        """Now and then: forget what is over."""

    def after_fork_in_child(self) -> None:
        """In a child of fork, which has none of the parent's threads, connections or locks."""
        self.generation += 1
        self.open()
        self.on_change = do_nothing
        engine, lingering_sockets = self.engine, self._lingering_sockets
        now = time.monotonic()
        self.states = [state.copy_after_fork(now) for state in self.states]
        self._begin()
        engine.after_fork_in_child()
        lingering_sockets.after_fork_in_child()

    def start(self) -> None:
        """Begin to connect in the background; does nothing the second time."""
        with self._change:
            # Whether it is alive: see ThreadRenewal.wake_soon.
            if (self._thread is None or not self._thread.is_alive()) and not self.closed:
                self._thread = threading.Thread(
                    target=_connector, args=(weakref.ref(self), self._wake), name="redlock-fast-connector"
                )
                self._thread.daemon = True
                self._thread.start()

    def wake_soon(self) -> None:
        """Replies may come that no caller waits for: let the connector look soon."""
        if self._idle:
            self._idle = False
            self._wake.put(None)

    def connect_urgently(self, seconds: float) -> None:
        """Connect masters without their backoff, for so long: a caller has no quorum."""
        self._urgent_until = max(self._urgent_until, time.monotonic() + seconds)
        self._wake.put(None)

    def names(self) -> list[str]:
        return [state.target.name for state in self.states]

    def connected(self) -> int:
        return sum(state.attached for state in self.states)

    def _connecting(self) -> bool:
        """Whether a master is being connected for the first time."""
        return not all(state.attached or state.failures for state in self.states)

    # --- a look at all of them ---

    def maintain_all(self) -> float:
        """One round over all masters. Returns in how many seconds to look again."""
        self.engine.maintain()
        now = time.monotonic()
        busy = False
        due = now + IDLE_TICK
        for master, state in enumerate(self.states):
            if state.attached:
                busy |= self._check(master, state)
                if state.target.named and state.next_sentinel_query <= now:
                    self._query_sentinels_in_background(master)
            if state.guarded_until:
                due = min(due, self._end_guard(state, now))
            if not state.attached and not state.connecting:
                next_try = state.next_try
                if now < self._urgent_until:
                    next_try = min(next_try, state.failed_at + state.urgent_interval())
                if next_try <= now:
                    self._connect_in_background(master)
                else:
                    due = min(due, next_try)
        self._lingering_sockets.reap(now)
        if now >= self._next_prune:
            self._next_prune = now + IDLE_TICK
            self.prune()
        self._idle = not (busy or self._lingering_sockets)
        return max(0.0, min(due - now, IDLE_TICK if self._idle else BUSY_TICK))

    def _check(self, master: int, state: MasterState) -> bool:
        """Let go of a broken or hopelessly lagging connection. True: replies are owed."""
        connection = self.engine.connection_state(master)
        if connection.broken:
            self._fail(master, connection.broken)
        elif connection.lag > self._socket_timeout:
            self._fail(master, f"no reply for {connection.lag:.1f} s")
        return connection.pending > 0

    def _fail(self, master: int, why: str) -> None:
        state = self.states[master]
        state.flushed |= self.engine.connection_state(master).broken == FLUSHED
        self.events.warn("master-lost", state.target.name, why)
        self._retire(master, why)

    def _retire(self, master: int, why: str) -> None:
        sock = self.engine.detach(master)
        if sock is not None:
            self._lingering_sockets.add(sock)
        with self._change:
            self.states[master].on_disconnected(why)

    def _query_sentinels_in_background(self, master: int) -> None:
        state = self.states[master]
        thread = threading.Thread(
            target=self._query_sentinels, args=(state, master), name="redlock-fast-sentinel", daemon=True
        )
        next_sentinel_query, state.next_sentinel_query = state.next_sentinel_query, math.inf
        try:
            thread.start()
        except Exception:  # no more threads, or memory; perhaps with the next look
            state.next_sentinel_query = next_sentinel_query
            raise

    def _query_sentinels(self, state: MasterState, master: int) -> None:
        """A master that they do not name any more has no vote. That they are gone says nothing of it."""
        assert state.target.named
        connections = state.connections
        try:
            host, port = state.target.named(self._connect_timeout)
            with self._change:
                here = state.attached and state.connections == connections and state is self.states[master]
                if here and state.server.where != (host, port):
                    self._fail(master, f"the Sentinels name another master: {host}:{port}")
                    self._wake.put(None)
        except Unknown:
            pass
        except Exception:  # memory is short
            log_error("connector-error")
        finally:
            state.next_sentinel_query = time.monotonic() + self.guard.max_ttl / 4

    # --- connecting one ---

    def _connect_in_background(self, master: int) -> None:
        thread = threading.Thread(
            target=self._connect, args=(master, self.generation), name="redlock-fast-connect", daemon=True
        )
        self.states[master].connecting = True
        try:
            thread.start()
        except Exception:  # no more threads, or memory; perhaps with the next look
            self.states[master].connecting = False
            raise

    def _connect(self, master: int, generation: int) -> None:
        state = self.states[master]
        try:
            one = connect(
                state.target,
                self._connect_timeout,
                self._key_prefix,
                self.guard,
                known=state.server if state.known else None,
                push=self.wait != "poll",
            )
            try:
                self._check_fit(state, one.server)
                while (duplicate := self._attach_unless_duplicate(master, one, generation)) is not None:
                    if self._one_server(duplicate, one):
                        why = f"it is the same server as {self.names()[duplicate]}, which has one vote"
                        state.duplicate_error = "" if state.known else f"masters: {state.target.name}: {why}"
                        raise ConnectError(why)
            finally:
                one.close()
        except Exception as error:  # ConnectError; or memory is short
            why = error_text(error)
            with self._change:
                state.flushed |= isinstance(error, Flushed)
                state.fail(why, state.failures + 1)
                state.connecting = False
                self._check_configuration()
                self._changed()
            self.events.warn("master-unreachable", state.target.name, why)
        else:
            if state.attached:
                state.log_connected(self.events, self.guard)
        self._wake.put(None)

    def _check_fit(self, state: MasterState, server: Server) -> None:
        """Whether a master can do what the configuration asks for. Raises ConnectError."""
        why = ""
        if self.wait == "push" and not server.can.push:
            why = "wait='push' needs RESP3 and CLIENT TRACKING there; use wait='auto'"
        elif state.target.named and not server.min_replicas and not self.allow_split:
            why = (
                "a master behind Sentinels needs min-replicas-to-write >= 1, and CONFIG GET to see it: "
                "else a partition gives two holders (allow_split=True accepts that)"
            )
        if why:
            if not state.known:  # it was never otherwise: not a master's trouble, but the configuration's
                state.refused = f"masters: {state.target.name}: {why}"
            raise ConnectError(why)

    def _attach_unless_duplicate(self, master: int, one: ProbedConnection, generation: int) -> int | None:
        """From now on it may be asked, unless another master that is connected has its run_id: then which."""
        state = self.states[master]
        with self._change:
            if self.closed or generation != self.generation:
                return None
            for number, other in enumerate(self.states):
                same = other.attached and other.server.run_id == one.server.run_id != ""
                if same and other is not state and (number, other.connections) not in one.distinct:
                    return number
            sock = one.take()
            state.on_connected(one.server, self.guard, time.monotonic())
            state.next_sentinel_query = time.monotonic() + self.guard.max_ttl / 4
            self._check_configuration()
            self._elect()  # before anybody can ask it
            self.engine.attach(master, sock, one.dialect)
            state.failures = 0
            state.connections += 1
            state.error = ""
            state.attached = True  # before dialling ends: else it could be dialled twice
            state.connecting = False
            self._changed()
            return None

    def _one_server(self, duplicate: int, one: ProbedConnection) -> bool:
        """Whether what is written there is seen here: a run_id alone anybody can claim.

        Where the rival writes nothing for now, what is written here must not be there. Any other that cannot
        be written to has to go: it may have nothing to be believed for.
        """
        state = self.states[duplicate]
        entry = duplicate, state.connections
        key, value = self._key_prefix + PROBE + os.urandom(16).hex().encode(), os.urandom(16).hex().encode()
        probe = Request(Verb.REFILL, (key, value, b"%d" % PROBE_TTL), 1 << duplicate)
        votes = self.engine.exchange([probe], 1, self._connect_timeout)[0]
        if votes.granted:
            one.distinct.add(entry)
            return one.get(key) == value
        detail = votes.details.get(duplicate, b"")
        if isinstance(detail, bytes) and error_code(detail) in TRANSIENT_ERRORS:
            one.put(key, value, PROBE_TTL)
            look = Request(Verb.EXISTS, (key,), 1 << duplicate)
            if self.engine.exchange([look], 1, self._connect_timeout)[0].refused:
                one.distinct.add(entry)
                return False
        with self._change:
            if state.attached and entry == (duplicate, state.connections):
                self._fail(
                    duplicate, "another master has its run_id, and it did not answer which of them it is"
                )
        return False

    def _check_configuration(self) -> None:
        """It is at fault while a master is refused, and while less than a quorum are distinct servers."""
        duplicates = [state.duplicate_error for state in self.states if state.duplicate_error]
        refused = [state.refused for state in self.states if state.refused]
        if len(self.states) - len(duplicates) < self.need:
            refused += duplicates
        self.misconfigured = refused[0] if refused else ""
        if self.misconfigured:
            self.ready = False

    def _elect(self) -> None:
        self.voters.mask = sum(1 << n for n, state in enumerate(self.states) if not state.guarded_until)
        self.voters.all_push = all(state.server.can.push for state in self.states if state.known)

    def _end_guard(self, state: MasterState, now: float) -> float:
        """When its guard ends, or ended."""
        end = state.guarded_until
        if end <= now:
            with self._change:
                if state.guarded_until > now:  # it was admitted meanwhile, and has forgotten locks again
                    return state.guarded_until
                state.guarded_until = 0.0
                self._elect()
            self.events.info("master-trusted", state.target.name, "its restart guard has ended")
        return end

    def _changed(self) -> None:
        self._change.notify_all()
        self.on_change()


def do_nothing() -> None:
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
            pause = alive.maintain_all()
        except Exception:  # a client without its connector would never recover
            log_error("connector-error")
            pause = IDLE_TICK
        del alive
        with contextlib.suppress(queue.Empty):
            wake.get(timeout=pause)
            while True:
                wake.get_nowait()
