"""Jobs that run once in a fleet, for asyncio: a loss cancels the job, and a cancelled job frees the lock."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import pytest
from support.clocks import Jumping
from support.event_loops import at_full_strength, clean, on_loops, until
from support.inside import core_of
from support.keys import paused, wipe
from support.renewing import THIRD, TTL
from support.waiting import DEADLINE

from redlock_fast import AsyncFastRedlock, LockLost
from redlock_fast.embedded import Masters

pytestmark = pytest.mark.usefixtures("all_masters")

MakeAio = Callable[..., AsyncFastRedlock]


@on_loops
async def test_a_loss_cancels_the_job(masters: Masters, aclient: MakeAio, clock: Jumping) -> None:
    async with aclient(masters, ttl=TTL, clock=clock) as c:
        await at_full_strength(c)
        task = asyncio.current_task()
        assert task

        @c.single_run("job", once_per=TTL)
        async def job() -> None:
            for master in masters:
                wipe(master)
            clock.jump(THIRD)
            await asyncio.sleep(DEADLINE)
            raise AssertionError("the job went on")

        with pytest.raises(LockLost):
            await job()
        assert task.cancelling() == 0
        await clean(masters)


@on_loops
async def test_a_cancelled_job_frees_the_lock(valkey: Masters, aclient: MakeAio) -> None:
    """Wherever the cancellation meets it before the end of the job."""
    async with aclient(valkey, ttl=TTL) as c:
        await at_full_strength(c)
        ended = []

        @c.single_run("job", once_per=TTL)
        async def job() -> None:
            await asyncio.sleep(0)
            ended.append(True)

        for steps in range(100):
            task = asyncio.create_task(job())
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait({task})
            if ended:
                break
            await clean(valkey)
        assert ended
    for master in valkey:
        wipe(master)


@on_loops
async def test_a_cancellation_after_the_job_keeps_the_lock(valkey: Masters, aclient: MakeAio) -> None:
    """The job has run, so no other process may run it within the period."""
    async with aclient(valkey, ttl=TTL / 4, node_timeout=1.0) as c:
        await at_full_strength(c)
        with contextlib.ExitStack() as stack:

            @c.single_run("job", once_per=TTL)
            async def job() -> None:
                stack.enter_context(paused(valkey, 0, 1, 2))
                asyncio.get_running_loop().call_later(0.0, task.cancel)

            task = asyncio.create_task(job())
            await asyncio.wait({task})
            assert task.cancelled()
        await until(
            lambda: all(int(master.ask("PTTL job")[1:]) > 500 * TTL for master in valkey), "each has the key"
        )
        assert not core_of(c).client_state.held
    for master in valkey:
        wipe(master)
