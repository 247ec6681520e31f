"""Web applications for tests, one for each framework, with the same three paths. Each server process imports
this file.

``POST /orders/ID`` works under the lock of the order, and writes the beginning and the end of the work to
a file that all processes append to. ``POST /async/ID`` is the same as an async view. ``POST /late/ID`` works
for longer than its lease. ``POST /thread/ID`` works in a thread that an async view waits for, until there is
a file ``go`` beside that file.
"""

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

#: Seconds. Much longer than the work, so that a busy machine does not end a lease.
TTL = 20.0
WORK = 0.003
LATE = 0.05
#: ``timeout``: a request does not wait. Masters that are stopped are noticed after ``node_timeout``. The
#: first request of a process waits for connections, which take long on a busy machine.
SETTINGS: dict[str, Any] = {"ttl": TTL, "timeout": 0.0, "node_timeout": 5.0, "connect_timeout": 20.0}


def settings() -> dict[str, Any]:
    return {"masters": os.environ["MASTERS"].split(), **SETTINGS}


@contextmanager
def inside() -> Iterator[dict[str, int]]:
    """One line at the beginning of the work, and one at its end: appended in the order of time."""
    out = os.open(os.environ["WORK_LOG"], os.O_WRONLY | os.O_APPEND)
    work = f"{os.getpid()} {time.monotonic_ns()}"
    os.write(out, f"begin {work}\n".encode())
    yield {"process": os.getpid()}
    os.write(out, f"end {work}\n".encode())
    os.close(out)


def work_until_go() -> None:
    with inside():
        while not Path(os.environ["WORK_LOG"]).with_name("go").exists():
            time.sleep(WORK)


def fastapi_app() -> Any:
    from fastapi import FastAPI
    from fastapi.concurrency import run_in_threadpool

    from redlock_fast import AsyncLock
    from redlock_fast.integrations.starlette import exception_handlers, lifespan, request_lock

    given = settings()
    app = FastAPI(lifespan=lifespan(given.pop("masters"), **given), exception_handlers=exception_handlers)

    @app.post("/orders/{order}")
    @app.post("/async/{order}")
    async def work(lock: Annotated[AsyncLock, request_lock("orders:{order}")]) -> dict[str, int]:
        with inside() as done:
            await asyncio.sleep(WORK)
        return done

    @app.post("/late/{order}")
    async def late(lock: Annotated[AsyncLock, request_lock("late:{order}", LATE)]) -> None:
        await asyncio.sleep(2 * LATE)  # the masters keep the key for a little longer than the lease lasts

    @app.post("/long/{order}")
    async def long(lock: Annotated[AsyncLock, request_lock("long:{order}")]) -> None:
        with inside():
            await asyncio.sleep(TTL)

    @app.post("/thread/{order}")
    async def thread(lock: Annotated[AsyncLock, request_lock("thread:{order}")]) -> None:
        await run_in_threadpool(work_until_go)

    return app


def flask_app() -> Any:
    from flask import Flask

    from redlock_fast.integrations.flask import Redlock

    app, redlock = Flask(__name__), Redlock()
    app.config["REDLOCK_FAST"] = settings()
    redlock.init_app(app)

    @app.post("/orders/<order>")
    @redlock.synchronized("orders:{order}")
    def work(order: str) -> dict[str, int]:
        with inside() as done:
            time.sleep(WORK)
        return done

    @app.post("/async/<order>")
    @redlock.synchronized(lambda order: f"orders:{order}")
    async def async_work(order: str) -> dict[str, int]:
        with inside() as done:
            await asyncio.sleep(WORK)
        return done

    @app.post("/late/<order>")
    @redlock.synchronized("late:{order}", LATE)
    def late(order: str) -> dict[str, int]:
        time.sleep(2 * LATE)
        return {}

    return app


def django_app(**more: Any) -> Any:
    """The application for WSGI."""
    from django.core.wsgi import get_wsgi_application

    set_up_django(**more)
    return get_wsgi_application()


def django_asgi_app() -> Any:
    from django.core.asgi import get_asgi_application

    set_up_django()
    return get_asgi_application()


def set_up_django(**more: Any) -> None:
    """Django's URLs are in this module, too."""
    import django
    from django.conf import settings as django_settings

    integration = "redlock_fast.integrations.django"
    django_settings.configure(
        ALLOWED_HOSTS=["*"],
        INSTALLED_APPS=[integration],
        MIDDLEWARE=[f"{integration}.RedlockMiddleware"],
        REDLOCK_FAST=settings(),
        ROOT_URLCONF=__name__,
        SECRET_KEY="of a test",
        LOGGING={  # the traceback of a view that fails
            "version": 1,
            "handlers": {"stderr": {"class": "logging.StreamHandler"}},
            "loggers": {"django.request": {"handlers": ["stderr"], "level": "ERROR"}},
        },
        **more,
    )
    django.setup()


def __getattr__(name: str) -> Any:
    if name != "urlpatterns":
        raise AttributeError(name)
    from asgiref.sync import sync_to_async
    from django.http import JsonResponse
    from django.urls import path

    from redlock_fast.integrations.django import synchronized

    @synchronized("orders:{order}")
    def work(request: Any, order: str) -> Any:
        with inside() as done:
            time.sleep(WORK)
        return JsonResponse(done)

    @synchronized(lambda request, order: f"orders:{order}")
    async def async_work(request: Any, order: str) -> Any:
        with inside() as done:
            await asyncio.sleep(WORK)
        return JsonResponse(done)

    @synchronized("late:{order}", LATE)
    def late(request: Any, order: str) -> Any:
        time.sleep(2 * LATE)
        return JsonResponse({})

    @synchronized("thread:{order}")
    async def thread(request: Any, order: str) -> Any:
        await sync_to_async(work_until_go)()
        return JsonResponse({})

    views = {"orders": work, "async": async_work, "late": late, "thread": thread}
    return [path(f"{prefix}/<order>", view) for prefix, view in views.items()]
