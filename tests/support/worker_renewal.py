"""A process that holds an auto-extended lock, is stopped for longer than its lease, and prints the results.

``python -m support.worker_renewal '<settings as JSON>'``: acquires, prints "held", waits for a line (before
it, it is stopped and continued), and prints as JSON the first result of check() and the calls of on_lost.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from typing import Any

from redlock_fast import FastRedlock, LockLost

PATIENCE = 20.0


def main() -> None:
    setting = json.loads(sys.argv[1])
    logging.getLogger("redlock_fast").addHandler(logging.NullHandler())
    completed: list[str] = []
    called = threading.Event()

    def on_lost(lock: Any, reason: str) -> None:
        completed.append(reason)
        called.set()

    with FastRedlock(
        setting["urls"], engine=setting["engine"], node_timeout=5.0, check_masters="off"
    ) as client:
        client.connect(PATIENCE)
        lock = client.lock("stopped", setting["ttl"], auto_extend=True, on_lost=on_lost)
        assert lock.acquire(timeout=PATIENCE)
        print("held", flush=True)
        sys.stdin.readline()
        try:
            lock.check()
            checked = "held"
        except LockLost:
            checked = "lost"
        called.wait(PATIENCE)
        event = lock.lost.is_set()
        released = lock.release()
    print(
        json.dumps({"checked": checked, "losses": completed, "event": event, "released": released}),
        flush=True,
    )


if __name__ == "__main__":
    main()
