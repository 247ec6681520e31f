"""A process that takes one lock again and again and writes down its fencing tokens, in the order of time.

Arguments: engine, file to append to, then the masters' URLs. Each line is written under the lock, so that
the order of the lines is the order of the grants. It ends when its standard input does.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

from redlock_fast import FastRedlock, Retry
from redlock_fast.errors import RedlockError


def main(engine: str, path: str, *urls: str) -> None:
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    out = os.open(path, os.O_WRONLY | os.O_APPEND)
    retry = Retry(0.0005, 0.005)
    options: dict[str, Any] = {"ttl": 5.0, "node_timeout": 1.0, "retry": retry, "restart_guard": "durable"}
    with FastRedlock(urls, engine=engine, **options, check_masters="off") as client:
        while not ended.is_set():
            lock = client.lock("shared", fencing=True, timeout=1.0)
            try:
                with lock:
                    token = lock.fencing_token
                    if lock.remaining() > 1.0:  # else a busy machine could take the rest of the lease away
                        os.write(out, b"%d\n" % (token or 0))
            except RedlockError:
                continue


if __name__ == "__main__":
    main(*sys.argv[1:])
