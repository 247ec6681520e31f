"""FastAPI and Starlette: real servers, and what an application composes."""

import signal
import socket
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.makers import Raw
from support.waiting import eventually
from support.web_server import UVICORN, check_disconnection, check_server, started

from redlock_fast import AsyncFastRedlock, AsyncLock, ConfigError, FastRedlock
from redlock_fast.embedded import Masters

from ..conftest import PATIENT


def imported() -> tuple[Any, Any]:
    """FastAPI and its client for tests: each worker of a run would import them for this file."""
    fastapi = pytest.importorskip(
        "fastapi", reason="no FastAPI: pip install 'redlock-fast[integrations-test]'"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some versions want another package in place of httpx
        from fastapi.testclient import TestClient
    return fastapi, TestClient


def test_requests_in_two_processes(valkey: Masters, tmp_path: Path) -> None:
    check_server(
        ["uvicorn", "support.web_apps:fastapi_app", *UVICORN], valkey, tmp_path / "log", ["/orders/7"]
    )


def test_a_client_of_a_server_disconnects(valkey: Masters, tmp_path: Path) -> None:
    check_disconnection(["uvicorn", "support.web_apps:fastapi_app", *UVICORN], valkey, tmp_path / "log")


def test_a_server_that_gets_two_interrupts(valkey: Masters, raw: Raw, tmp_path: Path) -> None:
    """It cancels the requests and the lifespan together. Catches: a lock that stays for its lease."""
    log = tmp_path / "log"
    command = ["uvicorn", "support.web_apps:fastapi_app", *UVICORN[1:]]
    with (
        started(command, valkey, log) as (url, process),
        socket.create_connection((httpx.URL(url).host, httpx.URL(url).port or 80)) as waiting,
    ):
        waiting.sendall(b"POST /long/1 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
        eventually(lambda: log.read_text().startswith("begin"), "the request works", deadline=40.0)
        assert any(server.exists("long:1") for server in raw(valkey))

        def ended() -> bool:
            process.send_signal(signal.SIGINT)
            return process.poll() is not None

        eventually(ended, "the server stops")
    assert not any(server.exists("long:1") for server in raw(valkey))


def test_a_composed_application(valkey: Masters) -> None:
    """With a lifespan of its own, in two test clients at once; the lock is held in the endpoint only."""
    fastapi, caller = imported()
    from redlock_fast.integrations.starlette import client_of, exception_handlers, lifespan, request_lock

    seen: list[str] = []

    @asynccontextmanager
    async def own(app: Any) -> AsyncIterator[dict[str, str]]:
        seen.append("start")
        yield {"database": "open"}
        seen.append("end")

    async def on_open(client: AsyncFastRedlock) -> None:
        assert await client.connect()
        seen.append("open")

    made = fastapi.FastAPI(lifespan=lifespan(valkey.urls, own, on_open, timeout=0.0, **PATIENT))
    for error, handler in exception_handlers.items():
        made.add_exception_handler(error, handler)
    by_header = request_lock(lambda request: f"orders:{request.headers['order']}")

    @made.get("/state")
    async def state(request: fastapi.Request) -> list[str]:
        async with client_of(request).lock("state"):
            return [request.state.database, type(request.state.redlock).__name__]

    @made.get("/by-header")
    async def by_header_view(lock: AsyncLock = by_header) -> bool:
        return lock.locked()

    with (
        caller(made) as one,
        caller(made) as other,
        FastRedlock(valkey.urls, **PATIENT) as client,
    ):
        assert one.get("/state").json() == other.get("/state").json() == ["open", "AsyncFastRedlock"]
        assert one.get("/by-header", headers={"order": "7"}).json() is True
        with client.lock("orders:7"):
            refused = other.get("/by-header", headers={"order": "7"})
            assert (refused.status_code, refused.headers["retry-after"]) == (409, "10")
        assert other.get("/by-header", headers={"order": "7"}).json() is True
    assert seen == ["open", "start", "open", "start", "end", "end"]


def test_mistakes(valkey: Masters) -> None:
    fastapi, caller = imported()
    from redlock_fast.integrations.starlette import lifespan, request_lock

    with pytest.raises(ConfigError, match="ttl"):
        lifespan(valkey.urls, ttl=-1.0)
    with pytest.raises(ConfigError, match="'0' is no name"):
        request_lock("orders:{0}")
    made, order_lock = fastapi.FastAPI(), request_lock("orders:{order}")

    @made.get("/orders")
    async def view(lock: AsyncLock = order_lock) -> None: ...

    with caller(made) as one, pytest.raises(ConfigError, match="the path has no 'order'"):
        one.get("/orders")

    @made.get("/orders/{order}")
    async def other(lock: AsyncLock = order_lock) -> None: ...

    with caller(made) as one, pytest.raises(ConfigError, match="needs lifespan=lifespan"):
        one.get("/orders/1")
