"""Django: a real server with sync and async views, transactions, checks, and the cache of django-redis."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support.event_loops import until
from support.thorough import MORE
from support.waiting import DEADLINE
from support.web_server import GUNICORN, UVICORN, check_disconnection, check_server

from redlock_fast import AsyncFastRedlock, ConfigError, Contended, FastRedlock
from redlock_fast.compat import close_all
from redlock_fast.embedded import Masters

from ...conftest import PATIENT

# Not imported here: each worker of a run would do that.
pytestmark = pytest.mark.skipif(
    find_spec("django") is None, reason="no Django: pip install 'redlock-fast[integrations-test]'"
)
INTEGRATION = "redlock_fast.integrations.django"


@pytest.fixture
def project(valkey: Masters, tmp_path: Path) -> Iterator[ModuleType]:
    """The integration in a project with a database of ``ATOMIC_REQUESTS``."""
    import django
    from django.conf import settings
    from django.db import connections
    from django.test import override_settings

    if not settings.configured:
        settings.configure()
    django.setup()
    given = {"masters": valkey.urls, "timeout": 0.0, **PATIENT}
    with override_settings(INSTALLED_APPS=[INTEGRATION], REDLOCK_FAST=given):
        import redlock_fast.integrations.django as project

        databases = connections.settings["default"].copy()
        sqlite = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:", "ATOMIC_REQUESTS": True}
        connections.settings["default"].update(sqlite)
        vars(connections._connections).pop("default", None)
        yield project
        project.client().close()
        connections.close_all()
        vars(connections._connections).pop("default", None)
        connections.settings["default"].clear()
        connections.settings["default"].update(databases)


def test_requests_in_two_processes(valkey: Masters, tmp_path: Path) -> None:
    """Sync and async views exclude each other; under WSGI each async view has an event loop of its own."""
    pytest.importorskip("gunicorn", reason="no gunicorn: pip install 'redlock-fast[integrations-test]'")
    command = ["gunicorn", "support.web_apps:django_app()", *GUNICORN]
    check_server(command, valkey, tmp_path / "log", ["/orders/7", "/async/7"])


@pytest.mark.skipif(not MORE, reason="a server as above, for seconds: make coverage has this test")
def test_asgi_requests_in_two_processes(valkey: Masters, tmp_path: Path) -> None:
    """Sync views run in threads, async views in the event loop of the process."""
    command = ["uvicorn", "support.web_apps:django_asgi_app", *UVICORN]
    check_server(command, valkey, tmp_path / "log", ["/orders/7", "/async/7"])


def test_a_client_of_a_server_disconnects(valkey: Masters, tmp_path: Path) -> None:
    """Catches: an update that is lost: Django cancels the view, and not the thread of its query."""
    command = ["uvicorn", "support.web_apps:django_asgi_app", *UVICORN]
    check_disconnection(command, valkey, tmp_path / "log")


def test_views(project: Any, valkey: Masters) -> None:
    from django.db import connection

    seen = []

    @project.synchronized("orders:{order}")
    def view(request: Any, order: int) -> str:
        seen.append((connection.in_atomic_block, project.client().locked("orders:7")))
        return "done"

    assert view("request", order=7) == "done"
    assert seen == [(True, True)], "the transaction of ATOMIC_REQUESTS is inside the lock"
    assert vars(view)["_non_atomic_requests"] == {"default"}, "and Django makes none around it"

    @project.synchronized(lambda request: "orders:7")
    def coroutine(request: Any) -> Any:
        return asyncio.sleep(0)

    with pytest.raises(ConfigError, match="returns a coroutine"):
        coroutine("request")
    with FastRedlock(valkey.urls, **PATIENT) as other, other.lock("orders:7"), pytest.raises(Contended):
        view("request", order=7)


def test_a_transaction_around_the_lock_is_refused(project: Any) -> None:
    """It would commit after the release. Only what Django sees knows that the view makes it by itself."""
    from django.core.handlers.base import BaseHandler
    from django.db import connection, transaction
    from django.http import HttpRequest
    from django.test import TestCase
    from django.utils.decorators import method_decorator
    from django.views import View

    class Ship(View):
        @project.synchronized("orders:{order}")
        def get(self, request: Any, order: int) -> str:
            return "done"

        @method_decorator(project.synchronized("orders:{order}"))
        def put(self, request: Any, order: int) -> str:
            return "done"

    def answered(view: Any, method: str) -> Any:
        request = HttpRequest()
        request.method = method
        return BaseHandler().make_view_atomic(view)(request, order=7)

    for method in ("GET", "PUT"):
        with pytest.raises(ConfigError, match="'default' is around the lock"):
            answered(Ship.as_view(), method)
        assert not project.client().locked("orders:7")
        assert not connection.in_atomic_block
    assert answered(transaction.non_atomic_requests(Ship.as_view()), "GET") == "done"

    @project.synchronized("orders:{order}")
    def view(request: Any, order: int) -> str:
        return "done"

    assert answered(view, "GET") == "done"
    with pytest.raises(ConfigError), transaction.atomic():
        view("request", order=7)

    class Case(TestCase):
        def test(self) -> None:
            assert answered(view, "GET") == "done"

    result = Case("test").run()
    assert result
    assert result.wasSuccessful(), "the transaction of a test does not count"


def test_an_event_loop_takes_over_the_client_of_a_closed_one(project: Any) -> None:
    clients = []

    @project.synchronized("orders:{order}")
    async def view(request: Any, order: int) -> int:
        clients.append(project.async_client())
        return order

    assert [asyncio.run(view("request", order=number)) for number in range(3)] == [0, 1, 2]
    assert len({id(client) for client in clients}) == 1
    assert isinstance(clients[0], AsyncFastRedlock)
    asyncio.run(clients[0].close())


@pytest.mark.parametrize("lease_ends", [False, True])
def test_a_client_that_disconnects_does_not_free_the_lock_of_a_query(
    valkey: Masters, project: Any, lease_ends: bool
) -> None:
    """Django cancels the view; the thread of its query goes on. Catches: the next request beside that query.

    The lock is held until the query has ended, or until its lease ends.
    """
    from asgiref.sync import sync_to_async

    began, end, order = threading.Event(), threading.Event(), list[str]()

    def query() -> None:
        began.set()
        assert end.wait(DEADLINE)
        order.append("query")

    @project.synchronized("orders:{order}", 1.0 if lease_ends else 30.0)
    async def view(request: Any, order: int) -> None:
        await asyncio.to_thread(query) if lease_ends else await sync_to_async(query)()

    async def disconnected() -> None:
        request = asyncio.create_task(view("request", order=7))
        await until(began.is_set, "the query is under way")
        request.cancel()
        await asyncio.sleep(0)
        if lease_ends:
            await asyncio.wait((request,), timeout=DEADLINE)
            assert not order
        else:
            with pytest.raises(Contended):
                await view("next", order=7)
            assert not request.done()
        end.set()
        await asyncio.wait((request,), timeout=DEADLINE)
        assert request.cancelled()
        await until(lambda: order == ["query"], "the query ends")
        await view("next", order=7)
        await project.async_client().close()

    asyncio.run(disconnected())


def test_checks(project: Any, valkey: Masters) -> None:
    from django.core.checks import run_checks
    from django.test import override_settings

    def found(given: Any, deploy: bool = False) -> list[str | None]:
        with override_settings(REDLOCK_FAST=given):
            messages = run_checks(tags=["redlock_fast"], include_deployment_checks=deploy)
            texts = " ".join(f"{message.msg} {message.hint}" for message in messages)
            assert "secret" not in texts
            if not any(message.id == "redlock_fast.E001" for message in messages):
                project.client().close()
            return [message.id.removeprefix("redlock_fast.") for message in messages if message.id]

    three = [f"redis://user:secret@10.0.0.{number}" for number in (1, 2, 3)]
    assert found({"masters": three, "timeout": 2.0}) == []
    assert found({"masters": three}) == ["W003"]
    assert found({"masters": three[:1], "timeout": 2.0}) == ["W001"]
    assert found({"masters": three[:2], "timeout": 2.0}) == ["W001", "W002"]
    for bad in (
        None,
        {},
        {"masters": "redis://:secret@10.0.0.1"},
        {"masters": ["redis://:secret@host:port/x"]},
        {"masters": three, "ttl": -1},
        {"masters": three, "tll": 1},
        {1: 2},
    ):
        assert found(bad) == ["E001"]
    given = {"masters": valkey.urls, "timeout": 2.0, "connect_timeout": 5.0}
    assert found(given, deploy=True) == []
    valkey[0].kill()
    assert found(given, deploy=True) == ["W004"]
    for master in list(valkey)[1:3]:
        master.kill()
    down = found({**given, "connect_timeout": 0.5}, deploy=True)
    assert down == ["E002", "W004", "W004", "W004"]


def test_the_cache_of_django_redis(project: Any, valkey: Masters) -> None:
    pytest.importorskip("django_redis", reason="no django-redis: pip install 'redlock-fast[compat-test]'")
    from django_redis.cache import RedisCache

    sys.modules.pop(f"{INTEGRATION}.cache", None)
    cache = RedisCache(
        valkey.urls[4], {"OPTIONS": {"REDIS_CLIENT_CLASS": f"{INTEGRATION}.cache.QuorumRedis"}}
    )
    with cache.lock("orders", timeout=60):
        assert project.client().locked(":1:orders")
        assert not cache.lock("orders", blocking_timeout=0).acquire()
    assert not project.client().locked(":1:orders")
    cache.set("orders", 5)
    assert cache.get("orders") == 5
    cache.close()
    close_all()
