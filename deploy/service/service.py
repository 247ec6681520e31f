"""A service with one thing to protect: counters in a database that must be exact, whatever fails.

    REDLOCK_FAST_MASTERS="redis://10.0.0.1 redis://10.0.0.2 redis://10.0.0.3" uvicorn service:app

One process for each container or unit, and as many of these as you like, with the same masters and database.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import sqlite3
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import Depends, FastAPI, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest

from redlock_fast import AsyncFastRedlock, Contended, LockLost, LockNotAcquired
from redlock_fast.prometheus import RedlockCollector

log = logging.getLogger("uvicorn.error")


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


@dataclass(frozen=True, slots=True)
class Service:
    """What all requests of this process share: above all, one client."""

    settings: Settings
    counters: Counters
    client: AsyncFastRedlock
    metrics: CollectorRegistry


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """The client connects in the background, to masters that may come up later, and is closed at the end."""
    settings = Settings.read(os.environ)
    metrics = CollectorRegistry()
    ProcessCollector(registry=metrics)
    async with AsyncFastRedlock(settings.masters, ttl=settings.ttl) as client:
        RedlockCollector(metrics).add(client, "service", latency=True, durations=True)
        counters = Counters(settings.database)
        app.state.service = Service(settings, counters, client, metrics)
        await client.connect()
        yield
        await counters.close()


def the_service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


Here = Annotated[Service, Depends(the_service)]
app = FastAPI(title="Exact counters", lifespan=lifespan)


@app.post("/counters/{name}")
async def increment(name: str, here: Here) -> dict[str, Any]:
    """Read, think, write: one request at a time, whatever process it is in."""
    lock = here.client.lock(f"counter:{name}", timeout=here.settings.timeout, auto_extend=True, fencing=True)
    async with lock:
        value = await here.counters.read(name) + 1
        await asyncio.sleep(here.settings.work)
        fence = lock.fencing_token
        assert fence is not None  # it is held
        if not await here.counters.write(name, value, fence):
            raise LockLost(f"{name}: a later holder of the lock has written")
        return {"name": name, "value": value, "fence": fence}


@app.get("/metrics")
async def metrics(here: Here) -> Response:
    """For Prometheus."""
    return Response(generate_latest(here.metrics), media_type=CONTENT_TYPE_LATEST)


@app.get("/healthz")
async def healthz(here: Here) -> JSONResponse:
    """Whether locks can be acquired, and the state of each master.

    For operators and for readiness. Not for liveness: a restart of this service brings no master back.
    """
    masters = here.client.health()
    votes = sum(one.state == "connected" and not one.guard for one in masters)
    usable = 2 * votes > len(masters)
    shown = {"usable": usable, "votes": votes, "masters": [asdict(one) for one in masters]}
    return JSONResponse(shown, 200 if usable else 503)


# Errors tell the caller what went wrong, and no names of masters. ----------------------------------------


@app.exception_handler(Contended)
async def contended(_: Request, error: Contended) -> JSONResponse:
    """Another request has the lock. This one did nothing."""
    return refusal(409, "another request is at work on this; try again")


@app.exception_handler(LockNotAcquired)
async def unavailable(_: Request, error: LockNotAcquired) -> JSONResponse:
    """Too few masters answered. Nothing was done."""
    log.warning("no lock: %s", error)
    return refusal(503, "cannot be locked at the moment; try again", error.retry_after)


@app.exception_handler(LockLost)
async def lost(_: Request, error: LockLost) -> JSONResponse:
    """The work was begun, and may be done: the caller must check before it tries again."""
    log.error("a lock was lost: %s", error)
    return JSONResponse({"detail": "it is not known whether this was done"}, 500)


def refusal(status: int, detail: str, retry_after: float | None = None) -> JSONResponse:
    return JSONResponse({"detail": detail}, status, {"Retry-After": str(math.ceil(retry_after or 1))})
