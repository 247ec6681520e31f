"""A process that ends while it holds a lock: its kind, "threads" or "asyncio", the engine, URLs."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from kinds import KINDS

from redlock_fast import AsyncFastRedlock, FastRedlock


async def hold_in_a_loop(client: AsyncFastRedlock, kind: str) -> Any:
    lock = KINDS[kind](client, "r")
    assert await lock.acquire()
    return lock


def main(kind: str, how: str, engine: str, *urls: str) -> Any:
    options: dict[str, Any] = {"engine": engine, "node_timeout": 5.0, "connect_timeout": 20.0, "ttl": 60.0}
    if how == "asyncio":
        return asyncio.run(hold_in_a_loop(AsyncFastRedlock(urls, **options, check_masters="off"), kind))
    lock = KINDS[kind](FastRedlock(urls, **options, check_masters="off"), "r")
    assert lock.acquire()
    return lock


if __name__ == "__main__":
    held = main(*sys.argv[1:])
