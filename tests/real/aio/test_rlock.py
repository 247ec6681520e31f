"""Reentrant locks for asyncio on real masters: tasks own them."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import pytest
import redis
from support.cancelling import Aim
from support.clocks import Jumping
from support.event_loops import at_full_strength, clean, on_loops, until
from support.inside import core_of
from support.keys import TTL, calls, nothing_left, values, wipe, with_keys
from support.waiting import DEADLINE, PATIENT, eventually

from redlock_fast import (
    AsyncFastRedlock,
    AsyncLock,
    AsyncRLock,
    AsyncShardedRedlock,
    ContendedTimeout,
    LockLost,
    WrongLoop,
)
from redlock_fast.embedded import Masters

MakeAio = Callable[..., AsyncFastRedlock]
Raw = Callable[[Masters], list[redis.Redis]]

#: A little more than a third of it.
THIRD = 21.0


@on_loops
async def test_only_the_outermost_level_is_on_the_wire(masters: Masters, aclient: MakeAio, raw: Raw) -> None:
    nodes = raw(masters)
    async with aclient(masters) as c:
        await at_full_strength(c)
        lock = c.rlock("r", TTL, fencing=True)
        async with lock:
            await until(lambda: values(nodes, "r") == [lock.token] * 5, "all masters have the key")
            for node in nodes:
                node.config_resetstat()
            fencing = lock.fencing_token
            async with lock:
                assert await lock.acquire()
                assert (lock.depth, lock.fencing_token) == (3, fencing)
                assert await lock.release() is True
            assert calls(nodes, "set", "evalsha", "delifeq", "del") == [0] * 5
            assert await lock.acquire(ttl=TTL)
            assert await lock.extend() > 0.0
            assert await lock.release() is True
        await until(lambda: not any(values(nodes, "r")), "it is released")


@on_loops
async def test_tasks_exclude_each_other(masters: Masters, aclient: MakeAio) -> None:
    inside: list[asyncio.Task[Any] | None] = []

    async with aclient(masters) as c:
        lock = c.rlock("r", TTL, timeout=DEADLINE)

        async def enter(depth: int) -> None:
            async with lock:
                assert set(inside) <= {asyncio.current_task()}
                inside.append(asyncio.current_task())
                await asyncio.sleep(0)
                if depth > 1:
                    await enter(depth - 1)
                inside.pop()

        await asyncio.gather(*(enter(1 + number % 4) for number in range(12)))
        await clean(masters)


@on_loops
async def test_a_task_that_it_starts_is_another_owner(masters: Masters, aclient: MakeAio) -> None:
    async with aclient(masters) as c:
        lock = c.rlock("r", TTL)

        async def other() -> None:
            assert lock.depth == 0
            assert await lock.acquire(blocking=False) is False
            with pytest.raises(RuntimeError, match="has not acquired"):
                await lock.release()
            assert await lock.owned_by("job").acquire(blocking=False) is False

        async with lock:
            await asyncio.create_task(other())
        job = lock.owned_by("job")
        assert await job.acquire()
        assert await asyncio.create_task(job.acquire())
        assert job.depth == 2
        assert await asyncio.create_task(job.release())
        assert await job.release()
        await clean(masters)


@on_loops
async def test_what_a_task_leaves_is_free_when_its_lease_ends(masters: Masters, aclient: MakeAio) -> None:
    """And it is not renewed any more, although the task object is still referenced."""
    async with aclient(masters) as c:
        lock = c.rlock("r", 0.5, auto_extend=True, timeout=DEADLINE)

        async def acquire_and_end() -> bool:
            return await lock.acquire()

        task = asyncio.create_task(acquire_and_end())
        assert await task
        gc.collect()
        assert await lock.acquire(ttl=TTL)
        assert task.done()
        assert await lock.release()
        await clean(masters)


@on_loops
async def test_nothing_is_left_with_a_task_that_goes_on(valkey: Masters, aclient: MakeAio) -> None:
    async with aclient(valkey) as c:
        lock = c.rlock("r", TTL)
        task = asyncio.current_task()
        assert task is not None
        for _ in range(20):
            async with lock, lock:
                pass
        assert not lock._owner._ownerships  # type: ignore[attr-defined]
        assert task.remove_done_callback(lock._owner._ended) == 0  # type: ignore[attr-defined]


@on_loops
async def test_calls_of_one_name_do_not_exclude_each_other(valkey: Masters, aclient: MakeAio) -> None:
    """Catches: both wait at the masters, and the second waits for its own owner."""
    async with aclient(valkey) as c:
        lock = c.rlock("r", TTL, timeout=DEADLINE)
        job = lock.owned_by("job")

        async def body() -> None:
            async with job:
                await together.wait()

        for holders in (0, 1):
            holder = c.lock("r", TTL)
            if holders:
                assert await holder.acquire()
            together = asyncio.Barrier(3)
            tasks = [asyncio.create_task(body()) for _ in range(2)]
            tasks.append(asyncio.create_task(job.acquire(timeout=DEADLINE)))
            if holders:
                await until(
                    lambda: [*map(len, core_of(c).masters.turns.waiting.values())] == [3], "all queue"
                )
                assert await job.acquire(blocking=False) is False
                assert await job.acquire(timeout=0.05) is False
                await holder.release()
            assert await tasks[2]
            await together.wait()
            await asyncio.gather(*tasks)
            assert await job.release()
            assert job.depth == 0
        await clean(valkey)


@on_loops
async def test_a_cancelled_call_lets_the_next_one_of_its_name_acquire(
    valkey: Masters, aclient: MakeAio
) -> None:
    async with aclient(valkey) as c:
        holder = c.lock("r", TTL)
        assert await holder.acquire()
        job = c.rlock("r", TTL, timeout=0.3).owned_by("job")
        tasks = [asyncio.create_task(job.acquire(timeout=DEADLINE)) for _ in range(3)]
        await until(lambda: [*map(len, core_of(c).masters.turns.waiting.values())] == [3], "all queue")
        with pytest.raises(ContendedTimeout, match="another call of its owner"):
            await job.__aenter__()
        tasks[0].cancel()
        tasks[1].cancel()
        await holder.release()
        assert await tasks[2]
        assert job.depth == 1
        assert await job.release()
        assert not core_of(c).masters.turns.waiting
        await clean(valkey)


@pytest.mark.parametrize("when", ["before", "after"])
@on_loops
async def test_another_task_of_the_name_releases_it_beside_an_extension(
    valkey: Masters, aclient: MakeAio, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """The call that enters a level acquires the lock then. Catches: a level of a lock that was released."""
    extend = AsyncLock.extend
    async with aclient(valkey) as c:
        job = c.rlock("r", TTL / 2).owned_by("job")

        async def extended(lock: AsyncLock, ttl: float | None = None) -> float:
            monkeypatch.undo()
            if when == "before":
                await asyncio.create_task(job.release())
            validity = await extend(lock, ttl)
            if when == "after":
                await asyncio.create_task(job.release())
            return validity

        assert await job.acquire()
        monkeypatch.setattr(AsyncLock, "extend", extended)
        assert await job.acquire(ttl=TTL)
        assert (job.depth, job.locked()) == (1, True)
        assert job.remaining() > TTL / 2
        assert await job.release()
        await clean(valkey)


def pending_future() -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_future()


@pytest.mark.parametrize("options", [{}, {"auto_extend": True}], ids=["plain", "renewed"])
@pytest.mark.parametrize("closed", [False, True], ids=["running loop", "closed loop"])
def test_a_task_that_is_destroyed_releases_it(
    valkey: Masters, aclient: MakeAio, options: dict[str, bool], closed: bool
) -> None:
    """In any thread that collects it, and none of its levels before its body has cleaned up."""
    c, loop, seen = aclient(valkey), asyncio.new_event_loop(), []
    loop.set_exception_handler(lambda *_: None)  # it says that a pending task was destroyed

    async def body() -> None:
        async with lock:
            try:
                async with lock:
                    await pending_future()
            finally:
                seen.append(with_keys(valkey))

    def destroyed() -> bool:
        gc.collect()
        return bool(seen)

    async def main() -> None:
        await at_full_strength(c)
        task = asyncio.create_task(body())
        await until(lambda: with_keys(valkey) == [0, 1, 2, 3, 4], "it holds it")
        del task
        if not closed:
            await until(destroyed, "it is destroyed")
            await clean(valkey)
            async with lock:
                assert lock.depth == 1

    lock = c.rlock("r", TTL, **options)
    loop.run_until_complete(main())
    if not closed:
        loop.run_until_complete(c.close())
    loop.close()
    eventually(destroyed, "it is destroyed")
    assert seen == [[0, 1, 2, 3, 4]]
    nothing_left(valkey)
    core_of(c).masters.close()


@on_loops
async def test_an_async_generator_that_is_left_releases_it(valkey: Masters, aclient: MakeAio) -> None:
    """The loop closes it in a task of its own."""
    async with aclient(valkey) as c:
        await at_full_strength(c)
        lock = c.rlock("r", TTL)

        async def numbers() -> AsyncIterator[int]:
            async with lock:
                yield 1

        async for number in numbers():
            assert number == lock.depth == 1
            break
        gc.collect()
        await clean(valkey)
        assert lock.depth == 0
        async with lock, lock:
            assert lock.depth == 2
        await clean(valkey)


async def whole(lock: AsyncRLock) -> None:
    async with lock:
        await asyncio.sleep(0)
        async with lock:
            await lock.extend()


async def verbs(lock: AsyncRLock) -> None:
    if not await lock.acquire():
        return
    try:
        await lock.acquire(ttl=TTL)
        await lock.release()
    finally:
        await lock.release()


@on_loops
async def test_cancelled_at_any_moment(masters: Masters, aclient: MakeAio) -> None:
    async with aclient(masters) as c:
        await at_full_strength(c)
        aim = Aim()
        for number in range(600):
            key = f"r:{number}" if number % 3 else "shared"
            task = await aim.at((whole if number % 2 else verbs)(c.rlock(key, TTL)))
            with suppress(asyncio.CancelledError):
                task.result()
        assert aim.hits > 100
        assert aim.misses > 30
        await clean(masters)


@on_loops
async def test_two_owners_in_one_task(masters: Masters, aclient: MakeAio) -> None:
    """The first one has lost the lock: each body ends the level that it entered."""
    clock, left = Jumping(), False
    async with aclient(masters, clock=clock) as c:
        await at_full_strength(c)
        lock = c.rlock("r", TTL)
        job = lock.owned_by("job")
        with pytest.raises(LockLost):  # noqa: PT012
            async with lock:
                clock.jump(TTL)
                for master in masters:
                    wipe(master)
                async with job:
                    assert job.locked()
                left = job.depth == 0
        assert left, "the inner body raised nothing, and released its lock"
        await clean(masters)


@on_loops
async def test_a_loss_cancels_the_outermost_body(masters: Masters, aclient: MakeAio, raw: Raw) -> None:
    losses: list[tuple[AsyncRLock, str]] = []

    async def record_loss(lock: AsyncRLock, reason: str) -> None:
        losses.append((lock, reason))

    clock, seen = Jumping(), []
    async with aclient(masters, clock=clock) as c:
        await at_full_strength(c)
        lock = c.rlock("r", TTL, auto_extend=True, on_lost=record_loss)
        with pytest.raises(LockLost):  # noqa: PT012
            async with lock:
                try:
                    async with lock:
                        for node in raw(masters):
                            wipe(node)
                        clock.jump(THIRD)
                        await asyncio.sleep(DEADLINE)
                except asyncio.CancelledError:
                    with pytest.raises(LockLost):
                        await lock.acquire()
                    seen.append(lock.lost.is_set())
                    raise
        assert seen == [True]
        await until(lambda: [one for one, _ in losses] == [lock], "the loss is reported once")
        assert lock.depth == 0
        async with lock:
            lock.check()
        await clean(masters)


@on_loops
@pytest.mark.parametrize("outermost", ["acquire", "another task"])
async def test_a_loss_cancels_the_tasks_that_are_inside(
    masters: Masters, aclient: MakeAio, raw: Raw, outermost: str
) -> None:
    """Not a task of the owner that has left, and also a body whose owner had the lock before."""
    clock = Jumping()
    async with aclient(masters, clock=clock) as c:
        await at_full_strength(c)
        lock = c.rlock("r", TTL, auto_extend=True)
        owned = lock.owned_by("job") if outermost == "another task" else lock
        inside, lost = asyncio.Event(), asyncio.Event()

        async def leave_early() -> str:
            async with owned:
                await inside.wait()
            await lost.wait()
            return "went on"

        async def stay() -> None:
            if outermost == "acquire":
                assert await owned.acquire()
            async with owned:
                inside.set()
                await until(lambda: owned.depth == 1 + (outermost == "acquire"), "the other task leaves")
                for node in raw(masters):
                    wipe(node)
                clock.jump(THIRD)
                await asyncio.sleep(DEADLINE)
                raise AssertionError("the loss cancels this body")

        first = asyncio.create_task(leave_early()) if outermost == "another task" else None
        if first is not None:
            await until(lambda: lock._bodies, "it is inside")
        stays = asyncio.create_task(stay())
        with pytest.raises(LockLost):
            await stays
        lost.set()
        assert first is None or await first == "went on"
        await clean(masters)


@on_loops
async def test_left_in_another_task(masters: Masters, aclient: MakeAio) -> None:
    """As fixtures do. Catches: a body that the lock remembers without end."""
    async with aclient(masters) as c:
        await at_full_strength(c)
        owned = c.rlock("r", TTL).owned_by("job")
        for _ in range(3):
            await asyncio.create_task(owned.__aenter__())
            await asyncio.create_task(owned.__aexit__(None, None, None))
            assert owned.depth == 0
        assert owned._bodies == []
        await clean(masters)


def test_outside_of_tasks(valkey: Masters, aclient: MakeAio) -> None:
    c = aclient(valkey)
    lock = c.rlock("r", TTL)
    assert lock.depth == 0
    assert not lock.locked()
    assert "not held" in repr(lock)
    with pytest.raises(RuntimeError, match="no task"):
        lock.acquire().send(None)
    asyncio.run(c.close())


@on_loops
async def test_it_is_on_the_group_of_its_name(valkey: Masters, engine_name: str) -> None:
    groups = {"a": valkey.urls[:1], "b": valkey.urls[1:2], "c": valkey.urls[2:3]}
    async with AsyncShardedRedlock(groups, engine=engine_name, **PATIENT) as c:
        for number in range(8):
            lock = c.rlock(f"r:{number}", TTL)
            async with lock, lock:
                where = "abc".index(c.group_of(f"r:{number}"))
                assert valkey[where].ask(f"EXISTS r:{number}") == ":1"
        await clean(valkey)


def test_a_release_in_another_loop(masters: Masters, aclient: MakeAio) -> None:
    """It is refused. Catches: an owner that has left the lock then, so that nothing can release it."""
    c = aclient(masters)
    job = c.rlock("r", TTL).owned_by("job")

    async def acquire() -> None:
        assert await job.acquire()

    async def refused() -> None:
        with pytest.raises(WrongLoop):
            await job.release()

    async def release() -> None:
        assert job.locked()
        assert await job.release() is True
        await c.close()

    with asyncio.Runner() as first:
        first.run(acquire())
        with asyncio.Runner() as second:
            second.run(refused())
        first.run(release())
    nothing_left(masters)


@pytest.mark.parametrize("through", ["bare", "wait_for", "shield"])
@on_loops
async def test_the_caller_owns_it(valkey: Masters, aclient: MakeAio, through: str) -> None:
    """Whichever task awaits the call. Catches: an owner that is taken at the grant, in a task of wait_for."""

    async def awaited(call: Any) -> Any:
        if through == "wait_for":
            return await asyncio.wait_for(call, DEADLINE)
        return await (asyncio.shield(call) if through == "shield" else call)

    async with aclient(valkey, ttl=TTL / 2) as c:
        lock = c.rlock("r")
        assert await awaited(lock.acquire()) is True
        assert (lock.locked(), lock.depth) == (True, 1)
        assert await awaited(lock.acquire()) is True
        assert lock.depth == 2
        assert await awaited(lock.extend(TTL)) > TTL / 2
        assert await awaited(lock.release()) is True
        assert lock.depth == 1
        assert await awaited(lock.release()) is True
        assert lock.depth == 0
        await clean(valkey)
        other = c.rlock("r")
        async with lock:
            assert await awaited(other.acquire(blocking=False)) is False
            assert other.depth == 0
        await clean(valkey)
