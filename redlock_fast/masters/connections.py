"""The connections that the engine of one client has: found broken or silent, given up, closed."""

from __future__ import annotations

import time

from ..engine.contract import FLUSHED, Engine
from .lingering_close import LingeringSockets
from .monitor import Monitor
from .roster import Roster


class Connections:
    """The connections of one client's engine to the masters of ``roster``."""

    def __init__(self, engine: Engine, roster: Roster, monitor: Monitor) -> None:
        self.engine = engine
        self.roster = roster
        self.monitor = monitor
        #: Connections that were closed here, and not yet by the master.
        self.lingering: LingeringSockets = LingeringSockets(len(roster.masters))

    def grow(self, masters: int) -> None:
        """Have room for so many masters."""
        self.engine.grow(masters)
        self.lingering.grow(masters)

    def is_usable(self, number: int) -> bool:
        """Whether a master is connected, and its connection is not broken."""
        with self.monitor.mutex:  # a broken connection is detached, and the master's link follows
            link = self.roster.masters[number].link
            return link.attached and not self.engine.connection_state(number).broken

    def has_replied(self, number: int, since: float) -> bool:
        """Whether a master has replied on its connection since then. Also if that broke: it is found soon."""
        self.engine.maintain()
        state = self.engine.connection_state(number)
        return bool(state.broken) or state.lag < time.monotonic() - since

    def check(self, number: int, now: float, paused: bool, timeout: float) -> bool:
        """Close a connection that is broken, or silent for ``timeout`` seconds. True: replies are owed.

        ``paused``: the connector thread runs late, so the engine may not have read for a while.
        """
        state = self.engine.connection_state(number)
        silence = self.roster.masters[number].link.silence
        if state.broken:
            self.give_up(number, state.broken)
        elif silence.lasts(state.lag > timeout, now, paused):
            self.give_up(number, f"no reply for {state.lag:.1f} s")
        return state.pending > 0

    def give_up(self, number: int, why: str) -> None:
        """Log that a connection is lost, and close it. The master is dialled again."""
        master = self.roster.masters[number]
        master.guard.flushed |= self.engine.connection_state(number).broken == FLUSHED
        self.monitor.client_state.events.warn("master-lost", master.target.name, why)
        self.retire(number, why)

    def retire(self, number: int, why: str) -> None:
        """Close the connection to a master, if there is one."""
        with self.monitor.mutex:
            sock = self.engine.detach(number)
            self.roster.masters[number].on_disconnected(why)
        if sock is not None:
            self.lingering.add(sock)

    def close(self, end: float) -> None:
        """Close all connections after the masters have read what was sent, or at the time ``end``."""
        self.engine.drain(max(0.0, end - time.monotonic()))
        # All connections at once: the rollbacks of requests that other threads wait for reach every master.
        self.engine.close(self.lingering.add)
        for number in range(len(self.roster.masters)):
            self.retire(number, "closed")
        # A lagging master still has requests to read. Its first reply to a closed socket would reset the
        # connection, and it would drop the rest: the releases that were written behind acquires.
        self.lingering.close(end - time.monotonic())

    def after_fork_in_child(self) -> None:
        """Close the child's copies of the sockets."""
        self.engine.after_fork_in_child()
        self.lingering.after_fork_in_child()
