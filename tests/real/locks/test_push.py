"""Waiting for a lock without polling: the masters push when it is free."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import redis
from support.event_loops import (
    at_full_strength,
    clean,
    on_loops,
    open_files,
    pending_futures,
    timers,
    until,
)
from support.inside import core_of
from support.keys import OTHER_CLIENT, TTL, calls, forget_calls, nothing_left, occupy, paused, wipe
from support.makers import MakeClient, MakePlain, Raw
from support.waiting import DEADLINE, answered, eventually, start

from redlock_fast import AsyncFastRedlock, ClientClosed, ConfigError, FastRedlock, Retry
from redlock_fast.algorithm.attempts import RetryLoop
from redlock_fast.embedded import Masters
from redlock_fast.engine.contract import Request

#: A client does not ask a master that lags, nor watches it.
pytestmark = pytest.mark.usefixtures("all_masters")

MakeAsync = Callable[..., AsyncFastRedlock]

COMPARE_AND_DELETE = "if redis.call('get',KEYS[1])==ARGV[1] then redis.call('del',KEYS[1]) return 1 end"


@pytest.fixture
def push_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiting client does not poll before the test has failed."""
    monkeypatch.setattr("redlock_fast.algorithm.attempts.REARM", 10 * DEADLINE)


@pytest.fixture
def free_again(valkey: Masters, raw: Raw) -> Iterator[list[redis.Redis]]:
    """Connections to the masters, which let every user in again at the end."""
    nodes = raw(valkey)
    yield nodes
    for node in nodes:
        node.acl_setuser("default", enabled=True, nopass=True, keys="*", channels="*", commands=["+@all"])


def watched(nodes: list[redis.Redis]) -> list[int]:
    """The number of keys that each master tracks for its clients."""
    return [int(node.info("stats")["tracking_total_keys"]) for node in nodes]


def wait_for(c: Any, nodes: list[redis.Redis], key: str = "r") -> Any:
    """A thread that acquires ``key``, and now waits for a push of any master."""
    waiting = start(lambda: c.acquire(key, TTL))
    eventually(lambda: all(watched(nodes)) or waiting.done(), "it waits")
    assert not waiting.done()
    return waiting


# --- which pushes wake a waiting client ---------------------------------------------------------------


@pytest.mark.usefixtures("push_only")
def test_a_release_is_pushed(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    """With one round of commands between the release and the grant, and none while it waits."""
    nodes = raw(masters)
    a, b = connected(masters, decide="all"), connected(masters, decide="all")
    for _ in range(5):
        held = a.acquire("r", TTL)
        assert held
        waiting = wait_for(b, nodes)
        forget_calls(nodes)
        assert held.release()
        lock = waiting.result(DEADLINE)
        assert calls(nodes, "set") == [1] * 5
        assert calls(nodes, "pttl") == [0] * 5
        assert lock.release()
    assert b.stats().contended == 0
    nothing_left(masters)


@pytest.mark.usefixtures("push_only")
@pytest.mark.parametrize("release", ["delete", "script", "expire at once", "flush"])
def test_any_release_is_pushed(masters: Masters, connected: MakeClient, raw: Raw, release: str) -> None:
    """No matter how, and by which client: and on no more masters than a quorum."""
    nodes = raw(masters)
    occupy(nodes, "r")
    waiting = wait_for(connected(masters), nodes)
    for node in nodes[1:4]:
        if release == "delete":
            node.delete("r")
        elif release == "script":
            assert node.eval(COMPARE_AND_DELETE, 1, "r", OTHER_CLIENT) == 1
        elif release == "expire at once":
            node.pexpire("r", -1)
        else:
            wipe(node)
    lock = waiting.result(DEADLINE)
    assert [node.get("r") == lock.token for node in nodes] == [False, True, True, True, False]
    assert lock.release()


@pytest.mark.usefixtures("push_only")
def test_a_holder_that_dies(plain: MakePlain, masters: Masters, raw: Raw) -> None:
    """No push reports that in time: it is known when its lease ends on a quorum."""
    c, nodes = plain(masters).at_full_strength(), raw(masters)
    for number, node in enumerate(nodes):
        node.set("r", OTHER_CLIENT, px=600_000 if number > 2 else 300 + 100 * number)
    lock = c.acquire("r", TTL)
    assert lock
    assert [node.get("r") == lock.token for node in nodes] == [True, True, True, False, False]
    assert c.wait(lock.release())


@pytest.mark.usefixtures("push_only")
def test_an_extension_is_no_release(masters: Masters, connected: MakeClient, raw: Raw) -> None:
    """A push reports it, too: the waiting client asks, and waits on."""
    nodes = raw(masters)
    held = connected(masters, decide="all").acquire("r", TTL / 2)
    assert held
    waiting = wait_for(connected(masters), nodes)
    forget_calls(nodes)
    assert held.extend(TTL)
    eventually(lambda: min(calls(nodes, "pttl")) >= 1, "it has looked")
    assert not waiting.done()
    assert held.release()
    assert waiting.result(DEADLINE).release()


# --- masters that cannot push, or not any more -----------------------------------------------------


@pytest.mark.usefixtures("push_only")
def test_connections_that_were_lost_while_waiting(plain: MakePlain, masters: Masters, raw: Raw) -> None:
    """The new connections have no watch. Catches: a client that waits for pushes that no master owes it."""
    c, nodes = plain(masters).at_full_strength(), raw(masters)
    occupy(nodes, "r")
    waiting = start(lambda: c.acquire("r", TTL))
    eventually(lambda: all(watched(nodes)), "it waits")
    for node in nodes[:3]:
        assert node.execute_command("CLIENT", "KILL", "TYPE", "normal") >= 1
    back = lambda: [m.connections for m in c.client.health()[:3]] == [2] * 3  # noqa: E731
    eventually(back, "they are back")
    for node in nodes[:3]:
        node.delete("r")
    lock = waiting.result(DEADLINE)
    assert lock
    c.wait(lock.release())


@pytest.mark.usefixtures("push_only")
def test_a_minority_that_is_down_or_stopped(plain: MakePlain, valkey: Masters, raw: Raw) -> None:
    nodes = raw(valkey)
    c = plain(valkey, node_timeout=0.2).at_full_strength()
    occupy(nodes, "r")
    valkey[0].kill()
    with paused(valkey, 1):
        waiting = start(lambda: c.acquire("r", TTL))
        eventually(lambda: all(watched(nodes[2:])), "it waits")
        for node in nodes[2:]:
            node.delete("r")
        lock = waiting.result(DEADLINE)
        assert lock
    c.wait(lock.release())
    valkey[0].restart()


@pytest.mark.usefixtures("push_only")
def test_masters_that_are_slow_to_undo_a_round(
    plain: MakePlain, valkey: Masters, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All refuse. Before the round is undone, two stop, and one has granted late.

    So the release of the round, which goes out with the watch, has no quorum of either kind of reply.
    Catches: a caller that waits for those replies although its watch has ended.
    """
    c, nodes, stopped = plain(valkey).at_full_strength(), raw(valkey), contextlib.ExitStack()
    occupy(nodes, "r")
    real = RetryLoop._rollback_requests

    def late(loop: RetryLoop) -> list[Request]:
        monkeypatch.setattr(RetryLoop, "_rollback_requests", real)
        nodes[4].set("r", loop.acquire.token)
        stopped.enter_context(paused(valkey, 0, 1))
        return real(loop)

    monkeypatch.setattr(RetryLoop, "_rollback_requests", late)
    with stopped:
        waiting = start(lambda: c.acquire("r", TTL))
        eventually(lambda: all(watched(nodes[2:])), "it waits")
        for node in nodes[2:4]:
            node.delete("r")
        lock = waiting.result(DEADLINE)
        assert lock
    c.wait(lock.release())


@pytest.mark.parametrize("refused", ["tracking", "caching", "resp2"])
def test_where_masters_cannot_push(
    valkey: Masters, plain: MakePlain, free_again: list[redis.Redis], refused: str
) -> None:
    """The client looks again and again, and waits no longer for that."""
    urls = [f"{url}?protocol=2" if refused == "resp2" else url for url in valkey.urls]
    for node in free_again:
        if refused != "resp2":
            node.acl_setuser("default", enabled=True, nopass=True, commands=["+@all", f"-client|{refused}"])
    c = plain(urls).at_full_strength()
    occupy(free_again, "r")
    before = [calls([node], "set")[0] for node in free_again]
    waiting = start(lambda: c.acquire("r", TTL))
    for node, tries in zip(free_again, before, strict=True):
        eventually(lambda node=node, tries=tries: calls([node], "set")[0] > tries + 3, "it looks")
        node.delete("r")
    assert c.wait(waiting.result(DEADLINE).release())
    if refused != "caching":
        assert [master.push for master in c.client.health()] == [False] * 5


def test_push_or_nothing(valkey: Masters, plain: MakePlain, free_again: list[redis.Redis]) -> None:
    for node in free_again:
        node.acl_setuser("default", enabled=True, nopass=True, commands=["+@all", "-client|tracking"])
    c = plain(valkey, wait="push")
    with pytest.raises(ConfigError, match="wait='auto'"):
        c.acquire("r", TTL)


def test_push_and_poll_where_masters_can(plain: MakePlain, valkey: Masters, raw: Raw) -> None:
    """Clients that poll take no memory on the masters."""
    nodes = raw(valkey)
    for wait, watches in (("push", True), ("poll", False)):
        c = plain(valkey, wait=wait).at_full_strength()
        assert [master.push for master in c.client.health()] == [watches] * 5
        occupy(nodes, "r")
        waiting = start(partial(c.acquire, "r", TTL))
        if watches:
            eventually(lambda: all(watched(nodes)), "it waits")
        else:
            forget_calls(nodes[:1])
            eventually(lambda: calls(nodes, "set")[0] > 3, "it tries")
            assert watched(nodes) == [0] * 5
        for node in nodes:
            node.delete("r")
        assert c.wait(waiting.result(DEADLINE).release())
    with pytest.raises(ConfigError, match="wait must be one of auto, push, poll"):
        FastRedlock(valkey.urls, wait="pull")


# --- the local queue -------------------------------------------------------------------------------


@pytest.mark.usefixtures("push_only")
def test_one_of_a_client_asks_and_all_are_served_in_turn(
    valkey: Masters, connected: MakeClient, raw: Raw
) -> None:
    nodes, c = raw(valkey), connected(valkey)
    occupy(nodes, "r")
    forget_calls(nodes)
    order: list[int] = []

    def work(number: int) -> None:
        with c.lock("r", TTL):
            order.append(number)

    threads = []
    for number in range(8):
        threads.append(start(partial(work, number)))
        eventually(
            lambda number=number: len(core_of(c).policy.local_queue.waiting.get(b"r", ())) == number + 1,
            "in line",
        )
    eventually(lambda: all(watched(nodes)), "the first waits")
    assert max(calls(nodes, "pttl")) <= 1 + 1, "only the first asks, again where a master was late"
    for node in nodes:
        node.delete("r")
    for thread in threads:
        thread.result(DEADLINE)
    assert order == list(range(8))
    assert core_of(c).policy.local_queue.waiting == {}
    nothing_left(valkey)


@pytest.mark.usefixtures("push_only")
def test_a_waiter_that_gives_up_leaves_the_queue(valkey: Masters, connected: MakeClient, raw: Raw) -> None:
    """The first, the last and one between them; and the next waiter is woken."""
    nodes, c = raw(valkey), connected(valkey)
    occupy(nodes, "r")
    timeouts = [0.3, -1.0, 0.2, -1.0, 0.1]
    threads = []
    for number, timeout in enumerate(timeouts):
        threads.append(start(partial(answered, partial(c.lock("r", TTL).acquire, timeout=timeout))))
        eventually(
            lambda number=number: number < len(core_of(c).policy.local_queue.waiting.get(b"r", ())) + 3,
            "in line",
        )
    assert [threads[number].result(DEADLINE) for number in (0, 2, 4)] == [False] * 3
    eventually(lambda: len(core_of(c).policy.local_queue.waiting[b"r"]) == 2, "they have left")
    for node in nodes:
        node.delete("r")
    done = [threads[1], threads[3]]
    eventually(lambda: any(one.done() for one in done), "the next is woken")
    assert [one.result(DEADLINE) for one in done if one.done()] == [True]
    for node in nodes:
        node.delete("r")
    assert [one.result(DEADLINE) for one in done] == [True] * 2


@pytest.mark.usefixtures("push_only")
def test_close_ends_all_waits(
    valkey: Masters, connected: MakeClient, raw: Raw, caplog: pytest.LogCaptureFixture
) -> None:
    nodes, c = raw(valkey), connected(valkey)
    occupy(nodes, "r")
    waiting = [start(lambda: c.acquire("r", TTL)) for _ in range(4)]
    eventually(
        lambda: len(core_of(c).policy.local_queue.waiting.get(b"r", ())) == 4 and all(watched(nodes)),
        "they wait",
    )
    c.close()
    for one in waiting:
        with pytest.raises(ClientClosed):
            one.result(DEADLINE)
    assert core_of(c).policy.local_queue.waiting == {}
    assert "master-fault" not in caplog.text, "no master failed"


@pytest.mark.usefixtures("push_only")
@on_loops
async def test_cancelled_waits_leave_nothing(valkey: Masters, aclient: MakeAsync, raw: Raw) -> None:
    """While it is first and while it is not; and the others are served."""
    nodes = raw(valkey)
    async with aclient(valkey) as c:
        await at_full_strength(c)
        held = await c.acquire("r", TTL)
        assert held
        tasks = [asyncio.create_task(c.acquire("r", TTL)) for _ in range(6)]
        await until(
            lambda: all(watched(nodes)) and len(core_of(c).policy.local_queue.waiting[b"r"]) == 6, "they wait"
        )
        for number in (0, 3, 5):
            tasks[number].cancel()
        await asyncio.gather(*(tasks[number] for number in (0, 3, 5)), return_exceptions=True)
        assert len(core_of(c).policy.local_queue.waiting[b"r"]) == 3
        await held.release()
        for number in (1, 2, 4):
            lock = await tasks[number]
            assert lock
            assert await lock.release()
        assert core_of(c).policy.local_queue.waiting == {}
        await clean(valkey)


@pytest.mark.usefixtures("push_only")
@on_loops
async def test_the_end_of_a_lease_wakes_while_nothing_else_happens(
    valkey: Masters, aclient: MakeAsync, raw: Raw
) -> None:
    """The time that the masters named comes earlier than the loop's timer was set to."""
    async with aclient(valkey) as c:
        await at_full_strength(c)
        for node in raw(valkey):
            node.set("r", OTHER_CLIENT, px=300)
        began = time.monotonic()
        lock = await c.acquire("r", TTL)
        assert lock
        assert time.monotonic() - began < DEADLINE
        assert await lock.release()


# --- what is left behind -----------------------------------------------------------------------------


@on_loops
async def test_five_thousand_waits_leave_nothing(valkey: Masters, aclient: MakeAsync, raw: Raw) -> None:
    """With both engines and both loops together. No watch on a master, no handler, no future, no timer,
    no file.
    """
    nodes = raw(valkey)
    async with aclient(valkey) as a, aclient(valkey) as b:
        await at_full_strength(a)
        await at_full_strength(b)
        before = None
        for _ in range(4):
            held = await a.acquire_many([f"r:{number}" for number in range(500)], TTL)
            tasks = [asyncio.create_task(b.acquire(f"r:{number}", TTL)) for number in range(500)]
            await until(lambda: len(core_of(b).policy.local_queue.waiting) == 500, "all wait")
            assert all(await a.release_many([lock for lock in held if lock]))
            locks = [lock for lock in await asyncio.gather(*tasks) if lock]
            assert all(await b.release_many(locks))
            assert len(locks) == 500
            tasks.clear()
            await clean(valkey)
            now = (len(threading.enumerate()), open_files(), pending_futures())
            before = before or now
        assert before
        assert all(after <= one for after, one in zip(now, before, strict=True)), (before, now)
        assert core_of(b).policy.local_queue.waiting == {}
        assert core_of(b).loop_binding()._watching == 0
        assert core_of(b).loop_binding()._pending == 0
        assert timers() <= 2, "one for each client"
        assert watched(nodes) == [0] * 5


def test_interrupted_while_it_waits(valkey: Masters, connected: MakeClient, raw: Raw) -> None:
    """KeyboardInterrupt in the main thread, which waits as the first of the queue."""
    import signal

    nodes, c = raw(valkey), connected(valkey)
    occupy(nodes, "r")
    main = threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        eventually(lambda: all(watched(nodes)), "it waits")
        signal.pthread_kill(main, signal.SIGINT)

    thread = start(interrupt)
    with pytest.raises(KeyboardInterrupt):
        c.acquire("r", TTL)
    thread.result(DEADLINE)
    assert core_of(c).policy.local_queue.waiting == {}
    for node in nodes:
        assert node.get("r") == OTHER_CLIENT
        node.delete("r")
    with c.lock("r", TTL):
        pass


def test_bounded_attempts_keep_their_bound(plain: MakePlain, valkey: Masters, raw: Raw) -> None:
    """Three attempts and the pauses between them: not as long as a holder likes."""
    c = plain(valkey, retry=Retry(min_delay=0.01, max_delay=0.02, max_attempts=3)).at_full_strength()
    occupy(raw(valkey), "r")
    with contextlib.suppress(TimeoutError):
        assert c.acquire("r", TTL) is None
    assert c.client.stats().contended == 1
