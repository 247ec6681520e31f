"""The restart guard: which masters may have forgotten locks, and until when they cast no vote.

A master that restarts without its data would grant a lock that is still held. So it casts no vote for the
longest possible lease; then every lease that it could have forgotten has ended. Source: "Distributed Locks
with Redis", the section on crash recovery.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, get_args

from ..algorithm.policy import lease_clock
from ..wire.dialect import MARKER, RestartMarker
from .probe import Server

RestartGuard = Literal["auto", "durable", "strict", "marker", "off"]
"""What a client does about masters that may have forgotten locks."""

MODES: tuple[str, ...] = get_args(RestartGuard)
#: Seconds for which a server may take writes after ``min-replicas-max-lag``: it counts whole seconds since
#: the last reply of a replica, and looks once a second.
LATE_STOP = 2.0
#: The modes in which the client decides by what it sees of a master when it connects.
JUDGING = ("auto", "durable", "strict")


class Guard(NamedTuple):
    """The client's settings for the restart guard.

    ``mode``: one of MODES. ``max_ttl``: the longest lease of all clients, in seconds. ``assume_fresh``: a
    master has nothing to forget at the first contact.
    """

    mode: str
    max_ttl: float
    assume_fresh: bool = False

    def marker(
        self, server: Server, known: Server | None, failed_over: bool | None = None, key_prefix: bytes = b""
    ) -> RestartMarker | None:
        """The marker that is compared when a master is connected; None: it is not asked for.

        In the mode "marker" acquires compare it, too. The other modes ask for it where a master does not show
        when it became one: it was promoted, or may have been, and another server was there at the last
        contact (``known``). The first client that meets such a master stamps it, so that the master is silent
        once, and not again for each new process.

        A master that was promoted before it had data does not show it, but its Sentinels remember
        (``failed_over``; None: it has no Sentinels). The mode "strict" does not rely on their memory.

        A promoted master gets another name, so that a marker that was replicated to it does not count. Where
        it had no data, none was. Its former master may take writes for ``stops_after(server.lag)`` seconds.
        So this client waits that much longer.
        """
        unsure = server.promoted or failed_over or (failed_over is not None and self.mode == "strict")
        is_known = known is not None and known.identity == server.identity
        if self.mode == "off" or (self.mode != "marker" and (is_known or not unsure)):
            return None
        name = f"{server.run_id}/{server.replid}" if server.promoted else server.run_id
        wait = round((self.max_ttl + stops_after(server.lag)) * 1000)
        return RestartMarker(name, wait, key_prefix + MARKER)

    def silence(self, lag: float) -> float:
        """Seconds for which a master casts no vote after it was promoted. ``lag``: as of its server."""
        return 0.0 if self.mode == "off" else self.max_ttl + stops_after(lag)

    def kept_out(self, uptime: float, durable: bool) -> float:
        """Seconds for which clients that ran before a master was started may still keep it out of votes.

        A client that meets the master for the first time does not know whether such clients exist. ``uptime``
        and ``durable`` are as for ``quarantine``.
        """
        if self.mode not in JUDGING or (durable and self.mode == "durable"):
            return 0.0
        return max(0.0, self.max_ttl - least_age(uptime))

    def quarantine(
        self,
        before: Server | None,
        server: Server,
        *,
        away: float,
        promoted: bool = False,
        flushed: bool = False,
        reloaded: bool = False,
    ) -> float:
        """Seconds for which a master casts no vote, decided when its ``server`` is connected.

        ``before``: the server at the last contact, None at the first. Its uptime, as it says, may be a second
        too much and follows its wall clock. ``away``: seconds since the last connection was lost; a process
        that was started since then is not older. At the first contact: seconds since the first attempt of
        this client that failed, 0.0 if none did; a process that is younger was started after that, in place
        of one that may have granted locks. A server is durable if it wrote everything to its disk before it
        answered; that must be so at the last contact and now. ``promoted``: it was a replica, and its former
        master may have granted locks until an unknown time. With ``min-replicas-to-write``, that master
        stopped ``lag`` seconds after its replicas were cut off, or up to LATE_STOP later. ``flushed``: it
        reported that its keys were lost. ``reloaded``: it did so, but executed no command that removes them:
        its process loads a dump, perhaps an older one, and a marker may be in it.
        """
        if reloaded and self.mode != "off":
            return self.max_ttl
        if self.mode not in JUDGING:
            return 0.0
        if flushed:
            return self.max_ttl
        if before and before.identity == server.identity and server.run_id:
            return 0.0
        age = least_age(server.uptime)
        if before is None:
            trusted = self.assume_fresh or (self.mode != "strict" and age >= away)
            return 0.0 if trusted else max(0.0, self.max_ttl - age)
        restarted = before.run_id != server.run_id or not server.run_id
        if promoted or not restarted:  # its data may have been replaced just now
            return self.max_ttl + stops_after(server.lag)
        if server.durable and before.durable and server.run_id and self.mode == "durable":
            return 0.0
        return max(0.0, self.max_ttl - min(age, away))


@dataclass(slots=True)
class MasterGuard:
    """The restart guard of one master: what the last contact has shown, and until when it casts no vote.

    Times are of the monotonic clock, in seconds, but for ``first_failure``.
    """

    server: Server = field(default_factory=Server)  # at the last connection
    known: bool = False  # it was connected before, in this process or a parent of fork
    flushed: bool = False  # it reported a flush since it was last connected
    lost_at: float = 0.0  # when its last connection ended
    # While it was never connected: when the first attempt began that failed, by the lease clock; 0.0: none.
    first_failure: float = 0.0
    until: float = 0.0  # it casts no vote until then; 0.0: it votes

    def copy(self) -> MasterGuard:
        """For a child of fork, or for a master that left the lists and comes back: it is known already."""
        return replace(self)

    def seconds(self) -> float:
        """Seconds for which the master still casts no vote."""
        return max(0.0, self.until - time.monotonic())

    def on_failure(self, began: float) -> None:
        """Remember an attempt to connect that failed. ``began``: when, by the lease clock."""
        if not self.known:
            self.first_failure = min(self.first_failure or began, began)

    def admit(self, server: Server, settings: Guard, now: float, fails_over: bool) -> None:
        """Decide until when the ``server`` that was just connected casts no vote.

        ``fails_over``: another server may take its place.
        """
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
        failed_over = fails_over and before is not None and server.where != before.where
        tried = lease_clock() - self.first_failure if self.first_failure else 0.0
        quarantine = settings.quarantine(
            before,
            server,
            away=now - self.lost_at if before else tried,
            promoted=failed_over,
            flushed=emptied or ((self.flushed or unreported) and not kept),
            reloaded=reloaded,
        )
        quarantine = max(quarantine, server.guarded)
        if quarantine:
            self.until = max(self.until, now + quarantine)
        self.server, self.known, self.flushed = server, True, False


def least_age(uptime: float) -> float:
    """Seconds since a server was started, at least. It counts whole seconds, and may say one too many."""
    return max(0.0, uptime - 1)


def stops_after(max_lag: float) -> float:
    """Seconds for which a master takes writes after its replicas were cut off; 0.0: it does not stop."""
    return max_lag + LATE_STOP if max_lag else 0.0
