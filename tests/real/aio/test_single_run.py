"""Jobs that run once in a fleet, for asyncio: a loss cancels the job, and a cancelled job frees the lock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from support.clocks import Jumping
from support.event_loops import at_full_strength, clean, on_loops
from support.keys import wipe
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
    """Wherever the cancellation meets it: it is acquired, the job runs, or the lock is kept at its end."""
    async with aclient(valkey, ttl=TTL) as c:
        await at_full_strength(c)
        run = c.single_run("job", once_per=TTL)
        ended = False
        for steps in range(100):
            task = asyncio.create_task(run(asyncio.sleep)(0))  # type: ignore[arg-type]
            for _ in range(steps):
                await asyncio.sleep(0)
            ended = task.done()
            task.cancel()
            await asyncio.wait({task})
            if ended:
                break
            await clean(valkey)
        assert ended
