"""A run of one deployment whose primary changes again and again, under clients that contend for one lock.

Before some failovers a replica is cut off from its primary until the lock was granted again, so that the
promoted one lacks that grant. Only the restart guard of the clients then keeps a second holder out.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import redis
from chaos import history, verdict
from chaos.counters import FileCounter
from chaos.environment import Topology
from chaos.history import clock
from chaos.verdict import Limits, Verdict
from chaos.worker import KEY
from chaos.worker_process import Worker
from support.waiting import DEADLINE, eventually

from redlock_fast.embedded import Master

#: Seconds. A lease must outlive a failover, or nothing could overlap.
TTL = 6.0
SETTING = {
    "ttl": TTL,
    "hold": (1.0, 4.0),
    "extends": 0.3,
    "patience": 30.0,
    "fenced": False,
    "fair": False,
}


class Faults(Protocol):
    """A deployment, and what happens to it. ``urls``: for its clients."""

    @property
    def urls(self) -> list[str]: ...

    def act(self, chance: random.Random) -> str:
        """One fault, from which the deployment recovers. Returns what it was."""
        ...

    def primary(self) -> Master:
        """The server that grants the lock."""
        ...


#: Starts a deployment, for a run with this option ``restart_guard``.
Deploy = Callable[[Topology, str, Path], AbstractContextManager[Faults]]


def run_failovers(
    name: str, deploy: Deploy, topology: Topology, folder: Path, guard: str, limits: Limits
) -> Verdict:
    """The verdict on one run. ``guard``: the option ``restart_guard`` of its clients."""
    result = Verdict(name)
    chance = random.Random(topology.seed)
    counted = FileCounter(str(folder / "counter"))
    counted.create()
    with contextlib.ExitStack() as stack:
        faults = stack.enter_context(deploy(topology, guard, folder))
        workers = [
            _hire(topology, place, faults.urls, folder, guard) for place in range(len(topology.workers))
        ]
        for worker in workers:
            stack.callback(worker.kill)
        for worker in workers:
            assert worker.hear() == "ready", f"{worker.name} does not come to work"
        opened = clock()
        for worker in workers:
            worker.tell("go")
        while clock() < opened + topology.seconds:
            try:
                result.did[faults.act(chance)] += 1
            except AssertionError as error:  # the deployment did not recover; what was granted is judged
                result.problems.append(str(error))
                break
            time.sleep(chance.uniform(0.0, 2.0))
        healed = clock()
        for worker in workers:
            worker.tell("heal")
        for worker in workers:
            result.expect(worker.hear() == "strong", f"{worker.name} did not find its masters again")
        result.strength = clock() - healed
        for worker in workers:
            worker.tell("stop")
        for worker in workers:
            result.expect(worker.finish(), f"{worker.name} did not come to a good end")
            for leak in verdict.leaks(worker.result, limits):
                result.problems.append(f"{worker.name} leaks {leak}")
        with contextlib.suppress(AssertionError):
            eventually(lambda: not token(faults.primary()), "no key is left", deadline=TTL + DEADLINE)
        result.expect(not token(faults.primary()), "a key is left")
    histories = [history.read(worker.history) for worker in workers]
    holds = [hold for one in histories for hold in one.holds]
    result.holds = Counter(hold.worker for hold in holds)
    result.refused = sum(one.unavailable + one.contended for one in histories)
    result.overlaps = len(verdict.overlaps(holds))
    result.lost_updates = verdict.lost_updates(holds, counted.read())
    result.gap = verdict.longest_gap(holds, opened, healed)
    result.reconnects = sum(worker.result.get("reconnects", 0) for worker in workers)
    result.expect(bool(holds), "nothing was granted")
    if guard != "off":
        result.expect(result.overlaps == 0, f"{result.overlaps} overlaps")
        result.expect(result.lost_updates == 0, f"{result.lost_updates} updates lost")
    return result


def _hire(topology: Topology, place: int, urls: list[str], folder: Path, guard: str) -> Worker:
    engine, mode = topology.workers[place]
    name = f"{engine} {mode} {place}"
    more = {
        "urls": urls,
        "engine": engine,
        "mode": mode,
        "holders": topology.holders,
        "options": {"restart_guard": guard, "node_timeout": 1.0, "connect_timeout": 2.0},
        "seed": topology.seed,
        "counter": str(folder / "counter"),
        "journal": str(folder / f"{name}.journal"),
    }
    return Worker(name, {**SETTING, **more}, {})


@contextlib.contextmanager
def cut_off(primary: Master, replicas: Iterable[Master], patience: float) -> Iterator[None]:
    """These replicas cannot log in to ``primary``, and the lock was granted since.

    It is not if the primary is under the guard of its last failover, or if a grant needs these replicas.
    After ``patience`` seconds that is so.
    """
    for node in replicas:
        call(node, "CONFIG", "SET", "masterauth", "wrong")
    call(primary, "CLIENT", "KILL", "TYPE", "replica")
    before = token(primary)
    with contextlib.suppress(AssertionError):
        eventually(lambda: token(primary) not in (before, None), "it is granted again", deadline=patience)
    yield
    for node in replicas:
        call(node, "CONFIG", "SET", "masterauth", node._password)


def call(node: Master, *words: str | int) -> Any:
    """The reply to one command. Sentinels end the connections of a server that they promote or demote."""
    with contextlib.suppress(redis.ConnectionError):
        return node._call(*words)
    return node._call(*words)


def replication(node: Master) -> str:
    """What it says of its replicas, or of its primary."""
    return str(call(node, "INFO", "replication").decode())


def token(primary: Master) -> bytes | None:
    """The token of the lock, if it is held."""
    found: bytes | None = call(primary, "GET", KEY)
    return found
