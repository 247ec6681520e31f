"""Every call of asyncio, awaited bare and in tasks that others make of it: it means the same."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from support.event_loops import on_loops
from support.waiting import DEADLINE

from redlock_fast.embedded import Masters

Await = Callable[[Any], Coroutine[Any, Any, Any]]
MakeAio = Callable[..., Any]


async def bare(call: Awaitable[Any]) -> Any:
    return await call


async def wait_for(call: Coroutine[Any, Any, Any]) -> Any:
    """Up to Python 3.11 it makes a task of the call."""
    return await asyncio.wait_for(call, DEADLINE)


async def shielded(call: Coroutine[Any, Any, Any]) -> Any:
    return await asyncio.shield(call)


async def gathered(call: Coroutine[Any, Any, Any]) -> Any:
    (result,) = await asyncio.gather(call)
    return result


@pytest.mark.parametrize("through", [bare, wait_for, shielded, gathered])
@on_loops
async def test_a_call_in_another_task(valkey: Masters, aclient: MakeAio, through: Await) -> None:
    """Catches: an owner, or a body, that is taken when the lock is granted: in a task that ends at once."""
    async with aclient(valkey) as c:
        await through(c.connect())
        both = c.rwlock("rw")
        for lock in (
            c.lock("plain"),
            c.lock("fenced", fencing=True),
            c.lock("fair", fair=True),
            c.lock("renewed", auto_extend=True),
            c.rlock("reentrant"),
            both.read(),
            both.write(),
            c.semaphore("permits", 2),
            c.multilock(["a", "b"]),
        ):
            assert await through(lock.acquire()) is True
            assert lock.locked()
            assert await through(lock.extend()) > 0
            assert await through(lock.release()) is True
            assert not lock.locked()
        with_lock = await through(c.acquire("r"))
        assert with_lock.locked()
        assert await through(c.locked("r")) is True
        assert await through(with_lock.release()) is True
        many = await through(c.acquire_many(["a", "b"]))
        assert all(lock.locked() for lock in many)
        await through(c.extend_many(many))
        assert await through(c.release_many(many))
        once = c.single_run("job")
        run = await through(once.__aenter__())
        assert run is not None
        assert run.locked()
        await through(once.__aexit__(None, None, None))
        assert not run.locked()
        leader = c.leader("lead")
        await through(leader.start())
        await through(leader.wait(DEADLINE))
        assert leader.is_leader
        await through(leader.stop())
        assert not leader.is_leader
