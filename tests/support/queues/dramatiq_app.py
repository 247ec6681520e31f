"""Actors of dramatiq."""

from __future__ import annotations

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from support.queues.jobs import AGAIN, BROKER, PERIOD, account, client, nightly, work

dramatiq.set_broker(RedisBroker(url=BROKER))


@dramatiq.actor
@client.single_run(nightly, once_per=PERIOD)
def report(number: int) -> None:
    work("nightly")


@dramatiq.actor(max_retries=50, min_backoff=1000 * AGAIN, max_backoff=1000 * AGAIN)
@client.single_run(account, if_taken="raise")
def transfer(number: int) -> None:
    work("account")


def enqueue(job: str, number: int) -> None:
    {"nightly": report, "account": transfer}[job].send(number)
