"""What a client reports of one master: ``health()``."""

from __future__ import annotations

from dataclasses import dataclass

from ..engine.contract import ConnectionState
from .master import Master


@dataclass(frozen=True, slots=True)
class MasterHealth:
    """One master as this client sees it.

    Attributes:
        name: Its address with the database, never a user or a password.
        lists: The arguments of the client that have it: ("masters",), ("joint_with",), or both.
        state: "connected", "lagging" (replies are overdue), "connecting", "refused" (it refuses this user:
            ``error`` begins with WRONGPASS, NOAUTH or NOPERM) or "down".
        server: The name of the server software: "valkey" or "redis".
        version: The version of the server.
        role: "master", or "" where this user may not ask.
        run_id: The id of the server's process. Another id means that the server was restarted.
        uptime: Seconds that the server had run for when it was connected.
        protocol: RESP 2 or 3.
        release_path: The command that deletes a lock: DELIFEQ, DELEX or EVALSHA.
        round_trip: Smoothed, in seconds.
        pending: Replies that are due.
        faults: Votes that were failures, so far.
        connections: How often it was connected.
        error: The last fault, as text.
        resent: Releases that were sent again, after a reconnect or after a transient error.
        resend_dropped: Releases that did not fit into the resend queue.
        persistence: "aof always", "aof not on rewrite" (``no-appendfsync-on-rewrite yes``), "aof everysec",
            "aof no", "no aof", or "" where this user may not ask. Only the first survives every restart.
        eviction: The eviction policy. Only "noeviction" keeps locks.
        guard: Seconds for which it still casts no vote, because it may have forgotten locks.
        push: Whether it notifies waiting clients when a lock is free. Otherwise they ask again and again.
        witness: Whether it reports that its keys are flushed (RESP3). Otherwise the restart guard
            notices a flush, or a time as a replica without requests, at the next connection only.
        listed: Whether its record of masters allows this client's list. None: it is not compared (with
            ``check_masters="off"``, or where this user may not read it), or no list is in force yet.
        no_vote: Why it casts no vote because of the records of masters; "": they allow it.
        causes: ``faults`` by cause, see docs/telemetry.md.
        skipped: How often it was not asked, by reason.
        abandoned: Attempts to connect it that did not end, so far: a credential provider or the resolver of
            names hangs.
    """

    name: str
    lists: tuple[str, ...]
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
    listed: bool | None
    no_vote: str
    causes: dict[str, int]
    skipped: dict[str, int]
    abandoned: int

    @property
    def no_vote_reason(self) -> str:
        """One word: why this client does not count its votes now; "" if it does.

        "connecting", "down" or "refused": it is not connected, see ``state``. "guard": it may have forgotten
        locks. "record": its record of masters does not allow the client's list, or is not read yet. A master
        that lags votes: its replies count when they come in time.
        """
        if self.state not in ("connected", "lagging"):
            return self.state
        return "record" if self.no_vote else "guard" if self.guard else ""


def health_of(master: Master, connection: ConnectionState, lists: tuple[str, ...]) -> MasterHealth:
    """The health of a master now. ``connection``: what the engine knows of it."""
    server = master.server
    if master.link.attached and connection.attached:
        word = "lagging" if connection.lag else "connected"
    elif master.link.failures:
        word = "refused" if master.link.access_refused else "down"
    else:
        word = "connecting"
    return MasterHealth(
        name=master.target.name,
        lists=lists,
        state=word,
        server=server.kind,
        version=server.version,
        role=server.role,
        run_id=server.run_id,
        uptime=server.uptime,
        protocol=server.protocol,
        release_path=server.can.release_path if master.link.connections else "",
        round_trip=connection.round_trip,
        pending=connection.pending,
        faults=master.tally.faults,
        connections=master.link.connections,
        error=connection.broken or master.tally.error,
        resent=connection.resent,
        resend_dropped=connection.resend_dropped,
        persistence=server.persistence,
        eviction=server.eviction,
        guard=master.guard.seconds(),
        push=server.can.push,
        witness=server.witness,
        listed=master.record.listed,
        no_vote=master.record.why,
        causes=dict(master.tally.causes),
        skipped=dict(master.tally.skipped),
        abandoned=master.target.calls.abandoned,
    )
