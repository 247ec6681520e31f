"""A process that locks and releases while some of its masters attack it, and measures its memory.

``python -m support.worker_hostile '<settings as JSON>'`` prints its numbers as JSON.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from functools import partial
from typing import Any

from support.thorough import amount
from support.worker_leaks import resident

from redlock_fast import FastRedlock

#: Seconds that the attack goes on at least.
LEAST = amount(0.25, 1.0, twice=1.0)


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


def completed(error: str, found: list[str]) -> bool:
    """Whether it is among what was wrong with a master; where none is expected, any."""
    return any(error in one for one in found)


def main() -> None:
    setting: dict[str, Any] = json.loads(sys.argv[1])
    logging.getLogger("redlock_fast").addHandler(logging.NullHandler())
    options: dict[str, Any] = {"engine": setting["engine"], "connect_timeout": 20.0, "restart_guard": "off"}
    with FastRedlock(setting["good"], node_timeout=20.0, **options, check_masters="off") as client:
        client.connect()
        for number in range(60):
            cycle(client, f"warm:{number}")
    options |= {"connect_timeout": setting["outage_timeout"], "socket_timeout": setting["outage_timeout"]}
    with FastRedlock(
        setting["good"] + setting["bad"], node_timeout=20.0, **options, check_masters="off"
    ) as client:
        client.connect()
        before, slowest, count = resident(), 0.0, 0
        errors: dict[str, list[str]] = {master.name: [] for master in client.health()[len(setting["good"]) :]}
        begin = time.monotonic()
        while (passed := time.monotonic() - begin) < setting["seconds"]:
            if passed > LEAST and all(map(partial(completed, setting["error"]), errors.values())):
                break
            slowest = max(slowest, cycle(client, f"under attack:{count}"))
            count += 1
            time.sleep(0.002)
            for master in client.health():
                if master.error and master.name in errors and master.error not in errors[master.name]:
                    errors[master.name].append(master.error)
    print(json.dumps({"grown": peak() - before, "slowest": slowest, "count": count, "errors": errors}))


if __name__ == "__main__":
    main()
