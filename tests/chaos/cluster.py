"""The schedule ``cluster``: failovers and moves of slots of a real Cluster, under clients that contend.

Before some failovers the replica is cut off from its primary until the lock was granted again, so that the
promoted one lacks that grant. Only the restart guard of the clients then keeps a second holder out.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from chaos import history, verdict
from chaos.counters import FileCounter
from chaos.environment import Topology
from chaos.history import clock
from chaos.verdict import Limits, Verdict
from chaos.worker import KEY
from chaos.worker_process import Worker
from support.waiting import DEADLINE, eventually

from redlock_fast.embedded import Cluster, Master
from redlock_fast.wire.slots import slot_of

NAME = "cluster"
#: Seconds. A lease must outlive a failover, or nothing could overlap.
TTL, NODE_TIMEOUT = 6.0, 0.3
#: What happens beside the failovers that lose a grant.
OTHERS = "failover", "failover elsewhere", "move", "move", "move"
SETTING = {
    "ttl": TTL,
    "hold": (1.0, 4.0),
    "extends": 0.3,
    "patience": 30.0,
    "fenced": False,
    "fair": False,
}


def run_cluster(topology: Topology, folder: Path, guard: str, limits: Limits) -> Verdict:
    """The verdict on one run. ``guard``: the option ``restart_guard`` of its clients."""
    result = Verdict(NAME)
    chance = random.Random(topology.seed)
    counted = FileCounter(str(folder / "counter"))
    counted.create()
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(Cluster(server=topology.server, node_timeout=NODE_TIMEOUT))
        workers = [_hire(topology, place, cluster, folder, guard) for place in range(len(topology.workers))]
        for worker in workers:
            stack.callback(worker.kill)
        for worker in workers:
            assert worker.hear() == "ready", f"{worker.name} does not come to work"
        opened = clock()
        for worker in workers:
            worker.tell("go")
        faults = Faults(cluster, chance, result.did)
        while clock() < opened + topology.seconds:
            faults.act()
        healed = clock()
        for worker in workers:
            worker.tell("heal")
        for worker in workers:
            result.expect(worker.hear() == "strong", f"{worker.name} did not find its shards again")
        result.strength = clock() - healed
        for worker in workers:
            worker.tell("stop")
        for worker in workers:
            result.expect(worker.finish(), f"{worker.name} did not come to a good end")
            for leak in verdict.leaks(worker.result, limits):
                result.problems.append(f"{worker.name} leaks {leak}")
        with contextlib.suppress(AssertionError):
            eventually(lambda: not _has_key(cluster), "no key is left", deadline=TTL + DEADLINE)
        result.expect(not _has_key(cluster), "a key is left")
    histories = [history.read(worker.history) for worker in workers]
    holds = [hold for one in histories for hold in one.holds]
    result.holds = Counter(hold.worker for hold in holds)
    result.refused = sum(one.unavailable + one.contended for one in histories)
    result.overlaps = len(verdict.overlaps(holds))
    result.lost_updates = verdict.lost_updates(holds, counted.read())
    result.reconnects = sum(worker.result.get("reconnects", 0) for worker in workers)
    result.expect(bool(holds), "nothing was granted")
    if guard != "off":
        result.expect(result.overlaps == 0, f"{result.overlaps} overlaps")
        result.expect(result.lost_updates == 0, f"{result.lost_updates} updates lost")
    return result


def _hire(topology: Topology, place: int, cluster: Cluster, folder: Path, guard: str) -> Worker:
    engine, mode = topology.workers[place]
    name = f"{engine} {mode} {place}"
    more = {
        "urls": cluster.urls,
        "engine": engine,
        "mode": mode,
        "holders": topology.holders,
        "options": {"restart_guard": guard, "node_timeout": 1.0, "connect_timeout": 2.0},
        "seed": topology.seed,
        "counter": str(folder / "counter"),
        "journal": str(folder / f"{name}.journal"),
    }
    return Worker(name, {**SETTING, **more}, {})


class Faults:
    """``did``: counts them."""

    def __init__(self, cluster: Cluster, chance: random.Random, did: Counter[str]) -> None:
        self._cluster, self._chance, self._did = cluster, chance, did

    def act(self) -> None:
        """One fault, and a while without one."""
        cluster, chance = self._cluster, self._chance
        home = cluster.primary_of(KEY)
        others = [node for node in cluster.primaries() if node is not home]
        what = chance.choice((*("failover without the last grant",) * 3, *OTHERS))
        if what == "move":
            with cluster.migrating(slot_of(KEY.encode()), chance.choice(others)):
                time.sleep(chance.uniform(0.0, 0.3))
        else:
            killed = chance.choice(others) if what == "failover elsewhere" else home
            behind = _replica_behind(cluster, killed) if "last" in what else contextlib.nullcontext()
            with behind:
                cluster.fail_over(killed)
            killed.restart()
            cluster.wait_complete()
        self._did[what] += 1
        time.sleep(chance.uniform(0.0, 2.0))


@contextlib.contextmanager
def _replica_behind(cluster: Cluster, primary: Master) -> Iterator[None]:
    """The replica of ``primary`` cannot log in to it, and the lock was granted since."""
    replicas = [node for node in cluster if f"master_port:{primary.port}\r" in _replication(node)]
    for node in replicas:
        node._call("CONFIG", "SET", "masterauth", "wrong")
    primary._call("CLIENT", "KILL", "TYPE", "replica")
    before = primary._call("GET", KEY)
    with contextlib.suppress(AssertionError):  # the shard may be under the guard of its last failover
        eventually(
            lambda: primary._call("GET", KEY) not in (before, None), "it is granted again", deadline=3 * TTL
        )
    yield
    for node in replicas:
        node._call("CONFIG", "SET", "masterauth", node._password)


def _replication(node: Master) -> str:
    return str(node._call("INFO", "replication").decode())


def _has_key(cluster: Cluster) -> bool:
    return bool(cluster.primary_of(KEY)._call("EXISTS", KEY))
