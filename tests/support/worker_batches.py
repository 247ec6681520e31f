"""A process that does batches while signals come at random moments.

``python -m support.worker_batches '<settings as JSON>'``: does ``use`` ``count`` times with one signal
in each, and prints as JSON how many came. No key of its own is left then.
"""

from __future__ import annotations

import json
import logging
import random
import sys
import time
from collections.abc import Callable
from typing import Any

from support.worker_interrupts import TIMES, TTL, Timer

from redlock_fast import FastRedlock, Lock

#: Locks of one batch, beside those that others hold.
SIZE = 20


def wanted(number: int) -> list[str]:
    return [*(f"held:{n}" for n in range(5)), *(f"free:{number}:{n}" for n in range(SIZE))]


def acquire(client: FastRedlock, number: int, during: Callable[[Callable[[], object]], None]) -> None:
    """What an interrupted call did not return, only the call itself could release."""
    locks: list[Lock | None] = []
    during(lambda: locks.extend(client.acquire_many(wanted(number), TTL)))
    client.release_many([lock for lock in locks if lock])


def granted(client: FastRedlock, number: int) -> list[Lock]:
    locks = [lock for lock in client.acquire_many(wanted(number), TTL / 2) if lock]
    assert len(locks) == SIZE
    return locks


def release(client: FastRedlock, number: int, during: Callable[[Callable[[], object]], None]) -> None:
    """A caller sees which are still held, and may try again."""
    locks = granted(client, number)
    during(lambda: client.release_many(locks))
    client.release_many([lock for lock in locks if lock.locked()])


def extend(client: FastRedlock, number: int, during: Callable[[Callable[[], object]], None]) -> None:
    locks = granted(client, number)
    during(lambda: client.extend_many(locks, TTL))
    assert all(lock.locked() for lock in locks)
    assert client.release_many(locks) == [True] * SIZE


USES = {"acquire": acquire, "release": release, "extend": extend}


def work(client: FastRedlock, setting: dict[str, Any]) -> dict[str, Any]:
    chance, timer = random.Random(setting["seed"]), Timer()
    use = USES[setting["use"]]
    longest = 0.001  # adapts, so that about half of the signals come in time

    def during(action: Callable[[], object]) -> None:
        nonlocal longest
        before = timer.raised
        timer.during(action, max(1e-6, chance.uniform(0.0, longest)))
        longest *= 1.05 if timer.raised > before else 0.95

    for number in range(setting["count"]):
        use(client, number, during)
    return {"interrupted": timer.raised, "slowest": timer.slowest}


def main() -> None:
    setting = json.loads(sys.argv[1])
    logging.getLogger("redlock_fast").addHandler(logging.NullHandler())
    options: dict[str, Any] = dict.fromkeys(TIMES, 30.0)
    with FastRedlock(setting["urls"], engine=setting["engine"], **options, check_masters="off") as client:
        while {master.state for master in client.health()} != {"connected"}:
            client.connect()
            time.sleep(0.001)
        print(json.dumps(work(client, setting)))
        while any(
            master.pending for master in client.health()
        ):  # close() does not wait long for a lagging one
            time.sleep(0.001)


if __name__ == "__main__":
    main()
