"""Good uses, which type checkers must accept: see tests/unit/test_options.py."""
# pyright: strict, reportPrivateUsage=false

from __future__ import annotations

import asyncio
from typing import assert_type

import redis
import valkey
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry

import redlock_fast
from redlock_fast import (
    ENGINE,
    AsyncFastRedlock,
    AsyncLock,
    AsyncRLock,
    AsyncShardedRedlock,
    Contended,
    FastRedlock,
    Holder,
    Leader,
    Lock,
    LockNotAcquired,
    MasterHealth,
    QuorumUnavailable,
    Retry,
    RLock,
    ShardedRedlock,
    otel,
)
from redlock_fast.aio.renewal import AsyncLossEvent
from redlock_fast.compat import pottery, redis_py, redlock, redlock_py
from redlock_fast.embedded import Masters
from redlock_fast.locks.options import AsyncLockOptions, ClientOptions, LockOptions, WaitMode
from redlock_fast.locks.rwlock import ReadWriteLock
from redlock_fast.prometheus import RedlockCollector
from redlock_fast.threads.renewal import LossEvent

# --- clients --------------------------------------------------------------------------------------

urls = ["redis://a", "redis://b", "redis://c"]
clients = [redis.Redis(host="a"), redis.Redis(host="b")]
wait: WaitMode = "push"
settings: ClientOptions = {"ttl": 5, "engine": "python", "restart_guard": "off"}

client = FastRedlock(urls)
FastRedlock(tuple(urls), ttl=10, node_timeout=0.1, retry=Retry(0.01, max_delay=1, max_attempts=5))
FastRedlock(clients, wait=wait, decide="all", key_prefix=b"locks:", refill=None)
FastRedlock(["redis://a", redis.Redis(), valkey.Valkey(host="b")], restart_guard="durable", engine="auto")
FastRedlock(("redis://a", redis.Redis()), **settings)
FastRedlock(urls, timeout=5, auto_extend=True, max_hold=None)
ShardedRedlock([urls, ["redis://d"]], ttl=5)
ShardedRedlock([clients], release_at_exit=False)
sharded = ShardedRedlock({"one": urls, "two": ["redis://d"]}, **settings)
assert_type(redlock_fast.ShardedRedlock, type[ShardedRedlock])
engine: str = ENGINE

# --- locks ----------------------------------------------------------------------------------------


def lost(lock: Lock, reason: str) -> None:
    assert_type(lock.lost, LossEvent)
    print(lock.resource, reason)


def lost_rlock(lock: RLock, reason: str) -> None:
    print(lock.depth, reason)


options: LockOptions[Lock] = {"timeout": 5, "auto_extend": True, "on_lost": lost}

with client.lock("orders:42", timeout=5.0) as lock:
    assert_type(lock, Lock)
    assert_type(lock.extend(), float)
    assert_type(lock.fencing_token, int | None)
for each in (client, sharded):
    assert_type(each.lock(b"r", 10, fencing=True, on_lost=lost, auto_extend=True, max_hold=600), Lock)
    assert_type(each.lock("r", on_lost=lambda lock, reason: print(lock.token, reason)), Lock)
    assert_type(each.lock("r", fair=True, max_extensions=None, label="checkout"), Lock)
    assert_type(each.lock("r", 10.0, **options), Lock)
    assert_type(each.lock("r", token=lock.detach(), release_at_exit=False), Lock)
    assert_type(each.rwlock("r", 10, timeout=5, auto_extend=True, on_lost=lost), ReadWriteLock[Lock])
    assert_type(each.rwlock("r").read(), Lock)
    assert_type(each.semaphore("r", 3, timeout=None, max_hold=60), Lock)
    assert_type(each.rlock("r", min_validity=1, fencing=True, on_lost=lost_rlock), RLock)
    assert_type(each.multilock(["a", b"b"], 10, timeout=5, on_lost=lost), Lock)
    assert_type(each.multilock(tuple(urls)), Lock)
    with each.leader("r", 10, identity="a", on_elected=lambda leader: print(leader.is_leader)) as leader:
        assert_type(leader, Leader)
        assert_type(leader.wait(5), bool)
        assert_type(leader.fencing_token, int | None)
    assert_type(each.leader("r", on_lost=lambda leader, reason: print(leader.name, reason), notice=1), Leader)
    assert_type(each.acquire("r", blocking=False), Lock | None)
    assert_type(each.acquire_many(urls, 10), list[Lock | None])
    assert_type(each.release_many([lock]), list[bool])
    assert_type(each.locked(b"r"), bool)
    assert_type(each.holders("r", limit=10, timeout=5), list[Holder])
    assert_type(each.inspect(b"r", timeout=5), list[Holder])
    assert_type(each.break_lock("r"), list[Holder])
    assert_type(each.stats().contended, int)
    with each as entered:
        print(entered)
assert_type(client.health(), list[MasterHealth])
assert_type(sharded.health(), dict[str, list[MasterHealth]])
with client.rlock("r") as rlock, rlock.owned_by("owner"):
    assert_type(rlock, RLock)


class OurClient(FastRedlock):
    """A subclass keeps its type."""


assert_type(OurClient.from_env(ttl=10, wait="push"), OurClient)
assert_type(client.inspect("r")[0].ttls, tuple[float | None, ...])
assert_type(client.inspect("r")[0].held, bool | None)


with OurClient(urls, ttl=5) as ours:
    assert_type(ours, OurClient)

try:
    lock.acquire(timeout=1)
except Contended as contended:
    assert_type(contended.masters, tuple[str, ...])
except QuorumUnavailable as outage:
    assert_type(outage.causes[0].master, str)
except LockNotAcquired:
    pass

# --- decorators -----------------------------------------------------------------------------------


@client.synchronized("nightly-report")
def report() -> None: ...


@sharded.synchronized("r", 10, timeout=5, auto_extend=True, fencing=True)
def add(first: int, *, second: int = 0) -> int:
    return first + second


@client.synchronized(lambda order: f"orders:{order}", timeout=5)
def ship(order: int) -> str:
    return f"{order}"


@client.synchronized(lambda order, item: f"orders:{order}:{item}")
def pack(order: int, item: str) -> str:
    return f"{order}{item}"


def name_of(order: int, *rest: object, **more: object) -> bytes:
    return b"%d" % order


@client.synchronized(name_of)
def bill(order: int, amount: float, currency: str, *, at_once: bool) -> str | None:
    return currency if at_once and amount > order else None


class Job:
    @client.synchronized(lambda self, order: f"{self.prefix}:{order}")
    def run(self, order: int) -> float:
        return order / 2

    @staticmethod
    @client.synchronized("r")
    def static(order: int) -> bytes:
        return b"%d" % order


both = client.synchronized("r", **options)
assert_type(report(), None)
assert_type(add(1, second=2), int)
assert_type(ship(42), str)
assert_type(pack(42, item="a"), str)
assert_type(bill(1, 2.0, "EUR", at_once=True), str | None)
assert_type(Job().run(1), float)
assert_type(Job.static(1), bytes)
assert_type(both(ship)(order=1), str)
assert_type(both(report)(), None)

# --- asyncio --------------------------------------------------------------------------------------


async def lost_async(lock: AsyncLock, reason: str) -> None:
    assert_type(lock.lost, AsyncLossEvent)
    await asyncio.sleep(0)


async def main() -> None:
    async_options: AsyncLockOptions[AsyncLock] = {"cancel_on_loss": False, "fencing": True}
    one = AsyncFastRedlock(urls, wait="poll")
    many = AsyncShardedRedlock({"one": urls}, wait="poll")
    async with one as entered, one.lock("r", auto_extend=True, on_lost=lost_async) as lock:
        assert_type(entered, AsyncFastRedlock)
        assert_type(lock, AsyncLock)
        assert_type(await lock.extend(5), float)
    for each in (one, many):
        assert_type(each.lock("r", **async_options), AsyncLock)
        assert_type(each.rwlock("r", cancel_on_loss=False).write(), AsyncLock)
        assert_type(each.semaphore("r", 3, 10, timeout=5), AsyncLock)
        assert_type(each.rlock("r", min_validity=1, cancel_on_loss=False), AsyncRLock)
        assert_type(each.multilock(["a", "b"], on_lost=lost_async), AsyncLock)
        assert_type(await each.acquire("r", timeout=5), AsyncLock | None)
        assert_type(await each.holders("r", limit=10, timeout=5), list[Holder])
        assert_type(await each.inspect(b"r", timeout=5), list[Holder])
        assert_type(await each.break_lock("r"), list[Holder])
        assert_type(await each.acquire_many(["a", "b"]), list[AsyncLock | None])

        @each.synchronized(lambda order: f"{order}", timeout=5, cancel_on_loss=False)
        async def locked(order: int, *, express: bool = False) -> str:
            return f"{order}{express}"

        assert_type(await locked(1, express=True), str)


# --- beside the clients ---------------------------------------------------------------------------

with Masters(3, server="valkey") as masters:
    assert_type(masters.urls, list[str])
    assert_type(masters[0].port, int)
collector = RedlockCollector(CollectorRegistry())
collector.add(client, "orders", latency=True)
collector.add(sharded)
otel.RedlockMetrics().add(client)
otel.trace(client, TracerProvider(), resources=True)
assert_type(redlock_py.Redlock([{"host": "a"}], wait="poll").quorum, int)
assert_type(redlock.RedLock("r", ttl=1000, decide="all").acquire(), bool)
redlock.RedLock("r", [{"host": "a"}], engine="python", joint_with=["redis://b"])
assert_type(pottery.Redlock(key="r", masters=set(clients), max_ttl=30).locked(), float)
with clients[0].lock("r", timeout=10, lock_class=redis_py.lock_class(urls, wait="poll")):
    pass
