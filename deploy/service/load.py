"""How much the service does, how fast, and whether its counters are exact.

    python load.py http://127.0.0.1:8000 --database counters.sqlite --clients 50 --counters 20 --seconds 10

So many clients, each of which asks again as soon as it was answered; several URLs are taken in turn.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import secrets
import sqlite3
import ssl
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import httpx

#: Of the answers to a POST, those that say for certain that nothing was done: others are at it; no quorum.
NOTHING_DONE = (409, 503)


@dataclass(slots=True)
class Report:
    """``answers``: how many of each status, and of each way that a connection broke.

    ``times``: seconds of each request that was done. ``done`` of each counter; ``unknown``: perhaps done.
    """

    seconds: float = 0.0
    answers: Counter[str] = field(default_factory=Counter)
    times: list[float] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)

    def percentile(self, part: float) -> float:
        """Milliseconds."""
        times = sorted(self.times)
        return times[min(len(times) - 1, int(part * len(times)))] * 1000 if times else float("nan")

    def wrong(self, database: Path) -> list[str]:
        """Counters that are not what they must be."""
        with closing(sqlite3.connect(database)) as connection:
            values = dict(connection.execute("SELECT name, value FROM counter"))
        names = sorted(self.done | self.unknown)
        return [
            f"{name} is {values.get(name, 0)}, and {self.done[name]} requests were done"
            for name in names
            if not self.done[name] <= values.get(name, 0) <= self.done[name] + self.unknown[name]
        ]

    def __str__(self) -> str:
        done = self.done.total()
        return "\n".join(
            [
                f"{done / self.seconds:,.0f} requests/s: {done:,} done in {self.seconds:.1f} s",
                f"p50 {self.percentile(0.5):.1f} ms, p99 {self.percentile(0.99):.1f} ms",
                "answers: " + ", ".join(f"{answer}: {n:,}" for answer, n in sorted(self.answers.items())),
            ]
        )


async def load(urls: Sequence[str], *, seconds: float, clients: int, counters: int) -> Report:
    """Ask for so many seconds; returns when all are answered. The counters are new ones."""
    report, run = Report(), secrets.token_hex(4)
    names = [f"{run}-{number}" for number in range(counters)]
    began = time.monotonic()

    context = ssl.create_default_context()

    async def client(number: int) -> None:
        chance, url = random.Random(number), urls[number % len(urls)]
        # A session for each: one that all share looks through all its connections for every request.
        async with httpx.AsyncClient(timeout=60.0, trust_env=False, verify=context) as session:
            while time.monotonic() < began + seconds:
                await ask(session, url, chance.choice(names), report)

    await asyncio.gather(*(client(number) for number in range(clients)))
    report.seconds = time.monotonic() - began
    return report


async def ask(session: httpx.AsyncClient, url: str, name: str, report: Report) -> None:
    """One request, into the report."""
    began = time.monotonic()
    try:
        status = (await session.post(f"{url}/counters/{name}")).status_code
    except httpx.HTTPError as error:
        report.answers[type(error).__name__] += 1
        report.unknown[name] += 1
        return
    report.answers[str(status)] += 1
    if status == 200:
        report.times.append(time.monotonic() - began)
        report.done[name] += 1
    elif status not in NOTHING_DONE:
        report.unknown[name] += 1


def tell(report: Report, database: Path) -> int:
    """Print it; 1 where a counter is wrong."""
    wrong = report.wrong(database)
    print(report)
    print("\n".join(wrong) or f"all {len(report.done)} counters are exact")
    return 1 if wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("urls", nargs="+")
    parser.add_argument("--database", type=Path, required=True, help="the file that the service writes")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--counters", type=int, default=20)
    given = parser.parse_args()
    how = {"seconds": given.seconds, "clients": given.clients, "counters": given.counters}
    return tell(asyncio.run(load(given.urls, **how)), given.database)


if __name__ == "__main__":
    sys.exit(main())
