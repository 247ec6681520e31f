"""What the jobs of the apps beside this file do, and what they report to the test.

Each line of the list "events" is the name of a worker and what it says. A job that began ends when the list
"go" has an item for it.
"""

from __future__ import annotations

import json
import os
from typing import Any

import redis
from support.waiting import DEADLINE

from redlock_fast import AsyncFastRedlock, FastRedlock

SETTINGS: dict[str, Any] = json.loads(os.environ["QUEUE_TEST"])
BROKER: str = SETTINGS["broker"]
#: A short lease: the lock of a job that runs has to be extended.
OPTIONS: dict[str, Any] = {"ttl": 3.0, "node_timeout": 5.0, "connect_timeout": DEADLINE}
#: Seconds until a job is tried again; some frameworks know whole seconds only.
AGAIN = 1
PERIOD = 50.0

client = FastRedlock(SETTINGS["urls"], **OPTIONS, check_masters="off")
aclient = AsyncFastRedlock(SETTINGS["urls"], **OPTIONS, check_masters="off")


def say(word: str) -> None:
    with redis.Redis.from_url(BROKER) as broker:
        broker.rpush("events", f"{os.environ.get('WORKER')} {word}")


def nightly(*arguments: object) -> str:
    """The name of a lock; the event says that a worker asks for it, and with which arguments of the job."""
    say(" ".join(map(str, ("nightly?", *arguments))))
    return "nightly"


def account(*arguments: object) -> str:
    say(" ".join(map(str, ("account?", *arguments))))
    return "account"


def work(name: str) -> None:
    say(f"{name} began")
    with redis.Redis.from_url(BROKER, socket_timeout=None) as broker:
        assert broker.blpop(["go"], 2 * DEADLINE)
    say(f"{name} ended")
