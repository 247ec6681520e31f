"""The default owner in an event loop is the running task."""

from __future__ import annotations

import asyncio

from redlock_fast.aio import owner_names
from redlock_fast.aio.owner_names import MAX_NAMES, RunningTask
from redlock_fast.algorithm.tokens import owner_of


async def named() -> str:
    return owner_of(bytes(20) + RunningTask()())


def test_each_task_has_its_name() -> None:
    async def main() -> None:
        tasks = [asyncio.create_task(named(), name=f"order-{n}") for n in range(3)]
        found = await asyncio.gather(*tasks)
        assert [owner.rpartition(":")[2] for owner in found] == ["order-0", "order-1", "order-2"]

    asyncio.run(main())


def test_outside_of_a_task_the_thread_is_named() -> None:
    async def main() -> None:
        found: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(lambda: found.set_result(owner_of(bytes(20) + RunningTask()())))
        assert (await found).endswith(":MainThread")

    asyncio.run(main())


def test_the_names_that_are_kept_are_bounded() -> None:
    async def main() -> None:
        for n in range(MAX_NAMES + 1):
            asyncio.current_task().set_name(f"t{n}")  # type: ignore[union-attr]
            RunningTask()()
        assert len(owner_names._parts) <= MAX_NAMES

    asyncio.run(main())
