"""Tasks of Celery that are queued once, and a worker for them in a process of its own.

``python worker_celery_queued.py ENGINE URL...`` prints what was seen as one JSON object.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

from celery import Celery
from celery.contrib.testing.worker import start_worker
from celery.exceptions import TaskRevokedError

from redlock_fast import FastRedlock
from redlock_fast.integrations.celery import queued_once

ENGINE, *URLS = sys.argv[1:]
PATIENCE = 60.0
app = Celery("tests", broker="memory://", backend="cache+memory://")
client = FastRedlock(
    URLS, engine=ENGINE, node_timeout=5.0, connect_timeout=20.0, restart_guard="off", max_ttl=PATIENCE
)
runs: list[str] = []
waits, goes_on = threading.Event(), threading.Event()


@app.task(base=queued_once(client, lambda name, **_: name, expiry=PATIENCE))
def job(name: str, **more: Any) -> str:
    runs.append(name)
    if name == "long":
        waits.set()
        assert goes_on.wait(PATIENCE)
    if name == "fails":
        raise ValueError(name)
    return name


@app.task(bind=True, base=queued_once(client, expiry=PATIENCE), max_retries=3)
def again(self: Any) -> str:
    runs.append(f"again {self.request.retries}")
    if self.request.retries == 0:
        raise self.retry(countdown=0)
    if self.request.retries == 1:  # the retry has the lock, too
        states.append(again.delay().state)
        raise self.retry(countdown=0)
    return "third"


@app.task(base=queued_once(client, expiry=0.5))
def late() -> str:
    return "late"


def error_of(result: Any) -> str:
    try:
        return str(result.get(timeout=PATIENCE))
    except TaskRevokedError as error:
        return str(error)


states: list[str] = []
expired = [late.delay()]
while (second := late.delay()).state == "REVOKED":
    pass
expired.append(second)
first, not_sent = job.delay("a"), job.delay("a", more=1)
other = job.apply_async(["b"])
queued = {"first": first.state, "not sent": not_sent.state, "error": error_of(not_sent), "other": other.state}
with start_worker(app, perform_ping_check=False, pool="solo", shutdown_timeout=PATIENCE):
    done = [result.get(timeout=PATIENCE) for result in (*expired, first, other)]
    long = job.delay("long")
    assert waits.wait(PATIENCE)
    running = job.delay("long").state
    goes_on.set()
    long.get(timeout=PATIENCE)
    failed = [job.delay("fails").get(timeout=PATIENCE, propagate=False) for _ in range(2)]
    retried = again.delay().get(timeout=PATIENCE)
    once_more = job.delay("a").get(timeout=PATIENCE)
shown = {
    "queued": queued, "done": done, "running": running, "failed": len(failed), "retried": retried,
    "sent in a retry": states, "once more": once_more, "runs": runs,
}  # fmt: skip
print(json.dumps(shown))
client.close()
