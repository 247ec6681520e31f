"""Several resources at once with asyncio: cancelled at any moment, lost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress

import pytest
import redis
from support.cancelling import Aim
from support.clocks import Jumping
from support.event_loops import at_full_strength, clean, on_loops
from support.keys import TTL, values
from support.waiting import DEADLINE, PATIENT

from redlock_fast import AsyncFastRedlock, AsyncShardedRedlock, ConfigError, LockLost
from redlock_fast.embedded import Masters

MakeAio = Callable[..., AsyncFastRedlock]
Raw = Callable[[Masters], list[redis.Redis]]

#: A little more than a third of it.
THIRD = 21.0


@on_loops
async def test_cancelled_at_any_moment(masters: Masters, aclient: MakeAio) -> None:
    """Of a set that is free, and of sets that overlap and wait for each other."""
    async with aclient(masters) as c:
        await at_full_strength(c)
        aim = Aim()

        async def use(*resources: str) -> None:
            async with c.multilock(resources, TTL, timeout=DEADLINE) as lock:
                await asyncio.sleep(0)
                await lock.extend()

        async def work(number: int) -> None:
            for turn in range(60):
                own = [f"r:{number}:{turn}", f"s:{number}:{turn}"]
                shared = random.sample(["a", "b", "c"], 2)
                task = await aim.at(use(*(own if turn % 2 else shared)))
                with suppress(asyncio.CancelledError):
                    task.result()

        await asyncio.gather(*(work(number) for number in range(8)))
        assert aim.hits > 100
        assert aim.misses > 20
        await clean(masters)


@on_loops
async def test_a_loss_cancels_the_body(masters: Masters, aclient: MakeAio, raw: Raw) -> None:
    clock, nodes = Jumping(), raw(masters)
    async with aclient(masters, clock=clock) as c:
        await at_full_strength(c)
        lock = c.multilock(["a", "b"], TTL, auto_extend=True)
        with pytest.raises(LockLost):  # noqa: PT012
            async with lock:
                for node in nodes:
                    node.delete("a")
                clock.jump(THIRD)
                await asyncio.sleep(DEADLINE)
        assert lock.lost.is_set()
        await clean(masters)


@on_loops
async def test_only_within_one_group(valkey: Masters, engine_name: str, raw: Raw) -> None:
    groups = {"a": valkey.urls[:1], "b": valkey.urls[1:2]}
    async with AsyncShardedRedlock(groups, engine=engine_name, **PATIENT) as c:
        resources = [f"r:{number}" for number in range(12)]
        own = [one for one in resources if c.group_of(one) == "b"]
        async with c.multilock(own, TTL) as lock:
            assert [values(raw(valkey)[1:2], one) for one in own] == [[lock.token]] * len(own)
        with pytest.raises(ConfigError, match="one group of masters"):
            c.multilock(resources, TTL)
        await clean(valkey)
