"""A plain lock that many clients want: they wait in a queue on the masters; a release wakes one of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial

import pytest
import redis
from support.event_loops import until
from support.keys import calls, forget_calls, nothing_left
from support.makers import MakeAio, MakeClient, Raw
from support.thorough import amount
from support.waiting import DEADLINE, PATIENT, eventually, start

from redlock_fast import FastRedlock
from redlock_fast.algorithm import attempts
from redlock_fast.embedded import Masters
from redlock_fast.locks import fair

TTL = 60.0
CLIENTS, TURNS = 8, amount(10, 30, twice=30)
pytestmark = pytest.mark.usefixtures("all_masters")


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller takes a place after its first refused round."""
    monkeypatch.setattr(attempts, "REFUSED_ROUNDS", 1)
    monkeypatch.setattr(attempts, "LONG_QUEUE", 0)


def queue(node: redis.Redis) -> list[bytes]:
    return node.zrange("{r}:q", 0, -1)


def waiting(nodes: list[redis.Redis], count: int) -> None:
    eventually(lambda: {len(queue(node)) for node in nodes} == {count}, f"{count} are in the queue")


def take_turns(clients: list[FastRedlock], all_wait: Callable[[], object]) -> None:
    """Each client takes the lock TURNS times, never two at a time. ``all_wait``: while it is held first."""
    holders, most, grants = [0], [0], [0] * len(clients)

    def take(number: int) -> None:
        for _ in range(TURNS):
            with clients[number].lock("r", TTL, timeout=3 * DEADLINE):
                holders[0] += 1
                most[0] = max(most[0], holders[0])
                grants[number] += 1
                holders[0] -= 1

    holder = clients[0].lock("r", TTL)
    assert holder.acquire()
    threads = [start(partial(take, number)) for number in range(len(clients))]
    all_wait()
    assert holder.release()
    for thread in threads:
        thread.result(4 * DEADLINE)
    assert (most, grants) == ([1], [TURNS] * len(clients))


def test_clients_take_turns_and_leave_nothing(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    nodes = raw(masters)
    clients = [connected(masters) for _ in range(CLIENTS)]
    take_turns(clients, lambda: waiting(nodes, CLIENTS))
    nothing_left(masters)


def test_tasks_take_turns(masters: Masters, aclient: MakeAio) -> None:
    holders, most, left = 0, 0, CLIENTS * TURNS

    async def main() -> None:
        async def take(number: int) -> None:
            nonlocal holders, most, left
            async with aclient(masters) as c:
                for _ in range(TURNS):
                    async with c.lock("r", TTL):
                        holders += 1
                        most = max(most, holders)
                        await asyncio.sleep(0)
                        holders -= 1
                        left -= 1

        await asyncio.gather(*map(take, range(CLIENTS)))

    asyncio.run(main())
    assert (most, left) == (1, 0)
    nothing_left(masters)


def test_a_release_wakes_one_of_many(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    """Catches: the herd, in which every release made each waiting client ask again."""
    nodes, holder = raw(masters), connected(masters).lock("r", TTL)
    assert holder.acquire()
    got, let_go = threading.Semaphore(0), threading.Semaphore(0)

    def take(client: FastRedlock) -> None:
        with client.lock("r", TTL, timeout=3 * DEADLINE):
            got.release()
            assert let_go.acquire(timeout=3 * DEADLINE)

    threads = [start(partial(take, connected(masters))) for _ in range(CLIENTS)]
    waiting(nodes, CLIENTS)
    forget_calls(nodes)
    assert holder.release()
    assert got.acquire(timeout=DEADLINE)
    eventually(lambda: all(found >= 1 for found in calls(nodes, "set")), "every master has been asked")
    assert all(found <= 2 for found in calls(nodes, "set")), "by one client; twice, if its votes were late"
    for _ in threads:
        let_go.release()
    for thread in threads:
        thread.result(3 * DEADLINE)
    nothing_left(masters)


def test_a_dead_head_does_not_keep_the_lock_free(
    masters: Masters, connected: MakeClient, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client whose turn comes has crashed: the next one asks anyway, before the dead place ends."""
    monkeypatch.setattr(fair, "ENTRY_TTL", 10 * DEADLINE)
    nodes, holder = raw(masters), connected(masters).lock("r", TTL)
    assert holder.acquire()
    for node in nodes:
        node.zadd("{r}:q", {b"dead": 0})
        node.zadd("{r}:e", {b"dead": 1e15})
    lock = connected(masters).lock("r", TTL)
    trying = start(partial(lock.acquire, timeout=3 * DEADLINE))
    waiting(nodes, 2)
    assert holder.release()
    assert trying.result(DEADLINE)
    assert lock.release()
    for node in nodes:
        assert node.delete("{r}:q", "{r}:e") == 2
    nothing_left(masters)


def test_masters_go_while_clients_queue(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    """One stays away, another one comes back without its queue."""
    nodes, holder = raw(masters), connected(masters).lock("r", TTL)
    assert holder.acquire()
    clients, served = [connected(masters) for _ in range(3)], list[int]()

    def take(number: int) -> None:
        with clients[number].lock("r", TTL, timeout=3 * DEADLINE):
            served.append(number)

    threads = [start(partial(take, number)) for number in range(3)]
    waiting(nodes, 3)
    masters[0].kill()
    masters[1].kill()
    masters[1].restart()
    assert holder.release()
    for thread in threads:
        thread.result(3 * DEADLINE)
    assert sorted(served) == [0, 1, 2]
    masters[0].restart()
    nothing_left(masters)


def test_the_end_of_a_wait_leaves_the_queue(masters: Masters, aclient: MakeAio, raw: Raw) -> None:
    nodes = raw(masters)

    async def main() -> None:
        async with aclient(masters) as c, aclient(masters) as other, c.lock("r", TTL):
            assert not await other.lock("r", TTL).acquire(timeout=0.2)
            waits = asyncio.create_task(other.lock("r", TTL).acquire())
            await until(lambda: all(queue(node) for node in nodes), "it waits")
            waits.cancel()
            await until(lambda: not any(queue(node) for node in nodes), "it has left")
        await until(lambda: all(node.dbsize() == 0 for node in nodes), "nothing is left")

    asyncio.run(main())


def test_a_user_without_rights_on_the_keys_of_a_queue(
    valkey: Masters, engine_name: str, raw: Raw, caplog: pytest.LogCaptureFixture
) -> None:
    """Its callers wait as two or three do, and the log says so once for each master."""
    nodes = raw(valkey)
    for node in nodes:
        node.acl_setuser("plain", enabled=True, passwords=["+secret"], keys=["r"], categories=["+@all"])
    urls = [url.replace("redis://", "redis://plain:secret@") for url in valkey.urls]
    options = {**PATIENT, "check_masters": "off", "restart_guard": "off", "engine": engine_name}
    try:
        with FastRedlock(urls, **options) as one, FastRedlock(urls, **options) as other:
            for client in (one, other):
                client.connect()

            def refused() -> int:
                return sum("NOPERM" in line.getMessage() for line in caplog.records)

            take_turns([one, other], lambda: eventually(refused, "a place was refused"))
            assert refused() <= 2 * len(nodes)
    finally:
        for node in nodes:
            node.acl_deluser("plain")
    nothing_left(valkey)
