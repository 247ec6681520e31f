"""The topology watch: reads the topology of a Cluster now and then, and lets the client follow it.

It is read at once after a node has contradicted it. A shard that is new becomes a master of the client. A
shard whose primary is another server loses its connection; the next one finds the restart guard, because the
promoted server may lack locks.
"""

from __future__ import annotations

import functools
import math
import time

from ..algorithm.master_lists import MasterLists, mask_of
from ..engine.threads import start_thread
from ..telemetry import log_error
from .address import Target
from .connect import ATTEMPT_TIMEOUTS
from .connections import Connections
from .electorate import Electorate
from .master import Master
from .probe import ConnectError
from .settings import ConnectorSettings
from .topology import Topology

#: Seconds between two readings, at least: while a slot moves, every node may contradict the last one.
LEAST_INTERVAL = 0.1


class TopologyWatch:
    """Lets the masters of one client be the shards of the Cluster of ``target``."""

    def __init__(
        self,
        target: Target,
        topology: Topology,
        settings: ConnectorSettings,
        connections: Connections,
        electorate: Electorate,
    ) -> None:
        self._target = target
        self._topology = topology
        self._timeout = settings.connect_timeout
        self._guard = settings.guard
        self._interval = settings.guard.max_ttl / 4  # as of the Sentinel watch
        self._connections = connections
        self._electorate = electorate
        self._read_at = -math.inf
        self._reading = False
        topology.on_stale = functools.partial(connections.monitor.wakes.put, None)

    def look(self, now: float) -> float:
        """Follow what was read, and read again in a thread if it is time. Returns when to look again."""
        self.follow()
        if self._reading:
            return math.inf
        due = self._read_at + (LEAST_INTERVAL if self._topology.stale else self._interval)
        if now < due:
            return due
        self._reading = True
        try:
            start_thread("topology", self._read)
        except Exception:  # no thread, or no memory, is available: the next look tries again
            self._reading = False
            raise
        return math.inf

    def _read(self) -> None:
        try:
            self._target.calls.run(
                lambda: self._topology.read(self._timeout),
                ATTEMPT_TIMEOUTS * self._timeout,
                lambda late: None,
            )
        except ConnectError:  # the shards stay as they are
            pass
        except Exception:  # memory is short
            log_error("connector-error")
        finally:
            self._read_at, self._reading = time.monotonic(), False
            self._connections.monitor.wake()

    def follow(self) -> None:
        """Let the masters of the client be the shards that were read last."""
        connections, shards = self._connections, self._topology.shards
        roster, monitor = connections.roster, connections.monitor
        assert self._target.shard
        with monitor.mutex:
            if monitor.ended():
                return
            count = len(shards)
            serving = mask_of(number for number, shard in enumerate(shards[:count]) if shard.where)
            lists = roster.voters.lists
            if serving and (count > len(roster.masters) or serving != lists.all):
                new = range(len(roster.masters), count)
                connections.grow(count)
                roster.masters += [Master(self._target.shard(number)) for number in new]
                roster.voters.mask |= mask_of(new)
                self._electorate.apply(MasterLists(count, serving, shards=True))
            lag = max(master.server.lag for master in roster.masters)
            self._topology.silence = self._guard.silence(lag)
            for number, master in enumerate(roster.masters):
                shard, where = shards[number], shards[number].where
                shard.silent_until = max(shard.silent_until, master.guard.until)
                if not master.link.attached or where is None:
                    continue
                if master.server.where != where:
                    connections.give_up(number, f"the Cluster names another primary: {where[0]}:{where[1]}")
                elif self._topology.homeless(number):
                    connections.give_up(number, "the slot of the keys of this library has moved")
