"""Arguments of drop-ins: a second list of masters, and bad values, which are refused before any I/O."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import redis

from redlock_fast import ConfigError
from redlock_fast.compat import close_all, pottery, redis_py, redlock, redlock_py
from redlock_fast.compat._clients import shared, shared_aio
from redlock_fast.compat.aioredlock import Aioredlock, Sentinel
from redlock_fast.embedded import Masters
from redlock_fast.locks.client_base import BaseClient
from redlock_fast.masters.masters import _all_masters

Options = dict[str, Any]

#: Addresses without a server.
DEAD = ["redis://127.0.0.1:1", "redis://127.0.0.1:2", "redis://127.0.0.1:3"]
OTHERS = [*DEAD[:2], "redis://127.0.0.1:4"]


def client_of_redis_py(masters: list[str], **options: Any) -> Any:
    return redis_py.lock_class(masters, **options)(redis.Redis, "r")._client


async def client_of_redis_py_aio(masters: list[str], **options: Any) -> Any:
    return redis_py.async_lock_class(masters, **options)(redis.asyncio.Redis, "r")._client


async def client_of_aioredlock(masters: list[str], **options: Any) -> Any:
    return Aioredlock(masters, **options)._client


async def client_of_aio_pottery(masters: list[str], **options: Any) -> Any:
    lock = pottery.AIORedlock(key="r", masters=masters, **options)
    return shared_aio(lock.masters, lock._options)


def client_of_pottery(masters: list[str], **options: Any) -> Any:
    lock = pottery.Redlock(key="r", masters=masters, **options)
    return shared(lock.masters, lock._options)


#: Each drop-in: what returns the client of its lock.
DROP_INS: dict[str, Callable[..., Any]] = {
    "redlock_py": lambda masters, **options: redlock_py.Redlock(masters, **options)._client,
    "redlock": lambda masters, **options: redlock.RedLock("r", masters, **options)._client,
    "redis_py": client_of_redis_py,
    "redis_py, asyncio": lambda masters, **options: asyncio.run(client_of_redis_py_aio(masters, **options)),
    "pottery": client_of_pottery,
    "pottery, asyncio": lambda masters, **options: asyncio.run(client_of_aio_pottery(masters, **options)),
    "aioredlock": lambda masters, **options: asyncio.run(client_of_aioredlock(masters, **options)),
}


def lists_of(client: BaseClient) -> dict[str, tuple[str, ...]]:
    """Each master with the arguments of the client that have it."""
    return {health.name.removesuffix("/0"): health.lists for health in client.health()}


# --- a second list of masters -------------------------------------------------------------------------


@pytest.mark.parametrize("drop_in", DROP_INS)
@pytest.mark.parametrize("form", [list, tuple, set, lambda urls: [{"url": url} for url in urls]])
def test_joint_with(drop_in: str, form: Callable[[list[str]], Any]) -> None:
    """In each form that the masters may have. Catches: a list as a part of a key."""
    both = ("masters", "joint_with")
    assert lists_of(DROP_INS[drop_in](DEAD, joint_with=form(OTHERS))) == {
        "127.0.0.1:1": both,
        "127.0.0.1:2": both,
        "127.0.0.1:3": both[:1],
        "127.0.0.1:4": both[1:],
    }


def test_equal_lists_share_a_client() -> None:
    one = shared(DEAD, {"joint_with": OTHERS})
    assert shared(DEAD, {"joint_with": [*OTHERS]}) is one
    assert shared(DEAD, {"joint_with": [*reversed(OTHERS)]}) is one
    assert shared(DEAD, {"joint_with": OTHERS[1:]}) is not one
    assert shared(DEAD, {}) is not one
    assert lists_of(shared(DEAD, {"joint_with": None})) == lists_of(shared(DEAD, {}))
    close_all()


def test_a_drop_in_locks_on_both_lists(valkey: Masters, options: Options) -> None:
    with redlock.RedLock("r", valkey.urls[:3], joint_with=valkey.urls[2:], ttl=60_000, **options):
        assert [master.ask("EXISTS r") for master in valkey].count(":1") >= 3


@pytest.mark.parametrize(
    "joint", [[], [5], "redis://a", {"host": "a"}, 5, ["redis://a", "redis://a"], iter(OTHERS)]
)
@pytest.mark.parametrize("drop_in", DROP_INS)
def test_a_bad_second_list_is_refused(drop_in: str, joint: Any) -> None:
    with pytest.raises((ConfigError, redlock_py.CannotObtainLock), match=r"joint_with|masters"):
        DROP_INS[drop_in](DEAD, joint_with=joint)


@pytest.mark.parametrize("make", [redis_py.lock_class, redis_py.async_lock_class])
def test_a_lock_class_refuses_a_bad_second_list_at_once(make: Callable[..., Any]) -> None:
    for joint in ([], [5], "redis://a", 5, ["redis://127.0.0.1:1/3"]):
        with pytest.raises(ConfigError, match=r"joint_with|masters"):
            make(DEAD, joint_with=joint)


# --- bad values ---------------------------------------------------------------------------------------

NAN = float("nan")


def without_io() -> bool:
    """Whether no client of this process has begun to connect."""
    return all(not one.connector.started or one.client_state.closed for one in list(_all_masters))


def of_redis_py(**settings: Any) -> redis_py.QuorumLock:
    return redis_py.lock_class(DEAD)(redis.Redis, "r", **settings)


async def of_aio_redis_py(**settings: Any) -> bool:
    return await redis_py.async_lock_class(DEAD)(redis.asyncio.Redis, "r", **settings).acquire()


async def get_lock(identifier: Any) -> Any:
    return await Aioredlock(DEAD).get_lock("r", identifier)


#: What is wrong, as the error names it, and what raises the error.
BAD: list[tuple[str, Callable[[], Any]]] = [
    ("ttl", lambda: redlock.RedLock("r", DEAD, ttl="x")),  # type: ignore[arg-type]
    ("ttl", lambda: redlock.RedLock("r", DEAD, ttl=-5)),
    ("masters", lambda: redlock.RedLock("r", 5)),  # type: ignore[arg-type]
    ("masters", lambda: redlock.RedLockFactory(None)),  # type: ignore[arg-type]
    ("blocking_timeout", lambda: of_redis_py(blocking_timeout="x").acquire()),
    ("blocking_timeout", lambda: of_redis_py(blocking_timeout=NAN).acquire()),
    ("blocking_timeout", lambda: of_redis_py(blocking_timeout=False).acquire()),
    ("blocking_timeout", lambda: of_redis_py().acquire(blocking_timeout=NAN)),
    ("blocking_timeout", lambda: asyncio.run(of_aio_redis_py(blocking_timeout=NAN))),
    ("masters", lambda: redis_py.lock_class(DEAD[0])),
    ("masters", lambda: redis_py.lock_class(redis.Redis(port=1))),  # type: ignore[arg-type]
    ("ttl", lambda: redlock.RedLock("r", DEAD, ttl=None)),  # type: ignore[arg-type]
    ("ttl", lambda: redlock.ReentrantRedLock("r", DEAD, ttl=True)),
    ("retry_delay", lambda: redlock.RedLock("r", DEAD, retry_delay="x")),  # type: ignore[arg-type]
    ("masters", lambda: redlock.RedLock("r", DEAD[0])),
    ("masters", lambda: redlock.RedLockFactory(None)),  # type: ignore[arg-type]
    ("masters", lambda: redlock.RedLock("r", [])),
    ("masters", lambda: redlock.ReentrantRedLock("r", ())),
    ("masters", lambda: redlock.RedLockFactory([]).create_lock("r")),
    ("masters", lambda: asyncio.run(pottery.AIORedlock(key="r").acquire())),
    ("masters", lambda: asyncio.run(pottery.AIORedlock(key="r", masters=set()).acquire())),
    ("label", lambda: redlock.RedLock("r", DEAD, label=[])),  # type: ignore[arg-type]
    ("lock_identifier", lambda: asyncio.run(get_lock(None))),
    ("lock_identifier", lambda: asyncio.run(get_lock(b"x"))),
    ("lock_identifier", lambda: asyncio.run(get_lock("\ud800"))),
    ("masters", lambda: Aioredlock(None)),  # type: ignore[arg-type]
    ("connection", lambda: Sentinel(("a",), "m")),  # type: ignore[arg-type]
    ("connection", lambda: Sentinel(5, "m")),  # type: ignore[arg-type]
    ("connection", lambda: Sentinel([], "m")),
    ("connection", lambda: Sentinel([5], "m")),  # type: ignore[list-item]
    ("connection", lambda: Sentinel({"master": "m"})),
    ("hosts", lambda: Sentinel({"host": "a", "master": "m", "hosts": "b"})),
    ("masters", lambda: pottery.Redlock(key="r", masters=[{"host": "a"}])),
    ("masters", lambda: pottery.AIORedlock(key="r", masters=[{"host": "a"}])),
    ("masters", lambda: pottery.Redlock(key="r", masters=None)),  # type: ignore[arg-type]
    ("masters", lambda: pottery.Redlock(key="r", masters={"host": "a"})),
    ("masters", lambda: pottery.synchronize(key="r", masters=[{"host": "a"}])),
    ("unlock", lambda: redlock_py.Redlock(DEAD).unlock(False)),  # type: ignore[arg-type]
    ("unlock", lambda: redlock_py.Redlock(DEAD).unlock((0, "r"))),  # type: ignore[arg-type]
    ("key", lambda: redlock_py.Redlock(DEAD).unlock((0, "r", "\ud800"))),
]


@pytest.mark.parametrize(("named", "attempt"), BAD)
def test_bad_values_are_refused_before_any_io(named: str, attempt: Callable[[], Any]) -> None:
    with pytest.raises(ConfigError, match=named):
        attempt()
    assert without_io()


@pytest.mark.parametrize(
    ("named", "masters", "settings"),
    [("masters", None, {}), ("masters", DEAD[0], {}), ("retry_delay", DEAD, {"retry_delay": "x"})],
)
def test_redlock_py_has_an_error_of_its_own(named: str, masters: Any, settings: Options) -> None:
    with pytest.raises(redlock_py.CannotObtainLock, match=named):
        redlock_py.Redlock(masters, **settings)


def test_redis_py_has_an_error_of_its_own_for_an_extension(valkey: Masters, options: Options) -> None:
    lock = redis_py.lock_class(valkey.urls, **options)(redis.Redis, "r", timeout=60)
    with lock:
        for bad in ("x", None, NAN):
            with pytest.raises(redis.exceptions.LockError, match="additional_time"):
                lock.extend(bad)
