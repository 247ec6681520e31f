"""What telemetry costs: CPU of the same work with and without it, in turns within one run.

    python benchmarks/telemetry.py [--rounds 200] [--locks 100] [--engine native] [--asyncio] [--tasks 50]

Three masters on this machine, one client. In each turn it has an observer or none, and does the same work, so
nothing else differs. Prints the median ratio of CPU times within a round, and the medians of both halves of
the rounds, which show how exact it is. Then what is added to a lock by itself, without masters, also by
sampling rate, of the reports alone.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import math
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, use_span
from prometheus_client import CollectorRegistry, generate_latest

from redlock_fast import AsyncFastRedlock, FastRedlock, Lock
from redlock_fast.algorithm.lease import Lease
from redlock_fast.embedded import Masters
from redlock_fast.otel import RedlockMetrics, trace
from redlock_fast.prometheus import RedlockCollector

#: What each kind asks for. Metrics without histograms are as "plain again": an acquire does nothing for them.
#: Tracers record, and export nothing.
KINDS: dict[str, Callable[[Any], object]] = {
    "plain again": lambda client: None,
    "latency": lambda client: RedlockCollector(None).add(client, latency=True),
    "durations": lambda client: RedlockCollector(None).add(client, durations=True),
    "durations, OpenTelemetry": lambda client: RedlockMetrics(meters()).add(client, durations=True),
    "spans of the slow": lambda client: trace(client, TracerProvider(), slower_than=0.01),
    "spans of all": lambda client: trace(client, TracerProvider()),
}


def meters() -> MeterProvider:
    return MeterProvider([InMemoryMetricReader()])


def observers(client: Any) -> dict[str, Any]:
    """The observer of the client for each kind; None where nothing is observed."""
    made = {"plain": None}
    for kind, observe in KINDS.items():
        observe(client)
        made[kind], client._core.client_state.observer = client._core.client_state.observer, None
    return made


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
    for pair in (("plain", kind) for kind in KINDS):  # two at a time, in equally many turns
        turns: tuple[list[float], list[float]] = ([], [])
        for _ in range(args.rounds):
            for which in random.sample((0, 1), 2):
                client._core.client_state.observer = kinds[pair[which]]
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


def alone(kind: str, rounds: int = 200, grants: int = 2_000) -> float:
    """CPU seconds that the histogram of grants alone adds to a grant."""
    with FastRedlock(["redis://127.0.0.1:1"]) as plain, FastRedlock(["redis://127.0.0.1:1"]) as timed:
        KINDS[kind](timed)
        lease = Lease(b"telemetry", b"", 0, 10.0, plain._core.policy.clock() + 10.0, 9.89)
        extra = []
        for _ in range(rounds):
            seconds = []
            for client in (plain, timed):
                hold = client._core.client_state.add_lease
                start = time.process_time()
                for _ in range(grants):
                    hold(lease)
                seconds.append(time.process_time() - start)
                client._core.client_state.remove_lease(lease)
            extra.append((seconds[1] - seconds[0]) / grants)
    return statistics.median(extra)


def report_a_lock(lock: Lock, rounds: int = 40, turns: int = 1_000) -> float:
    """CPU seconds of the reports of ``with lock``, which takes no time itself."""
    reports, lease, seconds = core(lock).observe().reports, Lease(b"t", b"", 0, 10.0, math.inf, 9.89), []
    for _ in range(rounds):
        start = time.process_time()
        for _ in range(turns):
            reports.acquired(lock, 0.0, lease, None)
            reports.released(lock, 0.0, lease, True, None)
        seconds.append((time.process_time() - start) / turns)
    return statistics.median(seconds)


def core(lock: Lock) -> Any:
    return lock._core


def instrumentation(observe: Callable[[FastRedlock], object], inside: float | None = None) -> float:
    """CPU seconds that ``observe`` adds to a lock. ``inside``: in traces of which this share is sampled."""
    with FastRedlock(["redis://127.0.0.1:1"]) as client:
        observe(client)
        lock = client.lock("telemetry")
        if core(lock).observe().reports is None:
            return 0.0
        if inside is None:
            return report_a_lock(lock)
        spent = 0.0
        for sampled, share in ((1, inside), (0, 1.0 - inside)):
            around = NonRecordingSpan(SpanContext(1 << 100, 1 << 50, False, TraceFlags(sampled)))
            with use_span(around) if share else contextlib.nullcontext():
                spent += share and share * report_a_lock(lock)
        return spent


def sampled(rate: float) -> TracerProvider:
    return TracerProvider(sampler=ParentBased(TraceIdRatioBased(rate)))


def by_rate() -> None:
    """Print what spans cost by sampling rate."""
    print("spans by themselves, us of CPU for acquire and release:")
    print("  sampled   all, inside of a trace   all, without a trace   slower_than=0.01")
    for rate in (1.0, 0.1, 0.01, 0.0):
        inside = instrumentation(lambda client: trace(client, TracerProvider()), inside=rate)
        roots = instrumentation(lambda client, rate=rate: trace(client, sampled(rate)))  # type: ignore[misc]
        slow = instrumentation(
            lambda client, rate=rate: trace(client, sampled(rate), slower_than=0.01)  # type: ignore[misc]
        )
        print(f"  {rate:7.0%}   {inside * 1e6:22.2f}   {roots * 1e6:20.2f}   {slow * 1e6:16.2f}")


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
    print(f"  {'plain':24} {plain * 1e6:7.1f} us of CPU for acquire and release")
    for kind, turns in spent.items():
        ratios = [one / other - 1 for other, one in zip(*turns, strict=True)]
        halves = [statistics.median(half) for half in (ratios[::2], ratios[1::2])]
        print(f"  {kind:24} {statistics.median(ratios):+7.2%}  (halves {halves[0]:+.2%}, {halves[1]:+.2%})")
    one = alone("latency")
    print(f"  latency by itself: {one * 1e9:.0f} ns for each grant, {one / plain:.2%}")
    for kind in list(KINDS)[2:]:
        one = instrumentation(KINDS[kind])
        print(f"  {kind} by themselves: {one * 1e6:.2f} us for acquire and release, {one / plain:.2%}")


async def main(args: argparse.Namespace) -> None:
    make: Any = AsyncFastRedlock if args.asyncio else FastRedlock
    with Masters(3, server="valkey", password="") as masters:
        client = make(masters.urls, engine=args.engine, node_timeout=5.0, connect_timeout=20.0)
        report(args, await play(client, args))
        print(f"  a scrape: {scrape(client) * 1e3:.2f} ms of CPU")
        by_rate()
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
