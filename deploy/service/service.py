"""A service with one thing to protect: counters in a database that must be exact, whatever fails.

    REDLOCK_FAST_MASTERS="redis://10.0.0.1 redis://10.0.0.2 redis://10.0.0.3" uvicorn service:app

One process for each container or unit, and as many of these as you like, with the same masters and database.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest

from redlock_fast import AsyncFastRedlock, AsyncLock, LockLost
from redlock_fast.integrations.starlette import client_of, exception_handlers, lifespan, request_lock
from redlock_fast.prometheus import RedlockCollector

logging.basicConfig()  # each lost lock, each refused request, each master that fails: docs/logging.md


@dataclass(frozen=True, slots=True)
class Settings:
    """From the environment. Times in seconds.

    ``timeout``: how long a request waits for a lock; less than what waits in front of this service.
    ``work``: how long a request thinks between reading and writing: what the lock is for.
    """

    masters: tuple[str, ...]
    database: Path
    ttl: float
    timeout: float
    work: float

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Settings:
        return cls(
            masters=masters(environment),
            database=Path(environment.get("DATABASE", "counters.sqlite")),
            ttl=float(environment.get("LOCK_TTL", 10)),
            timeout=float(environment.get("LOCK_TIMEOUT", 2)),
            work=float(environment.get("WORK", 0)),
        )


def masters(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Their URLs, with user and password: from a file, for other processes can see the environment."""
    urls = environment["REDLOCK_FAST_MASTERS"].split()
    file = environment.get("REDLOCK_PASSWORD_FILE")
    if file is None:
        return tuple(urls)
    user, password = environment.get("REDLOCK_USER", ""), Path(file).read_text().strip()
    login = f"://{quote(user, safe='')}:{quote(password, safe='')}@"
    return tuple(url.replace("://", login, 1) for url in urls)


class Counters:
    """What there is to protect. It remembers the last fencing token of each counter, and refuses older ones.

    One connection with a thread of its own: SQLite blocks, and an event loop must not.
    """

    def __init__(self, path: Path) -> None:
        self._thread = ThreadPoolExecutor(1, "counters")
        # Each statement is a transaction of its own: nothing but the lock keeps read and write together.
        self._database = sqlite3.connect(path, timeout=30.0, isolation_level=None, check_same_thread=False)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = NORMAL")  # the last moments may be lost with the power
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS counter (name TEXT PRIMARY KEY, value INTEGER, fence INTEGER)"
        )

    async def read(self, name: str) -> int:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._read, name)

    async def write(self, name: str, value: int, fence: int) -> bool:
        """False: a later holder of the lock has written; this call changed nothing."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._write, name, value, fence)

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._database.close)
        self._thread.shutdown()

    def _read(self, name: str) -> int:
        row = self._database.execute("SELECT value FROM counter WHERE name = ?", (name,)).fetchone()
        return int(row[0]) if row else 0

    def _write(self, name: str, value: int, fence: int) -> bool:
        done = self._database.execute(
            "INSERT INTO counter VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE"
            " SET value = excluded.value, fence = excluded.fence WHERE fence <= excluded.fence",
            (name, value, fence),
        )
        return done.rowcount == 1


settings = Settings.read(os.environ)
registry = CollectorRegistry()
ProcessCollector(registry=registry)


async def on_open(client: AsyncFastRedlock) -> None:
    """Metrics of the client, which connects before the first request, if enough masters are up."""
    RedlockCollector(registry).add(client, "service", latency=True, durations=True)
    await client.connect()


@asynccontextmanager
async def database(app: FastAPI) -> AsyncIterator[dict[str, Counters]]:
    counters = Counters(settings.database)
    yield {"counters": counters}
    await counters.close()


app = FastAPI(
    title="Exact counters",
    lifespan=lifespan(
        settings.masters, database, on_open, ttl=settings.ttl, timeout=settings.timeout, auto_extend=True
    ),
    exception_handlers=exception_handlers,
)
CounterLock = Annotated[AsyncLock, request_lock("counter:{name}", fencing=True)]


@app.post("/counters/{name}")
async def increment(name: str, lock: CounterLock, request: Request) -> dict[str, Any]:
    """Read, think, write: one request at a time, whatever process it is in."""
    counters: Counters = request.state.counters
    value = await counters.read(name) + 1
    await asyncio.sleep(settings.work)
    fence = lock.fencing_token
    assert fence is not None  # it is held
    if not await counters.write(name, value, fence):
        raise LockLost(f"{name}: a later holder of the lock has written")
    return {"name": name, "value": value, "fence": fence}


@app.get("/metrics")
async def metrics() -> Response:
    """For Prometheus."""
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


@app.get("/healthz")
async def healthz(request: Request) -> JSONResponse:
    """Whether locks can be acquired, and the state of each master.

    For operators and for readiness. Not for liveness: a restart of this service brings no master back.
    """
    masters = client_of(request).health()
    votes = sum(one.state == "connected" and not one.guard for one in masters)
    usable = 2 * votes > len(masters)
    shown = {"usable": usable, "votes": votes, "masters": [asdict(one) for one in masters]}
    return JSONResponse(shown, 200 if usable else 503)
