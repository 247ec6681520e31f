"""What auto-extended locks cost, and how late a loss is reported.

    python benchmarks/renewal.py [--locks 1000] [--seconds 60] [--ttl 10] [--engine native] [--asyncio]

One process holds ``--locks`` locks on five masters for ``--seconds``. Then all masters but a quorum are
killed, for two leases; then another one. Prints the CPU of this process, its renewal threads, the lost
locks, and how long after its deadline the loss of each lock was reported.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import logging
import os
import statistics
import threading
import time
from typing import Any

from redlock_fast import AsyncFastRedlock, FastRedlock
from redlock_fast.algorithm.policy import lease_clock
from redlock_fast.embedded import Masters


class Losses:
    """The reported losses, and how long after the deadline each one was reported."""

    def __init__(self) -> None:
        self.reasons: collections.Counter[str] = collections.Counter()
        self.late: list[float] = []
        self.deadlines: dict[Any, float] = {}

    def __call__(self, lock: Any, reason: str) -> None:
        self.reasons[reason.partition(":")[0]] += 1
        if lock in self.deadlines:
            self.late.append(lease_clock() - self.deadlines[lock])

    def note(self, locks: list[Any]) -> None:
        """Store the present deadlines."""
        self.deadlines = {lock: lock.lease.deadline for lock in locks if lock.lease and lock.locked()}

    def report(self, count: int) -> None:
        late = sorted(self.late)
        if late:
            print(
                f"  reported: {len(late)} of {count}; after the deadline, ms: first {late[0] * 1e3:.1f}, "
                f"p50 {statistics.median(late) * 1e3:.1f}, last {late[-1] * 1e3:.1f}"
            )


class Usage:
    """Prints the resources of this process in a part of the run."""

    def __init__(self, title: str) -> None:
        print(f"{title}:")
        self.cpu, self.time = time.process_time(), time.monotonic()

    def report(self, client: Any, losses: Losses) -> None:
        seconds = time.monotonic() - self.time
        share = (time.process_time() - self.cpu) / seconds
        renewing = sum("renewal" in thread.name for thread in threading.enumerate())
        stats = client.stats()
        print(
            f"  {seconds:.0f} s, CPU {share:.2%} of a core, renewal threads {renewing} of "
            f"{threading.active_count()}, renewed {stats.renewed}, inconclusive {stats.inconclusive}, "
            f"lost {stats.lost}, reported {dict(losses.reasons)}"
        )


def parts(args: argparse.Namespace, masters: Masters, client: Any, locks: list[Any], losses: Losses) -> Any:
    """Run the steps; yield the seconds to wait after each."""
    usage = Usage(f"{len(locks)} locks of {args.ttl:g} s, all masters well")
    yield args.seconds
    usage.report(client, losses)
    for number in (0, 1):
        masters[number].kill()
    usage = Usage("all masters but a quorum killed")
    yield 2 * args.ttl
    usage.report(client, losses)
    masters[2].kill()
    usage = Usage("a majority killed")
    yield 0.2
    losses.note(locks)
    yield args.ttl + 1.0
    usage.report(client, losses)
    losses.report(len(locks))


def connected(client: Any) -> None:
    """Connect to all masters: a lock that only a quorum has is lost with the first of its masters."""
    client._core.masters.connector.start()
    while client._core.masters.connector.roster.connected() < 5:
        time.sleep(0.001)


def with_threads(args: argparse.Namespace, masters: Masters) -> None:
    losses = Losses()
    with FastRedlock(masters.urls, engine=args.engine) as client:
        connected(client)
        locks = [client.lock(f"r:{n}", args.ttl, auto_extend=True, on_lost=losses) for n in range(args.locks)]
        assert all(lock.acquire() for lock in locks)
        for seconds in parts(args, masters, client, locks, losses):
            time.sleep(seconds)


async def with_asyncio(args: argparse.Namespace, masters: Masters) -> None:
    losses = Losses()
    async with AsyncFastRedlock(masters.urls, engine=args.engine) as client:
        await client.connect()
        connected(client)
        locks = [client.lock(f"r:{n}", args.ttl, auto_extend=True, on_lost=losses) for n in range(args.locks)]
        for lock in locks:
            assert await lock.acquire()
        for seconds in parts(args, masters, client, locks, losses):
            await asyncio.sleep(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--locks", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--ttl", type=float, default=10.0)
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--asyncio", action="store_true")
    args = parser.parse_args()
    logging.getLogger("redlock_fast").addHandler(logging.NullHandler())
    print(f"engine {args.engine}, {'asyncio' if args.asyncio else 'threads'}, {os.cpu_count()} cores")
    with Masters(5, password="") as masters:
        if args.asyncio:
            asyncio.run(with_asyncio(args, masters))
        else:
            with_threads(args, masters)


if __name__ == "__main__":
    main()
