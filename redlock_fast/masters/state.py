"""Connection and trust state of one configured master: connected or not, trusted to vote or not."""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import dataclass, field

from ..engine.contract import BACKLOG, PROTOCOL_ERROR, ConnectionState
from ..telemetry import EventLog
from ..wire.resp import ProtocolError, decode, error_code, without_arguments
from ..wire.text import clean
from .address import Target
from .probe import Server
from .restart_guard import JUDGING, Guard

#: Seconds between attempts to reconnect, doubled each time, with jitter.
MIN_BACKOFF, MAX_BACKOFF = 0.05, 2.0
#: The same while a caller waits for a quorum, at least: at first, and at most.
URGENT_INTERVAL, MAX_URGENT_INTERVAL = 0.015, 0.1
#: An outage with fewer attempts that failed is short: waiting for them costs more than making them.
SHORT_OUTAGE = 50
#: Seconds. A connection that ends earlier counts as an attempt that failed.
SHORT_CONNECTION = 1.0
#: Seconds. A connection that ends earlier because the master broke the protocol also counts as an attempt
#: that failed: reading what such a master sends takes CPU. It does not count while a caller waits for a
#: quorum.
SHORT_CONNECTION_VIOLATION = 10.0
#: Of its own: threads of ours must not change what the program draws from the shared one.
_chance = random.Random()

#: The error replies that are causes by themselves; a server may say anything.
ERRORS = frozenset(
    (
        *("ASK", "BUSY", "CLUSTERDOWN", "CROSSSLOT", "ERR", "EXECABORT", "LOADING", "MASTERDOWN", "MISCONF"),
        *("MOVED", "NOAUTH", "NOPERM", "NOREPLICAS", "NOSCRIPT", "OOM", "READONLY", "TRYAGAIN", "UNKILLABLE"),
        *("WRONGPASS", "WRONGTYPE"),
    )
)


@dataclass(frozen=True, slots=True)
class MasterHealth:
    """One master as this client sees it.

    Attributes:
        name: Its address with the database, never a user or a password.
        state: "connected", "lagging" (replies are overdue), "connecting" or "down".
        server: What it calls itself: "valkey" or "redis".
        version: The server's.
        role: "master", or "" where it may not be asked.
        run_id: Of the server's process: another one means that it was restarted.
        uptime: Seconds that it had run for when it was connected.
        protocol: RESP 2 or 3.
        release_path: How it deletes a lock: DELIFEQ, DELEX or EVALSHA.
        round_trip: Smoothed, in seconds.
        pending: Replies that are due.
        faults: Votes that were failures, so far.
        connections: How often it was connected.
        error: The last trouble, in words.
        resent: Releases that were sent again: after a reconnect, or after a transient error of the master.
        resend_dropped: Releases that did not fit into the resend queue.
        persistence: "aof always", "aof not on rewrite" (``no-appendfsync-on-rewrite yes``), "aof everysec",
            "aof no", "no aof", or "" where it may not be asked. Only the first survives every restart.
        eviction: Its policy; only "noeviction" keeps locks.
        guard: For how many seconds more it casts no vote, because it may have forgotten locks.
        push: Whether it tells who waits when a lock is free; else who waits has to ask again and again.
        witness: Whether it tells when its keys are flushed (RESP3). Else the restart guard cannot see that,
            nor that a master was a replica meanwhile, of which nothing was asked.
        causes: ``faults`` by cause, see docs/telemetry.md.
        skipped: How often it was passed over, by reason.
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
    pending: int
    faults: int
    connections: int
    error: str
    resent: int
    resend_dropped: int
    persistence: str
    eviction: str
    guard: float
    push: bool
    witness: bool
    causes: dict[str, int]
    skipped: dict[str, int]


@dataclass(slots=True)
class MasterState:
    """Connection and trust state of one configured master."""

    target: Target
    attached: bool = False
    connecting: bool = False
    failures: int = 0
    failed_at: float = 0.0
    next_try: float = 0.0
    server: Server = field(default_factory=Server)
    refused: str = ""  # why it may never sit here, until it may
    duplicate_error: str = ""  # that it is another one's server, until it is not
    flushed: bool = False  # it told so since it was last admitted
    known: bool = False  # it was connected before, here or in the parent of fork: ``server`` is its last
    connected_at: float = 0.0
    lost_at: float = 0.0
    short_connections: int = 0  # how many connections in a row ended before ``SHORT_CONNECTION``
    # how many connections in a row ended before ``SHORT_CONNECTION_VIOLATION`` with a ``PROTOCOL_ERROR``
    violations: int = 0
    next_sentinel_query: float = 0.0  # when the Sentinels that name it are asked again
    guarded_until: float = 0.0
    connections: int = 0
    causes: Counter[str] = field(default_factory=Counter)  # of votes that were failures
    skipped: Counter[str] = field(default_factory=Counter)  # votes that it could not be asked for
    error: str = ""

    @property
    def faults(self) -> int:
        return sum(list(self.causes.values()))

    def guard(self) -> float:
        """For how many seconds more it casts no vote."""
        return max(0.0, self.guarded_until - time.monotonic())

    def copy_after_fork(self, now: float) -> MasterState:
        """In a child of fork: what it must know of the master, and none of the connection."""
        return MasterState(
            self.target,
            server=self.server,
            refused=self.refused,
            duplicate_error=self.duplicate_error,
            flushed=self.flushed,
            known=self.known,
            lost_at=now if self.attached else self.lost_at,
            guarded_until=self.guarded_until,
        )

    def on_connected(self, server: Server, guard: Guard, now: float) -> None:
        """Who sits here from now on, and until when its yes does not count."""
        self.connected_at = now
        before = self.server if self.known else None
        kept = before is not None and server.data == before.data != b""
        emptied = before is not None and server.data != before.data != b""
        quarantine = guard.quarantine(
            before.identity if before else None,
            server.identity,
            uptime=server.uptime,
            away=now - self.lost_at,
            durable=server.durable and before is not None and before.durable,
            promoted=server.promoted,
            flushed=emptied or (self.flushed and not kept),
            max_lag=server.max_lag if server.min_replicas else 0.0,
        )
        quarantine = max(quarantine, server.guarded)
        if quarantine:
            self.guarded_until = max(self.guarded_until, now + quarantine)
        self.server, self.known, self.flushed, self.refused, self.duplicate_error = (
            server,
            True,
            False,
            "",
            "",
        )

    def on_disconnected(self, why: str) -> None:
        """Its connection is given up. A master that ends each at once is connected ever more rarely."""
        now = time.monotonic()
        if self.attached:
            lived = now - self.connected_at
            self.short_connections = self.short_connections + 1 if lived < SHORT_CONNECTION else 0
            violated = lived < SHORT_CONNECTION_VIOLATION and why.startswith(PROTOCOL_ERROR)
            self.violations = self.violations + 1 if violated else 0
            self.lost_at = now
        self.attached = False
        self.fail(why, max(1, self.short_connections, self.violations))

    def fail(self, why: str, failures: int) -> None:
        """It is not connected, and is to be tried again in a while."""
        self.error = why
        self.failures = failures
        self.failed_at = time.monotonic()
        self.next_try = self.failed_at + _backoff(failures)

    def urgent_interval(self) -> float:
        """Seconds between two attempts to connect it, at least, while a caller waits for a quorum."""
        return min(
            MAX_URGENT_INTERVAL,
            URGENT_INTERVAL * max(1, self.short_connections, self.failures // SHORT_OUTAGE),
        )

    def log_connected(self, events: EventLog, guard: Guard) -> None:
        """Log who was connected, and whether it could forget a lock."""
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

    def health(self, connection: ConnectionState) -> MasterHealth:
        """As it is now, with what the engine says of its connection."""
        up = self.attached and connection.attached
        state = (
            ("lagging" if connection.lag else "connected")
            if up
            else "down"
            if self.failures
            else "connecting"
        )
        server = self.server
        return MasterHealth(
            name=self.target.name,
            state=state,
            server=server.kind,
            version=server.version,
            role=server.role,
            run_id=server.run_id,
            uptime=server.uptime,
            protocol=server.protocol,
            release_path=server.can.release_path if self.connections else "",
            round_trip=connection.round_trip,
            pending=connection.pending,
            faults=self.faults,
            connections=self.connections,
            error=connection.broken or self.error,
            resent=connection.resent,
            resend_dropped=connection.resend_dropped,
            persistence=server.persistence,
            eviction=server.eviction,
            guard=self.guard(),
            push=server.can.push,
            witness=server.witness,
            causes=dict(self.causes),
            skipped=dict(self.skipped),
        )


def fault_text(detail: str | bytes) -> str:
    """A fault for people: the text of an error reply, any other reply as what it was."""
    if isinstance(detail, str):
        return detail
    if detail[:1] == b"-":
        return clean(without_arguments(detail[1:-2].decode(errors="backslashreplace")))
    try:
        return clean(f"unexpected reply {decode(detail)!r}")
    except ProtocolError:  # well formed, and still no value: a map with lists for keys
        return clean(f"unexpected reply {detail!r}")


def fault_cause(detail: str | bytes) -> str:
    """A fault as one of few words, for counting: an error's code, or what kind of trouble it was."""
    if isinstance(detail, bytes):
        code = error_code(detail).decode(errors="replace")
        return "unexpected reply" if detail[:1] != b"-" else code if code in ERRORS else "other error"
    if detail in BACKLOG:
        return "backlog"
    if detail == "it restarted after it was asked":
        return "restart"
    for cause in ("unexpected reply", PROTOCOL_ERROR):
        if detail.startswith(cause):
            return cause
    return "connection"


def _backoff(failures: int) -> float:
    return min(MAX_BACKOFF, MIN_BACKOFF * 2.0 ** min(failures - 1, 10)) * _chance.uniform(0.5, 1.0)
