"""Tests that are coroutines: on every kind of event loop that is installed, and leaving nothing behind."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import gc
import inspect
import os
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest
from support.keys import with_keys
from support.waiting import DEADLINE, eventually, pauses

from redlock_fast import AsyncFastRedlock
from redlock_fast.aio.future import ExchangeFuture
from redlock_fast.embedded import Masters

T = TypeVar("T")
Main = Callable[[], Coroutine[Any, Any, T]]
MakeLoop = Callable[[], asyncio.AbstractEventLoop]


def _loops() -> dict[str, MakeLoop]:
    found: dict[str, MakeLoop] = {"asyncio": asyncio.new_event_loop}
    try:
        import uvloop
    except ImportError:
        return found
    return {**found, "uvloop": uvloop.new_event_loop}


LOOPS = _loops()

#: ``make_loop``: once for each kind of loop.
each_loop = pytest.mark.parametrize("make_loop", LOOPS.values(), ids=LOOPS)


def run(main: Main[T], make_loop: MakeLoop, *, debug: bool | None = None) -> T:
    """The result of ``main()`` in a loop of its own.

    Tasks that are left, and exceptions that were not retrieved or that a callback raised, are failures;
    so is a coroutine that was not awaited, by way of the warning that it ends with.
    """
    complaints: list[dict[str, Any]] = []
    with asyncio.Runner(loop_factory=make_loop, debug=debug) as runner:
        runner.get_loop().set_exception_handler(lambda _, context: complaints.append(context))
        result = runner.run(_alone(main))
    gc.collect()
    assert not complaints, complaints
    return result


async def _alone(main: Main[T]) -> T:
    result = await main()
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert not left, f"tasks are left: {left}"
    return result


def on_loops(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Decorator: a test that is a coroutine function becomes a plain one, run once on each kind of loop."""

    @functools.wraps(test)
    def plain(make_loop: MakeLoop, **fixtures: Any) -> None:
        run(lambda: test(**fixtures), make_loop)

    signature = inspect.signature(test)
    loop = inspect.Parameter("make_loop", inspect.Parameter.KEYWORD_ONLY)
    plain.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*signature.parameters.values(), loop], return_annotation=None
    )
    decorated: Callable[..., None] = each_loop(plain)
    return decorated


async def until(condition: Callable[[], object], what: str, *, deadline: float = DEADLINE) -> None:
    """As ``waiting.eventually``, for tasks: it does not block the loop."""
    for pause in pauses(what, deadline):
        if condition():
            return
        await asyncio.sleep(pause)


class Plain:
    """A client that is called as one for threads is, whichever it is: ``await`` is done here."""

    def __init__(self, client: Any, make_loop: MakeLoop | None) -> None:
        self.client = client
        self._runner = asyncio.Runner(loop_factory=make_loop) if make_loop else None

    def wait(self, result: Any) -> Any:
        """What came of ``client.method()`` or ``lock.method()``."""

        async def main() -> Any:
            return await result

        if self._runner is None or not inspect.isawaitable(result):
            return result
        return self._runner.run(main(), context=contextvars.copy_context())  # as the caller's

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.client, name)
        return lambda *args, **options: self.wait(method(*args, **options))

    def at_full_strength(self) -> Plain:
        self.connect()
        eventually(lambda: all(m.state == "connected" for m in self.client.health()), "all masters connect")
        return self

    def end(self) -> None:
        self.close()
        if self._runner:
            self._runner.close()


async def at_full_strength(client: AsyncFastRedlock) -> None:
    """Connected to all masters: the next call will reach them all."""
    await client.connect()
    await until(lambda: all(m.state == "connected" for m in client.health()), "all masters connect")


async def clean(masters: Masters) -> None:
    await until(lambda: not with_keys(masters), "no key of ours is left")


def pending_futures() -> int:
    """Of the running loop, tasks included, except the task that asks."""
    loop, me = asyncio.get_running_loop(), asyncio.current_task()
    gc.collect()
    futures = [one for one in gc.get_objects() if issubclass(type(one), (asyncio.Future, ExchangeFuture))]
    return sum(one is not me and not one.done() and one._loop is loop for one in futures)


def timers() -> int:
    """The pending timers of the running loop; 0 where the loop does not report them."""
    scheduled = getattr(asyncio.get_running_loop(), "_scheduled", [])
    return sum(not handle.cancelled() for handle in scheduled)


def open_files() -> int:
    """Without those of objects that are garbage, such as an earlier test's."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))
