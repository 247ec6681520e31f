"""The dialler: connects one master, in a thread of its own, and attaches the connection to the engine."""

from __future__ import annotations

import math
import time
from typing import Any

from ..algorithm.policy import lease_clock
from ..engine.signals import restore_signals
from ..engine.threads import start_thread
from .connect import ProbedConnection, connect
from .connect_errors import error_text
from .connections import Connections
from .electorate import Electorate
from .identity import is_same_server
from .master import Master
from .probe import ConnectError, Flushed, Loading, Refused, Server
from .sentinel_watch import SentinelWatch
from .settings import ConnectorSettings
from .topology_watch import TopologyWatch

#: Seconds between two checks of all connections while a caller waits for a quorum, and connected masters owe
#: replies.
URGENT_TICK = 0.01


class Dialler:
    """Connects the masters of one client."""

    def __init__(
        self,
        settings: ConnectorSettings,
        connections: Connections,
        electorate: Electorate,
        topology: TopologyWatch | None = None,
    ) -> None:
        self._settings = settings
        self._connections = connections
        self._electorate = electorate
        self._topology = topology
        self._roster = connections.roster
        self._monitor = connections.monitor
        self.sentinels: SentinelWatch = SentinelWatch(settings, connections)
        #: The signals that the program's thread blocked before the connector thread blocked all.
        self.signal_mask: Any = None
        #: Until then a caller waits for a quorum of connections.
        self.urgent_until: float = 0.0
        self._forgotten_until = 0.0  # until then a connection that is silent may be forgotten

    def connect_urgently(self, seconds: float) -> None:
        """Connect masters without their backoff for ``seconds``, because a caller has no quorum."""
        self.urgent_until = max(self.urgent_until, time.monotonic() + seconds)
        self._monitor.wake()

    def dial_if_due(self, number: int, now: float) -> float:
        """Begin to connect a master that is not connected, if it is time. Returns when to look again."""
        link = self._roster.masters[number].link
        next_try = link.next_try
        if now < self.urgent_until:
            next_try = min(next_try, link.next_urgent_try)
        if next_try > now:
            return next_try
        self.dial_in_background(number)
        return math.inf

    def dial_silent(self, now: float) -> float:
        """Begin to connect the silent masters again, if the others are no quorum. Returns when to look again.

        A NAT, a firewall or a load balancer forgets a connection that was idle for some minutes: both ends
        keep it, and nothing arrives. A new connection tells that from a master that is stopped or slow, which
        is silent there, too; so the old connection stays until the master has replied on the new one. Where
        one connection was forgotten, others were, too: then also a silent minority is connected again.
        """
        masters, engine = self._roster.masters, self._connections.engine
        states = {n: engine.connection_state(n) for n, one in enumerate(masters) if one.link.attached}
        silent = sum(1 << number for number, state in states.items() if state.lag)
        lists = self._roster.voters.lists
        enough = lists.is_quorum(self._roster.connected() & ~silent) and not (lists.shards and silent)
        if enough and now >= self._forgotten_until:
            return math.inf
        for number in states:
            link = masters[number].link
            if silent >> number & 1 and not link.connecting and now >= link.next_new_connection:
                self.dial_in_background(number)
        owing = any(state.pending for state in states.values())
        return now + URGENT_TICK if owing and now < self.urgent_until else math.inf

    def dial_in_background(self, number: int) -> None:
        """Connect a master in a thread of its own."""
        link = self._roster.masters[number].link
        link.connecting = True
        try:
            start_thread("connect", self.dial, number)
        except Exception:  # no thread, or no memory, is available: the next look tries again
            link.connecting = False
            raise

    def dial(self, number: int) -> None:
        """Connect a master, and write its record if that is missing. It may take several timeouts."""
        restore_signals(self.signal_mask)  # a credential provider may start a process
        master, settings = self._roster.masters[number], self._settings
        events = self._monitor.client_state.events
        began, began_at, connections = lease_clock(), time.monotonic(), master.link.connections
        try:
            probed = connect(master.target, settings, master.server if master.guard.known else None)
            try:
                if self._topology is not None:  # before the first attach: a caller may wait for all shards
                    self._topology.follow()
                self._check_fit(master, probed.server)
                while (duplicate := self._attach_unless_duplicate(number, probed, began_at)) is not None:
                    self._check_distinct(master, duplicate, probed)
            finally:
                probed.close()
        except BaseException as error:  # ConnectError; or memory is short; or the greenlet is killed
            why = error_text(error)
            with self._monitor.mutex:
                if master.link.attached:  # it was silent, and its connection stays
                    master.link.keep(time.monotonic())
                    return
                master.link.connecting = False
                master.guard.flushed |= isinstance(error, Flushed)
                began = -math.inf if isinstance(error, Loading) else began  # it was restarted before
                master.on_failure(why, isinstance(error, Refused), began)
                self._electorate.judge()
                self._monitor.notify()
            events.warn("master-unreachable", master.target.name, why)
        else:
            if master.link.attached and master.link.connections != connections:
                master.log_connected(events, settings.guard)
        self._electorate.write_records()
        self._monitor.wake()

    def _check_fit(self, master: Master, server: Server) -> None:
        """Raise ConnectError if a master cannot do what the configuration asks for."""
        why = ""
        if self._settings.wait == "push" and not server.can.push:
            why = "wait='push' needs RESP3 and CLIENT TRACKING there; use wait='auto'"
        elif (
            master.target.ask_sentinels
            and not (server.min_replicas and server.max_lag)  # 0 for either one: the server never stops
            and not self._settings.allow_split
        ):
            why = (
                "a master behind Sentinels needs min-replicas-to-write >= 1 and min-replicas-max-lag >= 1, "
                "and CONFIG GET to see both: else a partition gives two holders "
                "(allow_split=True accepts that)"
            )
        if why:
            if not master.guard.known:  # it was never accepted: the configuration is wrong, not the master
                master.unfit = f"masters: {master.target.name}: {why}"
            raise ConnectError(why)

    def _attach_unless_duplicate(self, number: int, probed: ProbedConnection, began_at: float) -> int | None:
        """Attach the connection to the engine: from now on the master is asked.

        If another connected master has the same run_id, attach nothing and return the number of that master.
        A connection that the master has had since ``began_at`` stays if the master has replied there since.
        """
        master, connections = self._roster.masters[number], self._connections
        with self._monitor.mutex:
            attached = master.link.attached
            if self._monitor.ended() or (attached and connections.has_replied(number, began_at)):
                master.link.keep(time.monotonic())
                return None
            for other, one in enumerate(self._roster.masters):
                same = one.link.attached and one.server.run_id == probed.server.run_id != ""
                if same and one is not master and (other, one.link.connections) not in probed.distinct:
                    return other
            sock = probed.take()
            if attached:
                self._forgotten_until = time.monotonic() + self._settings.socket_timeout
                connections.give_up(number, "it replies to a new connection, and not to this one")
            master.on_connected(probed.server, self._settings.guard, time.monotonic())
            self.sentinels.put_off(number)
            self._electorate.judge(number)  # before attach: no caller may ask a master that is under guard
            self._roster.former.forbid(number)
            connections.engine.attach(number, sock, probed.dialect)
            master.tally.error = ""
            master.link.on_attached()
            self._monitor.notify()
            return None

    def _check_distinct(self, master: Master, duplicate: int, probed: ProbedConnection) -> None:
        """Raise ConnectError if ``probed`` leads to the server of the master ``duplicate``.

        A duplicate that does not answer is disconnected: perhaps it only claims the run_id.
        """
        other = self._roster.masters[duplicate]
        connections = other.link.connections
        prefix, timeout = self._settings.key_prefix, self._settings.connect_timeout
        engine = self._connections.engine
        same = is_same_server(probed, engine, duplicate, other.target.database, prefix, timeout)
        if same:
            why = f"it is the same server as {other.target.name}, which has one vote"
            master.duplicate = "" if master.guard.known else f"masters: {master.target.name}: {why}"
            raise ConnectError(why)
        if same is None:
            with self._monitor.mutex:
                if other.link.attached and other.link.connections == connections:
                    self._connections.give_up(
                        duplicate, "another master has its run_id, and it did not answer which of them it is"
                    )
        else:
            probed.distinct.add((duplicate, connections))
