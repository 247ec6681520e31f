"""The masters of one client: what its callers and drivers do with them, and their end."""

from __future__ import annotations

import atexit
import contextlib
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..algorithm.batch import undo_leases
from ..algorithm.lease import AS_CLIENT, RELEASE_AT_EXIT, Lease
from ..algorithm.local_queue import LocalQueue, QueueEntry
from ..algorithm.operation import Message
from ..algorithm.policy import Policy
from ..engine.contract import FAULT, NOT_ASKED, Engine, Votes
from ..engine.fork import in_child_of_fork
from ..errors import CLOSED, ClientClosed, ConfigError, RedlockError
from ..telemetry import log_error
from .address import Target
from .client_state import ClientState
from .connector import Connector
from .faults import fault_text
from .former_lists import FormerLists
from .health import MasterHealth, health_of
from .master import Master
from .roster import Roster
from .settings import ConnectorSettings

#: Seconds that the first call waits for more masters than a quorum.
GRACE = 0.05
#: A client for threads is used in the thread of an event loop.
BLOCKS_LOOP = (
    "this call blocks the event loop that runs in its thread: use AsyncFastRedlock, or asyncio.to_thread"
)
#: Seconds to wait for a reconnect that seems to be done already.
SHORT_PAUSE = 0.001
#: Seconds for the masters to execute what they were sent before a client closes its connections.
CLOSE_TIMEOUT = 1.0
#: At the end of the interpreter: seconds without a grant, after which none is expected any more.
QUIET = 0.1


class Masters:
    """All masters of one client. A child of fork gives it another connector and engine."""

    def __init__(
        self,
        targets: Sequence[Target | None],
        policy: Policy,
        settings: ConnectorSettings,
        release_at_exit: bool,
    ) -> None:
        self.client_state: ClientState = ClientState(weakref.ref(self))
        self.policy = policy
        #: The calls that acquire the first level of a reentrant lock, by its named owner.
        self.turns: LocalQueue = LocalQueue()
        self.release_at_exit = release_at_exit
        masters = [Master(target) for target in targets if target is not None]
        roster = Roster(masters, policy.voters, FormerLists(settings.guard.max_ttl))
        self._use(Connector(policy, settings, roster, self.client_state))
        _all_masters.add(self)

    def _use(self, connector: Connector) -> None:
        self._connector = connector
        self.engine: Engine = connector.engine  # bound here: each lock looks up one attribute less

    @property
    def connector(self) -> Connector:
        """The connector of this process. After a fork in C that is a new one."""
        self.client_state.generation()
        return self._connector

    # --- waiting (an event loop waits for the same conditions without blocking) ---

    def wait_for_quorum(self, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds for a quorum of connections. Returns whether there is one."""
        self.connector.start()
        if in_event_loop():
            self.client_state.events.warn_of("blocks-event-loop", BLOCKS_LOOP)
        self.wait_for(self.quorum_conditions(timeout))
        return self.end_quorum_wait()

    def wait_for(self, conditions: Iterable[tuple[Callable[[], bool], float]]) -> None:
        """Wait for each condition in turn, for its seconds at most."""
        for condition, seconds in conditions:
            self.connector.monitor.changed.wait_for(condition, seconds)

    def wait_until_tried(self, timeout: float) -> None:
        """Wait up to ``timeout`` seconds until each master is connected, or could not be."""
        roster = self.connector.roster
        self.wait_for([(lambda: self.client_state.closed or roster.all_tried(), timeout)])

    def quorum_conditions(self, timeout: float) -> Sequence[tuple[Callable[[], bool], float]]:
        """The conditions to wait for in this order, each with its seconds. Then call ``end_quorum_wait``."""

        connector = self.connector

        def cannot_connect() -> bool:
            return self.client_state.closed or bool(connector.electorate.misconfigured)

        def quorum() -> bool:
            return cannot_connect() or connector.roster.has_quorum()

        def all_tried() -> bool:
            return cannot_connect() or connector.roster.all_tried()

        # A lease on a bare quorum is lost with the first master that fails: give the others a moment. Of a
        # Cluster each name has one shard, and any of them may be asked first.
        grace = timeout if self.policy.voters.lists.shards else min(timeout, GRACE)
        return (quorum, timeout), (all_tried, grace)

    def end_quorum_wait(self) -> bool:
        """Record that a caller has waited for the first quorum. Returns whether there is a quorum.

        Raises ConfigError if the configuration cannot work.
        """
        self.client_state.ready = not self.connector.electorate.misconfigured
        if self.connector.electorate.misconfigured:
            self.check_open()
        return self.connector.roster.has_quorum() and not self.client_state.closed

    def pause(self, seconds: float) -> None:
        """Sleep for ``seconds``. Raises ClientClosed as soon as the client is closed."""
        self.connector.monitor.changed.wait_for(lambda: self.client_state.closed, seconds)
        self.check_open()

    def reconnect(self, seconds: float, disconnected: Sequence[int], silent: Sequence[int] = ()) -> None:
        """Wait up to ``seconds`` until one of these masters is connected again, with a quorum.

        Raises ClientClosed as soon as the client is closed.
        """
        self.connector.monitor.changed.wait_for(*self.reconnect_condition(seconds, disconnected, silent))
        self.check_open()

    def reconnect_condition(
        self, seconds: float, disconnected: Sequence[int], silent: Sequence[int] = ()
    ) -> tuple[Callable[[], bool], float]:
        """Connect masters without their backoff. Returns the condition to wait for, and the seconds."""
        before = {n: self.connector.roster.masters[n].link.connections for n in silent}

        def reconnected() -> bool:
            roster, is_usable = self.connector.roster, self.connector.connections.is_usable
            new = [n for n in silent if roster.masters[n].link.connections != before[n]]
            back = roster.has_quorum() and any(map(is_usable, [*disconnected, *new]))
            return self.client_state.closed or back

        if reconnected():  # since the exchange that failed
            return lambda: self.client_state.closed, min(seconds, SHORT_PAUSE)
        self.connector.dialler.connect_urgently(seconds)
        return reconnected, seconds

    def wait_for_turn(self, entry: QueueEntry, seconds: float) -> None:
        """Wait up to ``seconds`` until ``entry`` is the first of its queue.

        Raises ClientClosed as soon as the client is closed.
        """
        sleep = threading.Lock()  # not an Event: a handler that raises in its methods leaves a mutex locked
        sleep.acquire()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # it is awake already
                sleep.release()

        entry.slot.wake = wake
        if not entry.is_first and not self.client_state.closed:
            sleep.acquire(timeout=min(seconds, threading.TIMEOUT_MAX))
        self.check_open()

    def forget_callers(self) -> None:
        """Remove waiting callers from all queues: their event loop is closed, so they can never leave."""
        self.policy.local_queue.clear()
        self.turns.clear()
        undo = self.policy.server_entries.clear()
        if undo:
            self.engine.exchange(undo, 0, 0.0)

    def check_open(self) -> None:
        """Raise ClientClosed after close(), or ConfigError if the configuration cannot work."""
        self.check_not_closed()
        if self.connector.electorate.misconfigured:
            raise ConfigError(self.connector.electorate.misconfigured)

    def check_not_closed(self) -> None:
        """Raise ClientClosed after close()."""
        if self.client_state.closed:
            raise ClientClosed(CLOSED)

    # --- what the masters are like ---

    def cause(self, master: int, votes: Votes) -> str:
        """Why a master did not vote in an exchange."""
        if votes.values[master] != FAULT:
            return "no reply in time"
        text = fault_text(votes.details.get(master, "failed"))
        one = self.connector.roster.masters[master]
        if text == NOT_ASKED and (no_vote := one.record.why or one.guard_text()):
            return no_vote
        if text != "not connected":
            return text
        error = one.tally.error or "no answer yet"  # the first attempt goes on
        return error if one.link.access_refused else f"{text}: {error}"

    def guarded_for(self, votes: Votes) -> float:
        """Seconds until the restart guards leave a quorum of connected masters; 0.0: guards do not matter.

        ``votes``: of the exchange that had no quorum. Of a Cluster they show whether the shard was asked.
        """
        roster, lists = self.connector.roster, self.policy.voters.lists
        if lists.shards:
            asked = any(detail != NOT_ASKED for detail in votes.details.values())
            return 0.0 if asked else max((one.guard.seconds() for one in roster.masters), default=0.0)
        guards = {n: one.guard.seconds() for n, one in enumerate(roster.masters) if one.link.attached}
        return lists.rank(guards) or 0.0 if roster.has_quorum() else 0.0

    def health(self) -> list[MasterHealth]:
        connector, lists = self.connector, self.policy.voters.lists
        return [
            health_of(master, connector.engine.connection_state(number), lists.names_of(number))
            for number, master in connector.roster.own(lists).items()
        ]

    # --- the end ---

    def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Remove queue entries on the masters, then close all connections, within ``timeout`` seconds.

        Masters are given this time to execute what they were sent. Does nothing the second time.
        """
        if self.connector.stop():
            self._close_connections(timeout)

    def _close_connections(self, timeout: float) -> None:
        end = time.monotonic() + timeout
        self.policy.local_queue.wake_all()
        # Without this, other processes would wait behind the queue entries of callers of this client.
        undo = self.policy.server_entries.close()
        if undo:
            self.engine.exchange(undo, 0, 0.0)
        self._cancel_batches(timeout / 2)
        self.policy.server_entries.wait_for_rounds(max(0.0, end - time.monotonic()))
        self.connector.close(max(0.0, end - time.monotonic()))
        self.client_state.remove_leases(list(self.client_state.held))

    def _cancel_batches(self, timeout: float) -> None:
        """Undo the calls of acquire_many that have not returned, within ``timeout`` seconds."""
        cancelled = [batch for batch in self.client_state.unfinished_batches() if batch.completion.cancel()]
        if not cancelled:
            return
        for batch in cancelled:
            self._send(batch.undo())
        self.engine.drain(timeout)
        for batch in cancelled:  # a thread may have sent its last attempt behind these releases
            self._send(batch.undo(-1))

    def _send(self, undo: Iterable[Message]) -> None:
        for requests in undo:
            self.engine.exchange(requests, 0, 0.0)

    # --- the end of the interpreter ---

    def _held_until_exit(self) -> list[Lease]:
        """What the end of the interpreter releases: by default nothing that a running thread still uses."""
        used = {thread.ident for thread in threading.enumerate() if thread.daemon}

        def is_released(lease: Lease) -> bool:
            if lease.at_exit == AS_CLIENT:
                return self.release_at_exit and lease.thread not in used
            return lease.at_exit == RELEASE_AT_EXIT

        return list(filter(is_released, list(self.client_state.held)))

    def _stop_at_exit(self, threads: bool) -> bool:
        """Close the client for new calls if it has leases to release, or may get some from ``threads``."""
        self.client_state.generation()
        if not (self._held_until_exit() or (threads and self.release_at_exit)):
            return False
        self.client_state.ending = True
        return self.connector.stop()

    def _release_at_exit(self, released: set[Lease]) -> bool:
        """Release what is held and not in ``released``, and add it there. Returns whether there was any."""
        # Also what its own thread is releasing: perhaps it has not sent that.
        leases = [lease for lease in self._held_until_exit() if lease not in released]
        released.update(leases)
        self._send(undo_leases(leases))
        return bool(leases)

    def after_fork_in_child(self) -> None:
        """Begin again without the connections and leases of the parent."""
        self.policy.local_queue.after_fork_in_child()
        self.turns.after_fork_in_child()
        self.policy.server_entries.after_fork_in_child()
        self.client_state.after_fork_in_child()
        self._use(self._connector.copy_after_fork())


def in_event_loop() -> bool:
    """Whether an event loop of asyncio runs in this thread."""
    asyncio: Any = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None


_all_masters: weakref.WeakSet[Masters] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for masters in list(_all_masters):
        try:
            masters.after_fork_in_child()
        except Exception:  # a client that fails must not leave the others with connections of the parent
            log_error("fork-error")


def release_held() -> None:
    """Release the leases of this process at the end of the interpreter, and close the clients that held them.

    While other threads run, a client that holds nothing yet is closed, too: its threads may be granted what
    they asked for before. The clients are closed first: otherwise a waiting thread would get the lock. Each
    client takes CLOSE_TIMEOUT at most.

    The other threads are daemon threads. They go on until the interpreter is gone. What such a thread holds
    is released if the thread releases it before this function ends. Otherwise it ends with its lease.
    """
    end = time.monotonic() + CLOSE_TIMEOUT
    ours = "redlock-fast-", threading.current_thread().name
    threads = not all(thread.name.startswith(ours) for thread in threading.enumerate())
    ending: list[Masters] = []
    if threads:
        _report_no_cancelled_calls()
    for masters in list(_all_masters):
        with contextlib.suppress(Exception):  # no caller is left that could handle it
            if masters._stop_at_exit(threads):
                ending.append(masters)
    released: set[Lease] = set()
    _release_all(ending, released)
    quiet = time.monotonic() + QUIET
    while threads and ending and time.monotonic() < min(quiet, end):
        time.sleep(SHORT_PAUSE)
        if _release_all(ending, released):
            quiet = time.monotonic() + QUIET
    left = max(0.0, end - time.monotonic())
    for masters in ending:
        with contextlib.suppress(Exception):
            masters._close_connections(left)


def _report_no_cancelled_calls() -> None:
    """From now on a RedlockError that ends a daemon thread prints no traceback.

    The end of the interpreter has cancelled the call of that thread. A daemon thread without locks prints
    nothing either when the interpreter ends.
    """
    report = threading.excepthook

    def report_the_rest(args: threading.ExceptHookArgs, /) -> None:
        if not (args.thread and args.thread.daemon and issubclass(args.exc_type, RedlockError)):
            report(args)

    threading.excepthook = report_the_rest


def _release_all(ending: list[Masters], released: set[Lease]) -> bool:
    found = False
    for masters in ending:
        with contextlib.suppress(Exception):
            found |= masters._release_at_exit(released)
    return found


def end_tls() -> None:
    """End all TLS, after the releases: a daemon thread inside OpenSSL could crash the process at its exit."""
    tls: Any = sys.modules.get("redlock_fast.engine.tls")
    if tls is not None:
        tls.ended = True


# Called in the reverse order.
atexit.register(end_tls)
atexit.register(release_held)
in_child_of_fork(_after_fork_in_child)
