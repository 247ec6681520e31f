"""Holds one lock with the library of the environment that it runs in: library, resource, ports.

Says whether it has the lock, and gives it back at the end of its input. Imports nothing of ours.
"""

import asyncio
import sys
import warnings

warnings.simplefilter("ignore")


def redlock_py(resource, ports):
    from redlock import Redlock

    locks = Redlock([{"host": "127.0.0.1", "port": port} for port in ports], retry_count=1)
    lock = locks.lock(resource, 60000)
    yield bool(lock)
    if lock:
        locks.unlock(lock)
    yield None


def redlock(resource, ports):
    from redlock import RedLock

    details = [{"host": "127.0.0.1", "port": port} for port in ports]
    lock = RedLock(resource, details, retry_times=1, ttl=60000)
    held = lock.acquire()
    yield bool(held)
    if held:
        lock.release()
    yield None


def pottery(resource, ports):
    from pottery import Redlock
    from redis import Redis

    masters = {Redis(host="127.0.0.1", port=port) for port in ports}
    lock = Redlock(key=resource, masters=masters, auto_release_time=60)
    held = lock.acquire(blocking=False)
    yield bool(held)
    if held:
        lock.release()
    yield None


def aioredlock(resource, ports):
    from aioredlock import Aioredlock, LockError

    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    locks = Aioredlock([{"host": "127.0.0.1", "port": port} for port in ports], retry_count=1)
    try:
        lock = loop.run_until_complete(locks.lock(resource, lock_timeout=60))
    except LockError:
        lock = None
    yield bool(lock)
    if lock:
        loop.run_until_complete(locks.unlock(lock))
    loop.run_until_complete(locks.destroy())
    yield None


if __name__ == "__main__":
    holding = globals()[sys.argv[1]](sys.argv[2], [int(port) for port in sys.argv[3:]])
    print(next(holding), flush=True)
    sys.stdin.read()
    next(holding)
