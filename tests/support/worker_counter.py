"""A process whose threads add to a number in a file, each time under the lock.

``python -m support.worker_counter '<settings as JSON>'``: connects, says "ready", waits for a line, works,
and prints what happened to it as JSON: how many increments, and every error that a thread saw.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from pathlib import Path
from typing import Any

from redlock_fast import FastRedlock, Retry


def add_one(path: Path) -> None:
    """Two of these at the same time lose one."""
    path.write_text(str(int(path.read_text()) + 1))


def work(client: FastRedlock, setting: dict[str, Any], errors: list[str]) -> None:
    path = Path(setting["path"])
    try:
        for _ in range(setting["cycles"]):
            with client.lock("counter", timeout=setting["timeout"]):
                add_one(path)
    except Exception as error:
        errors.append(repr(error))


def main() -> None:
    setting = json.loads(sys.argv[1])
    logging.getLogger("redlock_fast").addHandler(logging.NullHandler())
    errors: list[str] = []
    retry = Retry(min_delay=0.001, max_delay=0.05)
    with FastRedlock(
        setting["urls"], ttl=30, retry=retry, engine=setting["engine"], check_masters="off"
    ) as client:
        client.connect(setting["timeout"])
        print("ready", flush=True)
        sys.stdin.readline()
        threads = [
            threading.Thread(target=work, args=(client, setting, errors)) for _ in range(setting["threads"])
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        stats = client.stats()
    print(json.dumps({"errors": errors, "acquired": stats.acquired, "expired": stats.expired}), flush=True)


if __name__ == "__main__":
    main()
