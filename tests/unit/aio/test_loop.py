"""How tasks are woken by what an engine reports: together, once, whatever one of them does then."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support.inside import core_of

from redlock_fast import AsyncFastRedlock, WrongLoop
from redlock_fast.aio.future import ExchangeFuture
from redlock_fast.aio.loop import FLUSH_AT
from redlock_fast.engine.contract import Votes
from redlock_fast.wire.commands import Verb

GRANTED = [Votes((1, 1, 1, 1, 1), 31, 5, 0, 0, {})]


class Engine:
    """Grants everything, all at once, when it is asked to."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.sent: list[Any] = []
        self.forgotten: list[Any] = []
        self.flushed = 0
        self.sizes: list[int] = []  # of what went out, each time
        self._ends = os.pipe()

    def fileno(self) -> int:
        return self._ends[0]

    def submit(
        self, requests: Any, need: int, timeout: float, wait: int, stall: float, context: Any
    ) -> object:
        self.sent += requests
        if need:
            self.asked.append(context)
        return context

    def cancel(self, ticket: object) -> None:
        self.asked.remove(ticket)
        self.forgotten.append(ticket)

    def flush(self) -> None:
        self.flushed += 1
        self.sizes.append(len(self.sent) - sum(self.sizes))

    def on_ready(self) -> list[tuple[object, Any]]:
        completed, self.asked = [(context, GRANTED) for context in self.asked], []
        return completed

    def next_timeout(self) -> None:
        return None

    def verbs(self) -> list[Verb]:
        return [Verb(request.verb) for request in self.sent]

    def close_loop_fd(self) -> None:
        for end in self._ends:
            os.close(end)


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture
def c(engine: Engine, loop: asyncio.AbstractEventLoop) -> Iterator[AsyncFastRedlock]:
    client = AsyncFastRedlock([f"redis://127.0.0.1:{port}" for port in range(1, 6)], engine="python")
    core_of(client).masters.engine = engine  # type: ignore[assignment]
    core_of(client).client_state.ready = True
    yield client

    async def end() -> None:
        core_of(client).loop_binding().end()

    loop.run_until_complete(end())


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def tell(c: AsyncFastRedlock) -> None:
    """As the loop does when the engine has completed requests."""
    asyncio.get_running_loop().call_soon(core_of(c).loop_binding()._on_ready)


def test_woken_together(c: AsyncFastRedlock, engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
    """What they want next goes out at once, with one flush."""

    async def use(key: str) -> bool:
        lock = c.lock(key)
        return await lock.acquire() and await lock.release()

    async def main() -> None:
        tasks = [asyncio.create_task(use(f"key:{number}")) for number in range(10)]
        await turns()
        before = engine.flushed
        tell(c)
        await turns(2)
        assert engine.verbs() == [Verb.ACQUIRE] * 10 + [Verb.RELEASE] * 10
        assert engine.flushed == before + 1
        tell(c)
        assert await asyncio.gather(*tasks) == [True] * 10

    loop.run_until_complete(main())


def test_many_go_out_as_many_as_are_on_their_way(
    c: AsyncFastRedlock, engine: Engine, loop: asyncio.AbstractEventLoop
) -> None:
    """Requests are flushed before all are made, but not a few at a time while masters are busy."""
    many = 20 * FLUSH_AT

    async def main() -> None:
        tasks = [asyncio.create_task(c.lock(f"key:{number}").acquire()) for number in range(many)]
        await turns()
        sizes = engine.sizes
        assert sum(sizes) == many
        for number in range(1, len(sizes) - 1):  # the first went out alone, the last is what was left
            assert sizes[number] == max(FLUSH_AT, sum(sizes[:number])), sizes
        tell(c)
        assert all(await asyncio.gather(*tasks))

    loop.run_until_complete(main())


def test_others_while_tasks_are_woken(
    c: AsyncFastRedlock, engine: Engine, loop: asyncio.AbstractEventLoop
) -> None:
    """Then no check of the loop is made. A task of another loop gets WrongLoop all the same."""

    def elsewhere() -> None:
        asyncio.run(c.acquire("elsewhere"))  # type: ignore[arg-type]

    async def use() -> bool:
        lock = c.lock("key")
        await lock.acquire()
        with ThreadPoolExecutor(1) as threads:  # while this task is woken: its thread waits
            with pytest.raises(WrongLoop):
                threads.submit(elsewhere).result()
            with pytest.raises(RuntimeError, match="no running event loop"):
                threads.submit(core_of(c).loop_binding).result()
        return await lock.release()

    async def main() -> None:
        task = asyncio.create_task(use())
        for _ in range(2):
            await turns()
            tell(c)
        assert await task is True
        assert engine.verbs() == [Verb.ACQUIRE, Verb.RELEASE]

    loop.run_until_complete(main())


def test_cancelled_by_a_task_that_was_woken_with_it(
    c: AsyncFastRedlock, engine: Engine, loop: asyncio.AbstractEventLoop
) -> None:
    """The lock is granted, the task has no result yet, and releases it."""

    async def main() -> None:
        async def cancel() -> None:
            assert await c.lock("first").acquire() is True
            other.cancel()

        lock = c.lock("second")
        one = asyncio.create_task(cancel())
        other = asyncio.create_task(lock.acquire())
        await turns()
        tell(c)
        await asyncio.wait({one, other})
        assert other.cancelled()
        assert not lock.locked()
        assert engine.verbs() == [Verb.ACQUIRE, Verb.ACQUIRE, Verb.RELEASE]
        assert engine.sent[2].args == engine.sent[1].args[:2]
        assert engine.forgotten == []

    loop.run_until_complete(main())


def test_cancelled_is_not_woken(c: AsyncFastRedlock, engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
    async def main() -> None:
        lock = c.lock("key")
        task = asyncio.create_task(lock.acquire())
        await turns()
        task.cancel()
        task.cancel()
        tell(c)
        await asyncio.wait({task})
        assert task.cancelled()
        assert len(engine.forgotten) == 1
        assert engine.verbs() == [Verb.ACQUIRE, Verb.RELEASE]
        assert core_of(c).loop_binding()._pending == 0

    loop.run_until_complete(main())


def test_end_of_the_loop(c: AsyncFastRedlock, engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
    """A task that raises SystemExit ends the loop at once; the others go on when it runs again."""

    async def leave() -> None:
        await c.lock("leaving").acquire()
        raise SystemExit

    async def begin() -> None:
        tasks.append(asyncio.create_task(leave()))
        tasks.append(asyncio.create_task(c.lock("staying").acquire()))
        await turns()
        tell(c)
        await turns()

    tasks: list[asyncio.Task[Any]] = []
    with pytest.raises(SystemExit):
        loop.run_until_complete(begin())
    assert loop.run_until_complete(tasks[1]) is True
    assert isinstance(tasks[0].exception(), SystemExit)


def test_decided_inside_a_task(c: AsyncFastRedlock, engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
    """No task runs inside another one."""

    async def main() -> None:
        task = asyncio.create_task(c.lock("key").acquire())
        await turns()
        core_of(c).loop_binding()._on_ready()
        assert not task.done()
        assert await task is True

    loop.run_until_complete(main())


def test_answer_that_is_there(loop: asyncio.AbstractEventLoop) -> None:
    class Owner:
        def cancel(self, ticket: object) -> None:
            raise AssertionError

    async def main() -> Any:
        answer = ExchangeFuture(Owner(), loop)
        answer.answers = GRANTED
        assert answer.done()
        assert answer.cancel() is False
        answer.drop()
        answer.wake()  # no task waits
        await answer
        return answer.answers

    assert loop.run_until_complete(main()) is GRANTED


@pytest.mark.parametrize(
    ("first", "second", "later", "expected"),
    [
        ((0.6, 0.0), (0.5, 0.0), 0.58, 0.6),
        ((0.6, 0.0), (0.5, 0.0), 0.05, 0.55),
        ((0.6, 0.0), (0.7, 0.0), 0.0, 0.6),
        ((9.0, 2.0), (9.0, 0.5), 0.0, 0.5),
        ((0.5, 2.0), (0.5, 2.0), 0.0, 0.5),
    ],
    ids=["ends later", "ends earlier", "longer", "stall", "stall beyond the timeout"],
)
def test_the_timer_is_that_of_the_first_end(
    c: AsyncFastRedlock,
    loop: asyncio.AbstractEventLoop,
    first: tuple[float, float],
    second: tuple[float, float],
    later: float,
    expected: float,
) -> None:
    """Catches: a shorter exchange that begins later and moves the end of an earlier one."""
    now, timers = loop.time(), list[asyncio.TimerHandle]()
    begin, call_later = now, loop.call_later

    def record(*arguments: Any, **options: Any) -> asyncio.TimerHandle:
        timers.append(call_later(*arguments, **options))
        return timers[-1]

    async def main() -> None:
        nonlocal now
        binding = core_of(c).loop_binding()
        for timeout, stall in (first, second):
            binding.submit([], 3, timeout, 0, stall)
            now += later
        (timer,) = [one for one in timers if not one.cancelled()]
        assert timer.when() == pytest.approx(begin + expected)
        timer.cancel()

    loop.time, loop.call_later = lambda: now, record  # type: ignore[method-assign]
    loop.run_until_complete(main())
