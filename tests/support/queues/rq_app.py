"""Jobs of RQ."""

from __future__ import annotations

import redis
from rq import Queue, Retry
from support.queues.jobs import AGAIN, BROKER, PERIOD, account, client, nightly, work


@client.single_run(nightly, once_per=PERIOD)
def report(number: int) -> None:
    work("nightly")


@client.single_run(account, if_taken="raise")
def transfer(number: int) -> None:
    work("account")


def enqueue(job: str, number: int) -> None:
    with redis.Redis.from_url(BROKER) as broker:
        Queue(connection=broker).enqueue(
            {"nightly": report, "account": transfer}[job], number, retry=Retry(max=50, interval=AGAIN)
        )
