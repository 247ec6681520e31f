"""What telemetry costs: CPU of the same work with and without it, in turns within one run.

    python benchmarks/telemetry.py [--rounds 100] [--locks 200] [--engine native] [--asyncio] [--tasks 50]

Three masters on this machine, and a process for each kind of telemetry. Each round all of them do the same
work, one after the other in random order; compared are the first deciles of their CPU times.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import random
import statistics
import time
from multiprocessing.connection import Connection
from typing import Any

from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry, generate_latest

from redlock_fast import AsyncFastRedlock, FastRedlock
from redlock_fast._latency import time_grants
from redlock_fast._lease import Lease
from redlock_fast.embedded import Masters
from redlock_fast.otel import trace
from redlock_fast.prometheus import RedlockCollector

#: The first is what the others are compared with; "plain again" says how exact that is.
KINDS = ("plain", "plain again", "metrics", "metrics and latency", "spans")


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


async def worker(kind: str, urls: list[str], args: argparse.Namespace, orders: Connection) -> None:
    """Does the work when it is told to, and sends the CPU seconds; at the end those of a scrape."""
    make: Any = AsyncFastRedlock if args.asyncio else FastRedlock
    client = make(urls, engine=args.engine, node_timeout=5.0, connect_timeout=20.0)
    registry = CollectorRegistry()
    if kind.startswith("metrics"):
        RedlockCollector(registry).add(client, latency="latency" in kind)
    elif kind == "spans":
        trace(client, TracerProvider())  # which records, and exports nothing
    while orders.recv():
        start = time.process_time()
        if args.asyncio:
            await tasks(client, args)
        else:
            threads(client, args)
        orders.send(time.process_time() - start)
    start = time.process_time()
    for _ in range(100):
        generate_latest(registry)
    orders.send((time.process_time() - start) / 100)
    closed = client.close()
    if args.asyncio:
        await closed


def alone(rounds: int = 200, grants: int = 2_000) -> float:
    """CPU seconds that the histogram adds to one grant: by itself, so that it can be told from the rest."""
    with FastRedlock(["redis://127.0.0.1:1"]) as plain, FastRedlock(["redis://127.0.0.1:1"]) as timed:
        time_grants(timed)
        lease = Lease(plain.claim("telemetry"), b"", 0, 10.0, plain.rules.clock() + 10.0, 9.89)
        extra = []
        for _ in range(rounds):
            seconds = []
            for client in (plain, timed):
                hold = client.masters.hold
                start = time.process_time()
                for _ in range(grants):
                    hold(lease)
                seconds.append(time.process_time() - start)
                client.masters.let_go(lease)
            extra.append((seconds[1] - seconds[0]) / grants)
    return statistics.median(extra)


def work(kind: str, urls: list[str], args: argparse.Namespace, orders: Connection) -> None:
    asyncio.run(worker(kind, urls, args, orders))


def ask(orders: Connection, go_on: bool = True) -> float:
    orders.send(go_on)
    seconds: float = orders.recv()
    return seconds


def undisturbed(seconds: list[float]) -> float:
    """The first decile: what else runs on the machine only adds."""
    return statistics.quantiles(seconds, n=10)[0]


def tell(args: argparse.Namespace, spent: dict[str, list[float]], scrape: float) -> None:
    plain = undisturbed(spent["plain"])
    print(f"{'asyncio' if args.asyncio else 'threads'}, {args.engine} engine, {args.rounds} rounds:")
    print(f"  {'plain':20} {plain / args.locks * 1e6:7.1f} us of CPU for acquire and release")
    for kind in KINDS[1:]:
        print(f"  {kind:20} {undisturbed(spent[kind]) / plain - 1:+7.2%}")
    one = alone()
    print(f"  the histogram by itself: {one * 1e9:.0f} ns for each grant, {one * args.locks / plain:.2%}")
    print(f"  a scrape: {scrape * 1e3:.2f} ms of CPU")


def main(args: argparse.Namespace) -> None:
    context = multiprocessing.get_context("spawn")
    with Masters(3, server="valkey") as masters:
        orders = {}
        for kind in KINDS:
            orders[kind], theirs = context.Pipe()
            context.Process(target=work, args=(kind, masters.urls, args, theirs), daemon=True).start()
        spent: dict[str, list[float]] = {kind: [] for kind in KINDS}
        for order in orders.values():
            for _ in range(5):
                ask(order)
        for _ in range(args.rounds):
            for kind in random.sample(KINDS, len(KINDS)):
                spent[kind].append(ask(orders[kind]))
        scrapes = {kind: ask(order, go_on=False) for kind, order in orders.items()}
        tell(args, spent, scrapes["metrics and latency"])
        for process in multiprocessing.active_children():
            process.join()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--locks", type=int, default=200)
    parser.add_argument("--tasks", type=int, default=50)
    parser.add_argument("--engine", default="native")
    parser.add_argument("--asyncio", action="store_true")
    main(parser.parse_args())
