"""Auto-extended locks for asyncio: as for threads, and the body of ``async with`` is cancelled."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from support.clocks import Jumping
from support.event_loops import MakeLoop, at_full_strength, clean, each_loop, on_loops, run, until
from support.inside import core_of
from support.keys import names, paused, wipe
from support.waiting import DEADLINE

from redlock_fast import AsyncFastRedlock, AsyncLock, LockLost
from redlock_fast.algorithm.renewal_schedule import GONE, LATE, MAX_EXTENSIONS
from redlock_fast.embedded import Masters

pytestmark = pytest.mark.usefixtures("all_masters")

MakeAio = Callable[..., AsyncFastRedlock]

TTL = 60.0
#: A little more than a third of it.
THIRD = 21.0


class LossRecorder:
    """``on_lost`` that remembers, as a coroutine function."""

    def __init__(self) -> None:
        self.losses: list[tuple[AsyncLock, str]] = []

    async def __call__(self, lock: AsyncLock, reason: str) -> None:
        await asyncio.sleep(0)
        self.losses.append((lock, reason))

    def reasons(self) -> list[str]:
        return [reason for _, reason in self.losses]


@pytest.fixture
def recorder() -> LossRecorder:
    return LossRecorder()


@pytest.fixture
def clock() -> Jumping:
    return Jumping()


async def held(c: AsyncFastRedlock, key: str = "kept", **options: Any) -> AsyncLock:
    lock = c.lock(key, auto_extend=True, **options)
    assert await lock.acquire(timeout=DEADLINE)
    return lock


# --- the next loop ---------------------------------------------------------------------------------


@each_loop
def test_renewal_goes_on_in_the_next_loop(
    masters: Masters, aclient: MakeAio, clock: Jumping, recorder: LossRecorder, make_loop: MakeLoop
) -> None:
    """With the first call there. A lease that ended in between is reported there, too."""
    c = aclient(masters, ttl=TTL, clock=clock)
    kept: list[AsyncLock] = []

    async def first() -> None:
        kept.extend(
            [await held(c, "kept", on_lost=recorder), await held(c, "short", ttl=TTL / 2, on_lost=recorder)]
        )
        waiting = asyncio.create_task(kept[1].lost.wait())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})

    async def second() -> None:
        await c.connect()
        await until(lambda: recorder.losses, "the loss is reported")
        assert recorder.losses == [(kept[1], LATE)]
        assert kept[1].lost.is_set()
        await renewed(c, 1)
        event = asyncio.create_task(kept[0].lost.wait())
        clock.jump(THIRD)
        await renewed(c, 2)
        assert kept[0].locked()
        assert not event.done()
        assert await kept[0].release()
        event.cancel()
        await asyncio.wait({event})
        assert not await kept[1].release()
        await c.close()

    run(first, make_loop)
    clock.jump(TTL / 2)
    run(second, make_loop)
    assert len(recorder.losses) == 1


@each_loop
def test_a_loop_closed_during_an_extension(
    valkey: Masters, aclient: MakeAio, clock: Jumping, recorder: LossRecorder, make_loop: MakeLoop
) -> None:
    """Its lease is scheduled again in the next loop, though nothing cancelled its task."""
    c = aclient(valkey, ttl=TTL, clock=clock, node_timeout=DEADLINE)
    loop = make_loop()
    loop.set_exception_handler(lambda _, context: None)  # "Task was destroyed but it is pending!"

    async def first() -> AsyncLock:
        lock = await held(c, "kept", on_lost=recorder)
        with paused(valkey, 0, 1, 2):
            clock.jump(THIRD)
            await until(lambda: core_of(c).renewal()._task, "it is being extended")
        return lock

    async def second() -> None:
        await c.connect()
        await renewed(c, 1)
        assert lock.locked()
        assert await lock.release()
        await c.close()

    lock = loop.run_until_complete(first())
    loop.close()
    run(second, make_loop)
    assert recorder.losses == []


@each_loop
def test_a_loop_closed_before_an_extension(
    valkey: Masters, aclient: MakeAio, clock: Jumping, recorder: LossRecorder, make_loop: MakeLoop
) -> None:
    """Its lease is scheduled again in the next loop, though its task has not begun."""
    c = aclient(valkey, ttl=TTL, clock=clock)
    loop = make_loop()
    loop.set_exception_handler(lambda _, context: None)  # "Task was destroyed but it is pending!"

    async def second() -> None:
        await c.connect()
        await renewed(c, 1)
        assert await lock.release()
        await c.close()

    lock = loop.run_until_complete(held(c, "kept", on_lost=recorder))
    clock.jump(THIRD)
    assert core_of(c)._renewal
    core_of(c)._renewal._on_timer()  # between two turns of the loop: the task that it makes does not begin
    assert core_of(c)._renewal._task
    loop.close()
    run(second, make_loop)
    assert recorder.losses == []


async def renewed(c: AsyncFastRedlock, count: int) -> None:
    await until(lambda: c.stats().renewed >= count, f"{count} extensions by renewal")


def flush(masters: Masters) -> None:
    for master in masters:
        wipe(master)


# --- its task -------------------------------------------------------------------------------


@on_loops
async def test_many_go_together(
    masters: Masters, aclient: MakeAio, clock: Jumping, recorder: LossRecorder
) -> None:
    async with aclient(masters, ttl=TTL, clock=clock) as c:
        await at_full_strength(c)
        locks = [await held(c, name, on_lost=recorder) for name in names(300)]
        most = 0
        for turn in (1, 2):
            clock.jump(THIRD)
            while c.stats().renewed < turn * 300:
                most = max(most, len(asyncio.all_tasks()))
                await asyncio.sleep(0)
        assert most <= 2, "this one, and that of the renewal"
        assert c.stats().renewed == 600
        assert await c.release_many(locks) == [True] * 300
        await clean(masters)
    assert recorder.losses == []


@on_loops
async def test_its_task_is_cancelled_before_its_first_step(
    masters: Masters, aclient: MakeAio, clock: Jumping, recorder: LossRecorder
) -> None:
    """As by a program that cancels all tasks but its own."""
    async with aclient(masters, ttl=TTL, clock=clock) as c:
        await at_full_strength(c)
        lock = await held(c, "kept", on_lost=recorder)
        clock.jump(THIRD)
        while not (
            task := core_of(c).renewal()._task
        ):  # this task goes on right after the timer that makes it
            await asyncio.sleep(0)
        task.cancel()
        await renewed(c, 1)
        clock.jump(THIRD)
        await renewed(c, 2)
        assert await lock.release()
        await clean(masters)
    assert recorder.losses == []


@on_loops
async def test_a_timer_is_set_again_while_it_is_due(
    masters: Masters, aclient: MakeAio, clock: Jumping, recorder: LossRecorder
) -> None:
    """Catches: uvloop returns a Handle, which has no ``when``, for a timer that is due at once."""
    async with aclient(masters, ttl=TTL, clock=clock) as c:
        await at_full_strength(c)
        first = await held(c, "first", on_lost=recorder)
        clock.jump(THIRD)
        for _ in range(2):  # as two acquires do that are granted in one turn of a loop that was busy
            core_of(c).renewal().wake_soon()
        await renewed(c, 1)
        assert await first.release()
        await clean(masters)
    assert recorder.losses == []


@on_loops
async def test_two_releases_at_once_are_no_loss(
    masters: Masters, aclient: MakeAio, recorder: LossRecorder
) -> None:
    """Masters refuse the later release, because the earlier one has removed the key."""
    async with aclient(masters) as c:
        await at_full_strength(c)
        first = await held(c, "first", on_lost=recorder)
        assert await asyncio.gather(first.release(), first.release()) == [True, False]
        second = await held(c, "second", on_lost=recorder)
        assert await asyncio.gather(c.release_many([second]), second.release()) == [[True], False]
        assert (c.stats().released, c.stats().expired) == (2, 0)
        await clean(masters)
    assert recorder.losses == []


@on_loops
async def test_abandoned_and_released(
    masters: Masters, aclient: MakeAio, clock: Jumping, recorder: LossRecorder
) -> None:
    async with aclient(masters, ttl=TTL, clock=clock) as c:
        await at_full_strength(c)
        stays, released, abandoned = [await held(c, name, on_lost=recorder) for name in names(3)]
        assert await released.release()
        del abandoned
        gc.collect()
        for turn in (1, 2, 3):
            clock.jump(THIRD)
            await renewed(c, turn)
        assert c.stats().renewed == 3
        assert len(core_of(c).renewal().schedule) == 1
        assert await stays.release()
    assert recorder.losses == []


@on_loops
async def test_closed(masters: Masters, aclient: MakeAio, clock: Jumping, recorder: LossRecorder) -> None:
    """With an extension under way, too: no task is left, on_lost is not called."""
    async with aclient(masters, ttl=TTL, clock=clock) as c:
        await at_full_strength(c)
        lock = await held(c, on_lost=recorder)
        with paused(masters, 0, 1, 2, 3, 4):
            clock.jump(THIRD)
            await until(lambda: core_of(c).renewal()._task is not None, "an extension is under way")
            closing = asyncio.ensure_future(c.close())
            await asyncio.sleep(0.01)
        await closing
        lock.check()
        clock.jump(TTL)
        with pytest.raises(LockLost):
            lock.check()
    assert recorder.losses == []


# --- the body of ``async with`` -------------------------------------------------------------------


async def outlive(
    lock: AsyncLock, masters: Masters, clock: Jumping, body: Callable[[], Any] | None = None
) -> None:
    """A body that waits for longer than its lock is there."""
    async with lock:
        flush(masters)
        clock.jump(THIRD)
        await (body() if body else asyncio.sleep(DEADLINE))
        raise AssertionError("the body went on")


@on_loops
async def test_the_body_is_cancelled(
    masters: Masters, aclient: MakeAio, clock: Jumping, recorder: LossRecorder
) -> None:
    async with aclient(masters, ttl=TTL, clock=clock) as c:
        await at_full_strength(c)
        lock = c.lock("kept", auto_extend=True, on_lost=recorder)
        task = asyncio.current_task()
        assert task
        for turn in (1, 2):
            with pytest.raises(LockLost) as caught:
                await outlive(lock, masters, clock)
            assert isinstance(caught.value.__context__, asyncio.CancelledError)
            assert GONE in str(caught.value.__context__)
            assert task.cancelling() == 0
            await until(lambda turn=turn: recorder.reasons() == [GONE] * turn, "it is reported")  # type: ignore[misc]
        await asyncio.sleep(0)
        async with lock:
            pass
        await clean(masters)


@on_loops
async def test_a_body_whose_lock_was_entered_in_wait_for_is_cancelled(
    masters: Masters, aclient: MakeAio, clock: Jumping
) -> None:
    """Before Python 3.12 that is another task, which has ended when the body begins."""
    async with aclient(masters, ttl=TTL, clock=clock) as c:
        await at_full_strength(c)
        task = asyncio.current_task()
        assert task

        async def around() -> None:
            async with AsyncExitStack() as stack:
                lock = c.lock("kept", auto_extend=True)
                await asyncio.wait_for(stack.enter_async_context(lock), DEADLINE)
                flush(masters)
                clock.jump(THIRD)
                await asyncio.sleep(DEADLINE)

        with pytest.raises(LockLost):
            await around()
        assert task.cancelling() == 0

        async def inside() -> None:
            async with c.lock("inside", auto_extend=True):
                flush(masters)
                clock.jump(THIRD)
                await asyncio.sleep(DEADLINE)

        with pytest.raises(LockLost):
            await asyncio.wait_for(inside(), DEADLINE)
        assert task.cancelling() == 0
        await clean(masters)


@on_loops
async def test_the_body_is_cancelled_and_on_lost_acquires_it_again(
    masters: Masters, aclient: MakeAio, clock: Jumping
) -> None:
    """Catches: a CancelledError in place of LockLost, which a task group takes for a good end."""
    again: list[bool] = []

    async def on_lost(lock: AsyncLock, reason: str) -> None:
        again.append(await lock.acquire())

    async with aclient(masters, ttl=TTL, clock=clock) as c:
        await at_full_strength(c)
        lock = c.lock("kept", auto_extend=True, on_lost=on_lost)

        async def outlive() -> None:
            async with lock:
                clock.jump(TTL)
                try:
                    await asyncio.sleep(DEADLINE)
                finally:
                    await until(lambda: again, "on_lost has acquired it")

        with pytest.raises(LockLost):
            await outlive()
        await clean(masters)
        async with lock:
            pass


@on_loops
async def test_each_body_of_a_shared_lock_has_its_own_loss(
    masters: Masters, aclient: MakeAio, clock: Jumping
) -> None:
    """Another task enters the object before the body that lost it ends. Catches: a CancelledError there."""
    async with aclient(masters, ttl=TTL, clock=clock) as c:
        await at_full_strength(c)
        lock = c.lock("kept", auto_extend=True)
        entered, left = asyncio.Event(), asyncio.Event()

        async def enter_later() -> None:
            async with lock:
                entered.set()
                await left.wait()
                lock.check()

        async def outlive() -> None:
            async with lock:
                clock.jump(TTL)
                try:
                    await asyncio.sleep(DEADLINE)
                finally:
                    later.append(asyncio.create_task(enter_later()))
                    await entered.wait()

        later: list[asyncio.Task[None]] = []
        with pytest.raises(LockLost):
            await outlive()
        assert lock.locked()
        left.set()
        await later[0]
        await clean(masters)


@on_loops
async def test_late_is_late(
    valkey: Masters, aclient: MakeAio, clock: Jumping, recorder: LossRecorder
) -> None:
    """A loop that was held up beyond the lease."""
    async with aclient(valkey, ttl=TTL, clock=clock) as c:
        await at_full_strength(c)
        lock = c.lock("kept", auto_extend=True, on_lost=recorder)

        async def held_up() -> None:
            clock.jump(TTL)
            await asyncio.sleep(DEADLINE)

        with pytest.raises(LockLost):
            async with lock:
                await held_up()
        await until(lambda: recorder.reasons() == [LATE], "it is reported")


@on_loops
async def test_not_where_it_is_not_wanted(
    masters: Masters, aclient: MakeAio, clock: Jumping, recorder: LossRecorder
) -> None:
    async with aclient(masters, ttl=TTL, clock=clock) as c:
        await at_full_strength(c)
        lock = c.lock("kept", auto_extend=True, on_lost=recorder, cancel_on_loss=False)
        ran: list[str] = []

        async def body() -> None:
            async with lock:
                flush(masters)
                clock.jump(THIRD)
                await lock.lost.wait()
                await asyncio.sleep(0.01)
                ran.append("to its end")

        with pytest.raises(LockLost):
            await body()
        assert ran == ["to its end"]
        await until(lambda: recorder.reasons() == [GONE], "it is reported")
        # Nor where no task entered the lock.
        lock = await held(c, on_lost=recorder)
        flush(masters)
        clock.jump(THIRD)
        await lock.lost.wait()
        await asyncio.sleep(0.01)
        assert await lock.release() is False


@on_loops
async def test_a_cancellation_from_outside_stays_one(
    masters: Masters, aclient: MakeAio, clock: Jumping
) -> None:
    """Alone, and together with ours, in either order."""
    async with aclient(masters, ttl=TTL, clock=clock) as c:
        await at_full_strength(c)

        def cancel_too(lock: AsyncLock, reason: str) -> None:
            task.cancel("from outside")

        for on_lost, harm in ((None, False), (cancel_too, True)):
            lock = c.lock("kept", auto_extend=True, on_lost=on_lost)
            entered = asyncio.Event()

            async def body(lock: AsyncLock = lock, entered: asyncio.Event = entered) -> None:
                async with lock:
                    entered.set()
                    await asyncio.sleep(DEADLINE)

            task = asyncio.ensure_future(body())
            await entered.wait()
            if harm:
                flush(masters)
                clock.jump(THIRD)
            else:
                task.cancel("from outside")
            with pytest.raises(asyncio.CancelledError):
                await task
            assert task.cancelled()
        await clean(masters)


@on_loops
async def test_with_timeouts_and_task_groups(masters: Masters, aclient: MakeAio, clock: Jumping) -> None:
    async with aclient(masters, ttl=TTL, clock=clock) as c:
        await at_full_strength(c)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05), c.lock("kept", auto_extend=True):
                await asyncio.sleep(DEADLINE)
        ended: list[int] = []

        async def child(number: int) -> None:
            try:
                await asyncio.sleep(DEADLINE)
            finally:
                ended.append(number)

        async def group() -> None:
            async with asyncio.TaskGroup() as tasks:
                for number in range(3):
                    tasks.create_task(child(number))

        with pytest.raises(LockLost):
            async with asyncio.timeout(DEADLINE):
                await outlive(c.lock("kept", auto_extend=True), masters, clock, group)
        assert sorted(ended) == [0, 1, 2]


@on_loops
async def test_a_body_that_swallows_or_replaces_the_cancellation(
    masters: Masters, aclient: MakeAio, clock: Jumping
) -> None:
    async with aclient(masters, ttl=TTL, clock=clock) as c:
        await at_full_strength(c)

        async def body(error: Exception | None) -> None:
            async with c.lock("kept", auto_extend=True):
                flush(masters)
                clock.jump(THIRD)
                try:
                    await asyncio.sleep(DEADLINE)
                except asyncio.CancelledError:
                    if error:
                        raise error from None

        with pytest.raises(LockLost):
            await body(None)
        with pytest.raises(ZeroDivisionError):
            await body(ZeroDivisionError())
        task = asyncio.current_task()
        assert task
        assert task.cancelling() == 0


@on_loops
async def test_what_the_bodys_own_extension_finds(
    masters: Masters, aclient: MakeAio, clock: Jumping, recorder: LossRecorder
) -> None:
    """Its exception is enough: no cancellation comes on top."""
    async with aclient(masters, ttl=TTL, clock=clock) as c:
        await at_full_strength(c)
        lock = c.lock("kept", auto_extend=True, on_lost=recorder)

        async def extend() -> None:
            async with lock:
                flush(masters)
                await lock.extend()

        with pytest.raises(LockLost, match="before it was extended"):
            await extend()
        await asyncio.sleep(0.01)
        await until(lambda: recorder.losses == [(lock, GONE)], "it is reported")
        assert c.stats().lost == 1


@on_loops
async def test_a_decorated_function_is_cancelled(
    masters: Masters, aclient: MakeAio, clock: Jumping, recorder: LossRecorder
) -> None:
    async with aclient(masters, ttl=TTL, clock=clock) as c:
        await at_full_strength(c)

        @c.synchronized("kept", auto_extend=True, on_lost=recorder, max_extensions=0)
        async def work() -> None:
            clock.jump(THIRD)
            holds = [hold for _, _, hold in core_of(c).renewal().schedule._ends]
            await until(lambda: all(hold.stopped for hold in holds), "no extension is allowed")
            clock.jump(TTL)
            await asyncio.sleep(DEADLINE)

        with pytest.raises(LockLost):
            await work()
        await until(lambda: recorder.reasons() == [MAX_EXTENSIONS], "it is reported")


# --- callbacks ------------------------------------------------------------------------------------


@on_loops
async def test_callbacks_that_raise_do_not_stop_renewal(
    masters: Masters,
    aclient: MakeAio,
    clock: Jumping,
    recorder: LossRecorder,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def bad(lock: AsyncLock, reason: str) -> None:
        raise ZeroDivisionError("at once")

    async def bad_later(lock: AsyncLock, reason: str) -> None:
        await asyncio.sleep(0)
        raise ZeroDivisionError("later")

    async with aclient(masters, ttl=TTL, clock=clock) as c:
        await at_full_strength(c)
        stays = await held(c, "stays")
        kinds: list[Any] = [bad, bad_later, recorder, None]
        lost = [await held(c, f"lost:{n}", on_lost=kind, max_extensions=0) for n, kind in enumerate(kinds)]
        for turn in (1, 2, 3, 4):
            clock.jump(THIRD)
            await renewed(c, turn)
        await until(lambda: recorder.losses == [(lost[2], MAX_EXTENSIONS)], "it is reported")
        assert all(lock.lost.is_set() for lock in lost)
        logged = [record.getMessage() for record in caplog.records]
        assert logged.count("on-lost-error") == 2
        assert await stays.release()


@on_loops
async def test_a_callback_that_reads_a_cancelled_result(
    masters: Masters, aclient: MakeAio, clock: Jumping, caplog: pytest.LogCaptureFixture
) -> None:
    """A CancelledError is no Exception. Catches: no other lock is renewed any more."""
    cancelled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    cancelled.cancel()
    async with aclient(masters, ttl=TTL, clock=clock) as c:
        await at_full_strength(c)
        stays = await held(c, "stays")

        async def work() -> None:
            options: Any = {"auto_extend": True, "on_lost": lambda *_: cancelled.result()}
            async with c.lock("lost", max_extensions=0, **options):
                await asyncio.sleep(DEADLINE)

        task = asyncio.create_task(work())
        await until(lambda: c.stats().acquired == 2, "it is held")
        for turn in (1, 2, 3, 4):
            clock.jump(THIRD)
            await renewed(c, turn)
        with pytest.raises(LockLost):
            await asyncio.wait_for(task, DEADLINE)
        assert [record.getMessage() for record in caplog.records].count("on-lost-error") == 1
        assert await stays.release()
