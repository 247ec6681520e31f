"""An application of uWSGI. Its client is made when it is loaded; with HOLDS, it holds a lock from then on.

By default uWSGI loads it in the process that forks the workers, and Python does not see that fork.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from redlock_fast import FastRedlock, LockLost

logging.basicConfig()
client = FastRedlock(
    os.environ["MASTERS"].split(), engine=os.environ["ENGINE"], restart_guard="off", node_timeout=5.0
)
inherited = client.lock("inherited", 60.0, auto_extend=True)
if "HOLDS" in os.environ and inherited.acquire(False):
    Path(os.environ["FOLDER"], str(os.getpid())).write_bytes(inherited.token or b"")


def application(environ: dict[str, Any], start: Callable[..., object]) -> Iterable[bytes]:
    counter = Path(os.environ["FOLDER"], "counter")
    with client.lock("counter", 30.0, timeout=30.0) as lock:
        counter.write_text(str(int(counter.read_text()) + 1))
        lock.check()
    answer: dict[str, object] = {"process": os.getpid(), "held": inherited.locked()}
    if environ["PATH_INFO"] == "/inherited":
        answer |= {"token": inherited.token is not None, "released": inherited.release()}
        try:
            inherited.check()
        except LockLost as error:
            answer["reason"] = error.reason
        answer["taken"] = "HOLDS" in os.environ and inherited.acquire(False)
    start("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(answer).encode()]
