"""One way to call both clients: what both can do is tested once, and runs with each."""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import Callable
from typing import Any

import pytest
from support.event_loops import LOOPS, MakeLoop

from redlock_fast import AsyncFastRedlock, AsyncLeader, AsyncLock
from redlock_fast.aio.core import LoopCore
from redlock_fast.aio.single_run import AsyncSingleRun

#: Seconds. More than any call takes.
LONGEST = 100.0

#: The fixtures ``client`` and ``connected`` then make clients of each kind, and the tests are the same.
both_clients = pytest.mark.parametrize("client_mode", ["threads", *LOOPS])


class LoopThread:
    """An event loop in a thread of its own: any number of threads may wait for what it awaits."""

    def __init__(self, make_loop: MakeLoop) -> None:
        self._loop = make_loop()
        self._complaints: list[dict[str, Any]] = []
        self._loop.set_exception_handler(lambda _, context: self._complaints.append(context))
        self._thread = threading.Thread(target=self._loop.run_forever, name="event loop", daemon=True)
        self._thread.start()

    def call(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """What ``function`` returns, called in the loop; of an awaitable, its result."""

        async def main() -> Any:
            result = function(*args, **options)
            return await result if inspect.isawaitable(result) else result

        return asyncio.run_coroutine_threadsafe(main(), self._loop).result(LONGEST)

    def end(self) -> None:
        """Stop the loop. Tasks that are left and exceptions that no caller saw are failures."""
        left = self.call(_others)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        assert not left, f"tasks are left: {left}"
        assert not self._complaints, self._complaints


async def _others() -> set[asyncio.Task[Any]]:
    return asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[arg-type]


class Blocking:
    """A client, lock or leader for asyncio, to be called as one for threads."""

    def __init__(
        self, target: AsyncFastRedlock | AsyncLock | AsyncLeader | LoopCore, loop: LoopThread
    ) -> None:
        self.target = target
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.target, name)
        if isinstance(value, LoopCore):
            return Blocking(value, self._loop)
        if not inspect.ismethod(value):
            return value

        def call(*args: Any, **options: Any) -> Any:
            return self._result(self._loop.call(value, *map(_bare, args), **options))

        return call

    def __enter__(self) -> Blocking:
        assert self._loop.call(self.target.__aenter__) is self.target
        return self

    def __exit__(self, *error: Any) -> Any:
        return self._loop.call(self.target.__aexit__, *error)

    def __eq__(self, other: object) -> bool:
        return self.target is _bare(other)

    def __hash__(self) -> int:
        return hash(self.target)

    def synchronized(self, *args: Any, **options: Any) -> Callable[..., Any]:
        assert isinstance(self.target, AsyncFastRedlock)
        return functools.partial(_decorated, self._loop, self.target.synchronized(*args, **options))

    def single_run(self, *args: Any, **options: Any) -> BlockingRun:
        assert isinstance(self.target, AsyncFastRedlock)
        return BlockingRun(self.target.single_run(*args, **options), self._loop)

    def _result(self, result: Any) -> Any:
        if isinstance(result, list):
            return list(map(self._result, result))
        return Blocking(result, self._loop) if isinstance(result, AsyncLock | AsyncLeader) else result


class BlockingRun:
    """A single run for asyncio, to be used as one for threads."""

    def __init__(self, target: AsyncSingleRun, loop: LoopThread) -> None:
        self.target = target
        self._loop = loop

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return _decorated(self._loop, self.target, function)

    def __enter__(self) -> Blocking | None:
        lock = self._loop.call(self.target.__aenter__)
        return lock and Blocking(lock, self._loop)

    def __exit__(self, *error: Any) -> Any:
        return self._loop.call(self.target.__aexit__, *error)


def _decorated(loop: LoopThread, decorator: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """A plain function, decorated for asyncio. It is run by another thread, which may use the client."""

    @decorator
    @functools.wraps(function)
    async def decorated(*args: Any, **options: Any) -> Any:
        return await asyncio.to_thread(function, *args, **options)

    return functools.wraps(decorated)(lambda *args, **options: loop.call(decorated, *args, **options))


def _bare(value: Any) -> Any:
    if isinstance(value, list):
        return list(map(_bare, value))
    return value.target if isinstance(value, Blocking) else value
