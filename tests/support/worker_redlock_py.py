"""A process that adds to a number in a file, each time under redlock-py's lock.

``python -m support.worker_redlock_py '<settings as JSON>'``: as ``support.worker_counter``.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from redlock import Redlock
from support.worker_counter import add_one

#: Longer than any worker is away, so that no lease ends before its release.
TTL_MS = 60_000


def main() -> None:
    setting = json.loads(sys.argv[1])
    locks = Redlock(setting["urls"], retry_count=1, retry_delay=0.002)
    print("ready", flush=True)
    sys.stdin.readline()
    path, errors, acquired, end = Path(setting["path"]), [], 0, time.monotonic() + setting["timeout"]
    while acquired < setting["cycles"] and time.monotonic() < end:
        lock = locks.lock("counter", TTL_MS)
        if lock:
            add_one(path)
            acquired += 1
            locks.unlock(lock)
            time.sleep(0.001)  # for others to have a turn, too
    if acquired < setting["cycles"]:
        errors.append(f"only {acquired} times in {setting['timeout']} s")
    print(json.dumps({"errors": errors, "acquired": acquired, "expired": 0}), flush=True)


if __name__ == "__main__":
    main()
