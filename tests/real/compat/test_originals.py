"""Drop-ins and their originals: they exclude each other, in either order. And what all drop-ins share."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest
import redis
import redis.asyncio
import valkey
from support.inside import core_of
from support.keys import nothing_left
from support.peer_libraries import PeerLibrary, python_of
from support.python_process import run_python
from support.waiting import DEADLINE, PATIENT, eventually

from redlock_fast import ConfigError
from redlock_fast.compat import aclose_all, aioredlock, close_all, pottery, redis_py, redlock
from redlock_fast.compat import redlock_py as redlock_py_
from redlock_fast.compat._clients import shared, shared_aio
from redlock_fast.embedded import Masters
from redlock_fast.masters.masters import _all_masters

SUPPORT = Path(__file__).parents[2] / "support"
Raw = Callable[[Masters], list[redis.Redis]]


class Held(Protocol):
    def __call__(self) -> None: ...


#: (resource, masters, options) -> what gives it back, or None: others hold it. One attempt.
Take = Callable[[str, Masters, dict[str, Any]], Held | None]


def ports(masters: Masters) -> list[dict[str, Any]]:
    return [{"host": "127.0.0.1", "port": master.port} for master in masters]


def of_redlock_py(resource: str, masters: Masters, options: dict[str, Any]) -> Held | None:
    locks = redlock_py_.Redlock(ports(masters), retry_count=1, **options)
    lock = locks.lock(resource, 60_000)
    return (lambda: locks.unlock(lock)) if lock else None


def of_redlock(resource: str, masters: Masters, options: dict[str, Any]) -> Held | None:
    lock = redlock.RedLock(resource, ports(masters), retry_times=1, ttl=60_000, **options)
    return lock.release if lock.acquire() else None


def of_pottery(resource: str, masters: Masters, options: dict[str, Any]) -> Held | None:
    lock = pottery.Redlock(key=resource, masters=set(masters.urls), auto_release_time=60, **options)
    return lock.release if lock.acquire(blocking=False) else None


def of_redis_py(resource: str, masters: Masters, options: dict[str, Any]) -> Held | None:
    kind = redis_py.lock_class(masters.urls, **options)
    lock = kind(redis.Redis, resource, timeout=60)
    return lock.release if lock.acquire(blocking=False) else None


def of_aioredlock(resource: str, masters: Masters, options: dict[str, Any]) -> Held | None:
    runner = asyncio.Runner()
    locks = aioredlock.Aioredlock(ports(masters), retry_count=1, **options)

    async def take() -> aioredlock.Lock | None:
        try:
            return await locks.lock(resource, 60)
        except aioredlock.LockAcquiringError:
            await locks.destroy()
            return None

    def give() -> None:
        runner.run(locks.destroy())
        runner.close()

    if runner.run(take()):
        return give
    runner.close()
    return None


#: The package, how ours is taken, and the key of a resource.
PEERS: dict[str, tuple[Take, str]] = {
    "redlock-py": (of_redlock_py, "{}"),
    "redlock": (of_redlock, "{}"),
    "pottery": (of_pottery, "redlock:{}"),
    "aioredlock": (of_aioredlock, "{}"),
    "redis-py": (of_redis_py, "{}"),
}


@pytest.mark.usefixtures("all_masters")
@pytest.mark.parametrize("peer", PEERS)
def test_both_exclude_each_other(masters: Masters, options: dict[str, Any], raw: Raw, peer: str) -> None:
    """With the commands that the originals send: the same keys, and tokens that any client can read."""
    take, pattern = PEERS[peer]
    original, key = PeerLibrary(raw(masters)), pattern.format("shared")
    assert original.lock(key, "theirs") == 5
    assert take("shared", masters, options) is None
    assert original.unlock(key, "theirs") == 5
    release = take("shared", masters, options)
    assert release
    tokens: list[Any] = [node.get(key) for node in original.nodes]
    assert all(token.isalnum() for token in tokens if token)
    minority = original.lock(key, "theirs")  # a master that was still being connected was not asked
    assert minority <= 2
    assert original.unlock(key, "theirs") == minority
    release()
    nothing_left(masters)
    assert original.lock(key, "theirs") == 5


@contextmanager
def holding(peer: str, resource: str, masters: Masters) -> Iterator[bool]:
    """The real original in an environment of its own; whether it got the lock."""
    command = [python_of(peer), str(SUPPORT / "holder.py"), peer.replace("-", "_"), resource]
    command += [str(master.port) for master in masters]
    clean = {"PATH": "/usr/bin:/bin"}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=clean
    ) as process:
        try:
            assert process.stdout
            yield process.stdout.readline().strip() == "True"
            process.communicate(timeout=DEADLINE)
        finally:
            process.kill()


@pytest.mark.parametrize("peer", [name for name in PEERS if name != "redis-py"])
def test_the_real_originals(valkey: Masters, options: dict[str, Any], peer: str) -> None:
    take, _ = PEERS[peer]
    with holding(peer, "real", valkey) as held:
        assert held
        assert take("real", valkey, options) is None
    release = take("real", valkey, options)
    assert release, "the original gave it back"
    with holding(peer, "real", valkey) as held:
        assert not held
    release()
    nothing_left(valkey)
    with holding(peer, "real", valkey) as held:
        assert held, "and so did ours"


# --- one import ---------------------------------------------------------------------------------------

THEIRS, OURS = "from redlock import", "from redlock_fast.compat.redlock_py import"
#: In front of the service, which sets no times: more than a busy machine takes for a reply.
PATIENCE = f"""
import inspect
from redlock_fast.locks.client_base import BaseClient

inspect.unwrap(BaseClient.__init__).__kwdefaults__.update({PATIENT})
"""


def passes(python: str, source: str, masters: Masters, folder: Path) -> None:
    """Runs the service's own tests."""
    script = folder / "service.py"
    script.write_text(source)
    command = [python, str(script), *(str(master.port) for master in masters)]
    done = run_python(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    tests = [line[4:-10] for line in source.splitlines() if line.startswith("def test_")]
    assert done.stdout.split() == sorted(tests)


def service() -> str:
    return (SUPPORT / "service.py").read_text()


def test_a_service_switches_by_one_import(
    masters: Masters, engine_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDLOCK_FAST_ENGINE", engine_name)
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT.parents[1]))
    assert service().count(THEIRS) == 1
    passes(sys.executable, PATIENCE + service().replace(THEIRS, OURS), masters, tmp_path)


def test_the_service_was_written_against_redlock_py(
    valkey: Masters, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    passes(python_of("redlock-py"), service(), valkey, tmp_path)


# --- what all share -----------------------------------------------------------------------------------


def test_the_same_masters_have_one_client() -> None:
    """By dicts, URLs, clients of any kind; in any order; options make a difference."""
    first = {"host": "10.0.0.1", "port": 7000, "password": "p"}
    second = {"url": "redis://10.0.0.2:7000"}
    one = shared([first, second], {})
    assert shared([second, dict(first)], {}) is one
    clients = [redis.Redis(**first), redis.Redis("10.0.0.2", 7000)]
    assert shared(clients, {}) is one
    assert shared({valkey.Valkey(**first), valkey.Valkey("10.0.0.2", 7000)}, {}) is one
    assert shared([redis.asyncio.Redis(**first), redis.asyncio.Redis(host="10.0.0.2", port=7000)], {}) is one
    assert shared([first, second], {"ttl": 5}) is not one
    assert shared([{**first, "password": "another"}, second], {}) is not one
    assert [health.name for health in one.health()] == ["10.0.0.1:7000/0", "10.0.0.2:7000/0"]
    close_all()
    assert shared([first, second], {}) is not one
    close_all()
    for client in clients:
        client.close()


def test_close_all_closes_what_only_the_cache_has(valkey: Masters, options: dict[str, Any]) -> None:
    """Catches: a client that is dropped before it is closed, and the connections that a held lease keeps."""
    others = {*_all_masters}
    assert redlock.RedLock("r", valkey.urls, ttl=60_000, **options).acquire()
    made = {*_all_masters} - others
    assert made
    close_all()
    assert all(masters.client_state.closed for masters in made)


def test_each_loop_has_its_own_and_leaves_nothing(valkey: Masters) -> None:
    async def main() -> Any:
        client = shared_aio(valkey.urls, {**PATIENT})
        assert shared_aio(valkey.urls, {**PATIENT}) is client
        async with pottery.AIORedlock(key="r", masters=valkey.urls, **PATIENT):
            pass
        await aclose_all()
        await aclose_all()
        return id(core_of(client).masters)

    before = threading.active_count()
    assert asyncio.run(main())
    assert asyncio.run(main())
    gc.collect()
    eventually(lambda: threading.active_count() <= before, "no thread is left")


@pytest.mark.parametrize(
    "masters",
    [
        [],
        [{"no_such_option": 1}],
        [{"url": "http://secret@10.0.0.1"}],
        [5],
        [None],
        ["redis://a", "redis://a"],
        ["redis://a/0", "redis://a/1", "redis://a/2"],
        [{"host": "a", "db": 0}, {"host": "a", "db": 1}],
    ],
)
def test_bad_masters_show_where_they_are_given(masters: list[Any]) -> None:
    for make in (
        lambda: redlock.RedLock("r", masters),
        lambda: redis_py.lock_class(masters),
        lambda: aioredlock.Aioredlock(masters),
    ):
        with pytest.raises(ConfigError, match="masters") as caught:
            make()
        assert "secret" not in str(caught.value)
    with pytest.raises(redlock_py_.CannotObtainLock, match="masters"):
        redlock_py_.Redlock(masters)


TAKES_AND_EXITS = """
import sys
from redlock_fast.compat import pottery
engine, release, *urls = sys.argv[1:]
options = {"node_timeout": 5.0, "connect_timeout": 20.0}
options |= {"release_at_exit": True} if release == "yes" else {}
assert pottery.Redlock(key="r", masters=urls, auto_release_time=60, engine=engine, **options).acquire()
"""


@pytest.mark.parametrize("release", ["yes", "no"])
def test_a_lock_outlives_its_process(valkey: Masters, engine_name: str, raw: Raw, release: str) -> None:
    """As with the originals: jobs that run once in N seconds rely on it."""
    command = [sys.executable, "-c", TAKES_AND_EXITS, engine_name, release, *valkey.urls]
    run_python(command, check=True, timeout=60)
    left = sum(node.exists("redlock:r") for node in raw(valkey))
    assert left == 0 if release == "yes" else left >= 3


def test_a_lease_longer_than_the_fleet_promises_is_refused(valkey: Masters, options: dict[str, Any]) -> None:
    """The default is what other libraries ask for by default; a longer one must be set, in all clients."""
    locks = redlock_py_.Redlock(ports(valkey), **options)
    with pytest.raises(ConfigError, match="max_ttl"):
        locks.lock("r", 600_000)
    longer = redlock_py_.Redlock(ports(valkey), max_ttl=600, **options)
    lock = longer.lock("r", 600_000)
    assert lock
    assert lock.validity > 500_000
    longer.unlock(lock)
