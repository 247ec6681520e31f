"""Measures one library: acquire + release cycles of one thread, on a new key each.

    python driver.py NAME '{"urls": [...], "warmup": 200, "cycles": 2000, ...}'

Runs in the virtual environment of the library, so it imports nothing but that library. Prints one
JSON object: "samples", the nanoseconds of each cycle, and "info". A cycle that does not get its lock
ends the run: a lock that was not taken is not a lock cycle.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

TTL = 60.0

#: Returns what `cycle(key)` runs on; `cycle` acquires and releases once.
Driver = Callable[..., contextlib.AbstractContextManager[tuple[Callable[[str], None], dict[str, Any]]]]


@contextlib.contextmanager
def redlock_fast(urls: list[str], **options: Any) -> Iterator[Any]:
    from redlock_fast import FastRedlock

    with FastRedlock(urls, ttl=TTL, **options) as client:
        client.connect(10)

        def cycle(key: str) -> None:
            lock = client.lock(key)
            if not (lock.acquire() and lock.release()):
                raise RuntimeError("no lock")

        up = [master for master in client.health() if master.state == "connected"]
        yield cycle, {"paths": sorted({master.release_path for master in up})}


@contextlib.contextmanager
def redlock_py(urls: list[str]) -> Iterator[Any]:
    from redlock import Redlock

    client = Redlock(urls)

    def cycle(key: str) -> None:
        lock = client.lock(key, int(TTL * 1000))
        if not lock:
            raise RuntimeError("no lock")
        client.unlock(lock)

    yield cycle, {"paths": ["EVAL"]}


@contextlib.contextmanager
def pottery(urls: list[str]) -> Iterator[Any]:
    from pottery import Redlock
    from redis import Redis

    masters = {Redis.from_url(url) for url in urls}

    def cycle(key: str) -> None:
        lock = Redlock(key=key, masters=masters, auto_release_time=TTL)
        if not lock.acquire():
            raise RuntimeError("no lock")
        lock.release()

    yield cycle, {"paths": ["EVALSHA"]}


DRIVERS: dict[str, Driver] = {
    "redlock-fast": redlock_fast,
    "redlock-py": redlock_py,
    "pottery": pottery,
}


def versions(*packages: str) -> dict[str, str]:
    """The versions of those of ``packages`` that are installed."""
    found = {}
    for package in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def main() -> None:
    name, setting = sys.argv[1], json.loads(sys.argv[2])
    warmup, cycles = setting.pop("warmup"), setting.pop("cycles")
    clock, samples = time.perf_counter_ns, []
    with DRIVERS[name](**setting) as (cycle, info):
        for number in range(warmup):
            cycle(f"{name}:warm:{number:08d}")
        for number in range(cycles):
            key = f"{name}:{number:08d}"
            start = clock()
            cycle(key)
            samples.append(clock() - start)
    info["versions"] = versions(name, "redis", "hiredis")
    json.dump({"samples": samples, "info": info}, sys.stdout)


if __name__ == "__main__":
    main()
