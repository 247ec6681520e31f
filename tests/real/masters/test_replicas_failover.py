"""``replicas`` under failovers: one primary with two replicas, which real Sentinels fail over."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.clients import both_clients
from support.sentinel import QUICK_REPLICATION, Sentinels, replicate
from support.waiting import eventually

from redlock_fast import LockLost, QuorumUnavailable
from redlock_fast.embedded import Master, Masters

MakeClient = Callable[..., Any]

#: Seconds. A lease outlives the failover, and the time for which the former primary may take writes. No test
#: waits for its end.
TTL = 200.0
#: What a primary behind Sentinels has to have.
CAUTIOUS = ("--min-replicas-to-write", "1", "--min-replicas-max-lag", "1")
#: More than a failover takes on a busy machine, in seconds.
FAILOVER = 60.0


@pytest.fixture(params=["valkey", "redis"])
def trio(request: pytest.FixtureRequest) -> Iterator[Masters]:
    """A primary and two replicas, of which Sentinels may promote the first."""
    with Masters(3, server=request.param, options=[*QUICK_REPLICATION, *CAUTIOUS]) as fleet:
        replicate(list(fleet), fleet[0].port)
        assert fleet[2].ask("CONFIG SET replica-priority 0") == "+OK"
        yield fleet


@pytest.fixture
def sentinels(trio: Masters, tmp_path: Path) -> Iterator[Sentinels]:
    with Sentinels(trio.binary, tmp_path, "locks", trio[0]) as running:
        running.wait_complete(replicas=2)
        yield running


def fail_over(trio: Masters, sentinels: Sentinels) -> Master:
    """Kill the primary. Returns the replica that was promoted, once the other one follows it."""
    trio[0].kill()
    eventually(lambda: sentinels.master() == trio[1].port, "it is promoted", deadline=FAILOVER)
    eventually(lambda: trio[1].ask("WAIT 1 100") == ":1", "the other follows it", deadline=FAILOVER)
    return trio[1]


def refused(client: Any) -> None:
    """The lock is refused, because the only server that could grant it is guarded."""
    with pytest.raises(QuorumUnavailable) as error:
        client.lock("r").acquire(blocking=False)
    assert error.value.reason == "guarded"


@both_clients
def test_the_holder_keeps_its_lock(trio: Masters, sentinels: Sentinels, connected: MakeClient) -> None:
    """The promoted replica has the lock. It is guarded against all, and the holder goes on to extend.

    Catches: a second holder in the lease; a lease that no extension can save; extensions of the promoted
    replica that do not wait for its own replica.
    """
    where, options = [sentinels.url("?replicas=1")], {"ttl": TTL, "max_ttl": TTL}
    client, rival = connected(where, **options), connected(where, **options)
    lock = client.lock("r")
    assert lock.acquire()
    eventually(lambda: trio[1].ask("EXISTS r") == ":1", "it has acknowledged it, or the other one has")
    promoted = fail_over(trio, sentinels)
    late = connected(where, **options)
    for one in (client, rival):
        eventually(lambda one=one: one.health()[0].connections > 1, "it is found", deadline=FAILOVER)
    for one in (client, rival, late):
        assert one.health()[0].guard > lock.remaining() > 0.0
        refused(one)
    before = lock.remaining()

    def extended() -> bool:
        refused(rival)
        with contextlib.suppress(QuorumUnavailable):
            return bool(lock.extend() > before)
        return False

    eventually(extended, "the former primary must have stopped, and the lease goes on", deadline=FAILOVER)
    assert lock.remaining() > before
    assert promoted.ask("PTTL r") != ":-2"
    trio[2].pause()
    with pytest.raises(QuorumUnavailable, match="NOREPLICAS"):
        lock.extend(TTL)
    trio[2].resume()
    for one in (rival, late):
        refused(one)
    assert lock.release()
    # While the replica that was stopped is late, the primary takes no writes: the release is sent again.
    eventually(lambda: promoted.ask("EXISTS r") == ":0", "it is free")


@both_clients
def test_a_lock_that_the_promoted_replica_lacks(
    trio: Masters, sentinels: Sentinels, connected: MakeClient
) -> None:
    """With k less than the number of replicas, the one that is promoted may lack the lock.

    Catches: a second holder in the lease; an extension that makes the lock anew.
    """
    where, options = [sentinels.url("?replicas=1")], {"ttl": TTL, "max_ttl": TTL}
    client, rival = connected(where, **options), connected(where, **options)
    assert trio[1].ask("CONFIG SET masterauth wrong") == "+OK"
    assert trio[0].ask("CLIENT KILL TYPE replica").startswith(":")
    lock = client.lock("r")
    assert lock.acquire(timeout=FAILOVER), "the other replica comes back, and acknowledges it"
    assert trio[1].ask("EXISTS r") == ":0"
    promoted = fail_over(trio, sentinels)
    for one in (client, rival):
        eventually(lambda one=one: one.health()[0].connections > 1, "it is found", deadline=FAILOVER)
        assert one.health()[0].guard > lock.remaining() > 0.0

    def lost() -> bool:
        refused(rival)
        with contextlib.suppress(QuorumUnavailable):
            try:
                lock.extend()
            except LockLost:
                return True
        return False

    eventually(lost, "the holder learns that it lost the lock", deadline=FAILOVER)
    assert promoted.ask("EXISTS r") == ":0"
    assert lock.remaining() == 0.0
    refused(rival)
