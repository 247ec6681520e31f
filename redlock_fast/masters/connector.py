"""The connector: connects the masters of one client, notices broken connections, and connects again.

Callers never connect. Each client has one connector thread. While a master is being connected it also has a
short-lived thread of its own, so that a master that hangs does not delay the others.
"""

from __future__ import annotations

import functools
import math
import queue
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..algorithm.master_lists import MasterLists, mask_of
from ..algorithm.policy import Policy, lease_clock
from ..engine.condition import Condition
from ..engine.contract import FLUSHED, MAX_MASTERS, Engine
from ..engine.fork import will_fork_unseen
from ..engine.greenlets import check_at_patch, patched_by
from ..engine.mutex import new_mutex
from ..engine.signals import restore_signals, signals_blocked
from ..engine.threads import start_thread, wait_for_wake
from ..errors import ConfigError
from ..telemetry import log_error
from .address import Target, numbered
from .client_state import ClientState
from .connect import ATTEMPT_TIMEOUTS, ProbedConnection, connect, error_text
from .former_lists import FormerLists
from .identity import is_same_server
from .lingering_close import LingeringSockets
from .list_check import ListCheck, Verdict
from .marks import REFUSED, Marks
from .probe import ConnectError, Flushed, Loading, Refused, Server
from .records import MasterRecords, RecordConnections
from .restart_guard import Guard
from .sentinel import Unknown
from .state import MasterState

#: A client is used before uWSGI forks its workers.
UNSEEN_FORK = (
    "uWSGI forks its workers after this client has begun to connect, and CPython may hang in a worker then: "
    "use the client in the workers only, or set lazy-apps = true (docs/operations.md)"
)
#: Seconds between two checks of all connections: while replies are owed, and otherwise.
BUSY_TICK, IDLE_TICK = 0.1, 1.0
#: The same while a caller waits for a quorum, and connected masters owe replies.
URGENT_TICK = 0.01
#: A thread that runs so late (seconds) was in a process that was stopped or throttled. The engine has as long
#: for reading before a master is silent.
READ_WITHIN = 0.5
#: How often in a row the beginning of a silence is set, because of pauses.
MAX_PAUSES = 5
#: Seconds for which a master stays connected after it left all lists: queue entries of waiting callers end.
LEAVE_AFTER = 3.0


class ConnectorSettings(NamedTuple):
    """How the masters of one client are connected: the options of the same names. Times in seconds."""

    engine_class: type[Engine]
    connect_timeout: float
    socket_timeout: float
    key_prefix: bytes
    guard: Guard
    wait: str
    allow_split: bool
    check_masters: str = "off"


class Connector:
    """The engine of one client in one process, the state of each master, and the thread that connects them.

    A child of fork replaces it by ``copy_after_fork``.
    """

    def __init__(
        self,
        policy: Policy,
        settings: ConnectorSettings,
        states: list[MasterState],
        client_state: ClientState,
    ) -> None:
        self.policy = policy
        self.settings = settings
        self.states = states
        self.client_state = client_state
        self.generation: int = client_state.generation()
        #: Why the configuration cannot work, or "".
        self.misconfigured: str = ""
        #: Returns the change of the masters that is under way. One that was dropped before its end has ended.
        self.change: Callable[[], object] = do_nothing
        #: Guards ``states`` and attach().
        self.mutex: threading.RLock = new_mutex()
        #: Notified when a connection attempt finishes, and on close().
        self.changed: Condition = Condition(self.mutex)
        #: Event-loop callback. Called from any thread when a connection attempt finishes, and on close().
        self.on_change: Callable[[], None] = do_nothing
        #: Event-loop callback. Called by the connector thread, about every IDLE_TICK.
        self.on_tick: Callable[[], None] = do_nothing
        # SimpleQueue.put may be called anywhere: in signal handlers, finalizers and callbacks.
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._patched_by = patched_by()
        check_at_patch(self)
        self._former = FormerLists(settings.guard.max_ttl)
        self._idle = False  # the thread sleeps for IDLE_TICK
        self._run_by = math.inf  # when the thread wants to run next
        self._next_removal = 0.0  # when ended leases are removed again
        self._urgent_until = 0.0  # until then a caller waits for a quorum of connections
        self._forgotten_until = 0.0  # until then a connection that is silent may be forgotten
        self._thread: threading.Thread | None = None
        self._signal_mask: Any = None  # the signals that the connector thread blocked before it blocked all
        self._lingering_sockets = LingeringSockets(len(states))
        self.records: MasterRecords = MasterRecords(self.list_check(policy.voters.lists), states, self.mutex)
        self._marks = Marks(settings.key_prefix)
        # The engine must not keep the connector alive: its callback has only the queue.
        self.engine: Engine = settings.engine_class(len(states), functools.partial(self._wake.put, None))

    def copy_after_fork(self) -> Connector:
        """The connector of a child of fork. Closes the child's copies of this connector's sockets.

        The child has none of the parent's threads and connections, but what is known of each master.
        """
        now = time.monotonic()
        states = [state.copy_after_fork(now) for state in self.states]
        for master, state in enumerate(states):  # a change that is under way goes on in the parent only
            if not self.policy.voters.lists.all >> master & 1:
                state.left_at = state.left_at or now
        copy = Connector(self.policy, self.settings, states, self.client_state)
        copy.misconfigured = self.misconfigured
        copy._former = self._former
        self.on_change = self.on_tick = do_nothing  # perhaps a thread of this connector forked
        with self.mutex:
            self.changed.notify_all()  # perhaps its signal handler forked in a wait, which goes on here
        self.engine.after_fork_in_child()
        self._lingering_sockets.after_fork_in_child()
        return copy

    def ended(self) -> bool:
        """Whether the client was closed, or a child of fork has replaced this connector."""
        return self.client_state.closed or self.generation != self.client_state.generation()

    def check_patch(self) -> None:
        """Raise ConfigError if a library has patched threads since this client was made."""
        if self._patched_by != patched_by() and not self.ended():
            raise ConfigError(
                f"{patched_by()} patched threads after this client was made: patch before the first client"
            )

    def start(self) -> None:
        """Begin to connect in the background; does nothing the second time. Raises ConfigError."""
        self.check_patch()
        with self.mutex:
            # is_alive: a signal handler that raised may have interrupted start() before the thread began.
            if (self._thread is None or not self._thread.is_alive()) and not self.ended():
                wake = self._wake
                # The callback wakes the thread when the client was dropped without close(). Python 3.15
                # clears a reference without a callback only after the engine has closed its sockets.
                connector = weakref.ref(self, lambda _: wake.put(None))
                with signals_blocked() as mask:
                    self._thread = threading.Thread(
                        target=_connector,
                        args=(connector, wake, mask),
                        name="redlock-fast-connector",
                        daemon=True,
                    )
                    self._thread.start()
                if will_fork_unseen():
                    self.client_state.events.warn_of("unseen-fork", UNSEEN_FORK)

    def wake_soon(self) -> None:
        """Check the connections within BUSY_TICK, because replies may come that no caller waits for."""
        if self._idle:
            self._idle = False
            self._wake.put(None)

    def connect_urgently(self, seconds: float) -> None:
        """Connect masters without their backoff for ``seconds``, because a caller has no quorum."""
        self._urgent_until = max(self._urgent_until, time.monotonic() + seconds)
        self._wake.put(None)

    def names(self) -> list[str]:
        return [state.target.name for state in self.states]

    def own_states(self, lists: MasterLists | None = None) -> dict[int, MasterState]:
        """The states of the masters of the client's lists, or of ``lists``, by number."""
        own = self.policy.voters.lists.all if lists is None else lists.all
        return {n: state for n, state in enumerate(self.states) if own >> n & 1}

    def all_tried(self, lists: MasterLists | None = None) -> bool:
        """Whether each master of the client's lists, or of ``lists``, is connected, or could not be."""
        return all(state.attached or state.failures for state in self.own_states(lists).values())

    def connected(self) -> int:
        """The mask of the masters that are connected. Not those whose records allow no vote, or not yet."""
        return mask_of(n for n, state in enumerate(self.states) if state.attached and not state.unlisted)

    def has_quorum(self) -> bool:
        """Whether a quorum of each list is connected."""
        return self.policy.voters.lists.is_quorum(self.connected())

    def is_usable(self, master: int) -> bool:
        """Whether a master is connected, and its connection is not broken."""
        with self.mutex:  # a broken connection is detached, and the state follows
            return self.states[master].attached and not self.engine.connection_state(master).broken

    # --- a change of the masters: see masters/change.py, which holds the mutex ---

    def number(self, lists: Sequence[Sequence[Target]]) -> list[int]:
        """The bit mask of each of ``lists``. Masters that are new get a number, and are connected."""
        known = [None if state.gone and not state.connecting else state.target for state in self.states]
        targets, masks = numbered(known, lists)
        if len(targets) > MAX_MASTERS:
            raise ConfigError(
                f"reconfigure: this client would have {len(targets)} masters, and {MAX_MASTERS} at most are "
                "possible: former masters leave when their locks are released, so try later"
            )
        # Before the states: an interrupt between the two leaves masters of the engine that are not used.
        self.engine.grow(len(targets))
        self._lingering_sockets.grow(len(targets))
        self.policy.voters.mask |= mask_of(range(len(known), len(targets)))
        wanted = {one.address: one for masters in lists for one in masters}
        self._former.remember(self.states)
        for n, target in enumerate(targets):
            if target is None or target.address not in wanted:
                continue
            if n < len(self.states) and known[n] is not None:
                self.states[n].target = wanted[target.address]  # perhaps with another password
                self.states[n].left_at = 0.0
            else:
                self.states[n : n + 1] = [self._former.state_of(target)]
        self._wake.put(None)
        return masks

    def list_check(self, lists: MasterLists) -> ListCheck:
        """What compares ``lists`` with the records of the masters."""
        strict = self.settings.check_masters == "strict"
        masks = tuple(mask for mask, _ in lists.lists)
        return ListCheck(masks, round(self.settings.guard.max_ttl * 1000), strict)

    def apply(self, lists: MasterLists) -> None:
        """The masters that must agree from now on. The others leave."""
        voters = self.policy.voters
        self.records.check = self.list_check(lists)
        self.records.judge()
        # Before the lists: no attempt by them asks a master that has no vote for them.
        voters.mask &= self._voting()
        lists.unlisted = self._unlisted()
        now = time.monotonic()
        if lists is not voters.lists:
            self._former.end(voters.lists, now)
        voters.lists = lists
        for n, state in enumerate(self.states):
            if lists.all >> n & 1:
                state.left_at, state.gone = 0.0, False
            elif not state.left_at:
                state.left_at = now
        self._judge()
        self._notify_change()
        self._wake.put(None)

    # --- closing ---

    def stop(self) -> bool:
        """Close the client for new calls, and let the thread end. False if that was done before."""
        with self.mutex:
            if self.client_state.closed:
                return False
            self.client_state.closed = True
            self._notify_change()
        self._wake.put(None)
        return True

    def close(self, timeout: float) -> None:
        """Close all connections after the masters have read what was sent, or after ``timeout`` seconds."""
        end = time.monotonic() + timeout
        thread = self._thread
        if thread is not None and thread.is_alive() and thread is not threading.current_thread():
            thread.join(timeout)
        self.client_state.events.report_left_out(at_end=True)
        self._marks.remove(self.engine)
        self.engine.drain(max(0.0, end - time.monotonic()))
        # All connections at once: the rollbacks of requests that other threads wait for reach every master.
        self.engine.close(self._lingering_sockets.add)
        for master in range(len(self.states)):
            self._retire(master, "closed")
        # A lagging master still has requests to read. Its first reply to a closed socket would reset the
        # connection, and it would drop the rest: the releases that were written behind acquires.
        self._lingering_sockets.close(end - time.monotonic())

    # --- all masters, periodically ---

    def maintain_all(self) -> float:
        """Check all masters, and start to connect those whose time has come. Returns seconds to sleep."""
        self.engine.maintain()
        now = time.monotonic()
        paused = now > self._run_by + READ_WITHIN
        busy = False
        due = now + IDLE_TICK
        for master, state in enumerate(self.states):
            if state.left_at and self._let_leave(master, state, now):
                continue
            if state.attached:
                busy |= self._check(master, state, now, paused)
                if state.target.ask_sentinels and state.next_sentinel_query <= now:
                    self._query_sentinels_in_background(master)
            if state.guarded_until:
                due = min(due, self._end_guard(state, now))
            if not state.attached and not state.connecting:
                next_try = state.next_try
                if now < self._urgent_until:
                    next_try = min(next_try, state.next_urgent_try)
                if next_try <= now:
                    self._connect_in_background(master)
                else:
                    due = min(due, next_try)
        due = min(due, self._connect_silent(now))
        self._mark(now)
        if self.records.due(now):
            start_thread("records", self._write_records, True)
        elif self.records.confirmation_due(now):
            start_thread("records", self._confirm_records)
        self._lingering_sockets.reap(now)
        if now >= self._next_removal:
            self._next_removal = now + IDLE_TICK
            self.client_state.remove_ended_leases(self.policy.clock())
            self.client_state.events.report_left_out()
            self.on_tick()
        self._idle = not (busy or self._lingering_sockets)
        self._run_by = max(now, min(due, now + (IDLE_TICK if self._idle else BUSY_TICK)))
        return self._run_by - now

    def _connect_silent(self, now: float) -> float:
        """Begin to connect the silent masters again, if the others are no quorum. Returns when to look again.

        A NAT, a firewall or a load balancer forgets a connection that was idle for some minutes: both ends
        keep it, and nothing arrives. A new connection tells that from a master that is stopped or slow, which
        is silent there, too; so the old connection stays until the master has replied on the new one. Where
        one connection was forgotten, others were, too: then also a silent minority is connected again.
        """
        links = {n: self.engine.connection_state(n) for n, one in enumerate(self.states) if one.attached}
        silent = mask_of(n for n, link in links.items() if link.lag)
        enough = self.policy.voters.lists.is_quorum(self.connected() & ~silent)
        if enough and now >= self._forgotten_until:
            return math.inf
        for n in links:
            state = self.states[n]
            if silent >> n & 1 and not state.connecting and now >= state.next_new_connection:
                self._connect_in_background(n)
        owing = any(link.pending for link in links.values())
        return now + URGENT_TICK if owing and now < self._urgent_until else math.inf

    def _let_leave(self, master: int, state: MasterState, now: float) -> bool:
        """Disconnect a master that is in no list, once nothing is left to send to it. True: it is gone.

        Until then it is connected as any other: releases of the leases that asked it must arrive.
        """
        if state.gone:
            return True
        needed = any(lease.sent >> master & 1 for lease in list(self.client_state.held))
        pending = state.attached and self.engine.connection_state(master).pending
        if needed or pending or now < state.left_at + LEAVE_AFTER + 2 * self.policy.node_timeout:
            return False
        with self.mutex:
            if state.connecting or not state.left_at:  # ``reconfigure`` may have taken it back
                return False
            state.gone = True
            if state.attached:  # with the mutex: from now on another master may get the number
                self._retire(master, "it is in no list of masters any more")
        self.client_state.events.info(
            "master-left", state.target.name, "it is in no list of masters any more"
        )
        return True

    def _mark(self, now: float) -> None:
        """Say on the masters at which step this client is, once it has compared its lists with records."""
        verdict = self.records.verdict
        step = REFUSED if verdict.wrong else verdict.step
        if step:
            self._marks.refresh(self.engine, self.states, verdict.epoch, step, now)

    def _check(self, master: int, state: MasterState, now: float, paused: bool) -> bool:
        """Close a connection that is broken, or silent for ``socket_timeout``. True: replies are owed.

        ``paused``: this thread runs late, so the engine may not have read for a while.
        """
        connection = self.engine.connection_state(master)
        if connection.broken:
            self._fail(master, connection.broken)
        elif connection.lag <= self.settings.socket_timeout:
            state.silent_since, state.pauses = 0.0, 0
        elif not state.silent_since or (paused and state.pauses < MAX_PAUSES):
            state.silent_since = now
            state.pauses += 1
        elif now >= state.silent_since + READ_WITHIN:
            self._fail(master, f"no reply for {connection.lag:.1f} s")
        return connection.pending > 0

    def _fail(self, master: int, why: str) -> None:
        state = self.states[master]
        state.flushed |= self.engine.connection_state(master).broken == FLUSHED
        self.client_state.events.warn("master-lost", state.target.name, why)
        self._retire(master, why)

    def _retire(self, master: int, why: str) -> None:
        with self.mutex:
            sock = self.engine.detach(master)
            self.states[master].on_disconnected(why)
        if sock is not None:
            self._lingering_sockets.add(sock)

    def _end_guard(self, state: MasterState, now: float) -> float:
        """When the restart guard of a master ends, or ended."""
        end = state.guarded_until
        if end <= now:
            with self.mutex:
                if state.guarded_until > now:  # another thread connected it since, after another restart
                    return state.guarded_until
                state.guarded_until = 0.0
                self._update_voters()
                self._notify_change()  # a change of the masters waits for votes
            self.client_state.events.info("master-trusted", state.target.name, "its restart guard has ended")
        return end

    def _query_sentinels_in_background(self, master: int) -> None:
        state = self.states[master]
        next_sentinel_query, state.next_sentinel_query = state.next_sentinel_query, math.inf
        try:
            start_thread("sentinel", self._query_sentinels, state, master)
        except Exception:  # no thread, or no memory, is available: maintain_all tries again
            state.next_sentinel_query = next_sentinel_query
            raise

    def _query_sentinels(self, state: MasterState, master: int) -> None:
        """Disconnect a master when the Sentinels name another one. It stays if no Sentinel answers."""
        assert state.target.ask_sentinels
        connections = state.connections
        try:
            ask, timeout = state.target.ask_sentinels, self.settings.connect_timeout
            calls = state.target.calls
            named = calls.run(lambda: ask(timeout), ATTEMPT_TIMEOUTS * timeout, lambda late: None)
            with self.mutex:
                same = state.attached and state.connections == connections and not self.ended()
                if same and state.server.where != named.where:
                    self._fail(master, f"the Sentinels name another master: {named.host}:{named.port}")
                    self._wake.put(None)
        except (Unknown, ConnectError):
            pass
        except Exception:  # memory is short
            log_error("connector-error")
        finally:
            state.next_sentinel_query = time.monotonic() + self._sentinel_interval()

    def _sentinel_interval(self) -> float:
        """Seconds between two queries of the Sentinels."""
        return self.settings.guard.max_ttl / 4

    # --- connecting a master ---

    def _connect_in_background(self, master: int) -> None:
        self.states[master].connecting = True
        try:
            start_thread("connect", self._connect, master)
        except Exception:  # no thread, or no memory, is available: maintain_all tries again
            self.states[master].connecting = False
            raise

    def _connect(self, master: int) -> None:
        restore_signals(self._signal_mask)  # a credential provider may start a process
        state, settings, events = self.states[master], self.settings, self.client_state.events
        began, began_at, connections = lease_clock(), time.monotonic(), state.connections
        try:
            probed = connect(
                state.target,
                settings.connect_timeout,
                settings.key_prefix,
                settings.guard,
                known=state.server if state.known else None,
                push=settings.wait != "poll",
                check_masters=settings.check_masters != "off",
            )
            try:
                self._check_fit(state, probed.server)
                while (duplicate := self._attach_unless_duplicate(master, probed, began_at)) is not None:
                    self._check_distinct(state, duplicate, probed)
            finally:
                probed.close()
        except BaseException as error:  # ConnectError; or memory is short; or the greenlet is killed
            why = error_text(error)
            with self.mutex:
                state.connecting = False
                if state.attached:  # it was silent, and its connection stays
                    state.keep_connection()
                    return
                state.flushed |= isinstance(error, Flushed)
                began = -math.inf if isinstance(error, Loading) else began  # it was restarted before
                state.fail(why, state.failures + 1, isinstance(error, Refused), began)
                self._judge()
                self._notify_change()
            events.warn("master-unreachable", state.target.name, why)
        else:
            if state.attached and state.connections != connections:
                state.log_connected(events, settings.guard)
        self._write_records()
        self._wake.put(None)

    def _check_fit(self, state: MasterState, server: Server) -> None:
        """Raise ConnectError if a master cannot do what the configuration asks for."""
        why = ""
        if self.settings.wait == "push" and not server.can.push:
            why = "wait='push' needs RESP3 and CLIENT TRACKING there; use wait='auto'"
        elif (
            state.target.ask_sentinels
            and not (server.min_replicas and server.max_lag)  # 0 for either one: the server never stops
            and not self.settings.allow_split
        ):
            why = (
                "a master behind Sentinels needs min-replicas-to-write >= 1 and min-replicas-max-lag >= 1, "
                "and CONFIG GET to see both: else a partition gives two holders "
                "(allow_split=True accepts that)"
            )
        if why:
            if not state.known:  # it was never accepted: the configuration is wrong, not the master
                state.refused = f"masters: {state.target.name}: {why}"
            raise ConnectError(why)

    def _attach_unless_duplicate(self, master: int, probed: ProbedConnection, began_at: float) -> int | None:
        """Attach the connection to the engine: from now on the master is asked.

        If another connected master has the same run_id, attach nothing and return the number of that master.
        A connection that the master has had since ``began_at`` stays if the master has replied there since.
        """
        state = self.states[master]
        with self.mutex:
            if self.ended() or (state.attached and self._has_replied(master, began_at)):
                state.keep_connection()
                state.connecting = False
                return None
            for number, other in enumerate(self.states):
                same = other.attached and other.server.run_id == probed.server.run_id != ""
                if same and other is not state and (number, other.connections) not in probed.distinct:
                    return number
            sock = probed.take()
            if state.attached:
                self._forgotten_until = time.monotonic() + self.settings.socket_timeout
                self._fail(master, "it replies to a new connection, and not to this one")
            state.on_connected(probed.server, self.settings.guard, time.monotonic())
            state.next_sentinel_query = time.monotonic() + self._sentinel_interval()
            self._judge(master)  # before attach: no caller may ask a master that is under guard
            self._former.forbid(master)
            self.engine.attach(master, sock, probed.dialect)
            state.failures = 0
            state.connections += 1
            state.error = ""
            state.attached = True  # before ``connecting``: else the connector could connect it twice
            state.connecting = False
            self._notify_change()
            return None

    def _has_replied(self, master: int, since: float) -> bool:
        """Whether a master has replied on its connection since then. Also if that broke: it is found soon."""
        self.engine.maintain()
        link = self.engine.connection_state(master)
        return bool(link.broken) or link.lag < time.monotonic() - since

    def _check_distinct(self, state: MasterState, duplicate: int, probed: ProbedConnection) -> None:
        """Raise ConnectError if ``probed`` leads to the server of the master ``duplicate``.

        A duplicate that does not answer is disconnected: perhaps it only claims the run_id.
        """
        other = self.states[duplicate]
        connections = other.connections
        prefix, timeout = self.settings.key_prefix, self.settings.connect_timeout
        same = is_same_server(probed, self.engine, duplicate, other.target.database, prefix, timeout)
        if same:
            why = f"it is the same server as {other.target.name}, which has one vote"
            state.duplicate_error = "" if state.known else f"masters: {state.target.name}: {why}"
            raise ConnectError(why)
        if same is None:
            with self.mutex:
                if other.attached and other.connections == connections:
                    self._fail(
                        duplicate, "another master has its run_id, and it did not answer which of them it is"
                    )
        else:
            probed.distinct.add((duplicate, connections))

    def _check_configuration(self) -> None:
        """Set ``misconfigured`` if a master is refused, or fewer servers than a quorum are distinct."""
        lists = self.policy.voters.lists
        own = self.own_states(lists)
        duplicates = {n: state.duplicate_error for n, state in own.items() if state.duplicate_error}
        refused = [state.refused for state in own.values() if state.refused]
        if not lists.is_quorum(lists.all & ~mask_of(duplicates)):
            refused += duplicates.values()
        self.misconfigured = refused[0] if refused else self.records.verdict.wrong
        if self.misconfigured:
            self.client_state.ready = False

    def read_records(self) -> Verdict:
        """What the records of the masters say of this client's lists. Writes none, and changes no vote."""
        connections = RecordConnections(self.settings.key_prefix, self.settings.connect_timeout)
        try:
            return self.records.read_only(connections)
        finally:
            connections.close()

    def _write_records(self, again: bool = False) -> None:
        connections = RecordConnections(self.settings.key_prefix, self.settings.connect_timeout)
        self.records.write(connections, self._judge_and_notify, again)
        self.records.report(self.client_state.events)

    def _confirm_records(self) -> None:
        try:
            lost = self.records.confirm(self.engine, self.settings.key_prefix, self.settings.connect_timeout)
        except Exception:  # the engine was closed, or memory is short
            if not self.ended():
                log_error("connector-error")
            return
        if lost:
            with self.mutex:
                self._judge_and_notify()
            self._write_records()

    def _judge_and_notify(self) -> bool:
        self._judge()
        self._notify_change()
        return not self.ended()

    def _judge(self, attaching: int | None = None) -> None:
        """Find out which masters vote, and whether the configuration is wrong."""
        self.records.judge(attaching)
        self._check_configuration()
        self._update_voters()

    def _update_voters(self) -> None:
        if self.ended():  # in a child of fork a copy of a greenlet may call this
            return
        voters = self.policy.voters
        voters.lists.unlisted = self._unlisted()
        voters.mask = self._voting()
        voters.all_push = all(state.server.can.push for state in self.own_states().values() if state.known)

    def _voting(self) -> int:
        """The mask of the masters that cast votes, once they are connected."""
        return mask_of(n for n, state in enumerate(self.states) if state.votes)

    def _unlisted(self) -> int:
        """The mask of the masters whose records forbid the client's lists."""
        return mask_of(n for n, state in enumerate(self.states) if state.listed is False)

    def _notify_change(self) -> None:
        self.changed.notify_all()
        self.on_change()


def do_nothing() -> None:
    pass


def _connector(connector: weakref.ref[Connector], wake: queue.SimpleQueue[None], mask: Any) -> None:
    """The connector thread: ends when its client is closed or dropped.

    ``mask``: the signals that the program's thread blocked; here all are blocked.
    """
    while True:
        alive = connector()
        if alive is None or alive.ended() or alive._thread is not threading.current_thread():
            return
        alive._signal_mask = mask
        try:
            pause = alive.maintain_all()
        except Exception:  # a client without its connector would never recover
            log_error("connector-error")
            pause = IDLE_TICK
        del alive
        wait_for_wake(wake, pause)
