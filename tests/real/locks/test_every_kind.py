"""What read-write locks and slots of a semaphore can do as a plain lock can: each of it once for each kind.

Fair, reentrant and multiple locks have a plain lock on each name: they have files of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path
from typing import Any

import pytest
import redis
from support.clocks import Jumping
from support.event_loops import at_full_strength, clean, on_loops, until
from support.keys import CACHING, TTL, calls, forget_calls, nothing_left, paused, sizes, wipe
from support.kinds import AGAINST, KINDS
from support.makers import MakeAio, MakeClient, MakePlain, Raw
from support.python_process import run_python
from support.signalling import handling, interrupt, to_main
from support.waiting import DEADLINE, PATIENT, answered, eventually, start

from redlock_fast import (
    AsyncShardedRedlock,
    Contended,
    LockAlreadyHeld,
    LockLost,
    QuorumUnavailable,
    ShardedRedlock,
)
from redlock_fast.embedded import Masters

pytestmark = pytest.mark.usefixtures("all_masters")


each_kind = pytest.mark.parametrize("kind", KINDS)
#: A little more than a third of TTL.
THIRD = 21.0
WORKER = Path(__file__).parents[2] / "support" / "worker_kinds.py"


def against(kind: str, client: Any, name: str = "r", **options: Any) -> Any:
    """A lock that excludes one of this kind."""
    return KINDS[AGAINST[kind]](client, name, **options)


@each_kind
def test_life(masters: Masters, plain: MakePlain, raw: Raw, kind: str) -> None:
    c = plain(masters, ttl=TTL, key_prefix="app:").at_full_strength()
    lock, other = KINDS[kind](c.client, "r", ttl=30.0, timeout=0.05), against(kind, c.client)
    assert (lock.locked(), lock.token, lock.remaining(), lock.fencing_token) == (False, None, 0.0, None)
    with pytest.raises(LockLost):
        lock.check()
    assert answered(lambda: c.wait(lock.acquire())) is True
    assert 0 < lock.remaining() <= lock.validity < 30.0
    assert lock.locked()
    lock.check()
    assert len(lock.token) > 20, "random bytes and the owner"
    with pytest.raises(LockAlreadyHeld):
        c.wait(lock.acquire())
    assert {key[:7] for node in raw(masters) for key in node.scan_iter()} == {b"{app:r}"}
    assert c.wait(other.acquire(blocking=False)) is False
    assert c.wait(lock.extend(TTL)) > 30.0
    assert c.wait(lock.release()) is True
    assert c.wait(lock.release()) is False
    nothing_left(masters)
    assert c.wait(other.acquire()) is True
    assert answered(lambda: c.wait(lock.acquire())) is False, "after its timeout"
    assert c.wait(other.release()) is True
    nothing_left(masters)


@each_kind
def test_with(masters: Masters, connected: MakeClient, kind: str) -> None:
    c = connected(masters, ttl=TTL)
    with KINDS[kind](c, "r") as lock:
        lock.check()
        with pytest.raises(Contended):
            answered(lambda: enter(against(kind, c, timeout=0.05)))
    with pytest.raises(LockLost), KINDS[kind](c, "r"):
        assert [wipe(master) for master in masters]
    nothing_left(masters)


def enter(lock: Any) -> None:
    with lock:
        pytest.fail("the body ran unlocked")


@each_kind
@on_loops
async def test_async_with(masters: Masters, aclient: MakeAio, kind: str) -> None:
    async with aclient(masters, ttl=TTL) as c:

        async def refused() -> None:
            while True:
                with contextlib.suppress(QuorumUnavailable):  # no master answered in its time
                    async with against(kind, c, timeout=0.5):
                        pytest.fail("the body ran unlocked")

        async with KINDS[kind](c, "r") as lock:
            lock.check()
            with pytest.raises(Contended):
                await refused()
        await clean(masters)


@each_kind
def test_minority_and_majority_down(masters: Masters, connected: MakeClient, kind: str) -> None:
    c = connected(masters, ttl=TTL, node_timeout=1.0)
    for number in (0, 1):
        masters[number].kill()
    lock = KINDS[kind](c, "r")
    assert lock.acquire()
    assert lock.extend() > 0
    assert lock.release()
    assert lock.acquire()
    masters[2].kill()
    with pytest.raises(QuorumUnavailable):
        lock.extend()
    assert lock.locked(), "until its deadline"
    with pytest.raises(QuorumUnavailable):
        KINDS[kind](c, "other").acquire(timeout=0.3)
    assert lock.release(), "as far as one can tell"
    nothing_left(masters)


# --- renewal ----------------------------------------------------------------------------------------


@each_kind
def test_renewal_and_its_loss(masters: Masters, connected: MakeClient, kind: str) -> None:
    clock, losses = Jumping(), list[str]()
    c = connected(masters, ttl=TTL, clock=clock)
    options = {"auto_extend": True, "on_lost": lambda lock, reason: losses.append(reason)}
    lock = KINDS[kind](c, "r", **options)
    assert lock.acquire()
    for turn in (1, 2, 3):
        clock.jump(THIRD)
        eventually(lambda turn=turn: c.stats().renewed == turn, "it is extended")  # type: ignore[misc]
    assert lock.remaining() > TTL - THIRD
    assert not against(kind, c).acquire(blocking=False)
    for master in masters:
        wipe(master)
    clock.jump(THIRD)
    assert lock.lost.wait(DEADLINE)
    eventually(lambda: len(losses) == 1, "it is reported")
    assert not lock.locked()
    with pytest.raises(LockLost):
        lock.check()
    assert lock.release() is False


@each_kind
@on_loops
async def test_a_loss_cancels_the_body(valkey: Masters, aclient: MakeAio, kind: str) -> None:
    clock = Jumping()
    async with aclient(valkey, ttl=TTL, clock=clock) as c:
        await at_full_strength(c)

        async def outlive() -> None:
            async with KINDS[kind](c, "r", auto_extend=True):
                for master in valkey:
                    wipe(master)
                clock.jump(THIRD)
                await asyncio.sleep(DEADLINE)

        with pytest.raises(LockLost):
            await outlive()


# --- batches ----------------------------------------------------------------------------------------


def test_batches_of_all_kinds(masters: Masters, plain: MakePlain, raw: Raw) -> None:
    c = plain(masters, ttl=TTL).at_full_strength()
    made = [KINDS[kind](c.client, f"{kind}:{number}") for kind in KINDS for number in range(5)]
    locks = [lock for number, one in enumerate(made) for lock in (one, c.client.lock(f"plain:{number}"))]
    for lock in locks:
        assert c.wait(lock.acquire())
    assert c.extend_many(locks, TTL - 1) == [True] * 30
    lost = [number for number, lock in enumerate(locks) if number % 3 == 0]
    for name in (locks[number].key.decode() for number in lost):
        for node in raw(masters):
            node.delete(name, *(f"{{{name}}}:{ending}" for ending in "wr0"))
    expected = [number not in lost for number in range(30)]
    assert c.extend_many(locks, TTL) == expected
    assert [lock.locked() for lock in locks] == expected
    assert c.release_many(locks) == expected
    nothing_left(masters)


# --- giving up --------------------------------------------------------------------------------------


@each_kind
def test_giving_up_leaves_nothing(masters: Masters, connected: MakeClient, raw: Raw, kind: str) -> None:
    """After a timeout, and where Ctrl-C or an exception of a signal handler ends the waiting."""
    nodes, c = raw(masters), connected(masters, ttl=TTL)
    holder = against(kind, c)
    assert holder.acquire()
    eventually(lambda: min(sizes(masters)) == 1, "held everywhere")
    before = [set(node.scan_iter()) for node in nodes]
    lock = KINDS[kind](c, "r", timeout=0.1)
    assert not answered(lock.acquire)
    eventually(lambda: [set(node.scan_iter()) for node in nodes] == before, "it has given up")
    raised = {interrupt: KeyboardInterrupt, fail: ZeroDivisionError, exhaust: StopIteration}
    for action, error in raised.items():
        forget_calls(nodes)
        with handling(action):
            signalled = start(lambda: (eventually(lambda: waits(nodes), "it waits"), to_main()))
            with pytest.raises(error):
                lock.acquire(timeout=DEADLINE)
            signalled.result(DEADLINE)
        assert not lock.locked()
        eventually(lambda: [set(node.scan_iter()) for node in nodes] == before, "nothing is left of it")
    assert holder.release()
    assert lock.acquire()


def fail() -> None:
    raise ZeroDivisionError


def exhaust() -> None:
    """Raises StopIteration, which a generator would take for its own end."""
    next(iter(()))


def waits(nodes: list[redis.Redis]) -> bool:
    """Whether a client waits: since the last CONFIG RESETSTAT, a quorum was watched."""
    return sum(map(bool, calls(nodes, *CACHING))) >= 3


@each_kind
@on_loops
async def test_cancelled_while_waiting(masters: Masters, aclient: MakeAio, raw: Raw, kind: str) -> None:
    nodes = raw(masters)
    async with aclient(masters, ttl=TTL) as c:
        await at_full_strength(c)
        holder = against(kind, c)
        assert await holder.acquire()
        await until(lambda: min(sizes(masters)) == 1, "held everywhere")
        before = [set(node.scan_iter()) for node in nodes]
        lock = KINDS[kind](c, "r")
        for number in range(20):
            forget_calls(nodes)
            task = asyncio.create_task(lock.acquire())
            if number % 2:
                await until(lambda: waits(nodes), "it waits")
            await asyncio.sleep(0.001 * (number % 7))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await until(lambda: [set(node.scan_iter()) for node in nodes] == before, "nothing is left")
        assert await holder.release()
        assert await lock.acquire()
        assert await lock.release()
        await clean(masters)


@each_kind
def test_late_masters_keep_nothing(valkey: Masters, connected: MakeClient, kind: str) -> None:
    """They read the attempt when its owner has long given up, and what takes it back behind it."""
    c = connected(valkey, ttl=TTL, node_timeout=0.1)
    with paused(valkey, 2, 3, 4), pytest.raises(QuorumUnavailable):
        KINDS[kind](c, "r").acquire(timeout=0.5)
    nothing_left(valkey)


# --- elsewhere --------------------------------------------------------------------------------------


@each_kind
@pytest.mark.parametrize("how", ["threads", "asyncio"])
def test_release_at_exit(valkey: Masters, engine_name: str, kind: str, how: str) -> None:
    command = [sys.executable, str(WORKER), kind, how, engine_name, *valkey.urls]
    run_python(command, check=True, timeout=DEADLINE * 2)
    assert sizes(valkey) == [0] * 5, "before the process was gone"


@each_kind
def test_sharded(valkey: Masters, redis7: Masters, engine_name: str, kind: str) -> None:
    groups = {"a": valkey.urls, "b": redis7.urls}
    options: dict[str, Any] = {"engine": engine_name, "ttl": TTL, **PATIENT}
    with ShardedRedlock(groups, **options) as c:
        assert c.connect(DEADLINE)
        locks = [KINDS[kind](c, f"r:{number}") for number in range(20)]
        assert all(lock.acquire() for lock in locks)
        eventually(lambda: max(sizes(valkey)) + max(sizes(redis7)) == 20, "each on its group")
        assert not any(against(kind, c, f"r:{number}").acquire(blocking=False) for number in range(20))
        assert c.extend_many(locks) == c.release_many(locks) == [True] * 20

    async def main() -> None:
        async with AsyncShardedRedlock(groups, **options) as c:
            assert await c.connect(DEADLINE)
            async with KINDS[kind](c, "r") as lock:
                assert not await against(kind, c).acquire(blocking=False)
                assert await c.extend_many([lock]) == [True]

    asyncio.run(main())
    nothing_left(valkey)
    nothing_left(redis7)


@each_kind
def test_masters_without_a_marker_cast_no_vote(masters: Masters, connected: MakeClient, kind: str) -> None:
    options: dict[str, Any] = {"restart_guard": "marker", "max_ttl": TTL, "ttl": TTL}
    with pytest.raises(QuorumUnavailable, match="forgotten"):
        KINDS[kind](connected(masters, **options), "r").acquire(timeout=1.0)
    for master in masters:
        wipe(master)
    c = connected(masters, assume_fresh=True, **options)
    lock = KINDS[kind](c, "r")
    assert lock.acquire()
    assert not answered(lambda: against(kind, c).acquire(timeout=0.1))
    for master in masters:
        wipe(master)
    with pytest.raises(QuorumUnavailable, match="forgotten"):
        against(kind, c).acquire(timeout=1.0)
