"""A worker process of the demo; it uses only the public API.

Its argument is a JSON object, the first line of stdin a list of URLs. It prints JSON objects, one per line:
first when it is connected. After the second line of stdin come its progress and its result.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

from redlock_fast import Contended, FastRedlock, LockLost, QuorumUnavailable

#: Longer than the end of a demo takes: no key may expire before the keys are counted.
TTL = 30.0
WAIT = 1.0
CONNECT = 10.0
REPORT_INTERVAL = 0.1


def send_message(**message: Any) -> None:
    print(json.dumps(message), flush=True)


def increment(path: str) -> None:
    """Read, add 1, write. Two concurrent calls lose an update."""
    with open(path, "r+") as counter:
        value = int(counter.read())
        counter.seek(0)
        counter.write(str(value + 1))


def contend(client: FastRedlock, path: str, seconds: float) -> dict[str, int]:
    """Increment the shared counter under one lock for ``seconds``; returns the counts."""
    tally = {"cycles": 0, "contended": 0, "unavailable": 0, "lost": 0}
    end = time.monotonic() + seconds
    reported_at = 0.0
    while (now := time.monotonic()) < end:
        try:
            with client.lock("demo", timeout=WAIT):
                increment(path)
                tally["cycles"] += 1
        except Contended:
            tally["contended"] += 1
        except QuorumUnavailable:
            tally["unavailable"] += 1
        except LockLost:
            tally["lost"] += 1
        if now - reported_at > REPORT_INTERVAL:
            send_message(cycles=tally["cycles"])
            reported_at = now
    return tally


def main() -> None:
    setting, urls = json.loads(sys.argv[1]), json.loads(sys.stdin.readline())
    logging.getLogger("redlock_fast").addHandler(logging.NullHandler())  # the demo kills a master itself
    with FastRedlock(urls, ttl=TTL, engine=setting["engine"]) as client:
        client.connect(CONNECT)
        send_message(ready=True)
        sys.stdin.readline()
        result: dict[str, Any] = contend(client, setting["counter"], setting["seconds"])
        result["paths"] = sorted(
            {master.release_path for master in client.health() if master.state == "connected"}
        )
    send_message(result=result)  # after close(), which sends the last releases


if __name__ == "__main__":
    main()
