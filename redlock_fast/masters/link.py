"""The connection to one master: whether there is one, how the last ones ended, and when to dial again."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from ..engine.contract import PROTOCOL_ERROR
from ..engine.fork import in_child_of_fork

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
#: A process that is stopped or throttled for longer (seconds) reads too late. The engine has as long for
#: reading before a master is silent.
READ_WITHIN = 0.5
#: How often in a row the beginning of a silence is set, because of pauses.
MAX_PAUSES = 5
#: A generator of this module: the shared one's sequence belongs to the program.
_random = random.Random()
in_child_of_fork(_random.seed)


@dataclass(slots=True)
class Silence:
    """Since when a connected master owes replies that are overdue."""

    since: float = 0.0  # the time of the check from which on it is silent; 0.0: it replies
    pauses: int = 0  # how often in a row that time was set: after a pause of this process it is set again

    def lasts(self, overdue: bool, now: float, paused: bool) -> bool:
        """Whether the master has been silent for READ_WITHIN of a process that runs.

        ``paused``: the check is late, so the engine may not have read for a while.
        """
        if not overdue:
            self.since, self.pauses = 0.0, 0
        elif not self.since or (paused and self.pauses < MAX_PAUSES):
            self.since = now
            self.pauses += 1
        else:
            return now >= self.since + READ_WITHIN
        return False


@dataclass(slots=True)
class Link:
    """The connection to one master. Times are of the monotonic clock, in seconds."""

    attached: bool = False  # the engine has a connection to it
    connecting: bool = False  # a thread connects it
    connections: int = 0
    connected_at: float = 0.0
    failures: int = 0  # failed attempts in a row
    access_refused: bool = False  # the last attempt failed because its server refused this user
    next_try: float = 0.0
    next_urgent_try: float = 0.0  # the same while a caller waits for a quorum
    next_new_connection: float = 0.0  # the same while it is connected and silent
    down_since: float = 0.0  # since when it has no connection; 0.0: it was never tried
    short_connections: int = 0  # how many connections in a row ended before ``SHORT_CONNECTION``
    # how many connections in a row ended before ``SHORT_CONNECTION_VIOLATION`` with a ``PROTOCOL_ERROR``
    violations: int = 0
    silence: Silence = field(default_factory=Silence)

    def on_attached(self) -> None:
        """Record that the engine has its connection. A caller may ask it from now on."""
        self.failures = 0
        self.connections += 1
        self.attached = True  # before ``connecting``: else the connector could connect it twice
        self.connecting = False

    def on_disconnected(self, why: str, now: float) -> None:
        """Record that its connection was closed.

        The backoff grows with the number of short connections in a row.
        """
        if self.attached:
            lived = now - self.connected_at
            self.short_connections = self.short_connections + 1 if lived < SHORT_CONNECTION else 0
            violated = lived < SHORT_CONNECTION_VIOLATION and why.startswith(PROTOCOL_ERROR)
            self.violations = self.violations + 1 if violated else 0
        self.attached = False
        self.down_since = now
        self.on_failure(max(1, self.short_connections, self.violations), False, now)
        if not self.short_connections:
            self.next_urgent_try = now

    def on_failure(self, failures: int, access_refused: bool, now: float) -> None:
        """Record that it is not connected after ``failures`` attempts, and set the time of the next."""
        self.access_refused = access_refused
        self.failures = failures
        self.next_try = now + _backoff(failures)
        self.down_since = self.down_since or now
        self.next_urgent_try = now + _urgent_backoff(self.short_connections, now - self.down_since)

    def keep(self, now: float) -> None:
        """Record that the attempt to connect it again was for nothing: it stays connected as it is."""
        self.connecting = False
        self.next_new_connection = now + MAX_URGENT_INTERVAL * _random.uniform(1.0, 1.5)


def _backoff(failures: int) -> float:
    """Seconds until the next attempt after ``failures`` failed attempts."""
    return min(MAX_BACKOFF, MIN_BACKOFF * 2.0 ** min(failures - 1, 10)) * _random.uniform(0.5, 1.0)


def _urgent_backoff(short_connections: int, outage: float) -> float:
    """The same while a caller waits for a quorum. ``outage``: for how long the master has been down."""
    shortest = URGENT_INTERVAL * max(1, short_connections)
    return min(max(shortest, SHARE_OF_OUTAGE * outage), MAX_URGENT_INTERVAL) * _random.uniform(1.0, 1.5)
