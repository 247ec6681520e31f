"""The plugin for pytest that puts the drop-ins in place of a library, before its tests are imported."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Iterator

import pytest
import redis
import redis.asyncio

from redlock_fast.compat import pottery as pottery_
from redlock_fast.compat import redis_py
from redlock_fast.compat import redlock as redlock_
from redlock_fast.compat import redlock_py as redlock_py_
from redlock_fast.compat._clients import DEFAULTS

URL = os.environ["REDLOCK_FAST_URL"]
SUITE = os.environ["REDLOCK_FAST_SUITE"]
DEFAULTS["max_ttl"] = 3600.0  # the default lease of RedBeat is 25 minutes


def delete_instead_of_flush() -> None:
    """The suites empty the server around each test. A flushed master is connected again and casts no vote."""

    def flush(client: redis.Redis, *_: object, **__: object) -> bool:
        client.delete("", *client.keys())
        return True

    async def async_flush(client: redis.asyncio.Redis, *_: object, **__: object) -> bool:
        await client.delete("", *(await client.keys()))
        return True

    redis.Redis.flushdb = redis.Redis.flushall = flush  # type: ignore[method-assign,assignment]
    redis.asyncio.Redis.flushdb = redis.asyncio.Redis.flushall = async_flush  # type: ignore


def replace_lock_classes() -> None:
    """``redis.lock.Lock`` and its asyncio counterpart are the drop-ins, also by ``lock()``."""
    import redis.asyncio.lock
    import redis.lock

    kind, async_kind = redis_py.lock_class([URL]), redis_py.async_lock_class([URL])
    for module, chosen in (
        (redis.lock, kind),
        (redis.client, kind),
        (redis.asyncio.lock, async_kind),
        (redis.asyncio.client, async_kind),
    ):
        module.Lock = chosen  # type: ignore[attr-defined]


def replace_clients() -> None:
    """``redis.Redis`` and its asyncio counterpart are the classes of ``client_class``."""
    kind, async_kind = redis_py.client_class([URL]), redis_py.async_client_class([URL])
    for module, chosen in (
        (redis, kind),
        (redis.client, kind),
        (redis.asyncio, async_kind),
        (redis.asyncio.client, async_kind),
    ):
        module.Redis = module.StrictRedis = chosen  # type: ignore[misc,assignment]


def replace_pottery() -> None:
    import pottery
    import pottery.exceptions

    for name in (
        "Redlock", "AIORedlock", "synchronize", "QuorumNotAchieved", "QuorumIsImpossible",
        "TooManyExtensions", "ExtendUnlockedLock", "ReleaseUnlockedLock",
    ):  # fmt: skip
        setattr(pottery, name, getattr(pottery_, name))
        if hasattr(pottery.exceptions, name):
            setattr(pottery.exceptions, name, getattr(pottery_, name))


delete_instead_of_flush()
if SUITE == "redis-py":
    replace_lock_classes()
elif SUITE == "redlock-py":
    sys.modules["redlock"] = redlock_py_
elif SUITE == "redlock":
    sys.modules["redlock"] = redlock_
elif SUITE == "pottery":
    replace_pottery()
else:
    replace_clients()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or report.outcome != "passed":
        name = report.nodeid.partition("::")[2].replace("::", ".")
        with open(os.environ["REDLOCK_FAST_RESULTS"], "a") as results:
            print(json.dumps([name, report.outcome]), file=results)


if SUITE == "pottery":  # its archive has no conftest.py

    @pytest.fixture(name="redis")
    def redis_client() -> Iterator[redis.Redis]:
        with redis.Redis.from_url(URL) as client:
            client.flushdb()
            yield client
            client.flushdb()

    @pytest.fixture
    async def aioredis() -> AsyncIterator[redis.asyncio.Redis]:
        async with redis.asyncio.Redis.from_url(URL) as client:
            await client.flushdb()
            yield client
