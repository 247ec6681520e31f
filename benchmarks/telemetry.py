"""What telemetry costs: CPU of the same work with and without it, in turns within one run.

    python benchmarks/telemetry.py [--rounds 200] [--locks 100] [--engine native] [--asyncio] [--tasks 50]

Three masters on this machine, one client. In each turn it has an observer or none, and does the same work, so
nothing else differs. Prints the median ratio of CPU times within a round, and the medians of both halves of
the rounds, which show how exact it is.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import time
from typing import Any

from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry, generate_latest

from redlock_fast import AsyncFastRedlock, FastRedlock
from redlock_fast.algorithm.lease import Lease
from redlock_fast.embedded import Masters
from redlock_fast.exporters.metrics import time_grants
from redlock_fast.otel import trace
from redlock_fast.prometheus import RedlockCollector

#: Metrics without the histogram are as "plain again": an acquire does nothing for them.
KINDS = ("plain", "plain again", "latency", "spans")
#: Two at a time, in equally many turns: the interpreter is fastest with the code path that it saw most.
PAIRS = [("plain", kind) for kind in KINDS[1:]]


def observers(client: Any) -> dict[str, Any]:
    """The observer of the client for each kind; None where nothing is observed."""
    time_grants(client)
    timed, client.client_state.observer = client.client_state.observer, None
    trace(client, TracerProvider())  # which records, and exports nothing
    return dict(zip(KINDS, (None, None, timed, client.client_state.observer), strict=True))


def threads(client: FastRedlock, args: argparse.Namespace) -> None:
    for _ in range(args.locks):
        with client.lock("telemetry"):
            pass


async def tasks(client: AsyncFastRedlock, args: argparse.Namespace) -> None:
    async def task(name: str) -> None:
        for _ in range(args.locks // args.tasks):
            async with client.lock(name):
                pass

    await asyncio.gather(*(task(f"telemetry:{n}") for n in range(args.tasks)))


async def play(client: Any, args: argparse.Namespace) -> dict[str, tuple[list[float], list[float]]]:
    """CPU seconds of each turn, without and with telemetry, by kind."""
    kinds = observers(client)
    spent = {}
    for pair in PAIRS:
        turns: tuple[list[float], list[float]] = ([], [])
        for _ in range(args.rounds):
            for which in random.sample((0, 1), 2):
                client.client_state.observer = kinds[pair[which]]
                await work(client, args)  # warms up
                start = time.process_time()
                await work(client, args)
                turns[which].append(time.process_time() - start)
        spent[pair[1]] = turns
    return spent


async def work(client: Any, args: argparse.Namespace) -> None:
    if args.asyncio:
        await tasks(client, args)
    else:
        threads(client, args)


def alone(rounds: int = 200, grants: int = 2_000) -> float:
    """CPU seconds that the histogram alone adds to a grant."""
    with FastRedlock(["redis://127.0.0.1:1"]) as plain, FastRedlock(["redis://127.0.0.1:1"]) as timed:
        time_grants(timed)
        lease = Lease(b"telemetry", b"", 0, 10.0, plain.policy.clock() + 10.0, 9.89)
        extra = []
        for _ in range(rounds):
            seconds = []
            for client in (plain, timed):
                hold = client.client_state.add_lease
                start = time.process_time()
                for _ in range(grants):
                    hold(lease)
                seconds.append(time.process_time() - start)
                client.client_state.remove_lease(lease)
            extra.append((seconds[1] - seconds[0]) / grants)
    return statistics.median(extra)


def scrape(client: Any) -> float:
    """CPU seconds of a call."""
    registry = CollectorRegistry()
    RedlockCollector(registry).add(client, latency=True)
    start = time.process_time()
    for _ in range(100):
        generate_latest(registry)
    return (time.process_time() - start) / 100


def report(args: argparse.Namespace, spent: dict[str, tuple[list[float], list[float]]]) -> None:
    plain = statistics.median(seconds for turns in spent.values() for seconds in turns[0]) / args.locks
    print(f"{'asyncio' if args.asyncio else 'threads'}, {args.engine} engine, {args.rounds} rounds:")
    print(f"  {'plain':12} {plain * 1e6:7.1f} us of CPU for acquire and release")
    for kind, turns in spent.items():
        ratios = [one / other - 1 for other, one in zip(*turns, strict=True)]
        halves = [statistics.median(half) for half in (ratios[::2], ratios[1::2])]
        print(f"  {kind:12} {statistics.median(ratios):+7.2%}  (halves {halves[0]:+.2%}, {halves[1]:+.2%})")
    one = alone()
    print(f"  the histogram by itself: {one * 1e9:.0f} ns for each grant, {one / plain:.2%}")


async def main(args: argparse.Namespace) -> None:
    make: Any = AsyncFastRedlock if args.asyncio else FastRedlock
    with Masters(3, server="valkey", password="") as masters:
        client = make(masters.urls, engine=args.engine, node_timeout=5.0, connect_timeout=20.0)
        report(args, await play(client, args))
        print(f"  a scrape: {scrape(client) * 1e3:.2f} ms of CPU")
        closed = client.close()
        if args.asyncio:
            await closed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--locks", type=int, default=100)
    parser.add_argument("--tasks", type=int, default=50)
    parser.add_argument("--engine", default="native")
    parser.add_argument("--asyncio", action="store_true")
    asyncio.run(main(parser.parse_args()))
