"""A process whose holders want one lock, again and again, and add to a counter that only it protects.

``python -m chaos.worker '<settings as JSON>'``. It reads "go", "heal" and "stop" on stdin; says "ready"
when it is connected, "strong" when, after "heal", its client has all its masters; and at last what is
left of it as JSON. Everything else stands in its journal.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
import random
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from typing import Any

from chaos.counters import counter
from chaos.history import HistoryWriter, clock
from support.waiting import eventually, start
from support.worker_leaks import back_to, resident, threads_and_fds

from redlock_fast import AsyncFastRedlock, FastRedlock, LockLost, QuorumUnavailable, Retry

KEY = "chaos"
#: Seconds between two acquires that found too few masters.
AFTER_OUTAGE = 0.02
#: What extensions ask for, in ttls: one may be executed after a longer one.
EXTENSIONS = 1.0, 0.98
#: Seconds between two looks at the clock.
BEAT = 0.02
#: No worker waits longer for masters that are up.
LONGEST = 40.0

Do = Callable[..., Awaitable[Any]]


class Threads:
    """Each holder is a thread: its coroutine never waits, and runs to its end in one step."""

    def __init__(self, setting: dict[str, Any]) -> None:
        self.client = FastRedlock(setting["urls"], **options(setting))
        self._holders: list[Future[None]] = []

    async def do(self, call: Callable[..., Any], *args: Any) -> Any:
        return call(*args)

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def connect(self) -> bool:
        return self.client.connect(LONGEST)

    def start(self, holders: list[Callable[[], Coroutine[Any, Any, None]]]) -> None:
        self._holders = [start(functools.partial(_run, holder())) for holder in holders]

    def end(self) -> None:
        for holder in self._holders:
            holder.result()
        self.client.close()


def _run(holder: Coroutine[Any, Any, None]) -> None:
    try:
        holder.send(None)
    except StopIteration:
        return
    raise AssertionError("it waited")


class Tasks:
    """All holders are tasks of one loop, which has a thread to itself."""

    sleep = staticmethod(asyncio.sleep)

    def __init__(self, setting: dict[str, Any]) -> None:
        self.client = AsyncFastRedlock(setting["urls"], **options(setting))
        self._runner = asyncio.Runner()
        self._loop = self._runner.get_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._holders: list[Any] = []

    async def do(self, call: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        return await call(*args)

    def in_loop(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def connect(self) -> bool:
        return bool(self.in_loop(self.client.connect(LONGEST)).result())

    def start(self, holders: list[Callable[[], Coroutine[Any, Any, None]]]) -> None:
        self._holders = [self.in_loop(holder()) for holder in holders]

    def end(self) -> None:
        for holder in self._holders:
            holder.result()
        self.in_loop(self.client.close()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._runner.close()


KINDS: dict[str, Any] = {"threads": Threads, "asyncio": Tasks}


def options(setting: dict[str, Any]) -> dict[str, Any]:
    return {
        "ttl": setting["ttl"],
        "max_ttl": setting["ttl"],
        "engine": setting["engine"],
        "node_timeout": setting["ttl"] / 4,
        "connect_timeout": 0.5,
        "socket_timeout": 1.0,
        "retry": Retry(min_delay=0.003, max_delay=0.05),
        **setting["options"],
    }


class Holder:
    """One contender for the lock."""

    def __init__(self, number: int, setting: dict[str, Any], kind: Any, history: HistoryWriter) -> None:
        self._chance = random.Random(f"{setting['seed']} {setting['name']} {number}")
        self._fenced = setting["fenced"]
        self._lock = kind.client.lock(KEY, fencing=self._fenced, fair=setting["fair"])
        self._do: Do = kind.do
        self._sleep: Callable[[float], Awaitable[None]] = kind.sleep
        self._hold = setting["hold"]
        self._extends = setting["extends"]
        self._patience = setting["patience"]
        self._counter = counter(setting["counter"], self._fenced)
        self._number = number
        self._journal = history

    async def run(self, stopped: Callable[[], bool]) -> None:
        while not stopped():
            if await self._acquired():
                await self._work()
                self._write("letting go")
                self._write("released", alive=await self._do(self._lock.release))

    async def _acquired(self) -> bool:
        start = clock()
        try:
            if await self._do(self._lock.acquire, True, self._patience):
                self._write("grant", **self._stated(), **self._marks(), skew=time.time() - clock())
                return True
            unavailable = False
        except QuorumUnavailable:
            unavailable = True
        self._write("refused", unavailable=unavailable, overtime=clock() - start - self._patience)
        if unavailable:
            await self._sleep(AFTER_OUTAGE)
        return False

    async def _work(self) -> None:
        """Read, wait, write: what another holder writes in between is lost."""
        fence = self._lock.fencing_token
        value = self._counter.read(fence)
        linger = self._chance.uniform(*self._hold)
        await self._sleep(linger / 2)
        if self._chance.random() < self._extends:
            await self._extend()
        await self._sleep(linger / 2)
        if self._fenced or self._lock.remaining() > 0.0:
            self._write("write", accepted=self._counter.write(value + 1, fence))

    async def _extend(self) -> None:
        with contextlib.suppress(LockLost, QuorumUnavailable):
            await self._do(self._lock.extend, self._lock.ttl * self._chance.choice(EXTENSIONS))
        self._write("extend", **self._stated())  # however it ended: a lost lock states that it is lost

    def _marks(self) -> dict[str, Any]:
        """The text that distinguishes this grant from all others."""
        return {"token": self._lock.token.hex(), "fence": self._lock.fencing_token}

    def _stated(self) -> dict[str, float]:
        """The deadline, never later than the lock's own; 0.0 if it is over."""
        now = clock()
        left = self._lock.remaining()
        return {"deadline": now + left if left else 0.0}

    def _write(self, what: str, **more: Any) -> None:
        self._journal.write(what, self._number, clock(), **more)


def longest_stall(stopped: threading.Event) -> float:
    """For how many seconds this process was not run, at worst: by the system, or by SIGSTOP."""
    worst = 0.0
    before = clock()
    while not stopped.wait(BEAT):
        now = clock()
        worst, before = max(worst, now - before - BEAT), now
    return worst


def say(word: str) -> None:
    print(word, flush=True)


def work(setting: dict[str, Any], history: HistoryWriter) -> dict[str, Any]:
    """From the client's beginning to its end."""
    kind = KINDS[setting["mode"]](setting)
    assert kind.connect(), "the masters do not answer"
    eventually(lambda: complete(kind.client), "all masters connect", deadline=LONGEST)
    say("ready")
    stopped = threading.Event()
    holders = [Holder(number, setting, kind, history) for number in range(setting["holders"])]
    sys.stdin.readline()
    kind.start([lambda holder=holder: holder.run(stopped.is_set) for holder in holders])
    stall = start(functools.partial(longest_stall, stopped))
    memory = resident()
    sys.stdin.readline()
    try:
        eventually(lambda: complete(kind.client), "full strength", deadline=LONGEST)
        say("strong")
    except AssertionError as weak:
        say(str(weak))
    sys.stdin.readline()
    stopped.set()
    stats = kind.client.stats()
    again = sum(master.connections - 1 for master in kind.client.health())
    kind.end()
    result = {"faults": stats.faults, "reconnects": again, "stalled": stall.result()}
    return {**result, "grown": resident() - memory}


def complete(client: FastRedlock | AsyncFastRedlock) -> bool:
    return all(master.state == "connected" and not master.guard for master in client.health())


def main() -> None:
    setting = json.loads(sys.argv[1])
    logging.getLogger("redlock_fast").addHandler(logging.NullHandler())
    history = HistoryWriter(setting["journal"])
    before = threads_and_fds()
    result = work(setting, history)
    result.update(before=before, after=back_to(before))
    say(json.dumps(result))


if __name__ == "__main__":
    main()
