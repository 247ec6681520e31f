"""Locks in Starlette and FastAPI: a client for the lifespan, a lock for a request, HTTP answers.

    from redlock_fast.integrations.starlette import exception_handlers, lifespan, request_lock

    app = FastAPI(lifespan=lifespan(masters), exception_handlers=exception_handlers)
    OrderLock = Annotated[AsyncLock, request_lock("orders:{order_id}", timeout=0)]

    @app.post("/orders/{order_id}/ship")
    async def ship(order_id: str, lock: OrderLock) -> None: ...

See docs/recipes/web.md.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any, Unpack

from .. import AsyncFastRedlock, AsyncLock, FastRedlock
from ..errors import ConfigError, needs
from ..locks.options import AsyncLockOptions, FastRedlockOptions, ListOf, Master, Resource
from .names import name_of
from .refusals import ERRORS, refusal

with needs("starlette", "starlette>=0.40"):
    from starlette.requests import HTTPConnection, Request
    from starlette.responses import JSONResponse, Response

#: The key of the client in the state of the lifespan, which each request shares: ``request.state.redlock``.
STATE = "redlock"
#: Seconds that the end of the lifespan waits for the releases of requests.
RELEASE_TIMEOUT = 1.0


def lifespan(
    masters: ListOf[Master],
    own: Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any] | None]] | None = None,
    on_open: Callable[[AsyncFastRedlock], object] | None = None,
    **settings: Unpack[FastRedlockOptions],
) -> Callable[[Any], AbstractAsyncContextManager[dict[str, Any]]]:
    """The ``lifespan`` of an application: opens an AsyncFastRedlock at startup and closes it at shutdown.

    Each process has a client of its own, ``request.state.redlock``. Startup does not wait for masters.
    ``own``: the application's own lifespan. It runs inside, so the client is open at its start and its end,
    and the requests also have the state that it yields. ``on_open``: called with the new client at startup,
    before ``own``; it may be a coroutine function. It is the place for metrics, traces, and ``connect()``.
    ``settings``: those of [`FastRedlock`][], in seconds.

    Examples:
        >>> app = FastAPI(lifespan=lifespan(masters, own=database, ttl=10.0, timeout=2.0))
        >>> lifespan(masters, on_open=RedlockCollector().add)

    Raises:
        ConfigError: Bad settings; no I/O.
    """
    FastRedlock(masters, **settings).close()  # bad settings are an error here, not at startup

    @asynccontextmanager
    async def opened(app: Any) -> AsyncIterator[dict[str, Any]]:
        inner = own(app) if own else nullcontext()
        async with AsyncFastRedlock(masters, **settings) as client, _released_first(client):
            if on_open is not None and inspect.isawaitable(opening := on_open(client)):
                await opening
            async with inner as state:
                yield {**(state or {}), STATE: client}

    return opened


@asynccontextmanager
async def _released_first(client: AsyncFastRedlock) -> AsyncIterator[None]:
    """At the end, wait for the releases of requests that are cancelled at the same time.

    A server that gets two interrupts cancels the lifespan and the requests together. A closed client sends no
    release, so the locks of the requests would stay until their leases end.
    """
    try:
        yield
    finally:
        loop = asyncio.get_running_loop()
        end = loop.time() + RELEASE_TIMEOUT
        while client._core.client_state.held and loop.time() < end:
            await asyncio.sleep(RELEASE_TIMEOUT / 100)


def client_of(connection: HTTPConnection) -> AsyncFastRedlock:
    """The client of a request or a websocket; no I/O.

    Examples:
        >>> async with client_of(request).lock("orders:42", timeout=2.0):
        ...     await ship("orders:42")

    Raises:
        ConfigError: The application was not started with [`lifespan`][].
    """
    client: AsyncFastRedlock | None = getattr(connection.state, STATE, None)
    if client is None:
        raise ConfigError(
            "no client: the application needs lifespan=lifespan(masters), and a server that runs the lifespan"
        )
    return client


def request_lock(
    resource: Resource | Callable[[HTTPConnection], Resource],
    ttl: float | None = None,
    **options: Unpack[AsyncLockOptions[AsyncLock]],
) -> Any:
    """A dependency of FastAPI 0.121 or later: the endpoint runs only while it holds the lock on ``resource``.

    ``resource``: text with parameters of the path, such as ``"orders:{order_id}"``, or a function of the
    request. ``ttl`` in seconds and ``options``: those of [`AsyncFastRedlock.lock`][]. The endpoint gets the
    held [`AsyncLock`][]. The lock is released before the response is sent, so that a lost lock still
    becomes an error; a streaming body runs without the lock.

    Examples:
        >>> OrderLock = Annotated[AsyncLock, request_lock("orders:{order_id}", timeout=0)]

    Raises:
        ConfigError: A bad ``resource``; at a request, a path without its parameters, or a bad option.
        Contended: At a request: another holder has the lock.
        QuorumUnavailable: At a request: too few masters can be reached.
        LockLost: At the end of the endpoint: the lease had ended.
    """
    with needs("fastapi", "fastapi>=0.121"):
        from fastapi import Depends
    name = name_of(resource)
    of_path = not callable(resource)

    async def held(connection: HTTPConnection) -> AsyncIterator[AsyncLock]:
        locked = name(**connection.path_params) if of_path else name(connection)
        async with client_of(connection).lock(locked, ttl, **options) as lock:
            yield lock

    return Depends(held, scope="function")  # the scope "request" would release after the response


async def answer(request: Request, error: Exception) -> Response:
    """The JSON response for a lock that was not acquired, or was lost: 409, 503 or 500."""
    if request.scope["type"] != "http":  # a websocket has no response
        raise error
    status, detail, headers = refusal(error, getattr(request.state, STATE, None))
    return JSONResponse({"detail": detail}, status, headers)


#: For ``exception_handlers=`` of an application. Contended is 409 and QuorumUnavailable 503, both with
#: Retry-After; LockLost is 500.
exception_handlers: dict[Any, Callable[[Request, Any], Coroutine[Any, Any, Response]]] = dict.fromkeys(
    ERRORS, answer
)

__all__ = ["client_of", "exception_handlers", "lifespan", "request_lock"]
