"""A worker of Celery in a process of its own: a task is skipped, and a chain that begins with it.

``python worker_celery_skip.py ENGINE redelivered|first URL...`` prints the results as one JSON object.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from celery import Celery, signals
from celery.contrib.testing.worker import start_worker
from celery.exceptions import TaskRevokedError

from redlock_fast import FastRedlock
from redlock_fast.integrations.celery import single_run

ENGINE, DELIVERY, *URLS = sys.argv[1:]
PATIENCE = 60.0
app = Celery("tests", broker="memory://", backend="cache+memory://")
client = FastRedlock(URLS, engine=ENGINE, node_timeout=5.0, connect_timeout=20.0, restart_guard="off")


@app.task(bind=True)
@single_run(client, "job")
def job(self: Any) -> str:
    return "done"


@app.task
def after(result: str) -> str:
    return "after"


if DELIVERY == "redelivered":

    @signals.task_prerun.connect(weak=False)
    def second(task: Any, **_: Any) -> None:
        task.request.delivery_info["redelivered"] = True


with start_worker(app, perform_ping_check=False, pool="solo", shutdown_timeout=PATIENCE):
    shown = {"alone": job.delay().get(timeout=PATIENCE)}
    with client.lock("job", ttl=PATIENCE):
        skipped = job.delay()
        chained = (job.s() | after.s()).delay()
        assert after.delay("").get(timeout=PATIENCE) == "after"  # the others were done before
        shown |= {"skipped": skipped.state, "chained": chained.state}
        if skipped.state == "REVOKED":
            try:
                skipped.get(timeout=PATIENCE)
            except TaskRevokedError as error:
                shown["error"] = str(error)
print(json.dumps(shown))
client.close()
