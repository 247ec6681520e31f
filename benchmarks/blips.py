"""How soon the first grant comes after an outage, and how many acquires fail where faults move.

    python benchmarks/blips.py [--blips 40] [--acquires 3000] [--engine native] [--way threads]

Five masters. First table: two masters are down. A third one is killed and restarted 0.1 to 1 s later, while
a caller waits (``acquire(timeout=...)``) or repeats ``acquire(blocking=False)``. The time starts when the
restarted server answers a PING. Second table: a fault of 0.1 to 1 s moves between the masters, on one or two
of them at a time. A caller acquires and releases uncontended locks, each with one attempt. Where masters are
restarted, the restart guard is off: it would keep them out for ``max_ttl``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import inspect
import itertools
import logging
import os
import random
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import redis
from faulty import FAULTS

from redlock_fast import AsyncFastRedlock, FastRedlock, QuorumUnavailable
from redlock_fast.embedded import Master, Masters

HERE = Path(__file__).parent
#: Seconds that a fault lasts, at least and at most.
SHORTEST, LONGEST = 0.1, 1.0
#: Seconds between two acquires.
PACE = 0.005
TTL = 10.0


class Caller:
    """One client with threads or asyncio, called from one thread of its own."""

    def __init__(self, urls: list[str], way: str, engine: str, **options: Any) -> None:
        self._names = itertools.count()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        make: Any = AsyncFastRedlock if way == "asyncio" else FastRedlock
        self._client = self.call(self._make, make, urls, {"engine": engine, **options}).result()

    async def _make(self, make: Any, urls: list[str], options: dict[str, Any]) -> Any:
        client = make(urls, **options)
        await of(client.connect(10.0))
        while not all(master.state == "connected" for master in client.health()):
            await asyncio.sleep(0.001)
        return client

    def call(self, what: Callable[..., Any], *args: Any) -> Any:
        """The future of a coroutine that runs in the caller's thread."""
        return asyncio.run_coroutine_threadsafe(what(*args), self._loop)

    async def grant(self, waits: bool) -> float:
        """The time when a lock was granted, after as many attempts as needed."""
        lock = self._client.lock(f"blip:{next(self._names)}", TTL)
        options: dict[str, Any] = {"timeout": 60.0} if waits else {"blocking": False}
        while True:
            with contextlib.suppress(QuorumUnavailable):
                if await of(lock.acquire(**options)):
                    came = time.monotonic()
                    await of(lock.release())
                    return came

    async def attempts(self, count: int) -> Counter[str]:
        """The results of that many locks, each with one attempt."""
        came: Counter[str] = Counter()
        for _ in range(count):
            lock = self._client.lock(f"blip:{next(self._names)}", TTL)
            try:
                came["granted" if await of(lock.acquire(blocking=False)) else "refused"] += 1
                await of(lock.release())
            except QuorumUnavailable:
                came["no quorum"] += 1
            await asyncio.sleep(PACE)
        return came

    def health(self) -> Any:
        return self._client.health()

    def close(self) -> None:
        self.call(self._close).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        await of(self._client.close())


async def of(result: Awaitable[Any] | Any) -> Any:
    """The result of a method of either client."""
    return await result if inspect.isawaitable(result) else result


# --- the first grant after an outage ---


def first_grants(args: argparse.Namespace, way: str, engine: str, waits: bool) -> None:
    late, bare = [], []
    with Masters(5) as masters:
        caller = Caller(masters.urls, way, engine, restart_guard="off")
        for master in masters[3], masters[4]:
            master.kill()
        for number in range(args.blips):
            master = masters[number % 3]
            master.kill()
            granted = caller.call(caller.grant, waits)
            time.sleep(random.uniform(SHORTEST, LONGEST))
            assert not granted.done(), caller.health()
            master.launch(master.port)
            reachable = answering(master)
            late.append(granted.result() - reachable)
            bare.append(connect_and_ping(master))
        caller.close()
    name = f"{engine}, {way}, {'waits' if waits else 'tries again'}"
    print(f"| {name} | {row(late)} | {row(bare)} |", flush=True)


def answering(master: Master) -> float:
    """The time when the server answered a PING."""
    while True:
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", master.port), 1.0) as connection,
        ):
            connection.sendall(b"PING\r\n")
            if connection.recv(100).startswith((b"+PONG", b"-NOAUTH")):
                return time.monotonic()
        time.sleep(0.0005)


def connect_and_ping(master: Master) -> float:
    """Seconds that redis-py needs to connect and PING."""
    start = time.monotonic()
    with redis.Redis.from_url(master.url) as client:
        client.ping()
    return time.monotonic() - start


def row(seconds: list[float]) -> str:
    ms = sorted(1e3 * one for one in seconds)
    return f"{statistics.median(ms):.1f} / {ms[int(len(ms) * 0.9)]:.1f} / {ms[-1]:.1f}"


# --- faults that move ---


class Network:
    """The proxies in front of the masters, in another process."""

    def __init__(self, masters: Masters) -> None:
        ports = [str(master.port) for master in masters]
        command = [sys.executable, str(HERE / "faulty.py"), *ports]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        fronts = zip(masters, self._line().split(), strict=True)
        self.urls = [master.url.replace(str(master.port), port) for master, port in fronts]

    def _line(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline()

    def turn(self, faults: dict[int, str]) -> None:
        """Set the faults of some masters, after all other masters are healthy."""
        assert self._process.stdin
        for chosen in ({}, faults):
            states = [chosen.get(number, "well") for number in range(len(self.urls))]
            self._process.stdin.write(" ".join(states) + "\n")
            self._process.stdin.flush()
            self._line()

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()


def moving(masters: Masters, network: Network, kind: str) -> Iterator[None]:
    """At each step all masters recover, then others get a fault."""
    restarted: list[Master] = []
    while True:
        hit = random.sample(range(5), random.choice((1, 2)))
        for master in restarted:
            master.restart()
        if kind == "late restart":
            restarted = [masters[number] for number in hit]
            for master in restarted:
                master.kill()
        else:
            network.turn({number: random.choice(FAULTS) if kind == "mixed" else kind for number in hit})
        yield


def shares(args: argparse.Namespace, way: str, engine: str, kind: str) -> None:
    changes = 0
    with Masters(5) as masters:
        network = Network(masters)
        guard = "off" if kind == "late restart" else "auto"
        caller = Caller(network.urls, way, engine, restart_guard=guard)
        came = caller.call(caller.attempts, args.acquires)
        for _ in moving(masters, network, kind):
            time.sleep(random.uniform(SHORTEST, LONGEST))
            changes += 1
            if came.done():
                break
        caller.close()
        network.close()
    share = came.result()["granted"] / args.acquires
    print(f"| {kind} | {engine}, {way} | {share:.2%} | {dict(came.result())} | {changes} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--blips", type=int, default=40)
    parser.add_argument("--acquires", type=int, default=3000)
    parser.add_argument("--engine", choices=("native", "python"))
    parser.add_argument("--way", choices=("threads", "asyncio"))
    args = parser.parse_args()
    logging.getLogger("redlock_fast").addHandler(logging.NullHandler())
    engines = [args.engine] if args.engine else ["native", "python"]
    ways = [args.way] if args.way else ["threads", "asyncio"]
    modes = list(itertools.product(ways, engines))
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
    if args.blips:
        print(f"| {args.blips} blips, ms: p50 / p90 / max | to the first grant | bare connect and PING |")
        print("|---|---|---|")
        for (way, engine), waits in itertools.product(modes, (True, False)):
            first_grants(args, way, engine, waits)
    if args.acquires:
        print(f"\n| fault | caller | of {args.acquires} granted | what came of them | changes |")
        print("|---|---|---|---|---|")
        for kind, (way, engine) in itertools.product((*FAULTS, "mixed", "late restart"), modes):
            shares(args, way, engine, kind)
    print(f"\nload {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
