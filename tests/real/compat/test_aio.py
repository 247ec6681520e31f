"""What other libraries for asyncio publish of their locks, in our words; and where ours is right instead."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Callable
from typing import Any

import pytest
import redis
import redis.asyncio
from support.clocks import Jumping
from support.event_loops import clean, on_loops, until
from support.forking import exit_code, fork_child, needs_fork
from support.inside import core_of
from support.keys import OTHER_CLIENT, forget, occupy
from support.renewing import THIRD
from support.waiting import DEADLINE

from redlock_fast import ConfigError
from redlock_fast.compat import _clients, aclose_all, pottery, redis_py
from redlock_fast.compat.aioredlock import (
    Aioredlock,
    LockAcquiringError,
    LockError,
    LockRuntimeError,
    Sentinel,
)
from redlock_fast.embedded import Masters

pytestmark = pytest.mark.usefixtures("all_masters")

Raw = Callable[[Masters], list[redis.Redis]]
Options = dict[str, Any]

DEAD = ["redis://127.0.0.1:1", "redis://127.0.0.1:2", "redis://127.0.0.1:3"]


async def lose_and_fail(lock: Any, masters: Masters) -> None:
    async with lock:
        forget(masters)
        raise ZeroDivisionError


# --- aioredlock ---------------------------------------------------------------------------------------


@needs_fork
def test_a_child_of_fork_shares_clients_while_a_thread_of_its_parent_does() -> None:
    """Catches: a child that waits for a mutex of a thread that it does not have."""

    async def share() -> None:
        _clients.shared_aio(DEAD, {})
        await aclose_all()

    with _clients._mutex:
        pid = fork_child(lambda: asyncio.run(share()))
    assert exit_code(pid) == 0


@on_loops
async def test_aioredlock(valkey: Masters, options: Options) -> None:
    manager = Aioredlock([("127.0.0.1", master.port) for master in valkey], **options)
    other = Aioredlock(valkey.urls, retry_count=1, **options)
    assert not await manager.is_locked("r")
    lock = await manager.lock("r", lock_timeout=60)
    assert (lock.valid, lock.resource, lock.lock_manager, len(lock.id)) == (True, "r", manager, 40)
    assert await manager.get_active_locks() == [lock]
    assert await other.is_locked("r")
    assert await lock.is_locked()
    with pytest.raises(TypeError, match="a Lock of this class or a str, not int"):
        await other.is_locked(12345)  # type: ignore[arg-type]
    with pytest.raises(LockAcquiringError):
        await other.lock("r", lock_timeout=60)
    await lock.extend()
    await manager.extend(lock, lock_timeout=90)
    await manager.unlock(lock)
    await lock.release()
    assert not lock.valid
    assert not await other.is_locked("r")
    with pytest.raises(RuntimeError, match="not valid"):
        await lock.extend()
    async with await other.lock("r", lock_timeout=60) as held:
        assert held.valid
        await held.extend()
    assert not held.valid
    await manager.destroy()
    await other.destroy()
    await clean(valkey)


@on_loops
async def test_aioredlock_extends_what_has_no_timeout(valkey: Masters, options: Options) -> None:
    """As long as it is held, although nothing else refers to the object; destroy releases it."""
    manager = Aioredlock(valkey.urls, internal_lock_timeout=4.0, **options)
    await manager.lock("leader")
    (lock,) = await manager.get_active_locks()
    lease = lock.held._lease
    assert lease is not None
    await until(lambda: lease.extensions > 1, "it is extended")
    del lock
    await manager.destroy()
    await clean(valkey)


@on_loops
async def test_aioredlock_hands_a_lock_over(valkey: Masters, options: Options) -> None:
    first, second = Aioredlock(valkey.urls, **options), Aioredlock(valkey.urls, **options)
    lock = await first.lock("r", lock_timeout=60)
    copy = await second.get_lock("r", lock.id)
    assert (copy.valid, copy.lock_timeout, copy.id) == (True, 10.0, lock.id)
    assert await second.is_locked(copy)
    await copy.extend()
    await second.extend(copy, 90)
    assert 60 < copy.held.remaining() < 90
    lock.lock_timeout = copy.lock_timeout = 110
    for one in (lock, copy):
        await one.extend()
        assert 100 < one.held.remaining() < 110, "as the object says now"
    await copy.release()
    assert not await first.is_locked("r")
    assert not await first.is_locked(lock), "the masters are asked"
    for identifier in (lock.id, "wrong"):
        with pytest.raises(LockAcquiringError, match="identifier"):
            await second.get_lock("r", identifier)
    with pytest.raises(ConfigError, match="lock_identifier"):
        await first.lock("r", lock_identifier="mine")  # type: ignore[arg-type]
    await first.destroy()
    await second.destroy()


@on_loops
async def test_aioredlock_never_acquires_again(valkey: Masters, options: Options, raw: Raw) -> None:
    """What was lost is lost: the original's extend takes it back from its new holder."""
    manager = Aioredlock(valkey.urls, **options)
    lock = await manager.lock("r", lock_timeout=60)
    forget(valkey)
    with pytest.raises(LockError):
        await lock.extend()
    occupy(raw(valkey), "r")
    with pytest.raises(LockError):
        await lock.release()
    assert [node.get("r") for node in raw(valkey)] == [OTHER_CLIENT] * 5
    forget(valkey)
    with pytest.raises(LockError, match="had ended"):
        async with await manager.lock("r", lock_timeout=60):
            forget(valkey)
    with pytest.raises(ZeroDivisionError):
        await lose_and_fail(await manager.lock("r", lock_timeout=60), valkey)
    await manager.destroy()


@on_loops
async def test_aioredlock_says_when_masters_are_down(options: Options) -> None:
    manager = Aioredlock(DEAD, **{**options, "connect_timeout": 0.2})
    for attempt in (manager.lock("r"), manager.is_locked("r"), manager.get_lock("r", "id")):
        with pytest.raises(LockRuntimeError, match=":1/0"):
            await attempt
    await manager.destroy()


@pytest.mark.parametrize(
    "settings",
    [{"retry_count": 0}, {"retry_delay_min": -1}, {"retry_delay_max": 0}, {"internal_lock_timeout": 0}],
)
def test_aioredlock_refuses_bad_settings(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"retry|ttl"):
        Aioredlock(DEAD, **settings)


@pytest.mark.parametrize(
    ("made", "url"),
    [
        (Sentinel(("10.0.0.1", 7000), master="locks", db=3), "redis+sentinel://10.0.0.1:7000/locks/3"),
        (Sentinel("redis://10.0.0.1/4?master=locks&encoding=utf-8"), "redis+sentinel://10.0.0.1/locks/4"),
        (
            Sentinel("rediss://:p@10.0.0.1:7000/5?master=locks&ssl_cert_reqs=none"),
            "rediss+sentinel://:p@10.0.0.1:7000/locks/5?ssl_cert_reqs=none",
        ),
        (
            Sentinel(("10.0.0.1", 7000), "locks", password="p@"),
            "redis+sentinel://:p%40@10.0.0.1:7000/locks/0",
        ),
        (
            Sentinel([("10.0.0.1", 7000), ("10.0.0.2", 7001)], "locks"),
            "redis+sentinel://10.0.0.1:7000,10.0.0.2:7001/locks/0",
        ),
        (
            Sentinel({"host": "10.0.0.1", "master": "locks", "password": "p@", "db": 2, "minsize": 1}),
            "redis+sentinel://:p%40@10.0.0.1:26379/locks/2",
        ),
        (
            Sentinel({"host": "10.0.0.1", "port": 7000, "master": "other", "db": 2}, "locks", db=0),
            "redis+sentinel://10.0.0.1:7000/locks/0",
        ),
    ],
)
def test_aioredlock_sentinels(made: str, url: str) -> None:
    assert made == url
    Aioredlock([made])


@pytest.mark.parametrize(
    ("connection", "name"),
    [
        ("/run/redis.sock", "unix:/run/redis.sock/0"),
        (["10.0.0.1", 7000], "10.0.0.1:7000/0"),
        ({"host": "10.0.0.1", "minsize": 1, "maxsize": 5, "db": 1}, "10.0.0.1:6379/1"),
    ],
)
def test_aioredlock_takes_each_form_of_a_connection(connection: Any, name: str) -> None:
    assert core_of(Aioredlock([connection])._client).masters.connector.roster.names() == [name]


# --- pottery ------------------------------------------------------------------------------------------


@on_loops
async def test_aio_pottery(valkey: Masters, options: Options) -> None:
    clients = {redis.asyncio.Redis.from_url(url) for url in valkey.urls}
    lock = pottery.AIORedlock(key="shower", masters=clients, num_extensions=1, **options)
    other = pottery.AIORedlock(key="shower", masters=set(valkey.urls), **options)
    for nothing, error in (
        (lock.extend, pottery.ExtendUnlockedLock),
        (lock.release, pottery.ReleaseUnlockedLock),
    ):
        with pytest.raises(error):
            await nothing()
    assert await lock.acquire()
    assert 5 < await lock.locked() < 10
    assert await other.locked() == 0
    assert await other.acquire(blocking=False) is False
    assert await other.acquire(timeout=0.05) is False
    await lock.extend()
    with pytest.raises(pottery.TooManyExtensions):
        await lock.extend()
    await lock.release()
    async with other:
        assert await other.locked()
        with pytest.raises(pottery.QuorumNotAchieved):
            async with pottery.AIORedlock(
                key="shower", masters=clients, context_manager_timeout=0.05, **options
            ):
                raise AssertionError("the body runs unlocked")
    with pytest.raises(pottery.ReleaseUnlockedLock):
        async with lock:
            forget(valkey)
    down = pottery.AIORedlock(key="r", masters=DEAD, **{**options, "connect_timeout": 0.2})
    assert await down.acquire() is False
    with pytest.raises(pottery.QuorumIsImpossible):
        await down.acquire(raise_on_redis_errors=True)
    for loud, error in ((False, pottery.ReleaseUnlockedLock), (True, pottery.QuorumIsImpossible)):
        with pytest.raises(error) as caught:
            await down.release(raise_on_redis_errors=loud)
        assert caught.value.redis_errors
    await aclose_all()
    await clean(valkey)


@on_loops
async def test_aio_pottery_makes_one_attempt_where_no_time_is_left(valkey: Masters, options: Options) -> None:
    free, taken = (pottery.AIORedlock(key="r", masters=valkey.urls, **options) for _ in range(2))
    assert await free.acquire(timeout=-0.5) is True
    assert await taken.acquire(timeout=-0.5) is False
    await free.release()


@on_loops
async def test_aio_pottery_leaves_nothing_when_it_is_cancelled(
    valkey: Masters, options: Options, raw: Raw
) -> None:
    """The original leaves its keys for the whole lease."""
    occupy(raw(valkey)[:3], "redlock:r")
    lock = pottery.AIORedlock(key="r", masters=set(valkey.urls), auto_release_time=60, **options)
    waiting = asyncio.create_task(lock.acquire())
    await until(lambda: bool(waiting.get_stack()) and raw(valkey)[0].info("clients"), "it waits")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await until(lambda: not any(node.exists("redlock:r") for node in raw(valkey)[3:]), "it took all back")
    await aclose_all()


# --- lock_class= of redis.asyncio ---------------------------------------------------------------------


@on_loops
async def test_async_lock_class(valkey: Masters, options: Options) -> None:
    kind = redis_py.async_lock_class(valkey.urls, **options)
    async with redis.asyncio.Redis(port=1) as client:
        lock = client.lock("r", timeout=60, lock_class=kind)
        other = client.lock("r", timeout=60, blocking_timeout=0, lock_class=kind)
        with pytest.raises(redis.exceptions.LockError, match="not locked"):
            await lock.release()
        assert await lock.acquire()
        assert await other.acquire() is False
        assert (await lock.owned(), await other.owned(), await other.locked()) == (True, False, True)
        assert await lock.extend(10) is True
        assert await lock.reacquire() is True
        with pytest.raises(redis.exceptions.LockError, match="not acquired"):
            async with other:
                raise AssertionError("the body runs unlocked")
        forget(valkey)
        with pytest.raises(redis.exceptions.LockNotOwnedError):
            await lock.extend(110, replace_ttl=True)
        with pytest.raises(redis.exceptions.LockNotOwnedError):
            await lock.release()
        async with other:
            pass
    down = redis_py.async_lock_class(DEAD, **{**options, "connect_timeout": 0.2})(client, "r", timeout=60)
    for attempt in (down.acquire, down.locked):
        with pytest.raises(redis.exceptions.ConnectionError):
            await attempt()
    await aclose_all()
    await clean(valkey)


@on_loops
async def test_async_lock_class_in_tasks_of_its_own(valkey: Masters, options: Options) -> None:
    """What makes tasks of coroutines works as with redis-py."""
    kind = redis_py.async_lock_class(valkey.urls, **options)

    def lock_on(name: str, thread_local: bool = True) -> redis_py.AsyncQuorumLock:
        return kind(redis.Redis, name, timeout=60, thread_local=thread_local)

    async def take(lock: redis_py.AsyncQuorumLock) -> bool:
        return await lock.acquire()

    async def give(lock: redis_py.AsyncQuorumLock) -> None:
        await lock.release()

    for thread_local in (True, False):
        lock, other = lock_on("a", thread_local), lock_on("b", thread_local)
        assert await asyncio.wait_for(lock.acquire(), DEADLINE)
        assert lock.local.token
        await asyncio.shield(lock.release())
        assert await asyncio.gather(lock.acquire(), other.acquire()) == [True, True]
        assert await asyncio.gather(lock.owned(), other.owned()) == [True, True]
        await asyncio.gather(lock.extend(60), other.reacquire())
        await asyncio.gather(lock.release(), other.release())
        assert await asyncio.create_task(take(lock))
        await asyncio.create_task(give(lock))
        assert await asyncio.wait_for(take(lock), DEADLINE)
        await lock.release()
        assert lock.local.token is None
        with pytest.raises(redis.exceptions.LockError):
            await asyncio.create_task(give(lock))
        pending = lock.acquire()
        assert asyncio.iscoroutine(pending)
        pending.close()
    await aclose_all()
    await clean(valkey)


@on_loops
async def test_a_dropped_object_does_not_end_the_extension(valkey: Masters, options: Options) -> None:
    """As in redis-py, where a lock without a timeout lasts until its release."""

    clock = Jumping()

    async def dropped() -> Any:
        quorum_lock = redis_py.async_lock_class(valkey.urls, ttl=60.0, clock=clock, **options)
        lock = quorum_lock(redis.asyncio.Redis, "r")
        assert await lock.acquire()
        return lock._held()._lease

    lease = await asyncio.create_task(dropped())
    gc.collect()
    for count in (1, 2):
        clock.jump(THIRD)
        await until(lambda: lease.extensions >= count, "it is extended")  # noqa: B023
    forget(valkey)
    clock.jump(THIRD)
    await until(lambda: lease.lost, "its end is noticed")
    await aclose_all()


@on_loops
async def test_async_lock_class_keeps_late_tasks_off(valkey: Masters, options: Options) -> None:
    """A task whose lease ended does not release the lock of the next task on the same object."""
    lock = redis_py.async_lock_class(valkey.urls, **options)(redis.Redis, "r", timeout=60)
    assert await asyncio.wait_for(lock.acquire(), DEADLINE)
    forget(valkey)
    taken, end = asyncio.Event(), asyncio.Event()

    async def next_task() -> None:
        assert await asyncio.wait_for(lock.acquire(), DEADLINE)
        taken.set()
        await end.wait()
        await asyncio.shield(lock.release())

    following = asyncio.create_task(next_task())
    await asyncio.wait((following, asyncio.create_task(taken.wait())), return_when=asyncio.FIRST_COMPLETED)
    if following.done():
        following.result()  # raises
    with pytest.raises(redis.exceptions.LockNotOwnedError):
        await asyncio.shield(lock.release())
    with pytest.raises(redis.exceptions.LockError, match="not locked"):
        await lock.release()
    assert await lock.locked()
    end.set()
    await following
    await aclose_all()
    await clean(valkey)


@on_loops
async def test_async_lock_class_repeats_a_cancelled_release(valkey: Masters, options: Options) -> None:
    lock = redis_py.async_lock_class(valkey.urls, **options)(redis.Redis, "r", timeout=60)
    for steps in range(3):
        assert await lock.acquire()
        releasing = asyncio.ensure_future(lock.release())
        for _ in range(steps):
            await asyncio.sleep(0)
        releasing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await releasing
        if lock.local.token is not None:
            await lock.release()
        assert lock.local.token is None
        await clean(valkey)
    await aclose_all()


@on_loops
async def test_async_lock_class_has_the_token(valkey: Masters, options: Options, raw: Raw) -> None:
    kind = redis_py.async_lock_class(valkey.urls, **options)
    lock, other = kind(redis.Redis, 5, timeout=60), kind(redis.Redis, 5, timeout=60)
    assert await lock.acquire()
    assert sum(node.get("5") == lock.local.token for node in raw(valkey)) >= 3
    assert await other.acquire(blocking_timeout=-1) is False
    with pytest.raises(ConfigError, match="token"):
        await other.acquire(token="mine")
    other.local.token = lock.local.token
    await other.release()
    await aclose_all()
    await clean(valkey)
