"""A process of a fleet that runs a job once in each period: its engine, log, period, then the URLs.

The job appends a line to the log: when it began, when its acquire began, and its process. Both times are of
the clock that all processes share. Without a period the job does not end. The process ends with its input.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading

from redlock_fast import FastRedlock, LockLost, QuorumUnavailable
from redlock_fast.algorithm.policy import lease_clock
from redlock_fast.algorithm.quorum import deadline


def main(engine: str, log: str, period: str, *urls: str) -> None:
    once_per = float(period) if period else None
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set())).start()
    # The lock of a job without an end must not be lost on a busy machine.
    options = {"ttl": 0.8} if once_per else {"ttl": 3.0, "node_timeout": 1.0}
    with FastRedlock(
        list(urls), **options, engine=engine, connect_timeout=20.0, check_masters="off"
    ) as client:
        while not ended.wait(0.01):
            with (
                contextlib.suppress(QuorumUnavailable, LockLost),
                client.single_run("job", once_per=once_per, auto_extend=once_per is None) as lock,
            ):
                if lock is not None:
                    lasts = deadline(0.0, options["ttl"], client._core.policy.drift_factor)
                    asked = lease_clock() + lock.remaining() - lasts
                    with open(log, "a") as file:
                        file.write(f"{lease_clock()} {asked} {os.getpid()}\n")
                    if once_per is None:
                        ended.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
