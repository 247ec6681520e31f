"""The time from a release, or from a holder's death, to the next grant in another process.

    python benchmarks/waiting.py [--rounds 200] [--waiters 1] [--wait push] [--engine native] [--json]

Five masters, one holder, ``--waiters`` processes that want the same lock. Prints for both cases the time
until the next process had the lock, and the commands that it cost. With ``--json`` only the first case,
for compare.py.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import redis

from redlock_fast import FastRedlock
from redlock_fast.embedded import Masters

KEY = "waited-for"
#: Seconds until all waiters are parked; not measured.
SETTLE = 0.05
TTL, SHORT = 30.0, 0.5


def work(setting: dict[str, Any]) -> None:
    """A waiter process: for each line of stdin, wait for the lock, and print the time of the grant."""
    with FastRedlock(setting["urls"], engine=setting["engine"], wait=setting["wait"]) as client:
        client.connect()
        while sys.stdin.readline():
            lock = client.acquire(KEY, TTL)
            assert lock
            came = time.monotonic()
            lock.release()
            print(came, flush=True)


def started(setting: dict[str, Any]) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--work", json.dumps(setting)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def hand_over(client: FastRedlock, waiters: Sequence[subprocess.Popen[str]]) -> float:
    """Seconds from the beginning of the release to the first grant."""
    lock = client.acquire(KEY, TTL)
    assert lock
    notify(waiters)
    released = time.monotonic()
    lock.release()
    return first_grant(waiters) - released


def death(urls: list[str], waiters: Sequence[subprocess.Popen[str]], engine: str) -> float:
    """Seconds from the end of the lease of a holder that was killed to the first grant."""
    code = (
        "import sys, time, redlock_fast; c = redlock_fast.FastRedlock(sys.argv[2:], engine=sys.argv[1]);"
        f"c.connect(); t = time.monotonic(); assert c.acquire({KEY!r}, {SHORT}); print(t, flush=True);"
        "time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, engine, *urls], stdout=subprocess.PIPE, text=True)
    assert holder.stdout
    end = float(holder.stdout.readline()) + SHORT
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    notify(waiters, settle=0.0)
    return first_grant(waiters) - end


def notify(waiters: Sequence[subprocess.Popen[str]], settle: float = SETTLE) -> None:
    for waiter in waiters:
        assert waiter.stdin
        waiter.stdin.write("\n")
        waiter.stdin.flush()
    time.sleep(settle)


def first_grant(waiters: Sequence[subprocess.Popen[str]]) -> float:
    """The time of the first grant, after all waiters have had the lock."""
    return min(float(waiter.stdout.readline()) for waiter in waiters if waiter.stdout)


def row(title: str, seconds: list[float]) -> None:
    ms = sorted(1e3 * one for one in seconds)
    p50, p90 = statistics.median(ms), ms[int(len(ms) * 0.9)]
    print(f"{title}: p50 {p50:.2f} ms, p90 {p90:.2f} ms, largest {ms[-1]:.1f} ms, of {len(ms)}")


def executed(nodes: list[redis.Redis]) -> int:
    """The number of lock commands that all masters executed."""
    stats = (node.info("commandstats") for node in nodes)
    ours = ("cmdstat_set", "cmdstat_pttl", "cmdstat_client|caching", "cmdstat_delifeq", "cmdstat_evalsha")
    return sum(int(one[name]["calls"]) for one in stats for name in ours if name in one)


def measure(options: argparse.Namespace) -> None:
    with Masters(5, server=options.server, password="") as masters:
        setting = {"urls": masters.urls, "engine": options.engine, "wait": options.wait}
        waiters = [started(setting) for _ in range(options.waiters)]
        nodes = [redis.Redis(unix_socket_path=master.socket_path) for master in masters]
        try:
            with FastRedlock(masters.urls, engine=options.engine) as client:
                client.connect()
                hand_over(client, waiters)  # all waiters are connected
                if options.json:
                    spent = [1e3 * hand_over(client, waiters) for _ in range(options.rounds)]
                    print(json.dumps({"numbers": {"ms": statistics.median(spent)}, "info": {}}))
                    return
                before = executed(nodes)
                row("release -> next grant", [hand_over(client, waiters) for _ in range(options.rounds)])
                commands = (executed(nodes) - before) / len(nodes) / options.rounds
                print(f"commands per master and round, holder and waiters: {commands:.1f}")
                deaths = [death(masters.urls, waiters, options.engine) for _ in range(options.rounds // 10)]
                row(f"end of a dead holder's lease ({SHORT:g} s) -> next grant", deaths)
        finally:
            for waiter in waiters:
                waiter.terminate()
                waiter.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--waiters", type=int, default=1)
    parser.add_argument("--wait", default="push", choices=("auto", "push", "poll"))
    parser.add_argument("--engine", default="native", choices=("native", "python"))
    parser.add_argument("--server", default="valkey")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(json.loads(options.work))
    else:
        measure(options)


if __name__ == "__main__":
    main()
