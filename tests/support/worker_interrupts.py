"""A process that uses locks while signals come at random moments.

``python -m support.worker_interrupts '<settings as JSON>'``: connects, says "ready", waits for a line,
does ``use`` ``count`` times, prints as JSON what came of that, waits for a line, shows that the
client still works, and says "works". In between, the parent process checks the masters.
"""

from __future__ import annotations

import contextlib
import json
import logging
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType
from typing import Any

from redlock_fast import FastRedlock, Lock, QuorumUnavailable, RLock

TTL = 60.0
#: Seconds after which a signal comes again.
AGAIN = 1.0
#: These are many times longer than the longest wait for an exception.
TIMES = ("node_timeout", "connect_timeout", "socket_timeout")


class Alarm(Exception):
    """What a handler may raise besides KeyboardInterrupt."""


class Timer:
    """Raises in the main thread, in turn KeyboardInterrupt and Alarm."""

    def __init__(self) -> None:
        self.raised = 0
        self.slowest = 0.0
        self.armed = False
        signal.signal(signal.SIGALRM, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self.armed:
            return  # another thread got the signal, and Python ran the handler here later
        self.raised += 1
        raise KeyboardInterrupt if self.raised % 2 else Alarm

    def during(self, action: Callable[[], object], delay: float) -> None:
        """``action`` with a signal after ``delay`` seconds; measures how long it holds the exception back."""
        due = time.monotonic() + delay
        try:
            # Again and again: Python swallows what is raised in a finalizer, whosever that is.
            self.armed = True
            signal.setitimer(signal.ITIMER_REAL, delay, AGAIN)
            action()
            self.armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
        except (KeyboardInterrupt, Alarm):
            self.armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            self.slowest = max(self.slowest, time.monotonic() - due)


def cycle(lock: Lock) -> None:
    with lock:
        pass


def twice(lock: RLock) -> None:
    with lock, lock:
        lock.acquire()
        lock.release()


class Call:
    """A call that returns a lock: the caller can release the lock only if the call returns."""

    def __init__(self, acquire: Callable[[], Lock | None]) -> None:
        self._acquire = acquire
        self._lock: Lock | None = None

    def take(self) -> None:
        self._lock = self._acquire()

    def locked(self) -> bool:
        return self._lock is not None and self._lock.locked()

    def release(self) -> None:
        assert self._lock is not None
        self._lock.release()


USES: dict[str, Callable[[Any], object]] = {
    "acquire": Lock.acquire,
    "client.acquire": Call.take,
    "release": Lock.release,
    "with": cycle,
    "rlock": twice,
    "multilock": cycle,
}
#: What other uses than those of a plain lock are of.
KINDS: dict[str, Callable[[FastRedlock, str], Any]] = {
    "client.acquire": lambda client, key: Call(lambda: client.acquire(key, TTL)),
    "rlock": lambda client, key: client.rlock(key, TTL),
    "multilock": lambda client, key: client.multilock([key, f"{key}:b", f"{key}:c"], TTL),
}


def usual_time(client: FastRedlock) -> float:
    """Of a cycle, in seconds."""
    began = time.perf_counter()
    for number in range(200):
        cycle(client.lock(f"usual:{number}", TTL))
    return (time.perf_counter() - began) / 200


def interrupted(client: FastRedlock, setting: dict[str, Any]) -> dict[str, float]:
    """One signal in each use of a lock."""
    chance = random.Random(setting["seed"])
    longest = setting["longest"] or usual_time(client)
    timer = Timer()
    for number in range(setting["count"]):
        key = setting["key"] or f"free:{number}"
        lock = KINDS.get(setting["use"], lambda client, key: client.lock(key, TTL))(client, key)
        delay = max(1e-6, chance.uniform(0, longest))
        if setting["use"] == "release":
            lock.acquire()
        before = timer.raised
        timer.during(partial(USES[setting["use"]], lock), delay)
        if not setting["longest"]:  # follows what it takes, and the machine: six of ten come in time
            longest *= 1.02 if timer.raised > before else 0.97
        while lock.locked():  # a caller can see that, and act on it
            lock.release()
    return {"slowest": timer.slowest, "interrupted": timer.raised}


def nested(client: FastRedlock, setting: dict[str, Any]) -> dict[str, float]:
    """A handler that uses the client itself, in the middle of the same."""
    handled = refused = number = 0
    over = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal handled, refused
        handled += 1
        try:
            cycle(client.lock(f"nested:{handled}", TTL, timeout=setting["timeout"]))
        except QuorumUnavailable as error:
            if "called from a signal handler" in str(error):
                refused += 1  # rule 14 of an engine
            elif setting["timeout"] is None or "no reply in time" not in str(error):
                raise  # else a busy machine takes longer than the timeout
        again()

    def again() -> None:
        # On a busy machine a handler takes longer than any fixed time: what it interrupts must get on, too.
        if not over and handled < setting["count"]:
            signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.0001, longest))

    chance = random.Random(setting["seed"])
    longest = max(0.002, 4 * usual_time(client))
    signal.signal(signal.SIGALRM, handle)
    again()
    while number < setting["count"] or handled < setting["count"] // 5:  # a busy machine has few signals
        number += 1
        lock = client.lock(f"outer:{number}", TTL)
        assert lock.acquire()
        lock.extend()
        assert client.locked(f"outer:{number}")
        client.stats()
        assert lock.release()
    over = True  # first: the handler may run between this line and the next
    signal.setitimer(signal.ITIMER_REAL, 0)
    return {"interrupted": handled, "refused": refused, "slowest": 0.0}


@contextlib.contextmanager
def others(client: FastRedlock, count: int, errors: list[str]) -> Iterator[None]:
    """So many threads work beside this one."""
    stop = threading.Event()

    def work(name: int) -> None:
        try:
            while not stop.is_set():
                cycle(client.lock(f"other:{name}", TTL))
        except Exception as error:
            errors.append(repr(error))

    threads = [threading.Thread(target=work, args=(name,)) for name in range(count)]
    for thread in threads:
        thread.start()
    yield
    stop.set()
    for thread in threads:
        thread.join()


def main() -> None:
    setting = json.loads(sys.argv[1])
    logging.getLogger("redlock_fast").addHandler(logging.NullHandler())
    errors: list[str] = []
    options = {"engine": setting["engine"], **dict.fromkeys(TIMES, 30.0)}
    with FastRedlock(setting["urls"], **options, check_masters="off") as client:
        while {master.state for master in client.health()} != {"connected"}:
            client.connect()
            time.sleep(0.001)
        print("ready", flush=True)
        sys.stdin.readline()
        with others(client, setting["threads"], errors):
            result = (nested if setting["use"] == "nested" else interrupted)(client, setting)
        print(json.dumps({**result, "errors": errors}), flush=True)
        sys.stdin.readline()
        for number in range(20):
            cycle(client.lock(f"works:{number}", TTL))
        print("works", flush=True)


if __name__ == "__main__":
    main()
