"""A process that takes a lock over by its token: its client, engine, token in hex, then the URLs.

It holds the lock until its input ends, releases it, and says what came of each step.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from redlock_fast import AsyncFastRedlock, FastRedlock


def report(lock: Any) -> None:
    lock.check()
    print(lock.token.hex(), lock.locked(), flush=True)
    sys.stdin.readline()


def threads(token: bytes, urls: list[str], options: dict[str, Any]) -> None:
    with (
        FastRedlock(urls, **options, check_masters="off") as client,
        client.lock("job", token=token, auto_extend=True) as lock,
    ):
        report(lock)


async def tasks(token: bytes, urls: list[str], options: dict[str, Any]) -> None:
    async with (
        AsyncFastRedlock(urls, **options, check_masters="off") as client,
        client.lock("job", token=token, auto_extend=True) as lock,
    ):
        report(lock)


def main(kind: str, engine: str, token: str, *urls: str) -> None:
    options = {"engine": engine, "node_timeout": 5.0, "connect_timeout": 20.0}
    if kind == "asyncio":
        asyncio.run(tasks(bytes.fromhex(token), list(urls), options))
    else:
        threads(bytes.fromhex(token), list(urls), options)


if __name__ == "__main__":
    main(*sys.argv[1:])
