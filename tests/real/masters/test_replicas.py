"""``replicas``: a grant of a master counts when its replicas have it. Real servers, with a real replica."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.event_loops import Plain
from support.kinds import KINDS, Make
from support.sentinel import QUICK_REPLICATION, replicate
from support.waiting import eventually

from redlock_fast import FastRedlock, QuorumUnavailable
from redlock_fast.embedded import Master, Masters

MakeClient = Callable[..., FastRedlock]
MakePlain = Callable[..., Plain]

TTL = 30.0
#: One master, whose replica must have each grant.
ONE: dict[str, Any] = {"ttl": TTL, "node_timeout": 0.3, "replicas": 1}

LOCKS: dict[str, Make] = {
    **KINDS,
    "plain": lambda client, name: client.lock(name),
    "fenced": lambda client, name: client.lock(name, fencing=True),
    "fair": lambda client, name: client.lock(name, fair=True),
    "multilock": lambda client, name: client.multilock([name, f"{name}:2"]),
}


@pytest.fixture
def pair() -> Iterator[Masters]:
    """A master and its replica, which has its data."""
    with Masters(2, options=QUICK_REPLICATION) as fleet:
        replicate(list(fleet), fleet[0].port)
        yield fleet


def keys(node: Master, name: str) -> str:
    """How many keys have this name in theirs."""
    return node.ask(f"EVAL \"return #redis.call('keys','*{name}*')\" 0")


@pytest.mark.parametrize("kind", LOCKS)
def test_every_kind_needs_the_replica(pair: Masters, plain: MakePlain, kind: str) -> None:
    """Catches: a kind whose grant or extension counts without the replica; a grant that does not count and is
    not undone; an extension that does not count and takes the lease away.
    """
    c, without = plain([pair[0].url], **ONE), plain([pair[0].url], **{**ONE, "replicas": 0})
    held = LOCKS[kind](c.client, "first")
    assert c.wait(held.acquire())
    assert keys(pair[1], "first") == keys(pair[0], "first") != ":0", "the replica has it before the caller"
    other, others = LOCKS[kind](c.client, "second"), LOCKS[kind](without.client, "second")
    pair[1].pause()
    with pytest.raises(QuorumUnavailable, match="NOREPLICAS"):
        c.wait(other.acquire(timeout=0.5))
    assert without.wait(others.acquire()), "the grant was undone"
    assert without.wait(others.release())
    before = held.remaining()
    with pytest.raises(QuorumUnavailable, match="NOREPLICAS"):
        c.wait(held.extend())
    assert 0 < held.remaining() < before
    assert c.client.health()[0].causes["NOREPLICAS"] >= 2
    assert c.client.health()[0].state in ("connected", "lagging")
    pair[1].resume()
    assert c.wait(other.acquire(timeout=30.0))
    assert c.wait(held.extend()) > before - 1.0
    assert c.wait(other.release())
    assert c.wait(held.release())


def test_a_batch_needs_the_replica(pair: Masters, plain: MakePlain) -> None:
    """Catches: the requests of a batch counting at once; a key of one that stays."""
    c = plain([pair[0].url], **ONE)
    names: list[str | bytes] = [f"batch:{number}" for number in range(50)]
    held = c.acquire_many(names)
    assert all(held)
    assert keys(pair[1], "batch:") == ":50"
    assert all(c.release_many(held))
    pair[1].pause()
    with pytest.raises(QuorumUnavailable, match="NOREPLICAS"):
        c.acquire_many(names)
    eventually(lambda: keys(pair[0], "batch:") == ":0", "all are undone")
    pair[1].resume()


def test_a_release_needs_no_replica(pair: Masters, connected: MakeClient) -> None:
    """Catches: a release that waits for a replica, or that fails without one."""
    c = connected([pair[0].url], **ONE)
    held = c.acquire("r")
    assert held is not None
    pair[1].pause()
    assert held.release()
    assert keys(pair[0], "r") == ":1", "only the key that is written before WAIT"
    pair[1].resume()


def test_the_log_and_health_say_why(
    pair: Masters, connected: MakeClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Catches: a fault that looks like a master that is silent, so that operators look for a network."""
    c = connected([f"{pair[0].url}?replicas=2"], ttl=TTL, node_timeout=2.0)
    with caplog.at_level(logging.WARNING, "redlock_fast"), pytest.raises(QuorumUnavailable) as raised:
        c.lock("r").acquire(timeout=0.0)
    text = "NOREPLICAS 1 of 2 replicas acknowledged the grant in time"
    assert text in str(raised.value)
    assert text in c.health()[0].error
    assert c.health()[0].causes == {"NOREPLICAS": 1}
    assert any(text in record.getMessage() for record in caplog.records)


def test_of_three_masters_one_without_its_replica_is_a_minority(
    valkey: Masters, pair: Masters, connected: MakeClient
) -> None:
    """Catches: ``replicas`` of one master that applies to all of them, or to none."""
    c = connected([f"{pair[0].url}?replicas=1", *valkey.urls[:2]], ttl=TTL, decide="all")
    pair[1].pause()
    with c.lock("r") as lock:
        assert lock.remaining() > 0
        assert lock.extend() > 0
    assert c.health()[0].causes["NOREPLICAS"] > 0
    assert [one.causes for one in c.health()[1:]] == [{}, {}]
    pair[1].resume()


def test_the_promoted_replica_has_the_lock_and_its_former_master_grants_nothing(
    pair: Masters, connected: MakeClient
) -> None:
    """A partition, without any guard: with all replicas asked for, one of the two sides has the lock.

    Catches: a grant of the former master, and a lock that its promoted replica does not have.
    """
    options = {**ONE, "restart_guard": "off", "refill": False}
    c = connected([pair[0].url], **options)
    held = c.acquire("r")
    assert held is not None
    assert pair[1].ask("REPLICAOF NO ONE") == "+OK"
    new = connected([pair[1].url], **{**options, "replicas": 0})
    assert new.acquire("r", blocking=False) is None
    with pytest.raises(QuorumUnavailable, match="NOREPLICAS"):
        c.lock("other").acquire(timeout=0.5)
    moved = new.lock("r", token=held.token)
    assert moved.acquire()
    assert moved.release()


def test_a_promoted_replica_is_guarded(pair: Masters, connected: MakeClient) -> None:
    """As without ``replicas``: the guard does not know which replicas acknowledged.

    Catches: a promoted replica that votes at once because ``replicas`` is set.
    """
    c = connected([pair[0].url], **ONE)
    with c.lock("r"):
        pass
    port = pair[0].port
    pair[0].kill()
    assert pair[1].ask("REPLICAOF NO ONE") == "+OK"
    assert pair[1].ask(f"CONFIG SET port {port}") == "+OK"
    eventually(lambda: c.health()[0].guard > 0, "the promoted replica is connected, and guarded")
    with pytest.raises(QuorumUnavailable, match="restart_guard"):
        c.lock("r").acquire(timeout=0.0)


def test_a_grant_without_a_write_waits_for_the_write_before(pair: Masters, connected: MakeClient) -> None:
    """The key was lengthened by another connection, which the replica has not seen. An extension that finds
    it long enough writes nothing, and WAIT waits for the writes of its own connection only.

    Catches: a lease until a time that only the master has.
    """
    c = connected([pair[0].url], **ONE)
    held = c.acquire("r", ttl=10.0)
    assert held is not None
    pair[1].pause()
    assert pair[0].ask("PEXPIRE r 60000") == ":1"
    c2 = connected([pair[0].url], **ONE)
    moved = c2.lock("r", token=held.token, ttl=20.0)
    with pytest.raises(QuorumUnavailable, match="NOREPLICAS"):
        moved.acquire(timeout=0.5)
    pair[1].resume()
    assert c.health()[0].state == "connected"
