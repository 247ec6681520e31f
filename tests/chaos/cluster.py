"""The schedule ``cluster``: failovers and moves of slots of a real Cluster, under clients that contend."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator
from pathlib import Path

from chaos.environment import Topology
from chaos.failovers import TTL, cut_off, replication
from chaos.worker import KEY

from redlock_fast.embedded import Cluster, Master
from redlock_fast.wire.slots import slot_of

#: Seconds.
NODE_TIMEOUT = 0.3
LAST_GRANT = "failover without the last grant"
ELSEWHERE = "failover elsewhere"
FAULTS = LAST_GRANT, LAST_GRANT, LAST_GRANT, "failover", ELSEWHERE, "move", "move", "move"


@contextlib.contextmanager
def cluster(topology: Topology, guard: str, folder: Path) -> Iterator[ClusterFaults]:
    """Three primaries with a replica each."""
    with Cluster(server=topology.server, node_timeout=NODE_TIMEOUT) as nodes:
        yield ClusterFaults(nodes)


class ClusterFaults:
    def __init__(self, nodes: Cluster) -> None:
        self._cluster = nodes

    @property
    def urls(self) -> list[str]:
        return self._cluster.urls

    def primary(self) -> Master:
        return self._cluster.primary_of(KEY)

    def act(self, chance: random.Random) -> str:
        cluster = self._cluster
        home = self.primary()
        others = [node for node in cluster.primaries() if node is not home]
        what = chance.choice(FAULTS)
        if what == "move":
            with cluster.migrating(slot_of(KEY.encode()), chance.choice(others)):
                time.sleep(chance.uniform(0.0, 0.3))
            return what
        killed = chance.choice(others) if what == ELSEWHERE else home
        replicas = [node for node in cluster if f"master_port:{killed.port}\r" in replication(node)]
        with cut_off(killed, replicas, 3 * TTL) if what == LAST_GRANT else contextlib.nullcontext():
            cluster.fail_over(killed)
        killed.restart()
        cluster.wait_complete()
        return what
