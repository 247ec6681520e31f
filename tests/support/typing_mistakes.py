"""Mistakes, each of which type checkers must report: see tests/unit/test_options.py."""
# ruff: noqa: B018, E402, F401
# pyright: strict

from __future__ import annotations

import redis.asyncio
from prometheus_client import CollectorRegistry

import redlock_fast
from redlock_fast import (
    AsyncFastRedlock,
    AsyncLock,
    AsyncShardedRedlock,
    FastRedlock,
    Lock,
    Retry,
    ShardedRedlock,
    otel,
)
from redlock_fast.compat import pottery, redis_py, redlock, redlock_py
from redlock_fast.embedded import Masters
from redlock_fast.locks.options import ClientOptions, LockOptions
from redlock_fast.prometheus import RedlockCollector

urls = ["redis://a", "redis://b", "redis://c"]
client, tasks = FastRedlock(urls), AsyncFastRedlock(urls)
sharded, sharded_tasks = ShardedRedlock([urls]), AsyncShardedRedlock([urls])
lock = client.lock("r")


@client.synchronized(lambda order: f"orders:{order}")
def ship(order: int) -> str:
    return f"{order}"


@tasks.synchronized("r")
async def ship_later(order: int) -> str:
    return f"{order}"


def lost(lock: Lock) -> None: ...


def lost_in_a_task(lock: AsyncLock, reason: str) -> None: ...


# --- each line from here on is a mistake ----------------------------------------------------------

# Names.
from redlock_fast import FastRedlok
from redlock_fast.locks.options import LockOption

print(redlock_fast.FastRedlok)
print(redlock_fast.aio.client.AsyncFastRedlok)

# Masters.
FastRedlock("redis://a")
FastRedlock(b"redis://a")
FastRedlock({"redis://a"})
FastRedlock({"redis://a": 1})
FastRedlock([b"redis://a"])
FastRedlock(["redis://a", 6379])
FastRedlock([("localhost", 6379)])
FastRedlock(*urls)
FastRedlock([redis.asyncio.Redis()])
FastRedlock()
AsyncFastRedlock("redis://a")
AsyncFastRedlock([redis.asyncio.Redis()])
ShardedRedlock(urls)
ShardedRedlock("redis://a")
ShardedRedlock({"one": "redis://a"})
AsyncShardedRedlock({"one": urls, "two": 5})

# Settings.
FastRedlock(urls, tll=3)
FastRedlock(urls, ttl="3")
FastRedlock(urls, wait="pusch")
FastRedlock(urls, decide="any")
FastRedlock(urls, restart_guard="of")
FastRedlock(urls, engine="rust")
FastRedlock(urls, retry=5)
FastRedlock(urls, 10.0)
FastRedlock(urls, max_hold="1 h")
AsyncFastRedlock(urls, tll=3)
AsyncFastRedlock(urls, wait="pusch")
ShardedRedlock([urls], tll=3)
ShardedRedlock([urls], wait="pusch")
AsyncShardedRedlock([urls], tll=3)
Retry(min_dealy=1)
Retry(min_delay="1")
Retry(max_attempts=1.5)
Retry(0.1, 0.2, 3, 4)
Retry().min_delay = 3
ClientOptions(tll=3)
ClientOptions(wait="pusch")
LockOptions[Lock](timeuot=3)

# Options of each kind of lock.
client.lock()
client.lock(42)
client.lock("r", tll=3)
client.lock("r", ttl="3")
client.lock("r", 10, 5)
client.lock("r", timeuot=5)
client.lock("r", timeout="5")
client.lock("r", blocking=False)
client.lock("r", cancel_on_loss=False)
client.lock("r", on_lost=lost)
client.lock("r", on_lost=lost_in_a_task)
client.lock("r", on_lost=lambda: None)
client.lock("r", token="text")
client.lock("r", release_at_exit="no")
client.rwlock("r", fencing=True)
client.rwlock("r", fair=True)
client.rwlock("r", timeuot=5)
client.rwlock("r").raed()
client.semaphore("r")
client.semaphore("r", "3")
client.semaphore("r", 3, fencing=True)
client.semaphore("r", 3, timeuot=5)
client.semaphore("r", 3, token=b"")
client.rlock("r", fair=True)
client.rlock("r", timeuot=5)
client.rlock("r", on_lost=lost)
client.multilock("orders")
client.multilock(b"orders")
client.multilock({"a", "b"})
client.multilock(["a", 5])
client.multilock(["a"], fencing=True)
client.multilock(["a"], timeuot=5)
client.leader(5)
client.leader("r", fencing=True)
client.leader("r", on_lost=lost)
client.leader("r", on_elected=lambda leader, reason: None)
tasks.leader("r", identity=5)
sharded.leader("r", timeuot=5)
sharded.lock("r", timeuot=5)
sharded.rwlock("r", fencing=True)
sharded.semaphore("r", 3, fair=True)
sharded.rlock("r", fair=True)
sharded.multilock("orders")
sharded.multilock(["a"], fencing=True)
tasks.lock("r", tll=3)
tasks.lock("r", on_lost=lambda lock: None)
tasks.rwlock("r", fencing=True)
tasks.semaphore("r", 3, timeuot=5)
tasks.rlock("r", cancel_on_los=False)
tasks.multilock("orders")
sharded_tasks.lock("r", timeuot=5)
sharded_tasks.rlock("r", fair=True)

# Decorators.
client.synchronized()
client.synchronized(5)
client.synchronized("r", timeuot=5)
client.synchronized("r", timeout="5")
client.synchronized("r", cancel_on_loss=False)
client.synchronized(lambda order: 5)
client.synchronized(lost)
sharded.synchronized("r", timeuot=5)
tasks.synchronized("r", timeuot=5)
tasks.synchronized("r")(ship)
sharded_tasks.synchronized("r", timeuot=5)
ship()
ship("42")
ship(42, express=True)
ship(42).resource
ship_later("42")

# Locks and batches.
lock.aquire()
lock.acquire(timeout="5")
lock.acquire(5, "now")
lock.extend("5")
lock.extend(ttll=5)
lock.resource = None
lock.token = b""
len(lock.extend())
client.acquire("r", tll=3)
client.acquire_many("orders")
client.acquire_many([5])
client.release_many(lock)
client.release_many(["r"])
client.locked(5)
client.holders(5)
client.inspect("r", 5)
client.break_lock(["r"])
client.inspect("r")[0].left
FastRedlock.from_env(tttl=5)
client.connect("5")
client.stats().contention
client.health()[0].nmae
sharded.acquire_many("orders")
sharded.group_of(5)

# Beside the clients.
Masters("5")
Masters(sever="redis")
Masters(3).url
RedlockCollector("orders")
RedlockCollector(CollectorRegistry()).add("orders")
RedlockCollector().add(client, latncy=True)
otel.RedlockMetrics().add(urls)
otel.trace(client, resource=True)
redlock_py.Redlock(urls, retry_cuont=3)
redlock_py.Redlock(urls).lock("r")
redlock.RedLock("r", urls, tll=1000)
pottery.Redlock(key="r", tll=3)
redis_py.lock_class(urls, tll=3)
