"""Clients and their loops: one loop for each client, what happens at the end, and what is given back."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import redis
from support.dialling import dialling
from support.event_loops import (
    MakeLoop,
    at_full_strength,
    clean,
    each_loop,
    on_loops,
    open_files,
    pending_futures,
    run,
    timers,
    until,
)
from support.forking import exit_code, fork_child, needs_fork
from support.keys import TTL, nothing_left, occupy, paused, sizes, values, wipe
from support.nesting import NestingLoop
from support.waiting import DEADLINE, eventually

from redlock_fast import AsyncFastRedlock, ClientClosed, RedlockError, Retry, WrongLoop
from redlock_fast.embedded import Masters

MakeAio = Callable[..., AsyncFastRedlock]
Raw = Callable[[Masters], list[redis.Redis]]


async def cycle(c: AsyncFastRedlock, key: str) -> None:
    async with c.lock(key, TTL):
        pass


def threads() -> int:
    """Of this library."""
    return sum(one.name.startswith("redlock-fast") for one in threading.enumerate())


def collected() -> bool:
    """True after a collection, for ``until``: the connector's thread may hold its client for a moment."""
    gc.collect()
    return True


# --- one loop for each client -------------------------------------------------------------------


@each_loop
def test_made_outside_of_any_loop(valkey: Masters, aclient: MakeAio, make_loop: MakeLoop) -> None:
    """It is the loop's that uses it first."""
    c = aclient(valkey)
    lock = c.lock("outside", TTL)

    async def main() -> None:
        assert await lock.acquire()
        assert await lock.release()
        await c.close()

    run(main, make_loop)
    nothing_left(valkey)


async def every_use(c: AsyncFastRedlock, error: type[Exception], *held: Any) -> None:
    """Is refused with that error."""
    for use in (
        c.connect,
        lambda: c.acquire("r", TTL),
        lambda: c.locked("r"),
        lambda: c.acquire_many(["r"]),
        c.lock("r", TTL).acquire,
        lambda: c.lock("r", TTL).acquire(blocking=False),
        c.lock("r", TTL).__aenter__,
        *(lock.extend for lock in held),
    ):
        with pytest.raises(error):
            await use()


@each_loop
def test_loops_one_after_the_other(valkey: Masters, aclient: MakeAio, make_loop: MakeLoop) -> None:
    """The classic of asyncio.run twice, with a client of the module. Nothing grows."""
    c = aclient(valkey)
    sizes = []

    async def main() -> None:
        await at_full_strength(c)
        await until(lambda: not dialling(), "the threads that connected have ended")
        await asyncio.gather(*(cycle(c, f"r:{number}") for number in range(5)))
        assert len(await c.acquire_many(["a", "b"], TTL)) == 2
        assert await c.locked("a")
        sizes.append((open_files(), threads()))

    async def last() -> None:
        await c.close()
        await every_use(c, ClientClosed)

    run(main, make_loop)
    for _ in range(5):
        for master in valkey:
            wipe(master)
        run(main, make_loop)
    assert sizes[1:] == sizes[:1] * 5
    assert [master.connections for master in c.health()] == [1] * 5
    run(last, make_loop)


@pytest.mark.filterwarnings("ignore:Using `httpx` with `starlette.testclient`")
def test_the_client_of_an_application_serves_each_test_client(valkey: Masters, aclient: MakeAio) -> None:
    """Each TestClient of Starlette has an event loop of its own."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route
    from starlette.testclient import TestClient

    c = aclient(valkey)

    async def page(_: Request) -> PlainTextResponse:
        async with c.lock("page", TTL) as lock:
            return PlainTextResponse(str(lock.locked()))

    for _ in range(2):
        with TestClient(Starlette(routes=[Route("/", page)])) as tests:
            assert tests.get("/").text == "True"
    asyncio.run(clean(valkey))
    asyncio.run(c.close())


@each_loop
def test_leases_outlive_their_loop(valkey: Masters, aclient: MakeAio, make_loop: MakeLoop) -> None:
    c = aclient(valkey)
    locks = [c.lock("one", TTL / 2), c.lock("two", TTL / 2)]

    async def first() -> None:
        for lock in locks:
            assert await lock.acquire()

    async def second() -> None:
        assert await locks[0].extend(TTL) > TTL / 2
        assert not await c.lock("one", TTL).acquire(blocking=False)
        assert [await lock.release() for lock in locks] == [True, True]
        await clean(valkey)
        await c.close()

    run(first, make_loop)
    assert all(lock.locked() for lock in locks)
    run(second, make_loop)


@each_loop
@pytest.mark.parametrize("kind", ["plain", "fair", "write"])
def test_tasks_that_wait_in_a_closed_loop(
    valkey: Masters, aclient: MakeAio, make_loop: MakeLoop, kind: str
) -> None:
    """They are never resumed, and have no place before the tasks of the next loop."""
    c = aclient(valkey)

    def lock() -> Any:
        return c.rwlock("r", TTL).write() if kind == "write" else c.lock("r", TTL, fair=kind == "fair")

    async def first() -> tuple[Any, list[asyncio.Task[bool]]]:
        holder = lock()
        assert await holder.acquire()
        before = c.stats().contended
        tasks = [asyncio.create_task(lock().acquire()) for _ in range(3)]
        await asyncio.sleep(0.1)
        assert not any(task.done() for task in tasks)
        assert c.stats().contended == before
        return holder, tasks

    async def second() -> None:
        waiting = asyncio.create_task(lock().acquire(timeout=DEADLINE))
        await asyncio.sleep(0.1)
        assert await holder.release()
        assert await waiting
        await c.close()

    loop = make_loop()
    complaints: list[str] = []
    loop.set_exception_handler(lambda _, context: complaints.append(context["message"]))
    holder, tasks = loop.run_until_complete(first())
    loop.close()
    run(second, make_loop)
    assert not any(task.done() for task in tasks)
    tasks.clear()
    eventually(lambda: collected() and len(complaints) == 3, "the tasks are thrown away")
    assert set(complaints) == {"Task was destroyed but it is pending!"}


@each_loop
def test_a_release_that_a_master_missed_goes_out_after_its_loop(
    valkey: Masters, aclient: MakeAio, raw: Raw, make_loop: MakeLoop
) -> None:
    c = aclient(valkey)

    async def first() -> None:
        await at_full_strength(c)
        lock = await c.acquire("r", TTL)
        assert lock
        await until(lambda: values(raw(valkey), "r") == [lock.token] * 5, "all have the key")
        valkey[0].pause()
        assert await lock.release()

    try:
        run(first, make_loop)
    finally:
        valkey[0].resume()
    eventually(lambda: values(raw(valkey), "r") == [None] * 5, "the key is gone")
    run(c.close, make_loop)


@each_loop
def test_two_loops_after_a_closed_one(valkey: Masters, aclient: MakeAio, make_loop: MakeLoop) -> None:
    """In two threads at the same time: one of them has the client then."""
    c = aclient(valkey)
    both = threading.Barrier(2)
    outcomes: list[str] = []

    async def use() -> None:
        both.wait(DEADLINE)
        try:
            await cycle(c, "r")
            outcomes.append("served")
        except WrongLoop:
            outcomes.append("refused")
        both.wait(DEADLINE)  # the loop stays open

    for turn in range(1, 11):
        run(lambda: cycle(c, "r"), make_loop)
        users = [threading.Thread(target=run, args=(use, make_loop)) for _ in range(2)]
        for user in users:
            user.start()
        for user in users:
            user.join()
        assert sorted(outcomes) == ["refused"] * turn + ["served"] * turn
    run(c.close, make_loop)


@each_loop
def test_an_open_loop_keeps_its_client(valkey: Masters, aclient: MakeAio, make_loop: MakeLoop) -> None:
    """Also where it does not run."""
    c = aclient(valkey)
    loop = make_loop()
    loop.run_until_complete(cycle(c, "r"))
    run(lambda: every_use(c, WrongLoop), make_loop)
    assert issubclass(WrongLoop, RedlockError)
    assert issubclass(WrongLoop, RuntimeError)
    assert len(c.health()) == 5
    loop.run_until_complete(c.close())
    loop.close()


def test_a_task_that_runs_the_loop_inside_of_itself(valkey: Masters, aclient: MakeAio) -> None:
    """What nest_asyncio allows, while a lock is held. Catches: a callback that runs inside of itself, and
    requests that stay unsent until the outer one is done.
    """
    c = aclient(valkey)

    async def use(number: int) -> int:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, NestingLoop)
        async with c.lock(f"outer:{number}", TTL):
            loop.nested(cycle(c, f"inner:{number}"))
        await cycle(c, f"inner:{number}")
        return number

    async def main() -> None:
        async with c:
            await cycle(c, "first")
            async with asyncio.timeout(DEADLINE):
                assert await asyncio.gather(*map(use, range(4))) == [0, 1, 2, 3]

    run(main, NestingLoop)
    nothing_left(valkey)


@each_loop
def test_another_loop_beside_the_first(valkey: Masters, aclient: MakeAio, make_loop: MakeLoop) -> None:
    """In another thread, while the first one works; that one is not disturbed."""
    c = aclient(valkey)

    async def first() -> None:
        async with c:
            await cycle(c, "first")
            held = await c.acquire("held", TTL / 2)
            other = asyncio.create_task(
                asyncio.to_thread(run, lambda: every_use(c, WrongLoop, held), make_loop)
            )
            turns = 0
            while not other.done():
                await cycle(c, "first")
                turns += 1
            await other
            assert turns
            assert held
            assert await held.release() is True
            await clean(valkey)

    run(first, make_loop)


@each_loop
def test_closed_is_closed_in_every_loop(valkey: Masters, aclient: MakeAio, make_loop: MakeLoop) -> None:
    c = aclient(valkey)

    async def first() -> None:
        await cycle(c, "r")
        await c.close()
        await every_use(c, ClientClosed)

    async def second() -> None:
        await every_use(c, ClientClosed)
        await c.close()

    run(first, make_loop)
    run(second, make_loop)


@each_loop
def test_debug_mode_of_the_loop(valkey: Masters, aclient: MakeAio, make_loop: MakeLoop) -> None:
    """It finds calls from other threads."""

    async def main() -> None:
        asyncio.get_running_loop().slow_callback_duration = DEADLINE
        async with aclient(valkey) as c:
            await asyncio.gather(*(cycle(c, "debug") for _ in range(10)))
            valkey[0].kill()
            await asyncio.gather(*(cycle(c, f"debug:{number}") for number in range(10)))
            await clean(valkey)

    run(main, make_loop, debug=True)


# --- the end ------------------------------------------------------------------------------------


@pytest.mark.parametrize("waits_for", ["others", "a long pause", "masters", "connections"])
@on_loops
async def test_close_ends_those_that_wait(
    valkey: Masters, aclient: MakeAio, raw: Raw, waits_for: str
) -> None:
    """With an error, long before their own time is over."""
    occupy(raw(valkey), "held")
    retry = Retry(600.0, 600.0) if waits_for == "a long pause" else Retry()
    urls: list[str] = valkey.urls
    if waits_for == "connections":
        urls = [f"redis://127.0.0.1:{port}" for port in (1, 2, 3)]
    c = aclient(urls, node_timeout=300.0, connect_timeout=300.0, retry=retry)
    with paused(valkey, *((0, 1, 2) if waits_for == "masters" else ())):
        if waits_for.endswith(("others", "pause")):
            await c.connect()
        tasks: list[asyncio.Task[Any]] = [
            asyncio.create_task(c.lock("held", TTL).acquire()) for _ in range(20)
        ]
        tasks += [asyncio.create_task(c.lock("held", TTL).__aenter__()) for _ in range(20)]
        await asyncio.sleep(0.1)  # whatever they wait for by then
        assert not any(task.done() for task in tasks)
        async with asyncio.timeout(DEADLINE):
            await c.close()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(end) for end in ended if not isinstance(end, RedlockError)] == []


@on_loops
async def test_close_while_releases_are_under_way(valkey: Masters, aclient: MakeAio) -> None:
    """What was asked before is still done."""
    for turn in range(10):
        c = aclient(valkey)
        locks = [c.lock(f"close:{turn}:{number}", TTL) for number in range(50)]
        assert all(await asyncio.gather(*(lock.acquire() for lock in locks)))
        tasks = [asyncio.create_task(lock.release()) for lock in locks]
        await asyncio.sleep(0)
        await c.close()
        async with asyncio.timeout(DEADLINE):
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(end in (True, False) or isinstance(end, RedlockError) for end in ended)
    await clean(valkey)


@on_loops
@pytest.mark.parametrize("threads", [True, False])
async def test_two_tasks_close_while_acquires_are_under_way(
    valkey: Masters, aclient: MakeAio, threads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches: the second close unbinds from the loop at once: the acquires wait for ever."""
    c = aclient(valkey, node_timeout=300.0)
    await c.connect()
    if not threads:

        def refuse(*_: object) -> None:
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr("redlock_fast.aio.loop.start_thread", refuse)
    with paused(valkey, 0, 1, 2):
        tasks = [asyncio.create_task(c.lock(f"two:{number}", TTL).acquire()) for number in range(10)]
        await until(lambda: c.health()[0].pending >= 10, "the acquires are under way")
        async with asyncio.timeout(DEADLINE):
            first = asyncio.create_task(c.close())
            await asyncio.gather(c.close(), c.close(), first)
            ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(end, ClientClosed) for end in ended), ended
    await clean(valkey)


@on_loops
async def test_nothing_is_left_of_closed_clients(masters: Masters, aclient: MakeAio) -> None:
    """Tasks, futures, timers, descriptors, threads."""

    async def life(number: int) -> None:
        async with aclient(masters) as c:
            await asyncio.gather(*(cycle(c, f"life:{number}:{n}") for n in range(10)))
            holder = await c.acquire(f"life:{number}", TTL)
            assert not await c.lock(f"life:{number}", TTL).acquire(blocking=False)
            assert holder
            await holder.release()

    await life(0)
    before = (pending_futures(), timers(), threads())
    files = open_files()
    for number in range(10):
        await life(number)
        assert pending_futures() <= before[0]  # collects garbage, too
        assert timers() <= before[1]
    await until(lambda: threads() <= before[2], "the threads end")
    await until(lambda: collected() and open_files() <= files, "the descriptors are closed")
    await clean(masters)


@each_loop
def test_loop_that_is_closed_without_closing_the_client(
    valkey: Masters, aclient: MakeAio, make_loop: MakeLoop
) -> None:
    """No warning, no hang; what it had goes with the client."""
    make_loop().close()  # the first loop of a process opens descriptors that stay
    gc.collect()
    files, before = open_files(), threads()
    clients: list[AsyncFastRedlock] = []

    async def main() -> None:
        clients.append(aclient(valkey))
        await asyncio.gather(*(cycle(clients[-1], f"closed:{n}") for n in range(10)))

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(5):
            run(main, make_loop)
        clients.clear()
        eventually(lambda: collected() and threads() <= before, "the threads end")
        eventually(lambda: collected() and open_files() <= files, "the descriptors are closed")
    assert len(caught) <= 5, "at most one for each client"
    nothing_left(valkey)


@each_loop
def test_loop_that_is_closed_while_tasks_wait(
    valkey: Masters, aclient: MakeAio, raw: Raw, make_loop: MakeLoop
) -> None:
    """Their coroutines are thrown away later, with no loop to do anything: that must raise nothing."""
    occupy(raw(valkey), "held")
    before = threads()
    complaints: list[str] = []
    loop = make_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(context["message"]))
    clients = [aclient(valkey)]

    async def main() -> list[asyncio.Task[bool]]:
        c = clients.pop()
        await c.connect()
        keys = ["held"] * 10 + [f"free:{number}" for number in range(10)]
        # Short leases: as long as one lasts, the client is there to release it at exit.
        tasks = [asyncio.create_task(c.lock(key, 1.0).acquire()) for key in keys]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return tasks

    waiting = loop.run_until_complete(main())
    count = sum(not task.done() for task in waiting)
    assert count >= 10
    loop.close()
    waiting.clear()

    eventually(lambda: collected() and len(complaints) == count, "the tasks are thrown away")
    assert set(complaints) == {"Task was destroyed but it is pending!"}
    eventually(lambda: threads() <= before, "the threads end")


@each_loop
def test_a_lock_that_a_closed_loop_was_granted_is_free_soon(
    valkey: Masters, aclient: MakeAio, raw: Raw, make_loop: MakeLoop
) -> None:
    """The program keeps the client, and does not use it. Catches: a grant that no task reads any more."""
    c = aclient(valkey, node_timeout=300.0)
    loop = make_loop()
    loop.set_exception_handler(lambda *_: None)
    loop.run_until_complete(c.connect())
    servers = raw(valkey)

    def sets() -> list[int]:
        return [server.info("commandstats").get("cmdstat_set", {}).get("calls", 0) for server in servers]

    before = sets()
    with paused(valkey, *range(5)):
        task = loop.create_task(c.lock("granted", TTL).acquire())
        loop.call_soon(loop.stop)
        loop.run_forever()
        assert not task.done()
        loop.close()
        del task
    eventually(lambda: all(now > then for now, then in zip(sets(), before, strict=True)), "they grant it")
    eventually(lambda: collected() and set(sizes(valkey)) == {0}, "it is undone")


# --- fork ---------------------------------------------------------------------------------------


@needs_fork
@pytest.mark.usefixtures("all_masters")
@each_loop
def test_fork_while_the_loop_runs(valkey: Masters, aclient: MakeAio, raw: Raw, make_loop: MakeLoop) -> None:
    """The child makes its own loop and client, and has none of the parent's locks; the parent goes on."""

    async def in_child() -> None:
        async with aclient(valkey) as own:
            await asyncio.gather(*(cycle(own, f"child:{number}") for number in range(10)))
            assert await own.lock("parents", TTL).acquire(blocking=False) is False

    async def main() -> None:
        async with aclient(valkey) as c:
            await at_full_strength(c)
            lock = await c.acquire("parents", TTL)
            assert lock
            await until(lambda: values(raw(valkey), "parents") == [lock.token] * 5, "all have the key")
            stop = asyncio.Event()
            busy = [asyncio.create_task(keep_busy(c, stop, number)) for number in range(8)]
            token = lock.token

            def child() -> None:
                assert not lock.locked()
                assert lock.token is None
                with asyncio.Runner(loop_factory=make_loop) as runner:
                    runner.run(in_child())

            for _ in range(3):
                pid = fork_child(child)
                assert await asyncio.to_thread(exit_code, pid) == 0
            stop.set()
            assert min(await asyncio.gather(*busy)) > 0
            assert lock.token == token
            assert values(raw(valkey), "parents") == [token] * 5
            assert await lock.release() is True
            assert [(master.faults, master.connections) for master in c.health()] == [(0, 1)] * 5
            await clean(valkey)

    run(main, make_loop)


async def keep_busy(c: AsyncFastRedlock, stop: asyncio.Event, number: int) -> int:
    done = 0
    while not stop.is_set():
        await cycle(c, f"busy:{number}")
        done += 1
    return done
