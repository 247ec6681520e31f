"""A process of greenlets: what it does is the first argument, then when it patches, and the URLs.

It prints its observations as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

if sys.argv[2] == "patched first":
    from gevent import monkey

    monkey.patch_all()

import redlock_fast
from redlock_fast import AsyncFastRedlock, ClientClosed, ConfigError, FastRedlock, Lock

if sys.argv[2] == "imported first":
    from gevent import monkey

    monkey.patch_all()

import gevent  # after patch_all, as its documentation asks
from thorough import amount

WAIT = 1.0
#: Of a wait, the part for which other greenlets may stand still; and how often it is tried: a busy machine
#: holds up the whole process, but not each time.
SHARE, TRIES = 0.25, 5
#: Seconds: a busy machine holds a process up for less than two thirds of it.
TTL = 2.0
#: Seconds. More than a busy machine takes.
LONG = 60.0
FORKS = amount(3, 10, twice=5)


class Ticker:
    """A greenlet that runs often. ``longest``: the longest time in seconds without a run."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._greenlet = gevent.spawn(self._run)

    def _run(self) -> None:
        last = time.monotonic()
        while True:
            gevent.sleep(0.005)
            now = time.monotonic()
            self.longest, last = max(self.longest, now - last), now

    def end(self) -> float:
        self._greenlet.kill()
        return self.longest


def client(urls: list[str], **options: Any) -> FastRedlock:
    return FastRedlock(urls, **{"node_timeout": 5.0, "connect_timeout": 20.0, **options}, check_masters="off")


def held(c: FastRedlock, name: str, **options: Any) -> Lock:
    lock = c.lock(name, **options)
    assert lock.acquire()
    return lock


def wait(urls: list[str]) -> object:
    """A greenlet waits for a lock that another one holds."""
    c = client(urls)
    lock, waiting, shares = held(c, "contended"), c.lock("contended"), list[float]()
    while len(shares) < TRIES and min(shares, default=1.0) >= SHARE:
        ticker = Ticker()
        start = time.monotonic()
        got = gevent.spawn(waiting.acquire, timeout=WAIT).get()
        shares.append(ticker.end() / (time.monotonic() - start))
    return {"got": got, "still": min(shares) >= SHARE, "released": lock.release()}


def renew(urls: list[str]) -> object:
    """Locks are renewed while another greenlet waits for one of them."""
    c = client(urls, ttl=TTL)
    lost: list[str] = []
    locks = [
        held(c, f"renewed:{number}", auto_extend=True, on_lost=lambda _, why: lost.append(why))
        for number in range(5)
    ]
    got = gevent.spawn(c.lock("renewed:0").acquire, timeout=2 * TTL).get()
    blocked = [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())]
    kept = [lock.locked() for lock in locks]
    return {"got": got, "kept": kept, "lost": lost, "released": c.release_many(locks), "blocked": blocked}


def turns(urls: list[str]) -> object:
    """Many greenlets take turns with a lock and with a reentrant lock. ``most``: holders at a time."""
    c = client(urls)
    reentrant = c.rlock("reentrant")
    inside = {"plain": 0, "reentrant": 0}
    most = dict(inside)
    done = dict(inside)

    def enter(name: str, make: Callable[[], Any]) -> None:
        for _ in range(3):
            with make():
                inside[name] += 1
                most[name] = max(most[name], inside[name])
                gevent.sleep(0.001)
                inside[name] -= 1
                done[name] += 1
            gevent.sleep(0.002)  # another greenlet is the owner now

    greenlets = [gevent.spawn(enter, "plain", lambda: c.lock("plain", timeout=LONG)) for _ in range(20)]
    greenlets += [gevent.spawn(enter, "reentrant", lambda: reentrant) for _ in range(10)]
    gevent.joinall(greenlets, raise_error=True, timeout=LONG)
    c.close()
    return {"most": most, "done": done}


def fork(urls: list[str]) -> object:
    """The child has copies of all greenlets: some hold a lock, wait for one, ask the masters, or connect."""
    c = client(urls, ttl=LONG)
    lock = held(c, "held", auto_extend=True)
    waiting = c.lock("held")
    fair = c.lock("held fair", fair=True)
    other_fair = held(c, "held fair", fair=True)
    parent = os.getpid()
    ends: list[str] = []

    def acquire(one: Lock) -> None:
        try:
            got = one.acquire(timeout=LONG)
        except ClientClosed:
            ends.append("closed")
        else:
            ends.append(f"got {got}")

    def cycle(number: int) -> None:
        while os.getpid() == parent and not stop:
            with c.lock(f"cycle:{number}"):
                pass

    stop: list[bool] = []
    waiters = [gevent.spawn(acquire, waiting), gevent.spawn(acquire, fair)]
    cycles = [gevent.spawn(cycle, number) for number in range(4)]
    gevent.sleep(0.1)
    codes = []
    for _ in range(FORKS):
        connecting = client(urls)
        connect = gevent.spawn(connecting.connect)
        gevent.sleep(0.003)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                gevent.joinall([*waiters, *cycles], timeout=LONG)
                with c.lock("child", timeout=LONG):
                    right = ends == ["closed"] * 2 and not lock.locked() and not lock.release()
                code = 0 if right and not any(one.exception for one in cycles if not closed(one)) else 2
                c.close()
            finally:
                os._exit(code)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        assert connect.get(timeout=LONG)
        connecting.close()
    stop.append(True)
    gevent.joinall(cycles, raise_error=True, timeout=LONG)
    released = lock.release(), other_fair.release()
    gevent.joinall(waiters, raise_error=True, timeout=LONG)
    faults = [master.faults for master in c.health()]
    result = {"codes": codes, "released": released, "ends": ends, "faults": faults}
    return {**result, "then": [waiting.release(), fair.release()]}


def closed(greenlet: Any) -> bool:
    return isinstance(greenlet.exception, ClientClosed)


def leave(urls: list[str]) -> object:
    """The process ends with locks that it holds."""
    c = client(urls, ttl=LONG)
    gevent.spawn(c.lock("held").acquire).get()
    kept.append(held(c, "kept", auto_extend=True))
    return {"engine": redlock_fast.ENGINE, "held": c.locked("held")}


def loop(urls: list[str]) -> object:
    """A client for asyncio."""

    async def main() -> str:
        c = AsyncFastRedlock(urls, check_masters="off")
        try:
            await c.acquire("a lock")
        except ConfigError as error:
            return str(error)
        finally:
            await c.close()
        return ""

    return asyncio.run(main())


kept: list[Lock] = []


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](sys.argv[3:])))
