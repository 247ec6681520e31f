"""Leader election for asyncio: one task of a candidate campaigns, leads and reports the loss."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, Self

from ..algorithm.lease import Lease
from ..errors import ClientClosed, WrongLoop
from ..locks.config import check_timeout, number
from ..locks.leader import FAILED, REST, STEPPED_DOWN, STOPPED, TICK, Campaign, Election, LeaderState, Term
from ..locks.procedures import drop_lock, new_owner
from ..telemetry import log_error
from .driver import acquire, run, send_now


class _Campaign(Campaign):
    """A campaign in one loop. ``acquiring``: it waits for the leadership, which only a cancellation ends."""

    def __init__(self, generation: int) -> None:
        super().__init__(generation)
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.acquiring = False
        self.task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()

    def notify(self) -> None:
        """Make all waiting tasks check their conditions."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def wait_for(self, condition: Callable[[], object], timeout: float | None = None) -> None:
        """Wait until ``condition()`` is true, at most ``timeout`` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while not condition() and not self.ended():
                    await self._changed.wait()

    def ended(self) -> bool:
        return self.task is None or self.task.done()


class AsyncLeader(LeaderState):
    """A candidate for a leadership, made by [`AsyncFastRedlock.leader`][]; see [`Leader`][].

    A task of this object waits for the leadership. ``on_elected`` and ``on_lost`` run in the event loop, and
    may be coroutine functions. A coroutine of ``on_elected`` is cancelled when the leadership ends.

    Examples:
        >>> async with client.leader("scheduler") as leader:
        ...     while await leader.wait():
        ...         while leader.is_leader:
        ...             await run_next_job(fence=leader.fencing_token)
    """

    _campaign: _Campaign | None = None
    _core: Any

    async def start(self) -> None:
        """Begin to campaign in the background; see [`Leader.start`][].

        Examples:
            >>> await leader.start()

        Raises:
            ClientClosed: The client is closed.
            WrongLoop: The client belongs to another event loop, which is open.
        """
        core = self._core
        core.check_open()
        core.loop_binding()
        campaign, term, after = self._current(), self._term, None
        if campaign is not None and not campaign.ended() and not campaign.stopping:
            return
        if self._generation != core.client_state.generation():
            term = None  # the parent's, before a fork
        if campaign is not None and not campaign.ended():
            term, after = None, campaign.task  # it finishes its term itself
        elif term is not None:
            term.end(STOPPED)  # its loop was closed
        campaign = self._campaign = _Campaign(core.client_state.generation())
        campaign.task = asyncio.create_task(self._run(campaign, term, after), name="redlock-fast-leader")
        campaign.task.add_done_callback(lambda _: campaign.notify())

    async def stop(self) -> None:
        """End the campaign; see [`Leader.stop`][]. Waits for the end of ``on_elected`` and ``on_lost``.

        Examples:
            >>> await leader.stop()

        Raises:
            WrongLoop: It campaigns in another event loop, which is open.
        """
        campaign, term = self._current(), self._term
        if campaign is None or campaign.task is None:
            return
        self._begin_stop(campaign)
        if not self._is_inside(campaign, term):
            await asyncio.wait({campaign.task})

    def _begin_stop(self, campaign: _Campaign) -> None:
        """Make the task of ``campaign`` end. Called in its loop."""
        campaign.stopping = True
        if campaign.acquiring:
            assert campaign.task is not None
            campaign.task.cancel()
        elif self._term is not None:
            self._term.end(STOPPED)
        campaign.notify()

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until this candidate leads; see [`Leader.wait`][].

        Examples:
            >>> if await leader.wait(timeout=5.0):
            ...     await work()

        Raises:
            RuntimeError: As [`Leader.wait`][].
            RedlockError: As [`Leader.wait`][].
            WrongLoop: It campaigns in another event loop, which is open.
        """
        timeout = check_timeout(timeout)
        campaign = self._current()
        if campaign is None:
            raise RuntimeError(f"{self!r} does not campaign: use `async with` or start()")
        election = Election(self, campaign)
        await campaign.wait_for(election.is_over, timeout)
        return election.result()

    async def step_down(self, pause: float = REST) -> bool:
        """Give the leadership up; see [`Leader.step_down`][].

        Examples:
            >>> await leader.step_down()

        Raises:
            ConfigError: An invalid pause.
            WrongLoop: It campaigns in another event loop, which is open.
        """
        pause = number("pause", pause, low=0.0)
        campaign, term = self._current(), self._term
        if campaign is None or term is None or not term.end(STEPPED_DOWN, pause):
            return False
        campaign.notify()
        if not self._is_inside(campaign, term):
            await campaign.wait_for(lambda: term.released)
        return True

    async def current(self) -> str:
        """Ask the masters for the identity of the present leader; see [`Leader.current`][].

        Examples:
            >>> print("the leader is", await leader.current() or "not elected yet")

        Raises:
            RedlockError: As [`Leader.current`][].
            WrongLoop: The client belongs to another event loop, which is open.
        """
        identity: str = await run(new_owner(self._core, self._key), self._core.loop_binding())
        return identity

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not GeneratorExit:
            await self.stop()
            return
        # The task is destroyed, or an async generator is closed: nothing can be awaited, in whichever thread.
        campaign = self._campaign
        if campaign is not None and campaign.generation == self._core.client_state.generation():
            with contextlib.suppress(RuntimeError):  # the loop is closed
                campaign.loop.call_soon_threadsafe(self._begin_stop, campaign)

    def _current(self) -> _Campaign | None:
        """The campaign of this process, in a loop that is open. Raises WrongLoop if that is another loop."""
        campaign = self._campaign
        if campaign is None or campaign.generation != self._core.client_state.generation():
            return None
        if campaign.loop.is_closed():
            return None
        if campaign.loop is not asyncio.get_running_loop():
            raise WrongLoop(f"{self!r} campaigns in another event loop, which is not closed")
        return campaign

    def _is_inside(self, campaign: _Campaign, term: Term | None) -> bool:
        """Whether the caller is ``on_elected`` or ``on_lost``, which the campaign waits for."""
        caller = asyncio.current_task()
        if term is not None and term.work is caller:
            term.by_work = True
        return caller is campaign.task or (term is not None and caller in (term.work, term.reporter))

    # --- the task of the campaign ---

    async def _run(self, campaign: _Campaign, before: Term | None, after: asyncio.Task[None] | None) -> None:
        """Campaign until ``stop``.

        ``before``: the term of a campaign whose loop was closed, or None. ``after``: the task of a campaign
        that is stopping, or None.
        """
        try:
            if after is not None:
                await asyncio.wait({after})  # its on_elected may go on after ``stop``
            if before is not None and not before.released:
                before.work = None  # a task of the loop that is closed
                await self._finish(before)
            while not campaign.stopping:
                await self._campaign_once(campaign)
        except (ClientClosed, WrongLoop) as error:
            campaign.error = error

    async def _campaign_once(self, campaign: _Campaign) -> None:
        """Wait for the leadership, lead until it ends, and pause."""
        with campaign.turn(ClientClosed, WrongLoop):
            lock, reports = self._next_lock(campaign)
            campaign.acquiring = True
            try:
                lease = await acquire(lock, True, None, self._core.loop_binding())
            finally:
                campaign.acquiring = False
            campaign.accepted()
            if isinstance(lease, Lease):
                campaign.pause = await self._lead(campaign, lock, reports)
        await campaign.wait_for(lambda: campaign.stopping, campaign.pause)

    async def _lead(self, campaign: _Campaign, lock: Any, reports: list[str]) -> float:
        """Lead until the term ends. Returns the seconds until the next campaign."""
        term = self._begin_term(lock)
        try:
            campaign.notify()
            if self._on_elected is not None:
                term.work = asyncio.create_task(self._call(self._on_elected), name="redlock-fast-elected")
                term.work.add_done_callback(partial(self._worked, campaign, term))
            while term.leads():
                await campaign.wait_for(lambda: not term.leads(), min(TICK, term.left()))
        except GeneratorExit:  # the task is destroyed: nothing can be awaited
            term.over = True
            bound = self._core.bound
            if bound is not None and not term.released:
                send_now(drop_lock(lock), bound)
            term.released = True
            raise
        finally:
            term.end(STOPPED)  # of a cancelled task
            term.reason = term.reason or "".join(reports)
            if not term.released:
                await self._finish(term)
            campaign.notify()
        if term.work is not None:
            await asyncio.wait({term.work})  # the next term begins after it
        return term.pause

    async def _finish(self, term: Term) -> None:
        """Report the end of a term, and release its lock."""
        try:
            work = term.work
            if work is not None and not term.by_work:
                work.cancel()
            term.reporter = asyncio.current_task()
            if self._end_term(term):
                await self._call(self._on_lost, term.reason)
            if work is not None and not term.by_work:
                await asyncio.wait({work}, timeout=term.lock.remaining())
        finally:
            await term.lock.release()
            term.released = True

    def _worked(self, campaign: _Campaign, term: Term, work: asyncio.Task[bool]) -> None:
        """End the term if ``on_elected`` failed: a leader without its work is of no use."""
        if not work.cancelled() and work.exception() is None and work.result():
            return
        ending = campaign.task is not None and campaign.task.cancelling()
        term.end(STOPPED if ending else FAILED, REST)
        campaign.notify()

    async def _call(self, function: Any, *reason: str) -> bool:
        """Call a function of the program. Returns whether it raised no exception."""
        task = asyncio.current_task()
        assert task is not None
        good = False
        try:
            result = function(self, *reason)
            if inspect.isawaitable(result):
                await result
            good = True
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and task.cancelling():
                raise
            log_error("leader-error")  # also where the function awaited another task, which was cancelled
        while task.cancelling():  # before Python 3.13 a TaskGroup of the function may leave requests behind
            task.uncancel()
        return good
