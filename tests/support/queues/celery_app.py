"""An app of Celery; its beat sends a task several times a second."""

from __future__ import annotations

from typing import Any

from celery import Celery, signals
from celery.beat import PersistentScheduler
from support.queues.jobs import AGAIN, BROKER, PERIOD, account, client, nightly, work

from redlock_fast.integrations.celery import single_run
from redlock_fast.integrations.celery_beat import OneActive

app = Celery("queues", broker=BROKER)
app.conf.update(
    worker_prefetch_multiplier=1,
    task_acks_late=True,
    broker_connection_retry_on_startup=True,
    task_ignore_result=True,
    beat_schedule={"tick": {"task": "support.queues.celery_app.tick", "schedule": 0.3}},
)


@signals.worker_init.connect
def used_before_the_fork(**_: object) -> None:
    """The processes of the pool get a client that is connected, and make connections of their own."""
    client.connect()


@app.task
@single_run(client, nightly, once_per=PERIOD)
def report(number: int) -> None:
    work("nightly")


@app.task(bind=True, max_retries=None)
@single_run(client, account, if_taken="retry", countdown=AGAIN)
def transfer(self: Any, number: int) -> None:
    work("account")


def enqueue(job: str, number: int) -> None:
    {"nightly": report, "account": transfer}[job].delay(number)


class Beat(OneActive, PersistentScheduler):
    client = client
    lease = 3.0


app.conf.beat_scheduler = Beat
