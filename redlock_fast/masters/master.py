"""One configured master: its connection, its restart guard, its record, and what its votes came to."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

from ..telemetry import EventLog
from .address import Target
from .faults import Tally
from .known_record import KnownRecord
from .link import Link
from .no_vote import NoVote
from .probe import Server
from .restart_guard import JUDGING, Guard, MasterGuard


@dataclass(slots=True)
class Master:
    """One configured master. Times are of the monotonic clock, in seconds."""

    target: Target
    link: Link = field(default_factory=Link)
    guard: MasterGuard = field(default_factory=MasterGuard)
    record: KnownRecord = field(default_factory=KnownRecord)
    tally: Tally = field(default_factory=Tally)
    unfit: str = ""  # why it does not fit the configuration, until it fits
    duplicate: str = ""  # that it is the server of another master, until it is not
    left_at: float = 0.0  # since when it is in no list of the client; 0.0: it is in one
    gone: bool = False  # it is in no list, and nothing is left to send to it: it is not connected again

    @property
    def server(self) -> Server:
        """What its server said of itself at the last connection."""
        return self.guard.server

    @property
    def no_vote(self) -> NoVote | None:
        """Why it casts no vote, once it is connected; None: it votes."""
        return NoVote.GUARDED if self.guard.until else self.record.no_vote

    def copy_after_fork(self, now: float) -> Master:
        """The same for a child of fork: what is known of the master, without a connection."""
        self.target.calls.after_fork_in_child()
        if self.target.topology is not None:
            self.target.topology.after_fork_in_child()
        guard = self.guard.copy()
        if self.link.attached:
            guard.lost_at = now
        return replace(self, link=Link(), guard=guard, record=self.record.copy_after_fork(), tally=Tally())

    def on_connected(self, server: Server, guard: Guard, now: float) -> None:
        """Record the server that was connected, and until when it casts no vote."""
        self.link.connected_at = now
        self.guard.admit(server, guard, now, self.target.fails_over)
        self.record.learn(server.seen, server.read_at)
        self.unfit = self.duplicate = ""

    def on_disconnected(self, why: str) -> None:
        """Record that its connection was closed."""
        now = time.monotonic()
        if self.link.attached:
            self.guard.lost_at = now
        self.tally.error = why
        self.link.on_disconnected(why, now)

    def on_failure(self, why: str, access_refused: bool = False, began: float = 0.0) -> None:
        """Record that an attempt to connect it failed.

        ``began``: when the attempt began, by the lease clock. It runs on while this computer is suspended: a
        master that was restarted since is younger than the attempt by this clock only.
        """
        self.guard.on_failure(began)
        self.tally.error = why
        self.link.on_failure(self.link.failures + 1, access_refused, time.monotonic())

    def guard_text(self) -> str:
        """Why it still casts no vote because of the restart guard; "" if that is not so."""
        seconds = self.guard.seconds()
        if not seconds:
            return ""
        why = f"it may have forgotten locks: no vote for {seconds:.1f} s more (restart_guard)"
        # Only at the first contact this may be a mistake of the guard.
        first = self.link.connections <= 1 and not self.server.promoted
        return f"{why}; if the masters start for the first time: assume_fresh" if first else why

    def log_connected(self, events: EventLog, guard: Guard) -> None:
        """Log the server that was connected, and why it may forget locks."""
        server, name = self.server, self.target.name
        version = f"{server.kind} {server.version}".strip() or "unknown server"
        events.info("master-connected", name, f"{version}, {server.can.release_path}")
        seconds = self.guard.seconds()
        if seconds:
            events.warn("master-guarded", name, f"it may have forgotten locks: no vote for {seconds:.1f} s")
        if server.evicts:
            events.warn("master-may-forget", name, f"maxmemory-policy {server.eviction} may evict locks")
        elif guard.mode == "off" and not server.durable:
            why = server.persistence or "persistence unknown"
            events.warn("master-may-forget", name, f"a restart loses locks ({why}), and restart_guard is off")
        if not server.run_id and guard.mode in JUDGING:
            events.warn("master-anonymous", name, "no INFO for this user: each reconnect counts as a restart")
