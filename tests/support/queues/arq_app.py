"""Jobs of arq."""

from __future__ import annotations

import asyncio
from typing import Any

from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import func
from support.queues.jobs import AGAIN, BROKER, PERIOD, account, aclient, nightly, work

from redlock_fast.integrations.arq import single_run


@single_run(aclient, nightly, once_per=PERIOD)
async def report(ctx: dict[str, Any], number: int) -> None:
    await asyncio.to_thread(work, "nightly")


@single_run(aclient, account, if_taken="retry", defer=AGAIN)
async def transfer(ctx: dict[str, Any], number: int) -> None:
    await asyncio.to_thread(work, "account")


async def closed(ctx: dict[str, Any]) -> None:
    await aclient.close()


class WorkerSettings:
    redis_settings = RedisSettings.from_dsn(BROKER)
    functions = (report, func(transfer, max_tries=50))
    max_jobs = 1
    poll_delay = 0.05
    on_shutdown = closed


def enqueue(job: str, number: int) -> None:
    async def put() -> None:
        pool = await create_pool(WorkerSettings.redis_settings)
        await pool.enqueue_job({"nightly": "report", "account": "transfer"}[job], number)
        await pool.aclose()

    asyncio.run(put())
