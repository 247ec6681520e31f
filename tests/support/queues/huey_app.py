"""Tasks of Huey."""

from __future__ import annotations

from huey import RedisHuey
from support.queues.jobs import AGAIN, BROKER, PERIOD, account, client, nightly, work

huey = RedisHuey("queues", url=BROKER, results=False)


@huey.task()
@client.single_run(nightly, once_per=PERIOD)
def report(number: int) -> None:
    work("nightly")


@huey.task(retries=50, retry_delay=AGAIN)
@client.single_run(account, if_taken="raise")
def transfer(number: int) -> None:
    work("account")


def enqueue(job: str, number: int) -> None:
    {"nightly": report, "account": transfer}[job](number)
