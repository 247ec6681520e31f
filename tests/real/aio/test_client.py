"""The client for asyncio on real masters: what only tasks have.

``tests/real/locks/test_lock.py`` runs with both clients.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest
import redis
from support.event_loops import at_full_strength, clean, on_loops, until
from support.keys import TTL, calls, occupy

import redlock_fast
from redlock_fast import (
    AsyncFastRedlock,
    AsyncLock,
    ConfigError,
    FastRedlock,
    Lock,
    LockAlreadyHeld,
    LockLost,
    QuorumUnavailable,
    Retry,
)
from redlock_fast.embedded import Masters

MakeClient = Callable[..., AsyncFastRedlock]
Raw = Callable[[Masters], list[redis.Redis]]


# --- the same as for threads --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "theirs"), [(AsyncFastRedlock, FastRedlock), (AsyncLock, Lock)], ids=["client", "lock"]
)
def test_same_names_and_arguments(ours: type, theirs: type) -> None:
    """Both clients have the same names; only tasks have some more."""

    def face(kind: type) -> dict[str, list[Any]]:
        public = {name: getattr(kind, name) for name in dir(kind) if not name.startswith("_")}
        return {
            name: [
                (p.name, p.kind, p.default)
                for p in inspect.signature(value).parameters.values()
                if p.name != "cancel_on_loss"
            ]
            for name, value in public.items()
            if inspect.isfunction(value)
        }

    assert face(theirs).items() <= face(ours).items()
    assert {"AsyncFastRedlock", "AsyncLock", "WrongLoop"} <= set(redlock_fast.__all__)


# --- `async with` and the decorator -------------------------------------------------------------


@on_loops
async def test_decorator(valkey: Masters, aclient: MakeClient) -> None:
    async with aclient(valkey) as c:

        @c.synchronized(lambda number, **_: f"job:{number}", ttl=TTL)
        async def job(number: int, *, plus: int = 0) -> int:
            """Adds."""
            assert await c.locked(f"job:{number}")
            return number + plus

        assert inspect.iscoroutinefunction(job)
        assert (job.__name__, job.__doc__) == ("job", "Adds.")
        assert await job(1, plus=1) == 2
        assert await asyncio.gather(*[job(number % 3) for number in range(9)]) == [0, 1, 2] * 3
        await clean(valkey)
        with pytest.raises(ConfigError):
            c.synchronized("job", ttl=-1)
        with pytest.raises(ConfigError):
            await c.synchronized(lambda: "")(body)()


async def body() -> None:
    pytest.fail("the body ran")


# --- the owner of a lock ------------------------------------------------------------------------


@on_loops
async def test_two_tasks_on_one_object(valkey: Masters, aclient: MakeClient, raw: Raw) -> None:
    """The second task fails; it overwrites no token, neither while the first waits nor while it holds."""
    nodes = raw(valkey)
    occupy(nodes, "r")
    async with aclient(valkey) as c:
        await at_full_strength(c)
        for node in nodes:
            node.config_resetstat()
        lock = c.lock("r", TTL)
        first = asyncio.create_task(lock.acquire())
        await until(lambda: max(calls(nodes, "set")), "the first one tries")
        assert not first.done()
        for again in (lock.acquire, lock.__aenter__):
            with pytest.raises(LockAlreadyHeld):
                await again()
        assert [node.delete("r") for node in nodes] == [1] * 5
        assert await first is True
        token = lock.token
        for again in (lock.acquire, lambda: lock.acquire(timeout=0), lock.__aenter__):
            with pytest.raises(LockAlreadyHeld):
                await again()
        assert lock.token == token
        assert await lock.release() is True
        assert await lock.acquire(timeout=0) is True
        assert await lock.release() is True
        # The same at the same moment: one of them gets it.
        both = await asyncio.gather(lock.acquire(), lock.acquire(), return_exceptions=True)
        assert sorted(map(str, map(type, both))) == sorted(map(str, [bool, LockAlreadyHeld]))
        assert await lock.release() is True
        await clean(valkey)


@on_loops
async def test_lock_belongs_to_its_object(masters: Masters, aclient: MakeClient) -> None:
    """Not to a task: another task may release it, another object in the same task may not."""
    async with aclient(masters) as c:
        mine, other = c.lock("object", TTL), c.lock("object", TTL)
        assert await asyncio.create_task(mine.acquire())
        assert (other.locked(), other.token) == (False, None)
        assert await other.release() is False
        assert await asyncio.create_task(other.release()) is False
        with pytest.raises(LockLost):
            await other.extend()
        assert mine.locked()
        assert await c.locked("object")
        assert await asyncio.create_task(mine.release()) is True
        await clean(masters)


@on_loops
async def test_tokens_differ(valkey: Masters, aclient: MakeClient) -> None:
    """Of all locks of all tasks at all times."""
    tokens: list[bytes | None] = []
    async with aclient(valkey) as c:

        async def use(number: int) -> None:
            lock = c.lock(f"token:{number}", TTL)
            for _ in range(5):
                assert await lock.acquire()
                tokens.append(lock.token)
                assert await lock.release()

        await asyncio.gather(*map(use, range(40)))
    assert len(set(tokens)) == 200


# --- waiting ------------------------------------------------------------------------------------


@on_loops
async def test_waits_until_the_holder_releases(masters: Masters, aclient: MakeClient) -> None:
    """And other tasks go on: no wait of one task is a wait of the loop."""
    async with aclient(masters) as c:
        holder = await c.acquire("r", TTL)
        assert holder
        waiting = asyncio.create_task(c.acquire("r", TTL))
        for number in range(50):
            async with c.lock(f"other:{number}", TTL):
                assert not waiting.done()
        assert await holder.release()
        lock = await waiting
        assert lock
        assert await lock.release() is True
        await clean(masters)


@on_loops
async def test_last_attempt_comes_with_the_end_of_the_time(
    valkey: Masters, aclient: MakeClient, raw: Raw
) -> None:
    """However long the pauses are."""
    async with aclient(valkey, retry=Retry(min_delay=300.0, max_delay=600.0)) as c:
        await at_full_strength(c)
        node = raw(valkey)[0]

        async def taken_over() -> bool:
            holder, lock = await c.acquire("pause", TTL), c.lock("pause", TTL)
            assert holder
            node.config_resetstat()
            waiting = asyncio.create_task(lock.acquire(timeout=1.0))
            await until(lambda: calls([node], "set") != [0], "it is tried while the lock is held")
            assert await holder.release()
            try:
                return await waiting and await lock.release()
            except QuorumUnavailable:  # no master answered in its time
                return False

        for _ in range(5):
            if await taken_over():
                return
        pytest.fail("never taken over; or did the machine stand still each time?")


# --- bad input ---------------------------------------------------------------------------------------


def test_bad_settings_before_any_loop() -> None:
    for masters, options in (
        ([], {}),
        (["redis://a", "redis://a"], {}),
        (["nonsense"], {}),
        (["redis://a"], {"ttl": 0}),
        (["redis://a"], {"engine": "rust"}),
        (["redis://a"], {"unheard_of": 1}),
    ):
        with pytest.raises(ConfigError):
            AsyncFastRedlock(masters, **options)
    client = AsyncFastRedlock(["redis://127.0.0.1:1"])
    for resource, more in (("", {}), (7, {}), ("r", {"ttl": -1}), ("r", {"timeout": -2}), ("r", {"x": 1})):
        with pytest.raises(ConfigError):
            client.lock(resource, **more)  # type: ignore[arg-type]
