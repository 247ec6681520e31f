"""A process that locks and releases while some of its masters attack it, and measures its memory.

``python -m support.worker_hostile '<settings as JSON>'`` prints its numbers as JSON.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

from support.worker_leaks import resident

from redlock_fast import FastRedlock


def peak() -> int:
    """Bytes, the most that this process ever had in memory."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM"))


def cycle(client: FastRedlock, name: str) -> float:
    """How long (seconds) it took until the lock was there."""
    began = time.monotonic()
    lock = client.lock(name, 30)
    assert lock.acquire(timeout=0)
    took = time.monotonic() - began
    lock.release()
    return took


def main() -> None:
    setting: dict[str, Any] = json.loads(sys.argv[1])
    logging.getLogger("redlock_fast").addHandler(logging.NullHandler())
    options: dict[str, Any] = {"engine": setting["engine"], "connect_timeout": 20.0, "restart_guard": "off"}
    with FastRedlock(setting["good"], node_timeout=20.0, **options) as client:
        client.connect()
        for number in range(200):
            cycle(client, f"warm:{number}")
    options |= {"connect_timeout": setting["patience"], "socket_timeout": setting["patience"]}
    with FastRedlock(setting["good"] + setting["bad"], node_timeout=20.0, **options) as client:
        client.connect()
        before, slowest, count = resident(), 0.0, 0
        end = time.monotonic() + setting["seconds"]
        settled = False
        while time.monotonic() < end and not settled:
            slowest = max(slowest, cycle(client, f"under attack:{count}"))
            count += 1
            time.sleep(0.002)
            bad = client.health()[len(setting["good"]) :]
            settled = time.monotonic() > end - setting["seconds"] + 1 and all(m.error for m in bad)
        health = [(m.name, m.state, m.connections, m.error) for m in bad]
    print(json.dumps({"grown": peak() - before, "slowest": slowest, "count": count, "health": health}))


if __name__ == "__main__":
    main()
