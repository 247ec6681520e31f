"""The owner of a lock: in its token on real masters, and in the errors of other clients."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from support.clients import both_clients
from support.makers import Raw
from support.waiting import answered, eventually

from redlock_fast import Contended, FastRedlock
from redlock_fast.algorithm.tokens import OWNER_BEGINS
from redlock_fast.embedded import Masters

MakeClient = Callable[..., Any]
pytestmark = [pytest.mark.usefixtures("all_masters"), both_clients]
OTHER: dict[str, Any] = {"node_timeout": 5.0, "connect_timeout": 20.0, "decide": "all"}


def refused(lock: Any) -> Contended:
    def enter() -> None:
        with lock:
            pass

    with pytest.raises(Contended) as caught:
        answered(enter)
    return pickle.loads(pickle.dumps(caught.value))


def test_an_error_names_the_owner(connected: MakeClient, valkey: Masters) -> None:
    client = connected(valkey)
    with FastRedlock(valkey.urls, owner="web-1", ttl=60.0, **OTHER) as other:
        other.connect()
        eventually(lambda: all(master.state == "connected" for master in other.health()), "all connect")
        for held, wanted, owner in (
            (other.lock("a"), client.lock("a", timeout=0), "web-1"),
            (other.lock("b", owner="ci 7"), client.lock("b", timeout=0.2), "ci 7"),
            (other.lock("c", owner=""), client.lock("c", timeout=0), ""),
            (other.lock("d", fair=True), client.lock("d", fair=True, timeout=0), "web-1"),
            (other.lock("e", fencing=True), client.lock("e", timeout=0), "web-1"),
            (other.rwlock("f").write(), other.rwlock("f", timeout=0).read(), "web-1"),
            (other.rwlock("g").read(), other.rwlock("g", timeout=0).write(), ""),
            (other.semaphore("h", 1), client.semaphore("h", 1, timeout=0), "web-1"),
            (other.lock("i"), client.multilock(["j", "i"], timeout=0), "web-1"),
        ):
            with held:
                assert held.owner == (owner or held.owner)
                error = refused(wanted)
            assert error.owner == owner, held
            assert (f"its owner is {owner}" in str(error)) is bool(owner)
        assert client.stats().faults == 0, "an owner is no fault of a master"


def test_foreign_and_hostile_tokens(connected: MakeClient, valkey: Masters, raw: Raw) -> None:
    """Old clients' tokens beside new ones; values of any type; an owner with control characters."""
    client = connected(valkey)
    hostile = os.urandom(20) + OWNER_BEGINS + b"\x1b[2J\nroot\xff"
    for token, owner in (
        (os.urandom(20), ""),
        (b"of redlock-py", ""),
        (b"x" * 9000, ""),
        (hostile, "\\x1b[2J\\nroot"),
    ):
        for node in raw(valkey):
            node.set("a", token, px=60_000)
        assert refused(client.lock("a", timeout=0)).owner == owner
    for node in raw(valkey):
        node.delete("a")
        node.rpush("a", "a list")
    assert refused(client.lock("a", timeout=0)).owner == ""
    assert client.stats().faults == 0


def test_a_lock_that_was_handed_over_keeps_its_owner(connected: MakeClient, valkey: Masters) -> None:
    client = connected(valkey)
    with FastRedlock(valkey.urls, owner="first", **OTHER) as other:
        lock = other.lock("a")
        assert lock.acquire()
        second = client.lock("a", token=lock.detach(), owner="second")
        assert second.extend() > 0
        assert second.owner == "first"
        assert second.release()


def test_a_batch(connected: MakeClient, raw: Raw, valkey: Masters) -> None:
    client = connected(valkey)
    locks = client.acquire_many(["a", "b"])
    assert all(lock.owner for lock in locks)
    assert all(lock.token in {node.get("a") for node in raw(valkey)} for lock in locks[:1])
    assert client.release_many(locks) == [True, True]
