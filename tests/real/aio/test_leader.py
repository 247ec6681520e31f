"""Leader election with asyncio: coroutines as callbacks, cancellation, loops that end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from support.event_loops import on_loops, until
from support.forking import exit_code, fork_child, needs_fork
from support.waiting import DEADLINE

from redlock_fast import AsyncFastRedlock, WrongLoop
from redlock_fast.embedded import Masters
from redlock_fast.locks.leader import STEPPED_DOWN, STOPPED

MakeClient = Callable[..., AsyncFastRedlock]


class Work:
    """Callbacks that are coroutine functions, and what happened, in its order."""

    def __init__(self) -> None:
        self.events: list[str] = []

    async def on_elected(self, leader: Any) -> None:
        self.events.append("elected")
        try:
            await asyncio.Event().wait()
        finally:
            self.events.append("ended")

    async def on_lost(self, leader: Any, reason: str) -> None:
        await asyncio.sleep(0.01)
        self.events.append(reason)

    def options(self) -> dict[str, Any]:
        return {"on_elected": self.on_elected, "on_lost": self.on_lost}


def others() -> set[asyncio.Task[Any]]:
    return asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[arg-type]


@on_loops
async def test_the_work_is_cancelled_before_the_release(valkey: Masters, aclient: MakeClient) -> None:
    work = Work()
    async with aclient(valkey) as one, aclient(valkey) as two:
        async with one.leader("chair", **work.options()) as leader:
            await until(lambda: work.events, "it works")
            async with two.leader("chair") as second:
                assert await leader.step_down(pause=60.0)
                assert work.events == ["elected", "ended", STEPPED_DOWN]
                assert await second.wait()
        assert not others()


@on_loops
async def test_work_that_is_cancelled_before_its_first_step(valkey: Masters, aclient: MakeClient) -> None:
    """A leader without its work steps down, and is elected again."""
    work = Work()
    async with aclient(valkey) as one, one.leader("chair", **work.options()) as leader:
        while not (found := [task for task in others() if task.get_name() == "redlock-fast-elected"]):
            await asyncio.sleep(0)  # this task goes on before that one begins
        found[0].cancel()
        await until(lambda: "elected" in work.events, "it is elected again")
        assert leader.is_leader


@on_loops
async def test_a_cancelled_body_releases(valkey: Masters, aclient: MakeClient) -> None:
    work = Work()
    async with aclient(valkey) as one:

        async def body() -> None:
            async with one.leader("chair", **work.options()):
                await asyncio.Event().wait()

        task = asyncio.create_task(body())
        await until(lambda: work.events, "it works")
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        assert work.events == ["elected", "ended", STOPPED]
        assert not await one.locked("chair")
        assert not others()


def test_a_loop_that_ends_ends_the_leadership(valkey: Masters, aclient: MakeClient) -> None:
    """Its tasks are cancelled then. The leader campaigns again in the next loop of its client."""
    work = Work()
    client = aclient(valkey)
    leader = client.leader("chair", **work.options())

    async def lead() -> int | None:
        await leader.start()
        assert await leader.wait()
        await until(lambda: work.events[-1:] == ["elected"], "it works")
        return leader.fencing_token

    first = asyncio.run(lead())
    assert work.events == ["elected", "ended", STOPPED]
    assert not leader.is_leader

    async def again() -> None:
        second = await lead()
        assert first is not None
        assert second is not None
        assert first < second
        await leader.stop()
        await client.close()

    asyncio.run(again())
    assert work.events == ["elected", "ended", STOPPED] * 2


async def work(leader: Any) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("on_elected", [None, lambda leader: None, work], ids=["none", "ended", "works"])
def test_a_loop_that_is_closed_beside_a_leader(
    valkey: Masters, aclient: MakeClient, on_elected: Callable[[Any], Any] | None
) -> None:
    """No task of it can go on. The next campaign reports the loss and releases the lock first."""
    reasons: list[str] = []
    client = aclient(valkey, ttl=60.0)
    leader = client.leader("chair", on_elected=on_elected, on_lost=lambda _, reason: reasons.append(reason))

    async def lead() -> None:
        await leader.start()
        assert await leader.wait()

    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)
    loop.run_until_complete(lead())
    loop.close()
    assert leader.is_leader, "its lease goes on"

    async def again() -> None:
        await lead()
        assert reasons == [STOPPED]
        await leader.stop()
        await client.close()

    asyncio.run(again())


@on_loops
async def test_on_lost_awaits_a_task_that_it_cancelled(
    valkey: Masters, aclient: MakeClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Its CancelledError is no cancellation of the campaign. Catches: a candidate that campaigns no more."""
    job: asyncio.Task[Any] = asyncio.create_task(asyncio.Event().wait())

    async def on_lost(leader: Any, reason: str) -> None:
        job.cancel()
        await job

    async with aclient(valkey) as one, one.leader("chair", on_lost=on_lost) as leader:
        assert await leader.wait()
        assert await leader.step_down(pause=0.0)
        assert await leader.wait(DEADLINE), "it is elected again"
        assert [record.getMessage() for record in caplog.records].count("leader-error") == 1


@on_loops
async def test_on_lost_with_a_task_group_that_fails(valkey: Masters, aclient: MakeClient) -> None:
    """Before Python 3.13 the group leaves a cancellation request with the task. Catches: the next error of
    on_lost taken for a cancellation of the campaign, as in the test above.
    """
    reasons: list[str] = []

    async def on_lost(leader: Any, reason: str) -> None:
        reasons.append(reason)
        if len(reasons) == 2:
            raise asyncio.CancelledError
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(DEADLINE))
                group.create_task(asyncio.wait_for(asyncio.Event().wait(), 0.001))
        except* TimeoutError:
            pass

    async with aclient(valkey) as one, one.leader("chair", on_lost=on_lost) as leader:
        for _ in range(2):
            assert await leader.wait(DEADLINE)
            assert await leader.step_down(pause=0.0)
        assert await leader.wait(DEADLINE), "it is elected again"
    assert reasons == [STEPPED_DOWN, STEPPED_DOWN, STOPPED]


@on_loops
async def test_a_stop_waits_for_work_that_outlasts_its_term(valkey: Masters, aclient: MakeClient) -> None:
    """Also where the lock is released. Catches: the work of two terms at once."""
    begun: list[int] = []
    ended: list[int] = []
    go = asyncio.Event()

    async def on_elected(leader: Any) -> None:
        begun.append(len(begun))
        try:
            await asyncio.Event().wait()
        finally:
            await go.wait()
            ended.append(len(ended))

    async with aclient(valkey) as one:
        leader = one.leader("chair", ttl=3.0, on_elected=on_elected)
        await leader.start()
        await until(lambda: begun, "it works")
        assert await leader.step_down(pause=0.0), "its work goes on after the lease"
        for _ in range(2):  # the second stop is that of a campaign that waits for the first one's work
            stop = asyncio.create_task(leader.stop())
            done, _ = await asyncio.wait({stop}, timeout=0.1)
            assert not done, "the work goes on"
            await leader.start()
        assert not await leader.wait(0.2)
        assert (len(begun), len(ended)) == (1, 0)
        go.set()
        assert await leader.wait(DEADLINE)
        await until(lambda: len(begun) == 2, "it works again")
        await leader.stop()
        assert len(ended) == 2
        await until(lambda: not others(), "the first calls of stop have ended, too")


@needs_fork
@on_loops
async def test_a_campaign_in_a_child_of_fork(valkey: Masters, aclient: MakeClient) -> None:
    """It reports no loss: the parent leads on."""
    reasons: list[str] = []
    async with aclient(valkey) as one:
        async with one.leader("chair", on_lost=lambda _, reason: reasons.append(reason)) as leader:
            assert await leader.wait()

            async def campaign() -> None:
                async with leader:
                    assert not await leader.wait(0.2), "the parent leads"

            def child() -> None:
                asyncio.run(campaign())
                assert not reasons

            assert await asyncio.to_thread(exit_code, fork_child(child)) == 0
            assert leader.is_leader
        assert reasons == [STOPPED]


def test_another_loop_beside_that_of_the_campaign(valkey: Masters, aclient: MakeClient) -> None:
    """Catches: a call that is not woken, and a RuntimeError of an event of the other loop."""
    client = aclient(valkey)
    leader = client.leader("chair")

    async def lead() -> None:
        await leader.start()
        assert await leader.wait(DEADLINE)

    async def calls() -> None:
        for call in (leader.start, leader.wait, leader.step_down, leader.stop):
            with pytest.raises(WrongLoop):
                await asyncio.wait_for(call(), DEADLINE)

    async def end() -> None:
        assert leader.is_leader
        await leader.stop()
        await client.close()

    with asyncio.Runner() as first:
        first.run(lead())
        with asyncio.Runner() as second:
            second.run(calls())
        first.run(end())


@on_loops
async def test_a_generator_that_is_closed_stops_the_campaign(valkey: Masters, aclient: MakeClient) -> None:
    """Nothing can be awaited in its body then. Catches: one that leads for ever."""
    work = Work()
    async with aclient(valkey) as one, aclient(valkey) as two:

        async def terms(timeout: float) -> AsyncIterator[bool]:
            async with one.leader("chair", **work.options()) as leader:
                yield await leader.wait(timeout)

        leading = terms(DEADLINE)
        assert await anext(leading)
        waiting = terms(0.1)
        assert not await anext(waiting), "it waits for the first one"
        await waiting.aclose()  # type: ignore[attr-defined]
        await leading.aclose()  # type: ignore[attr-defined]
        await until(lambda: not others(), "both campaigns end")
        assert work.events == ["elected", "ended", STOPPED]
        async with two.leader("chair") as leader:
            assert await leader.wait(DEADLINE)
