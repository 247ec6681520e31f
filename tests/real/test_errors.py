"""What exceptions say of a lock and of its masters: the same with threads and with asyncio."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import redis
from support.clients import both_clients
from support.waiting import answered, eventually

from redlock_fast import (
    Contended,
    ContendedTimeout,
    FastRedlock,
    LockAlreadyHeld,
    LockLost,
    LockNotAcquired,
    QuorumTimeout,
    QuorumUnavailable,
    RedlockError,
    Retry,
    TooManyExtensions,
)
from redlock_fast.embedded import Masters

pytestmark = both_clients

MakeClient = Callable[..., FastRedlock]
Raw = Callable[[Masters], list[redis.Redis]]


def raised(kind: type[RedlockError], call: Callable[[], Any]) -> Any:
    """The error of ``call``. Its copies have the same fields."""
    with pytest.raises(kind) as caught:
        call()
    error = caught.value
    assert type(error) is kind
    assert "b'" not in str(error)
    for again in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert str(again) == str(error)
        assert {**vars(again), "causes": 0} == {**vars(error), "causes": 0}
        assert list(map(str, getattr(again, "causes", ()))) == list(map(str, getattr(error, "causes", ())))
    return error


def entered(lock: Any) -> None:
    with lock:
        pass


@pytest.mark.parametrize("name", ["orders:42", b"orders:42"])
def test_contended(masters: Masters, connected: MakeClient, raw: Raw, name: str | bytes) -> None:
    for node in raw(masters):
        node.set("orders:42", "another")
    c = connected(masters)
    names = tuple(health.name for health in c.health())
    once = raised(Contended, lambda: entered(c.lock(name, timeout=0)))
    waited = raised(ContendedTimeout, lambda: answered(lambda: entered(c.lock(name, timeout=0.5))))
    assert not isinstance(once, TimeoutError)
    for kind in (Contended, LockNotAcquired, TimeoutError):
        assert isinstance(waited, kind)
    for error in (once, waited):
        assert str(error).startswith("'orders:42' is already held on ")
        assert (error.resource, error.reason, error.retry_after) == (name, "held", None)
        assert set(error.masters) <= set(names)
        assert len(error.masters) >= 3


def test_attempts_that_end_are_no_timeout(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    for node in raw(masters):
        node.set("r", "another")
    c = connected(masters, retry=Retry(max_attempts=2, min_delay=0.0, max_delay=0.001))
    assert not isinstance(raised(Contended, lambda: entered(c.lock("r", timeout=60.0))), TimeoutError)


def test_quorum_unavailable(masters: Masters, connected: MakeClient) -> None:
    c = connected(masters, connect_timeout=0.2, node_timeout=0.2)
    for master in masters[:3]:
        master.kill()
    eventually(lambda: sum(one.state == "down" for one in c.health()) == 3, "the loss is seen")
    failed = {health.name for health in c.health()[:3]}
    once = raised(QuorumUnavailable, lambda: c.acquire("r", blocking=False))
    assert ": check that they can be reached; 127.0.0.1:" in str(once)
    waited = raised(QuorumTimeout, lambda: c.lock("r", timeout=0.05).acquire())
    assert not isinstance(once, TimeoutError)
    for kind in (QuorumUnavailable, LockNotAcquired, TimeoutError):
        assert isinstance(waited, kind)
    for error in (once, waited, raised(QuorumUnavailable, lambda: c.locked("r"))):
        assert (error.resource, error.reason, error.retry_after) == ("r", "unavailable", None)
        assert set(error.masters) == failed == {cause.master for cause in error.causes}
    many = raised(QuorumUnavailable, lambda: c.acquire_many(["a", "b"]))
    assert (many.resource, many.reason) == ("a", "unavailable")


def test_masters_under_guard_say_when(masters: Masters, connected: MakeClient) -> None:
    """Connected masters without a vote: their restart guards say when another try may succeed."""
    c = connected(masters, max_ttl=30.0)
    for master in masters[:3]:
        master.restart()
    eventually(lambda: sum(one.guard > 0 for one in c.health()) == 3, "the restarts are seen")
    eventually(lambda: all(one.state == "connected" for one in c.health()), "all masters are connected")
    error = raised(QuorumUnavailable, lambda: c.acquire("r", blocking=False))
    assert error.reason == "guarded"
    assert 0 < error.retry_after <= 30.0
    guards = sorted(health.guard for health in c.health())
    assert error.retry_after >= guards[2], "three of five votes are needed"
    assert "after 1 attempt: wait for their restart guards; 127.0.0.1:" in str(error)


def test_multilock_names_the_resource_that_is_held(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    for node in raw(masters):
        node.set("app:two", "another")
    c = connected(masters, key_prefix="app:")
    names = ("three", b"two", "one")
    error = raised(ContendedTimeout, lambda: answered(lambda: entered(c.multilock(names, timeout=0.5))))
    assert str(error).startswith("'two', of 3 resources, is already held on ")
    assert error.resource == names
    with c.multilock(["d", "e"]) as lock:
        held = raised(LockAlreadyHeld, lock.acquire)
        assert (str(held)[:10], held.resource) == ("('d', 'e')", ("d", "e"))


def test_errors_of_a_lock_that_was_held(masters: Masters, connected: MakeClient) -> None:
    c = connected(masters)
    lock = c.lock("r", max_extensions=0)
    for lost in (raised(LockLost, lock.check), raised(LockLost, lock.extend)):
        assert (lost.resource, str(lost)[:3]) == ("r", "'r'")
    with lock:
        assert raised(TooManyExtensions, lock.extend).resource == "r"
        assert raised(LockAlreadyHeld, lock.acquire).resource == "r"
    assert raised(LockLost, c.rlock(b"r").check).resource == b"r"


def test_repr_of_a_client(masters: Masters, connected: MakeClient) -> None:
    c: Any = connected(masters, connect_timeout=0.2)
    masters[1].kill()
    eventually(lambda: c.health()[1].state == "down", "the loss is seen")
    client = getattr(c, "target", c)
    shown = ", ".join(f"{health.name} {health.state}" for health in c.health())
    assert repr(client) == f"<{type(client).__name__}: {shown}>"
    assert " connected, " in shown
    assert " down, " in shown
    c.close()
    assert repr(client) == f"<{type(client).__name__}: closed>"
