"""The schedule ``replicas``: failovers by Sentinels of one primary with two replicas, ``replicas=k``.

With k = 1 a grant may be on the replica only that is not promoted. With k = 2 each replica has each grant.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from chaos.environment import Topology
from chaos.failovers import TTL, call, cut_off, replication, token
from support.sentinel import QUICK_REPLICATION, Sentinels, replicate
from support.waiting import eventually

from redlock_fast.embedded import Master, Masters

#: A primary that a partition cuts off from its replicas takes no writes after this time, in seconds.
CAUTIOUS = ("--min-replicas-to-write", "1", "--min-replicas-max-lag", "1")
#: Milliseconds after which Sentinels give up a primary: leases are to outlive a failover.
DOWN_AFTER = 500
#: Seconds for all that servers and Sentinels do after a fault.
RECOVERY = 90.0
LAST_GRANT = "failover without the last grant"
STOPPED = "failover of a stopped primary"
RESTART = "restart without data"
FAULTS = LAST_GRANT, LAST_GRANT, "failover", STOPPED


@contextlib.contextmanager
def replicas(topology: Topology, guard: str, folder: Path) -> Iterator[ReplicaFaults]:
    """A primary, two replicas and three Sentinels."""
    options = (*QUICK_REPLICATION, *CAUTIOUS)
    with Masters(3, server=topology.server, options=options, password="") as nodes:
        replicate(list(nodes), nodes[0].port)
        with Sentinels(nodes.binary, folder, "locks", nodes[0], DOWN_AFTER) as sentinels:
            sentinels.wait_complete(replicas=2)
            # A primary that comes back without its data has lost all grants, whatever k is.
            kinds = FAULTS if guard == "off" else (*FAULTS, RESTART)
            yield ReplicaFaults(nodes, sentinels, topology.replicas, kinds)


class ReplicaFaults:
    """``needed``: how many replicas must have a grant. ``kinds``: of faults."""

    def __init__(self, nodes: Masters, sentinels: Sentinels, needed: int, kinds: Sequence[str]) -> None:
        self._nodes, self._sentinels, self._kinds = nodes, sentinels, kinds
        self.urls = [sentinels.url(f"?replicas={needed}")]

    def primary(self) -> Master:
        return self._named(list(self._nodes), "the Sentinels agree")

    def act(self, chance: random.Random) -> str:
        what = chance.choice(self._kinds)
        former = self.primary()
        if what == LAST_GRANT or chance.random() < 0.7:  # otherwise perhaps under guard
            eventually(lambda: token(former), "the guard ends, and the lock is granted", deadline=RECOVERY)
        first, second = chance.sample([node for node in self._nodes if node is not former], 2)
        call(first, "CONFIG", "SET", "replica-priority", 1)  # Sentinels promote it, if they can
        call(second, "CONFIG", "SET", "replica-priority", 100)
        promoted = former
        if what == RESTART:  # before the Sentinels notice
            former.restart()
        else:
            with cut_off(former, [first], TTL) if what == LAST_GRANT else contextlib.nullcontext():
                former.pause() if what == STOPPED else former.kill()
                promoted = self._named([first, second], "a replica is promoted")
            if what == STOPPED:
                former.resume()  # for a while it believes that it is the primary
                time.sleep(chance.uniform(0.0, 1.0))
            else:
                former.restart()
            # Sentinels would do it some seconds later. They promote no server that is no replica, so this
            # one is not promoted meanwhile.
            call(former, "REPLICAOF", "127.0.0.1", promoted.port)
        self._wait_complete()
        return "failover" if what == LAST_GRANT and promoted is not first else what

    def _named(self, nodes: list[Master], what: str) -> Master:
        """The one of ``nodes`` that all Sentinels name, once they do."""
        found: list[Master] = []

        def named() -> bool:
            port = self._sentinels.master()
            found[:] = [node for node in nodes if node.port == port]
            return bool(found)

        eventually(named, what, deadline=RECOVERY)
        return found[0]

    def _wait_complete(self) -> None:
        """Wait until all others follow the primary. Sentinels see to that."""

        def complete() -> bool:
            primary = self.primary()
            others = [node for node in self._nodes if node is not primary]
            return "connected_slaves:2" in replication(primary) and all(
                f"master_port:{primary.port}\r" in text and "master_link_status:up" in text
                for text in map(replication, others)
            )

        eventually(complete, "both replicas follow it", deadline=RECOVERY)
