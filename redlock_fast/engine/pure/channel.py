"""What the engine holds for one master: counters, bounds, the resend queue, the connection."""

from __future__ import annotations

from math import inf

from ..clock import monotonic
from ..contract import BACKLOG, FAULT, ConnectionState
from .connection import Connection
from .replicas import ReplicaWait
from .resend import ResendQueue
from .subscriptions import Subscriptions


class MasterChannel:
    """Only the I/O thread changes its fields.

    ``connection``: None if the master is not connected. ``broken``: why the connection broke. ``remains``:
    the connection that broke and that ``detach`` has not returned.
    """

    def __init__(
        self, index: int, bounds: tuple[int, int, int], lag_after: float, subscriptions: Subscriptions
    ) -> None:
        self.index: int = index
        self.max_owed: int
        self.max_buffer: int
        self.max_owed, self.max_buffer, max_resend = bounds
        self.lag_after: float = lag_after
        self.subscriptions: Subscriptions = subscriptions  # of all masters
        self.resend: ResendQueue = ResendQueue(max_resend)
        self.connection: Connection | None = None
        self.remains: Connection | None = None
        self.broken: str = ""
        self.late: int = 0
        self.resent: int = 0
        self.pushes: int = 0
        self.scanned: int = 0

    def resend_all(self, now: float, most: float = inf) -> None:
        """Submits requests of the resend queue again, ``most`` at most, as far as there is room."""
        connection = self.connection
        while connection is not None and most > 0 and (request := self.resend.first(now)) is not None:
            why = connection.append(request, {}, now)
            if why in BACKLOG:
                return
            self.resend.remove_first()
            self.resent += not why
            most -= 1

    def fail(self, why: str) -> None:
        """Makes every pending reply a fault. A request that must arrive joins the resend queue."""
        connection, now = self.connection, monotonic()
        if connection is None:
            return
        self.connection, self.remains = None, connection
        for request, template, _ in connection.pending:
            request.pending -= not request.has_voted(self.index)
            request.count(self.index, FAULT, why)
            request.settle()
            if template is not None and request.request.resend_for:
                self.resend.add(request, now)
        for request, _ in connection.replica_wait.grants:
            request.pending -= not request.has_voted(self.index)
            request.count(self.index, FAULT, why)
            request.settle()
        connection.pending.clear()
        connection.replica_wait = ReplicaWait()
        self.subscriptions.fail(self.index, why)

    def is_idle(self) -> bool:
        """Whether there is no output and no pending reply, except of a lagging master."""
        connection = self.connection
        if connection is None or connection.lagging_since:
            return True
        return not (connection.pending or connection.has_output())

    def state(self) -> ConnectionState:
        connection = self.connection
        counters = (self.late, self.resent, self.resend.dropped, self.pushes, self.scanned)
        if connection is None:
            return ConnectionState(False, self.broken, 0, 0.0, 0.0, *counters)
        since = connection.lagging_since  # read once: any thread may ask, and the I/O thread changes it
        lag = monotonic() - since if since else 0.0
        return ConnectionState(True, "", len(connection.pending), lag, connection.round_trip, *counters)
