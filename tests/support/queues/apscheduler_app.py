"""A scheduler of APScheduler: each process fires the same jobs."""

from __future__ import annotations

import pickle

from apscheduler.schedulers.blocking import BlockingScheduler
from support.queues import apscheduler_app
from support.queues.jobs import PERIOD, client, nightly, work


@client.single_run(nightly, once_per=PERIOD)
def report(number: int) -> None:
    work("nightly")


def main() -> None:
    job = apscheduler_app.report  # by the name that other processes import, as job stores keep it
    assert pickle.loads(pickle.dumps(job)) is job
    scheduler = BlockingScheduler(timezone="UTC")
    scheduler.add_job(job, "interval", args=[0], seconds=0.5)
    scheduler.start()


if __name__ == "__main__":
    main()
