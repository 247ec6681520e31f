"""Tasks of taskiq."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import redis.asyncio
from support.queues.jobs import BROKER, PERIOD, account, aclient, nightly, work
from taskiq import AsyncBroker, BrokerMessage, TaskiqEvents, TaskiqState


class ListBroker(AsyncBroker):
    """Tasks in a list of a Redis. The package taskiq-redis needs a redis-py that arq does not allow."""

    async def kick(self, message: BrokerMessage) -> None:
        async with redis.asyncio.Redis.from_url(BROKER) as broker:
            await broker.rpush("taskiq", message.message)

    async def listen(self) -> AsyncGenerator[bytes, None]:
        async with redis.asyncio.Redis.from_url(BROKER) as broker:
            while True:
                yield (await broker.blpop(["taskiq"]))[1]


broker = ListBroker()


@broker.task
@aclient.single_run(nightly, once_per=PERIOD)
async def report(number: int) -> None:
    await asyncio.to_thread(work, "nightly")


@broker.task
@aclient.single_run(account, if_taken="wait")
async def transfer(number: int) -> None:
    await asyncio.to_thread(work, "account")


@broker.on_event(TaskiqEvents.WORKER_SHUTDOWN)
async def closed(state: TaskiqState) -> None:
    await aclient.close()


def enqueue(job: str, number: int) -> None:
    async def put() -> None:
        await {"nightly": report, "account": transfer}[job].kiq(number)
        await broker.shutdown()

    asyncio.run(put())
