"""What a grant costs while many callers wait, and whether processes get equal shares.

    python benchmarks/waiters.py [--quick] [--write] [--only fair,plain] [--engine native]

Five masters. Each caller is an asyncio task that acquires, releases at once, and acquires again: all others
wait. Prints a Markdown table; --write puts it into benchmarks/NOTES.md.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import document
import redis
from progress import Progress
from workloads import resident

from redlock_fast import AsyncFastRedlock, AsyncLock
from redlock_fast.embedded import Masters

KEY, TTL, PERMITS, PROCESSES = "waited-for", 60.0, 4, 4
#: Clients, and callers of each.
CELLS = [(1, 1), (1, 10), (1, 100), (1, 1000), (1, 3000), (1, 10_000), (100, 100)]
#: Commands that are no part of a lock.
OTHERS = ("info", "ping", "hello", "config", "client|tracking", "client|setinfo", "acl", "auth", "role")

KINDS: dict[str, Callable[[AsyncFastRedlock, int], AsyncLock]] = {
    "plain": lambda client, number: client.lock(KEY, TTL),
    "fair": lambda client, number: client.lock(KEY, TTL, fair=True),
    "rwlock, half readers": lambda client, number: (
        client.rwlock(KEY, TTL).write() if number % 2 else client.rwlock(KEY, TTL).read()
    ),
    f"semaphore of {PERMITS}": lambda client, number: client.semaphore(KEY, PERMITS, TTL),
    "multilock of 2": lambda client, number: client.multilock([KEY, f"{KEY}-2"], TTL),
}


def main() -> None:
    options = parse()
    if options.work:
        asyncio.run(work(json.loads(options.work)))
        return
    cells = [(kind, *cell) for kind in options.only for cell in options.cells]
    rows: dict[tuple[str, int, int], dict[str, float]] = {}
    load = os.getloadavg()[0]
    with Progress(len(cells) * (options.seconds + 3)) as progress, Masters(5, password="") as masters:
        nodes = [redis.Redis(unix_socket_path=master.socket_path) for master in masters]
        for cell in cells:
            progress.step(options.seconds + 3, " ".join(map(str, cell)))
            rows[cell] = measure(masters.urls, nodes, options, *cell)
            print(cell, json.dumps(rows[cell]), file=sys.stderr, flush=True)
            for node in nodes:
                node.flushall()
    text = describe(load, options) + "\n\n" + table(rows)
    print(text)
    if options.write:
        document.paste(document.NOTES, "waiters", text)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="does it run? The figures mean little")
    parser.add_argument("--write", action="store_true", help="into benchmarks/NOTES.md")
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(KINDS))
    parser.add_argument("--seconds", type=float, help="measured in each cell (2)")
    parser.add_argument("--most", type=int, default=10_000, help="leave out cells with more callers")
    parser.add_argument("--engine", default="native", choices=("native", "python"))
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.only = [kind for kind in KINDS if kind.split()[0].strip(",") in ",".join(options.only)]
    options.seconds = options.seconds or (0.3 if options.quick else 2.0)
    most = 100 if options.quick else options.most
    options.cells = [cell for cell in CELLS if cell[0] * cell[1] <= most]
    return options


# --- one cell ---------------------------------------------------------------------------------------


def measure(
    urls: list[str], nodes: list[redis.Redis], options: argparse.Namespace, kind: str, clients: int, each: int
) -> dict[str, float]:
    setting = {"urls": urls, "engine": options.engine, "kind": kind, "each": each}
    shares = [len(range(n, clients, PROCESSES)) for n in range(min(PROCESSES, clients))]
    workers = [started({**setting, "clients": own}) for own in shares]
    try:
        memory = sum(ask(worker, "") for worker in workers)  # all callers of all processes wait
        time.sleep(min(1.0, options.seconds))
        before, grants, start = (
            executed(nodes),
            [ask(worker, "grants") for worker in workers],
            time.monotonic(),
        )
        time.sleep(options.seconds)
        after, then, end = executed(nodes), [ask(worker, "grants") for worker in workers], time.monotonic()
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    own = [late - early for late, early in zip(then, grants, strict=True)]
    total = sum(own)
    fair = [total * share / clients for share in shares]
    return {
        "commands": (after - before) / total if total else float("inf"),
        "ms": 1e3 * (end - start) / total if total else float("inf"),
        "share": min(part / due for part, due in zip(own, fair, strict=True)) if total else 0.0,
        "memory": memory / (clients * each),
    }


def started(setting: dict[str, Any]) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--work", json.dumps(setting)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ask(worker: subprocess.Popen[str], question: str) -> float:
    """The next line of the worker, after a ``question`` if there is one."""
    assert worker.stdin
    assert worker.stdout
    if question:
        worker.stdin.write(f"{question}\n")
        worker.stdin.flush()
    return float(worker.stdout.readline())


def executed(nodes: list[redis.Redis]) -> int:
    """The commands of locks that all masters executed, with those inside scripts."""
    stats = [node.info("commandstats") for node in nodes]
    names = {name for one in stats for name in one} - {f"cmdstat_{other}" for other in OTHERS}
    return sum(one[name]["calls"] for one in stats for name in names if name in one)


async def work(setting: dict[str, Any]) -> None:
    """A process: prints the bytes that its callers take once all wait; then its grants for each line."""
    grants = 0
    make = KINDS[setting["kind"]]

    async def call(lock: AsyncLock) -> None:
        nonlocal grants
        while True:
            await lock.acquire()
            grants += 1
            await lock.release()

    clients = [
        AsyncFastRedlock(setting["urls"], engine=setting["engine"], node_timeout=5.0)
        for _ in range(setting["clients"])
    ]
    for client in clients:
        await client.connect()
    tasks = [asyncio.create_task(call(make(client, 0))) for client in clients]
    await asyncio.sleep(0.2)  # later callers find a queue
    gc.collect()
    before = resident()
    for number in range(1, setting["each"]):
        tasks += [asyncio.create_task(call(make(client, number))) for client in clients]
        if not number % 100:
            await asyncio.sleep(0)
    await asyncio.sleep(0)
    print(resident() - before, flush=True)
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin, lambda: (sys.stdin.readline(), print(grants, flush=True)))
    await asyncio.gather(*tasks)


# --- the table --------------------------------------------------------------------------------------


def describe(load: float, options: argparse.Namespace) -> str:
    return (
        f"`python benchmarks/waiters.py`: five Valkey masters, {options.engine} engine, "
        f"Python {platform.python_version()}, {os.cpu_count()} cores, load {load:.0f}, "
        f"{options.seconds:g} s for each cell. 100 clients are in {PROCESSES} processes. Commands: all "
        "that the five masters executed, those in scripts included. The share is that of the process with "
        "the fewest grants, of an equal one."
    )


def table(rows: dict[tuple[str, int, int], dict[str, float]]) -> str:
    lines = [
        "| kind | clients x callers | commands a grant | ms a grant | fewest, of a share | kB a caller |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for (kind, clients, each), row in rows.items():
        share = f"{row['share']:.2f}" if clients > 1 else ""
        memory = f"{row['memory'] / 1e3:.1f}" if each >= 100 else ""
        numbers = f"{row['commands']:,.0f} | {row['ms']:.2f} | {share} | {memory}"
        lines.append(f"| {kind} | {clients} x {each:,} | {numbers} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
