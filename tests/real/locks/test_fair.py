"""Fair lock on real masters: served in the order of the tickets, exclusive with plain locks, nothing left."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from functools import partial

import pytest
import redis
from support.engines import ONCE
from support.event_loops import until
from support.inside import core_of
from support.keys import calls, forget_calls, nothing_left, wipe
from support.kinds import claim_of, values
from support.makers import MakeAio, MakeClient, MakePlain, Raw
from support.signalling import handling, interrupt, to_main
from support.thorough import amount, crossed
from support.waiting import DEADLINE, PATIENT, answered, eventually, start

from redlock_fast import AsyncFastRedlock, ConfigError, FastRedlock, Lock, ShardedRedlock
from redlock_fast.embedded import Masters
from redlock_fast.locks import fair
from redlock_fast.locks.fair import FairKind

TTL = 60.0
CLIENTS, ROUNDS = 12, amount(2, 3, twice=3)
pytestmark = pytest.mark.usefixtures("all_masters")


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No client loses its place because the machine is busy."""
    monkeypatch.setattr(fair, "ENTRY_TTL", 60.0)


@pytest.fixture(params=["auto", "poll"])
def wait(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def queue(node: redis.Redis, name: str = "r") -> list[bytes]:
    """The tokens in the queue, in order."""
    return node.zrange(f"{{{name}}}:q", 0, -1)


def place(lock: Lock) -> bytes:
    assert lock._lease is not None
    assert isinstance(lock._lease.lock_kind, FairKind)
    return lock._lease.lock_kind.entry_token


def waiting(nodes: list[redis.Redis], count: int) -> None:
    """So many wait on every master."""
    eventually(lambda: [len(queue(node)) for node in nodes] == [count] * 5, f"{count} are in the queue")


@contextlib.contextmanager
def held(c: FastRedlock, **options: object) -> Iterator[Lock]:
    lock = c.lock("r", TTL, **options)
    assert lock.acquire(blocking=False)
    yield lock
    lock.release()


# --- order --------------------------------------------------------------------------------------------


def next_in_queue(nodes: list[redis.Redis], mine: bytes) -> bytes:
    """Once all others wait, in the same order on every master."""
    found: list[bytes] = []

    def all_there() -> bool:
        views = [[one for one in queue(node) if one != mine] for node in nodes]
        found[:] = views[0]
        return len(found) == CLIENTS - 1 and views.count(views[0]) == len(views)

    eventually(all_there, "all others queue up", deadline=3 * DEADLINE)
    return found[0]


@pytest.mark.parametrize(
    ("engine_name", "masters", "wait"),
    [(*once, wait) for once, wait in crossed(ONCE, ["auto", "poll"])],
    indirect=True,
)
@pytest.mark.usefixtures("patient")
def test_twelve_clients_have_equal_shares_in_the_order_of_the_queue(
    masters: Masters, connected: MakeClient, raw: Raw, wait: str
) -> None:
    """Each holder waits for all others to be in the queue, which then shows the next holder."""
    nodes = raw(masters)
    clients = [connected(masters, wait=wait) for _ in range(CLIENTS)]
    grants = [0] * CLIENTS
    expected: list[bytes] = []
    wrong: list[str] = []

    def take(number: int) -> None:
        while True:
            with clients[number].lock("r", TTL, fair=True, timeout=6 * DEADLINE) as lock:
                mine = place(lock)
                if sum(grants) >= ROUNDS * CLIENTS:
                    return  # from here on not all of them queue up
                if expected and expected.pop() != mine:
                    wrong.append(f"client {number} overtook another")
                grants[number] += 1
                if max(grants) - min(grants) > 1:
                    wrong.append(f"unequal: {grants}")
                expected.append(next_in_queue(nodes, mine))

    for thread in [start(partial(take, number)) for number in range(CLIENTS)]:
        thread.result(6 * DEADLINE)
    assert (grants, wrong) == ([ROUNDS] * CLIENTS, [])
    nothing_left(masters)


@pytest.mark.usefixtures("patient")
def test_a_bad_minority_changes_no_order(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    """Two masters report tickets at the end of what a double can count. Catches: tickets that are equal."""
    nodes, served = raw(masters), list[int]()

    def take(number: int, client: FastRedlock) -> None:
        with client.lock("r", TTL, fair=True, timeout=3 * DEADLINE):
            served.append(number)

    with held(connected(masters)):
        for node in nodes[:2]:
            node.zadd("{r}:q", {b"far": 2**53 - 2})
            node.zadd("{r}:e", {b"far": 1e15})
        tries = []
        for number in range(6):
            tries.append(start(partial(take, number, connected(masters))))
            eventually(lambda: [len(queue(node)) for node in nodes[2:]] == [len(tries)] * 3, "it waits")
    for one in tries:
        one.result(3 * DEADLINE)
    assert served == sorted(served)
    for node in nodes[:2]:
        assert node.delete("{r}:q", "{r}:e") == 2
    nothing_left(masters)


def test_a_dead_waiter_is_passed_over(masters: Masters, connected: MakeClient, raw: Raw, wait: str) -> None:
    """It says nothing more; its place goes with its lease, and the next one is served."""
    nodes, c = raw(masters), connected(masters, wait=wait)
    with held(c):
        for node in nodes:
            now, _ = node.time()
            node.zadd("{r}:q", {b"dead": 0})
            node.zadd("{r}:e", {b"dead": now * 1000 + 1500})
        lock = connected(masters, wait=wait).lock("r", TTL, fair=True)
        trying = start(lambda: lock.acquire(timeout=DEADLINE))
        eventually(lambda: any(len(queue(node)) >= 1 for node in nodes), "it waits")
    assert trying.result(DEADLINE)
    eventually(lambda: all(b"dead" not in queue(node) for node in nodes), "the last master has it out, too")
    assert lock.release()
    nothing_left(masters)


@pytest.mark.usefixtures("patient")
def test_a_dead_waiter_leaves_the_queue_also_from_its_middle(
    masters: Masters, connected: MakeClient, raw: Raw
) -> None:
    """Else it counts as one that is ahead, as long as the head of the queue waits."""
    nodes, c = raw(masters), connected(masters)
    for node in nodes:
        node.set("r", "another", px=600_000)
        node.zadd("{r}:q", {b"first": 1, b"dead": 2})
        node.zadd("{r}:e", {b"first": 1e15, b"dead": 1})
    lock_kind = claim_of(c.lock("r", fair=True))
    lock_kind.ticket = b"3"
    assert values(c, lock_kind.acquire_request(b"t" * 20, b"60000", 0b11111)) == [(-1 - (64 * 3 + 1),) * 5], (
        "it is behind the first"
    )
    assert [queue(node) for node in nodes] == [[b"first", b"t" * 20]] * 5


def test_plain_locks_exclude_it_and_it_excludes_them(masters: Masters, connected: MakeClient) -> None:
    one, other = connected(masters), connected(masters)
    with held(one):
        assert not other.lock("r", TTL, fair=True).acquire(blocking=False)
    with held(one, fair=True):
        assert not other.lock("r", TTL).acquire(blocking=False)
        assert other.locked("r")
    nothing_left(masters)


@pytest.mark.usefixtures("patient")
def test_a_later_client_does_not_get_the_lock_by_a_try(
    masters: Masters, connected: MakeClient, raw: Raw
) -> None:
    """The lock is free for a moment, but it is another client's turn."""
    nodes, c = raw(masters), connected(masters)
    for node in nodes:
        node.zadd("{r}:q", {b"first": 1})
        node.zadd("{r}:e", {b"first": 1e15})
    assert not c.lock("r", TTL, fair=True).acquire(blocking=False)
    assert c.lock("r", TTL).acquire(blocking=False), "a plain lock asks no queue"


@pytest.mark.usefixtures("patient")
def test_callers_of_one_client_share_one_place(
    masters: Masters, aclient: MakeAio, connected: MakeClient, raw: Raw, wait: str
) -> None:
    """They are served by arrival. Another client with one caller has its turn after the first of them."""
    nodes, other, served = raw(masters), connected(masters, wait=wait), list[int]()

    async def one(c: AsyncFastRedlock, number: int) -> None:
        async with c.lock("r", TTL, fair=True):
            served.append(number)
            if number == 0:  # the next caller of this client enters the queue while this one holds the lock
                await until(lambda: all(len(queue(node)) == 3 for node in nodes), "the next one waits")

    def single() -> None:
        with other.lock("r", TTL, fair=True):
            served.append(-1)

    async def main() -> None:
        async with aclient(masters, wait=wait) as c:
            async with c.lock("r", TTL):
                tasks = [asyncio.create_task(one(c, 0))]
                await until(lambda: all(len(queue(node)) == 1 for node in nodes), "the first waits")
                tasks += [asyncio.create_task(one(c, number)) for number in range(1, 30)]
                thread = start(single)
                await until(lambda: all(len(queue(node)) == 2 for node in nodes), "both clients wait")
                await until(
                    lambda: sum(map(len, core_of(c).policy.local_queue.waiting.values())) == 30, "all wait"
                )
                assert [len(queue(node)) for node in nodes] == [2] * 5
            await asyncio.gather(*tasks)
            await asyncio.to_thread(thread.result, DEADLINE)

    asyncio.run(main())
    assert served == [0, -1, *range(1, 30)]
    nothing_left(masters)


@pytest.mark.usefixtures("patient")
def test_callers_that_begin_together_share_one_place(
    masters: Masters, aclient: MakeAio, raw: Raw, wait: str
) -> None:
    """All have asked before one of them is in the local queue: all but the first forget what they saw."""
    nodes, most = raw(masters), 0

    async def main() -> None:
        nonlocal most
        async with aclient(masters, wait=wait) as c:
            await c.connect()
            await until(lambda: all(one.state == "connected" for one in c.health()), "all are connected")
            async with c.lock("r", TTL):  # a master that it does not ask grants the others, and has no queue
                tasks = [asyncio.create_task(c.lock("r", TTL, fair=True).acquire()) for _ in range(20)]
                await until(
                    lambda: sum(map(len, core_of(c).policy.local_queue.waiting.values())) == 20, "all wait"
                )
                await until(lambda: all(queue(node) for node in nodes), "the first is in the queues")
                most = max(len(queue(node)) for node in nodes)
                for task in tasks[:5]:
                    task.cancel()
                await asyncio.gather(*tasks[:5], return_exceptions=True)
                await until(lambda: all(len(queue(node)) == 1 for node in nodes), "the next is in the queues")
                for task in tasks[5:]:
                    task.cancel()
                await asyncio.gather(*tasks[5:], return_exceptions=True)
            assert core_of(c).policy.local_queue.waiting == {}

    asyncio.run(main())
    assert most == 1
    nothing_left(masters)


# --- cost ---------------------------------------------------------------------------------------------


def test_uncontended_is_one_round_trip(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    nodes, c = raw(masters), connected(masters)
    forget_calls(nodes)
    for _ in range(3):
        with c.lock("r", TTL, fair=True):
            pass
    eventually(lambda: calls(nodes, "evalsha") == [6] * 5, "each acquire and release is one script")
    assert calls(nodes, "eval", "zadd", "client|caching") == [0] * 5


# --- nothing left -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("patient")
def test_time_is_over(masters: Masters, plain: MakePlain, raw: Raw, wait: str) -> None:
    c = plain(masters, wait=wait)
    holder = c.lock("r", TTL)
    assert c.wait(holder.acquire(blocking=False))
    assert not answered(lambda: c.wait(c.lock("r", TTL, fair=True).acquire(timeout=0.3)))
    assert c.wait(holder.release())
    nothing_left(masters)


@pytest.mark.usefixtures("patient")
def test_interrupted_while_it_waits(masters: Masters, connected: MakeClient, raw: Raw, wait: str) -> None:
    nodes, c = raw(masters), connected(masters, wait=wait)
    with held(c), handling(interrupt):
        watcher = start(lambda: (waiting(nodes, 1), to_main()))
        with pytest.raises(KeyboardInterrupt):
            c.lock("r", TTL, fair=True).acquire()
        watcher.result(DEADLINE)
    nothing_left(masters)


@pytest.mark.usefixtures("patient")
def test_cancelled_while_it_waits(masters: Masters, aclient: MakeAio, raw: Raw, wait: str) -> None:
    nodes = raw(masters)

    async def main() -> None:
        async with aclient(masters, wait=wait) as c, c.lock("r", TTL, fair=True):
            tasks = [asyncio.create_task(c.lock("r", TTL, fair=True).acquire()) for _ in range(3)]
            await until(
                lambda: sum(map(len, core_of(c).policy.local_queue.waiting.values())) == 3, "they wait"
            )
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(end, asyncio.CancelledError) for end in ends)
            await until(lambda: all(queue(node) == [] for node in nodes), "they have left")
        await until(lambda: all(node.dbsize() == 0 for node in nodes), "nothing is left")

    asyncio.run(main())


def test_dies_while_it_waits(
    masters: Masters, connected: MakeClient, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is sent any more, and its place goes with its lease."""
    nodes, c = raw(masters), connected(masters)
    with held(c):
        other = connected(masters)
        monkeypatch.setattr(core_of(other).policy.server_entries, "close", list)
        monkeypatch.setattr(fair, "ENTRY_TTL", 0.5)
        trying = start(other.lock("r", TTL, fair=True).acquire)
        waiting(nodes, 1)
        other.close()
        assert trying.exception(DEADLINE) is not None
    nothing_left(masters)


def test_an_exception_in_the_body(masters: Masters, connected: MakeClient) -> None:
    c = connected(masters)
    with pytest.raises(ZeroDivisionError), c.lock("r", TTL, fair=True):
        raise ZeroDivisionError
    nothing_left(masters)


# --- what every lock can ------------------------------------------------------------------------------


def test_what_a_plain_lock_can(masters: Masters, plain: MakePlain) -> None:
    c = plain(masters).at_full_strength()
    lock = c.lock("r", TTL / 2, fair=True)
    assert c.wait(lock.acquire())
    assert lock.locked()
    lock.check()
    before = lock.remaining()
    assert c.wait(lock.extend(TTL)) > before
    assert c.locked("r")
    others = [c.lock(f"r{n}", TTL / 2, fair=True) for n in range(3)]
    assert [c.wait(one.acquire()) for one in others] == [True] * 3
    assert c.extend_many([lock, *others], TTL) == [True] * 4
    assert c.release_many([lock, *others]) == [True] * 4
    assert not c.wait(lock.release())
    nothing_left(masters)


def test_renewal_and_its_loss(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    lost = threading.Event()
    c = connected(masters)
    lock = c.lock("r", 2.0, fair=True, auto_extend=True, on_lost=lambda *_: lost.set())
    assert lock.acquire()
    eventually(lambda: c.stats().renewed, "it is renewed")
    for node in raw(masters):
        wipe(node)
    assert lost.wait(DEADLINE)
    assert not lock.release()
    nothing_left(masters)


def test_marker_keeps_its_vote(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    c = connected(masters, restart_guard="marker", assume_fresh=True, max_ttl=TTL)
    with c.lock("r", TTL, fair=True):
        pass
    for node in raw(masters)[:3]:
        wipe(node)
    with pytest.raises(Exception, match="GUARDED"):
        c.lock("r", TTL, fair=True).acquire(blocking=False)


def test_groups(valkey: Masters, engine_name: str) -> None:
    with ShardedRedlock([valkey.urls[:3]], engine=engine_name, **PATIENT) as c:
        with c.lock("r", TTL, fair=True) as lock:
            assert lock.locked()
        with pytest.raises(ConfigError, match="fencing"):
            c.lock("r", fair=True, fencing=True)
