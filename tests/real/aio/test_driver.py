"""Operations of asyncio locks: one exchange decides most of them, and a cancellation may end any of them."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator, Callable

import pytest
import redis
from support.clocks import Jumping
from support.event_loops import at_full_strength, clean, on_loops, until
from support.inside import core_of
from support.keys import TTL, calls, occupy, paused, sizes, values, wipe
from support.one_exchange import one_exchange
from support.waiting import DEADLINE

from redlock_fast import (
    AsyncFastRedlock,
    AsyncLock,
    ClientClosed,
    Contended,
    LockLost,
    QuorumUnavailable,
    Retry,
)
from redlock_fast.embedded import Masters

MakeAio = Callable[..., AsyncFastRedlock]
Raw = Callable[[Masters], list[redis.Redis]]

#: A client does not ask a master that lags.
pytestmark = pytest.mark.usefixtures("all_masters")

ALL = range(5)


async def begun(task: asyncio.Task[bool]) -> None:
    """It has asked the masters; they are stopped, so there is no answer yet."""
    for _ in range(3):
        await asyncio.sleep(0)
    assert not task.done()


@contextlib.asynccontextmanager
async def asked(
    valkey: Masters, lock: AsyncLock, blocking: bool = False, timeout: float = -1
) -> AsyncIterator[asyncio.Task[bool]]:
    """The first attempt, while it waits for the masters; they answer after the block."""
    with paused(valkey, *ALL):
        task = asyncio.create_task(lock.acquire(blocking, timeout))
        await begun(task)
        yield task


async def reusable(lock: AsyncLock) -> None:
    """Whatever came of an attempt, there can be another one."""
    assert not lock.locked()
    assert await lock.acquire() is True
    assert await lock.release() is True


@on_loops
async def test_no_detours(masters: Masters, aclient: MakeAio, monkeypatch: pytest.MonkeyPatch) -> None:
    async with aclient(masters) as c:
        await at_full_strength(c)
        one_exchange(monkeypatch)
        for lock in (c.lock("straight", TTL), c.lock("awaited", timeout=TTL)):
            for arguments in [(True,), (False,), (True, TTL)]:
                assert await lock.acquire(*arguments) is True
                assert await lock.release() is True
                assert await lock.release() is False
            async with lock:
                assert lock.locked()
        assert (c.stats().acquired, c.stats().released) == (8, 8)
        await clean(masters)


@on_loops
async def test_no_detour_where_a_quorum_of_counters_agrees(
    masters: Masters, aclient: MakeAio, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with aclient(masters, decide="all") as c:
        await at_full_strength(c)
        lock = c.lock("fenced", TTL, fencing=True)
        numbers = []
        for _ in range(3):
            async with lock:
                numbers.append(lock.fencing_token)
            one_exchange(monkeypatch)  # the first grant may have to raise counters
        assert numbers == [numbers[0], numbers[0] + 1, numbers[0] + 2]


@on_loops
async def test_refused(valkey: Masters, aclient: MakeAio, raw: Raw) -> None:
    nodes = raw(valkey)
    async with aclient(valkey, retry=Retry(max_attempts=1)) as c:
        await at_full_strength(c)
        lock = c.lock("taken", TTL)
        occupy(nodes[:3], "taken")
        assert await lock.acquire() is False
        with pytest.raises(Contended, match="3 of 5"):
            async with lock:
                pass
        await until(lambda: sizes(valkey) == [1, 1, 1, 0, 0], "ours are taken back")
        assert c.stats().contended == 2
        for node in nodes[:3]:
            wipe(node)
        await reusable(lock)


@on_loops
async def test_refused_once(valkey: Masters, aclient: MakeAio, raw: Raw) -> None:
    """Catches: a later caller that does not queue behind it."""
    nodes = raw(valkey)
    async with aclient(valkey, retry=Retry(0.001, 0.002)) as c:
        await at_full_strength(c)
        occupy(nodes, "taken")
        lock = c.lock("taken", TTL)
        task = asyncio.create_task(lock.acquire())
        await until(lambda: bool(core_of(c).policy.local_queue.waiting) or task.done(), "it waits")
        asked = sum(calls(nodes, "set"))
        assert await c.lock("taken", TTL, timeout=0.1).acquire() is False
        assert sum(calls(nodes, "set")) == asked, "a later caller has to queue"
        for node in nodes:
            node.delete("taken")
        assert await task is True
        assert await lock.release() is True
        await clean(valkey)


@on_loops
async def test_its_time_is_a_part_of_the_timeout(valkey: Masters, aclient: MakeAio, raw: Raw) -> None:
    clock = Jumping()
    async with aclient(valkey, clock=clock) as c:
        await at_full_strength(c)
        occupy(raw(valkey), "taken")
        lock = c.lock("taken", TTL)
        async with asked(valkey, lock, blocking=True, timeout=2 * TTL) as task:
            clock.jump(2 * TTL)
            await asyncio.sleep(0)
        async with asyncio.timeout(DEADLINE):
            assert await task is False


@on_loops
async def test_silent(valkey: Masters, aclient: MakeAio) -> None:
    async with aclient(valkey, node_timeout=0.05) as c:
        await at_full_strength(c)
        lock = c.lock("silent", TTL)
        async with asked(valkey, lock) as task:
            with pytest.raises(QuorumUnavailable):
                await task
        assert not lock.locked()
        await clean(valkey)


@on_loops
async def test_too_late(valkey: Masters, aclient: MakeAio) -> None:
    clock = Jumping()
    async with aclient(valkey, clock=clock) as c:
        await at_full_strength(c)
        lock = c.lock("late", TTL)
        async with asked(valkey, lock) as task:
            clock.jump(TTL)
        with pytest.raises(QuorumUnavailable, match="too late"):
            await task
        await clean(valkey)
        await reusable(lock)


@pytest.mark.parametrize("trusted", [2, 3])
@on_loops
async def test_electorate_changed(valkey: Masters, aclient: MakeAio, trusted: int) -> None:
    """Masters that may have forgotten locks since they were asked are not counted."""
    async with aclient(valkey, decide="all") as c:
        await at_full_strength(c)
        lock = c.lock("guarded", TTL)
        async with asked(valkey, lock) as task:
            core_of(c).policy.voters.mask = (1 << trusted) - 1
        if trusted == 3:
            assert await task is True
            assert await lock.release() is True
        else:
            with pytest.raises(QuorumUnavailable):
                await task
        await clean(valkey)
        core_of(c).policy.voters.mask = 0b11111
        await reusable(lock)


@pytest.mark.parametrize("times", [1, 2])
@on_loops
async def test_cancelled_acquire(valkey: Masters, aclient: MakeAio, times: int) -> None:
    async with aclient(valkey) as c:
        await at_full_strength(c)
        lock = c.lock("cancelled", TTL)
        async with asked(valkey, lock) as task:
            for _ in range(times):
                task.cancel("enough")
            with pytest.raises(asyncio.CancelledError) as raised:
                await task
        assert task.cancelled()
        assert raised.value.args in (("enough",), ())  # a task forgets it before Python 3.11
        await clean(valkey)
        await reusable(lock)


@on_loops
async def test_cancelled_release(valkey: Masters, aclient: MakeAio) -> None:
    async with aclient(valkey) as c:
        await at_full_strength(c)
        lock = c.lock("cancelled", TTL)
        assert await lock.acquire()
        with paused(valkey, *ALL):
            task = asyncio.create_task(lock.release())
            await begun(task)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not lock.locked()
        await clean(valkey)
        await reusable(lock)


@pytest.mark.parametrize("what", ["acquire", "release", "with", "body"])
@on_loops
async def test_destroyed(valkey: Masters, aclient: MakeAio, what: str) -> None:
    """A task that is destroyed cannot wait for anything, and leaves nothing all the same."""
    async with aclient(valkey) as c:
        await at_full_strength(c)
        lock = c.lock("destroyed", TTL)

        async def use() -> None:
            async with lock:
                await asyncio.get_running_loop().create_future()

        if what in ("release", "body"):
            assert await lock.acquire()
            await until(lambda: sizes(valkey) == [1] * 5, "all have it")
        with paused(valkey, *ALL):
            if what == "body":
                await lock.__aexit__(GeneratorExit, GeneratorExit(), None)
            else:
                coroutine = use() if what == "with" else getattr(lock, what)()
                coroutine.send(None)
                coroutine.close()
            assert not lock.locked()
        await clean(valkey)
        await reusable(lock)


@on_loops
async def test_closed_during_the_exchange(valkey: Masters, aclient: MakeAio) -> None:
    c = aclient(valkey)
    await at_full_strength(c)
    lock = c.lock("closed", TTL)
    async with asked(valkey, lock) as task:
        closing = asyncio.create_task(c.close())
        await until(lambda: core_of(c).client_state.closed, "it is being closed")
    await closing
    with contextlib.suppress(ClientClosed, QuorumUnavailable):
        assert await task is True, "it was answered before"
    assert not lock._acquiring
    await clean(valkey) if not lock.locked() else None


def all_asked_have(nodes: list[redis.Redis], lock: AsyncLock) -> bool:
    """Whether each master that was asked has the token. One that lags was not."""
    assert lock._lease
    asked = [node for number, node in enumerate(nodes) if lock._lease.sent >> number & 1]
    assert len(asked) >= 3
    return values(asked, "token") == [lock.token] * len(asked)


@on_loops
async def test_values(valkey: Masters, aclient: MakeAio, raw: Raw) -> None:
    """Each acquisition has a token of its own, and the masters have that."""
    nodes = raw(valkey)
    async with aclient(valkey) as c:
        await at_full_strength(c)
        lock, tokens = c.lock("token", TTL), set()
        for _ in range(10):
            assert await lock.acquire()
            await until(lambda: all_asked_have(nodes, lock), "all have it")
            tokens.add(lock.token)
            assert await lock.release()
        assert len(tokens) == 10


@on_loops
async def test_the_end_of_with_keeps_the_lease_of_another_body(valkey: Masters, aclient: MakeAio) -> None:
    """Another task entered the object after the lease had ended. Catches: a release of its lease."""
    clock = Jumping()
    async with aclient(valkey, clock=clock) as c:
        await at_full_strength(c)
        lock = c.lock("k", TTL)
        left = asyncio.Event()

        async def enter_later() -> None:
            async with lock:
                entered.set()
                await left.wait()
                assert lock.locked()

        async def outlive() -> None:
            async with lock:
                clock.jump(TTL + 1)
                assert all(master.ask("DEL k") for master in valkey)
                tasks.append(asyncio.create_task(enter_later()))
                await entered.wait()

        entered, tasks = asyncio.Event(), list[asyncio.Task[None]]()
        with pytest.raises(LockLost):
            await outlive()
        left.set()
        await tasks[0]
        assert not lock.locked()


@on_loops
async def test_a_destroyed_body_keeps_the_lease_of_another_one(valkey: Masters, aclient: MakeAio) -> None:
    """The task of the first body does not exist any more. Catches: a release of the second one's lease."""
    clock = Jumping()
    async with aclient(valkey, clock=clock) as c:
        await at_full_strength(c)
        lock, seen = c.lock("k", TTL), list[BaseException]()

        async def stop_for_ever() -> None:
            try:
                async with lock:
                    clock.jump(TTL + 1)
                    assert all(master.ask("DEL k") for master in valkey)
                    await asyncio.get_running_loop().create_future()
            except GeneratorExit as error:
                seen.append(error)
                raise

        def destroyed() -> bool:
            gc.collect()
            return bool(seen)

        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda *_: None)  # it says that a pending task was destroyed
        task = loop.create_task(stop_for_ever())
        await until(lambda: sizes(valkey) == [0] * 5 and lock._lease, "its lease has ended")
        del task
        async with lock:
            await until(destroyed, "it is destroyed")
            assert lock.locked()
        await clean(valkey)


@on_loops
async def test_a_cancelled_release_of_a_token_releases_it(valkey: Masters, aclient: MakeAio) -> None:
    """While the client connects. Catches: a key that stays, and an extend() that renews it."""
    async with aclient(valkey) as owner:
        for steps in range(5):
            held = owner.lock("k", TTL)
            assert await held.acquire()
            async with aclient(valkey) as c:
                lock = c.lock("k", TTL, token=held.detach())
                release = asyncio.create_task(lock.release())
                for _ in range(steps):
                    await asyncio.sleep(0)
                release.cancel()
                await asyncio.wait({release})
                if not steps:  # it had not begun
                    assert await lock.release()
                with pytest.raises(LockLost):
                    await lock.extend()
                await until(lambda: sizes(valkey) == [0] * 5, "the key is deleted")
        await clean(valkey)


@on_loops
async def test_a_cancelled_release_leaves_a_later_lease(valkey: Masters, aclient: MakeAio, raw: Raw) -> None:
    """Catches: a release that waits for a silent master is cancelled after the same object was acquired
    again, and releases the new lease, whose body goes on.
    """
    nodes = raw(valkey)
    async with aclient(valkey.urls[:3], node_timeout=60.0, socket_timeout=60.0) as c:
        await at_full_strength(c)
        lock = c.lock("later", 0.2)
        assert await lock.acquire()
        first, lease = lock.token, lock._lease
        assert lease is not None
        lease.sent = 0b011  # as if the third had been away
        with paused(valkey, 1):
            release = asyncio.create_task(lock.release())
            await begun(release)
            await until(lambda: not lock.locked() and not nodes[2].exists("later"), "the first lease ends")
            assert await lock.acquire()
            second = lock.token
            assert second != first
            release.cancel()
            await asyncio.wait({release})
            assert lock.token == second, "the second lease is released"
            later = lock._lease
            assert later is not None
            assert later.released == 0, "a release of the second lease is sent"
