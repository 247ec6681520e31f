"""Connection and trust state of one configured master: connected or not, trusted to vote or not."""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from dataclasses import dataclass, field, replace

from ..algorithm.policy import lease_clock
from ..engine.contract import PROTOCOL_ERROR
from ..engine.fork import in_child_of_fork
from ..telemetry import EventLog
from .address import Target
from .membership import Record, Seen
from .probe import Server
from .restart_guard import JUDGING, Guard

#: Seconds between two attempts to connect, doubled each time, with jitter.
MIN_BACKOFF, MAX_BACKOFF = 0.05, 2.0
#: The bounds of that interval while a caller waits for a quorum, in seconds. In between it is this share of
#: the time for which the master has been down: after a short outage the callers go on soon, and in a long one
#: the processes of a large fleet, which all dial, leave the master time to serve those that it accepted.
URGENT_INTERVAL, MAX_URGENT_INTERVAL, SHARE_OF_OUTAGE = 0.02, 0.25, 0.04
#: A connection that ends earlier (seconds) counts as a failed attempt.
SHORT_CONNECTION = 1.0
#: A connection that ends earlier (seconds) because the master broke the protocol also counts as a failed
#: attempt, because reading what such a master sends takes CPU. It does not count while a caller waits for a
#: quorum.
SHORT_CONNECTION_VIOLATION = 10.0
#: A generator of this module: the shared one's sequence belongs to the program.
_random = random.Random()
in_child_of_fork(_random.seed)


@dataclass(slots=True)
class MasterState:
    """Connection and trust state of one configured master. Times are of the monotonic clock, in seconds."""

    target: Target
    attached: bool = False  # the engine has a connection to it
    connecting: bool = False  # a thread connects it
    failures: int = 0  # failed attempts in a row
    access_refused: bool = False  # the last attempt failed because its server refused this user
    failed_at: float = 0.0
    next_try: float = 0.0
    next_new_connection: float = 0.0  # while it is connected and silent
    next_urgent_try: float = 0.0  # the same while a caller waits for a quorum
    down_since: float = 0.0  # since when it has no connection; 0.0: it was never tried
    server: Server = field(default_factory=Server)  # at the last connection
    refused: str = ""  # why it does not fit the configuration, until it fits
    duplicate_error: str = ""  # that it is the server of another master, until it is not
    seen: Seen | None = None  # its record of masters as read last; None: not compared
    read_at: float = 0.0  # ``boot_time`` before ``seen`` was read, or was shown to be as it was
    former: Record | None = None  # its last record with a list that it had before ``seen``
    former_at: float = -math.inf  # ``read_at`` of that one
    listed: bool | None = None  # its record allows the client's list; None: it is not compared, or not yet
    unlisted: str = ""  # why it casts no vote by the records of all masters
    undecided: bool = False  # it casts no vote yet, until all masters were tried and records were written
    record_error: str = ""  # why its record is not written again before it is connected or read again
    record_writes: int = 0  # how often its record was written since it was connected or read again
    record_tries: int = 0  # the same with failed writes, since the client's list was in force
    reported: str = ""  # the last logged ``unlisted``
    silent_since: float = 0.0  # the time of the check from which on it is silent; 0.0: it replies
    pauses: int = 0  # how often in a row that time was set: after a pause of this process it is set again
    flushed: bool = False  # it reported a flush since it was last connected
    known: bool = False  # it was connected before, in this process or a parent of fork
    # While it was never connected: when the first attempt began that failed, by the lease clock; 0.0: none.
    first_failure: float = 0.0
    connected_at: float = 0.0
    lost_at: float = 0.0
    short_connections: int = 0  # how many connections in a row ended before ``SHORT_CONNECTION``
    # how many connections in a row ended before ``SHORT_CONNECTION_VIOLATION`` with a ``PROTOCOL_ERROR``
    violations: int = 0
    next_sentinel_query: float = 0.0
    left_at: float = 0.0  # since when it is in no list of the client; 0.0: it is in one
    gone: bool = False  # it is in no list, and nothing is left to send to it: it is not connected again
    guarded_until: float = 0.0  # it casts no vote until then; 0.0: it votes
    connections: int = 0
    causes: Counter[str] = field(default_factory=Counter)  # votes that were failures, by cause
    skipped: Counter[str] = field(default_factory=Counter)  # requests that were not sent to it, by reason
    error: str = ""  # the last fault, as text

    @property
    def votes(self) -> bool:
        """Whether it casts votes, once it is connected."""
        return not (self.guarded_until or self.unlisted)

    @property
    def faults(self) -> int:
        """How many votes were failures."""
        return sum(list(self.causes.values()))  # a copy, because other threads add causes

    def guard(self) -> float:
        """Seconds for which it still casts no vote."""
        return max(0.0, self.guarded_until - time.monotonic())

    def guard_text(self) -> str:
        """Why it still casts no vote because of the restart guard; "" if that is not so."""
        left = self.guard()
        if not left:
            return ""
        why = f"it may have forgotten locks: no vote for {left:.1f} s more (restart_guard)"
        # Only at the first contact this may be a mistake of the guard.
        first = self.connections <= 1 and not self.server.promoted
        return f"{why}; if the masters start for the first time: assume_fresh" if first else why

    def copy_after_fork(self, now: float) -> MasterState:
        """The state for a child of fork: what is known of the master, without a connection."""
        self.target.calls.after_fork_in_child()
        return replace(
            self.copy_of_returned(self.target),
            refused=self.refused,
            duplicate_error=self.duplicate_error,
            seen=self.seen,
            read_at=self.read_at,
            former=self.former,
            former_at=self.former_at,
            unlisted=self.unlisted,
            lost_at=now if self.attached else self.lost_at,
            left_at=self.left_at,
            gone=self.gone,
        )

    def copy_of_returned(self, target: Target) -> MasterState:
        """The state of a master that left the lists and comes back: the restart guard knows it already."""
        return MasterState(
            target,
            server=self.server,
            flushed=self.flushed,
            known=self.known,
            first_failure=self.first_failure,
            lost_at=self.lost_at,
            guarded_until=self.guarded_until,
        )

    def on_connected(self, server: Server, guard: Guard, now: float) -> None:
        """Record the server that was connected, and until when it casts no vote."""
        self.connected_at = now
        before = self.server if self.known else None
        kept = before is not None and server.data == before.data != b""
        emptied = before is not None and server.data != before.data != b""
        same_process = before is not None and server.run_id == before.run_id
        counted = before is not None and server.flushes != before.flushes
        # Its report may have been lost with the connection, or never sent.
        unreported = same_process and counted
        # No command removed the keys: an older dump may be loaded, and the witness key with it.
        reloaded = self.flushed and same_process and not counted
        # A replica that is promoted before it has data does not show that it was one.
        # At the first contact only the marker, in ``server.guarded``, shows when it may have been promoted.
        failed_over = (
            self.target.ask_sentinels is not None and before is not None and server.where != before.where
        )
        tried = lease_clock() - self.first_failure if self.first_failure else 0.0
        quarantine = guard.quarantine(
            before.identity if before else None,
            server.identity,
            uptime=server.uptime,
            away=now - self.lost_at if before else tried,
            durable=server.durable and before is not None and before.durable,
            promoted=failed_over,
            flushed=emptied or ((self.flushed or unreported) and not kept),
            reloaded=reloaded,
            max_lag=server.lag,
        )
        quarantine = max(quarantine, server.guarded)
        if quarantine:
            self.guarded_until = max(self.guarded_until, now + quarantine)
        self.server, self.known, self.flushed = server, True, False
        self.learn(server.seen, server.read_at)
        self.refused = self.duplicate_error = ""

    def learn(self, seen: Seen | None, at: float) -> None:
        """What its record is now. ``at``: ``boot_time`` before it was read."""
        if self.seen and self.seen.record and self.seen.record.epoch:
            self.former, self.former_at = self.seen.record, self.read_at
        self.seen, self.read_at = seen, at

    def on_disconnected(self, why: str) -> None:
        """Record that its connection was closed.

        The backoff grows with the number of short connections in a row.
        """
        now = time.monotonic()
        if self.attached:
            lived = now - self.connected_at
            self.short_connections = self.short_connections + 1 if lived < SHORT_CONNECTION else 0
            violated = lived < SHORT_CONNECTION_VIOLATION and why.startswith(PROTOCOL_ERROR)
            self.violations = self.violations + 1 if violated else 0
            self.lost_at = now
        self.attached = False
        self.down_since = now
        self.fail(why, max(1, self.short_connections, self.violations))
        if not self.short_connections:
            self.next_urgent_try = now

    def keep_connection(self) -> None:
        """Record that the attempt to connect it again was for nothing: it stays connected as it is."""
        self.next_new_connection = time.monotonic() + MAX_URGENT_INTERVAL * _random.uniform(1.0, 1.5)

    def fail(self, why: str, failures: int, access_refused: bool = False, began: float = 0.0) -> None:
        """Record that it is not connected after ``failures`` attempts, and set the time of the next.

        ``began``: when the attempt to connect began, by the lease clock. It runs on while this computer is
        suspended: a master that was restarted since is younger than the attempt by this clock only.
        """
        if not self.known:
            self.first_failure = min(self.first_failure or began, began)
        self.error = why
        self.access_refused = access_refused
        self.failures = failures
        self.failed_at = time.monotonic()
        self.next_try = self.failed_at + _backoff(failures)
        self.down_since = self.down_since or self.failed_at
        self.next_urgent_try = self.failed_at + _urgent_backoff(
            self.short_connections, self.failed_at - self.down_since
        )

    def log_connected(self, events: EventLog, guard: Guard) -> None:
        """Log the server that was connected, and why it may forget locks."""
        server, name = self.server, self.target.name
        version = f"{server.kind} {server.version}".strip() or "unknown server"
        events.info("master-connected", name, f"{version}, {server.can.release_path}")
        left = self.guard()
        if left:
            events.warn("master-guarded", name, f"it may have forgotten locks: no vote for {left:.1f} s")
        if server.evicts:
            events.warn("master-may-forget", name, f"maxmemory-policy {server.eviction} may evict locks")
        elif guard.mode == "off" and not server.durable:
            why = server.persistence or "persistence unknown"
            events.warn("master-may-forget", name, f"a restart loses locks ({why}), and restart_guard is off")
        if not server.run_id and guard.mode in JUDGING:
            events.warn("master-anonymous", name, "no INFO for this user: each reconnect counts as a restart")


def _backoff(failures: int) -> float:
    """Seconds until the next attempt after ``failures`` failed attempts."""
    return min(MAX_BACKOFF, MIN_BACKOFF * 2.0 ** min(failures - 1, 10)) * _random.uniform(0.5, 1.0)


def _urgent_backoff(short_connections: int, outage: float) -> float:
    """The same while a caller waits for a quorum. ``outage``: for how long the master has been down."""
    shortest = URGENT_INTERVAL * max(1, short_connections)
    return min(max(shortest, SHARE_OF_OUTAGE * outage), MAX_URGENT_INTERVAL) * _random.uniform(1.0, 1.5)
