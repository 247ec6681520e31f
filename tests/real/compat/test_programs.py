"""Programs that call ``client.lock()`` themselves. With the client of ``client_class`` they use a quorum."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis
import redis.asyncio
import valkey as valkey_py
from support.engines import engines
from support.event_loops import clean, on_loops
from support.keys import nothing_left
from support.thorough import MORE
from support.waiting import eventually

from redlock_fast import ConfigError
from redlock_fast.compat import aclose_all
from redlock_fast.compat.redis_py import (
    AsyncQuorumLock,
    QuorumLock,
    async_client_class,
    client_class,
)
from redlock_fast.embedded import Masters

pytestmark = [
    pytest.mark.usefixtures("all_masters"),
    pytest.mark.filterwarnings("default"),  # those of other packages are not ours to mend
]

Raw = Callable[[Masters], list[redis.Redis]]
Options = dict[str, Any]


def package(name: str, distribution: str) -> Any:
    """A module of a package that is not needed otherwise."""
    try:
        return importlib.import_module(name)
    except ImportError:
        pytest.skip(f"package {distribution} is not installed: pip install {distribution}")


def locked(nodes: list[redis.Redis], pattern: str) -> bool:
    """Whether a quorum has a key like that."""
    return sum(bool(node.keys(pattern)) for node in nodes) > len(nodes) // 2


@pytest.mark.parametrize("library", [redis, valkey_py], ids=["redis-py", "valkey-py"])
def test_client_class(valkey: Masters, options: Options, raw: Raw, library: Any) -> None:
    base = None if library is redis else valkey_py.Valkey
    kind = client_class(valkey.urls, base, **options)
    assert issubclass(kind, getattr(library, library.__name__.title()))
    with kind.from_url(valkey.urls[0]) as client:
        for chosen in (None, library.lock.Lock, library.asyncio.lock.Lock):
            lock = client.lock("r", 60, 0.5, True, 30, chosen, False, False)
            assert isinstance(lock, QuorumLock)
            assert (lock.timeout, lock.sleep, lock.blocking, lock.blocking_timeout) == (60, 0.5, True, 30)
            assert (lock.thread_local, lock.raise_on_release_error) == (False, False)
            with lock:
                assert locked(raw(valkey), "r")
                assert client.lock("r").acquire(blocking=False) is False
        own = client.lock("r", lock_class=lambda *args, **settings: (args, settings["timeout"]), timeout=3)
        assert own == ((client, "r"), 3)
        assert client.set("other", "value")
        assert client.get("other") == b"value"
        client.delete("other")
        with pytest.raises(library.exceptions.LockError):
            client.lock("r").release()
    nothing_left(valkey)
    with pytest.raises(ConfigError, match="masters"):
        client_class([])


@on_loops
async def test_async_client_class(valkey: Masters, options: Options, raw: Raw) -> None:
    async with async_client_class(valkey.urls, **options).from_url(valkey.urls[0]) as client:
        lock = client.lock("r", timeout=60, lock_class=redis.asyncio.lock.Lock)
        assert isinstance(lock, AsyncQuorumLock)
        async with lock:
            assert locked(raw(valkey), "r")
            assert await client.ping()
    kind = async_client_class(valkey.urls, valkey_py.asyncio.Valkey, **options)
    async with kind(port=1) as client, client.lock("r", timeout=60) as lock:
        assert isinstance(lock, AsyncQuorumLock)
    await aclose_all()
    await clean(valkey)


# --- the real packages: their names for the class of the client ------------------------------------------


def test_django_redis(valkey: Masters, options: Options, raw: Raw, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = package("django.conf", "django-redis").settings
    cache_module = package("django_redis.cache", "django-redis")
    if not settings.configured:
        settings.configure()
    project = ModuleType("project_clients")
    project.QuorumRedis = client_class(valkey.urls, **options)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, project.__name__, project)
    params = {"OPTIONS": {"REDIS_CLIENT_CLASS": "project_clients.QuorumRedis"}}
    cache = cache_module.RedisCache(valkey.urls[0], params)
    with cache.lock("orders", timeout=60):
        assert locked(raw(valkey), ":1:orders")
        assert not cache.lock("orders", blocking_timeout=0).acquire()
    cache.set("orders", 5)
    assert cache.get("orders") == 5
    cache.delete("orders")
    nothing_left(valkey)


def test_dogpile_cache(valkey: Masters, options: Options, raw: Raw) -> None:
    cache = package("dogpile.cache", "dogpile.cache").make_region()
    arguments = {"distributed_lock": True, "thread_local_lock": False, "lock_timeout": 60}
    cache.configure("dogpile.cache.redis", arguments={"url": valkey.urls[0], **arguments})
    backend = cache.actual_backend
    kind = client_class(valkey.urls, **options)
    backend.writer_client = kind(connection_pool=backend.writer_client.connection_pool)
    asked = []

    def create() -> str:
        asked.append(locked(raw(valkey), "_lock*"))
        return "made"

    assert cache.get_or_create("page", create) == "made"
    assert cache.get_or_create("page", create) == "made"
    assert asked == [True]
    mutex = backend.get_mutex("page")
    assert mutex.acquire()
    assert mutex.locked()
    mutex.release()
    cache.delete("page")
    nothing_left(valkey)


def test_tooz(valkey: Masters, options: Options, raw: Raw) -> None:
    driver = package("tooz.drivers.redis", "tooz").RedisDriver
    kind = client_class(valkey.urls, **options)

    class QuorumDriver(driver):  # type: ignore[misc,valid-type]
        @classmethod
        def _make_client(cls, *args: Any) -> Any:
            client = driver._make_client(*args)
            return kind(connection_pool=client.connection_pool)

    one, other = (QuorumDriver(name, urlsplit(valkey.urls[0]), {}) for name in (b"one", b"other"))
    one.start()
    other.start()
    try:
        lock = one.get_lock(b"r")
        assert lock.acquire()
        assert locked(raw(valkey), "*r_lock")
        eventually(lock.is_still_owner, "the one master that it asks has the key")
        assert lock.heartbeat()
        assert not other.get_lock(b"r").acquire(blocking=False)
        assert lock.release()
        eventually(lambda: not lock.is_still_owner(), "the one master that it asks has no key")
        assert other.get_lock(b"r").acquire(blocking=False)
    finally:
        one.stop()
        other.stop()
    assert not locked(raw(valkey), "*r_lock")


def test_redbeat(valkey: Masters, options: Options, raw: Raw) -> None:
    """It overwrites the script that extends: each tick makes the lease last its timeout from now."""
    celery = package("celery", "celery-redbeat")
    schedulers = package("redbeat.schedulers", "celery-redbeat")
    app = celery.Celery("beats", broker="memory://")
    app.conf.redbeat_redis_url = valkey.urls[0]
    kind = client_class(valkey.urls, **options)
    with kind.from_url(valkey.urls[0], decode_responses=True) as client:
        app.redbeat_redis = client
        scheduler = schedulers.RedBeatScheduler(app, lock_timeout=60, lazy=True)
        schedulers.acquire_distributed_beat_lock(SimpleNamespace(scheduler=scheduler))
        key = scheduler.lock_key
        assert locked(raw(valkey), key)
        assert not client.lock(key).acquire(blocking=False)
        for _ in range(3):
            scheduler.tick()
        assert all(int(node.pttl(key)) <= 60_000 for node in raw(valkey))
        assert scheduler.lock.owned()
        scheduler.close()
        assert not locked(raw(valkey), key)


@pytest.mark.skipif(not MORE, reason="the import of aiogram takes ten seconds: make coverage has this test")
@pytest.mark.parametrize("engine_name", [min(engines())], indirect=True)
def test_aiogram(valkey: Masters, options: Options, raw: Raw) -> None:
    """It passes redis-py's own class to ``lock()``."""
    storage = package("aiogram.fsm.storage.redis", "aiogram")
    base = package("aiogram.fsm.storage.base", "aiogram")

    async def main() -> None:
        async with async_client_class(valkey.urls, **options).from_url(valkey.urls[0]) as client:
            isolation = storage.RedisEventIsolation(client)
            async with isolation.lock(base.StorageKey(bot_id=1, chat_id=2, user_id=3)):
                assert locked(raw(valkey), "fsm:*:lock")
            assert not locked(raw(valkey), "fsm:*:lock")
        await aclose_all()

    asyncio.run(main())
    nothing_left(valkey)
