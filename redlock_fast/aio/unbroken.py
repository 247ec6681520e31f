"""A body that a cancellation of its caller does not end before its threads do."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Coroutine
from typing import Any, TypeVar

from ..locks.lock_state import LockState

R = TypeVar("R")


async def run_to_its_end(body: Coroutine[Any, Any, R], lock: LockState) -> R:
    """The result of ``body``, which runs in a task of its own while ``lock`` is held.

    A cancellation ends a coroutine, but no thread that the coroutine waits for: a query of a database goes on
    after the lock is released. So a cancelled caller first waits for the body, and raises CancelledError when
    the body has ended. That lasts no longer than the lock: when its lease ends, or renewal reports its loss,
    the body is cancelled, too.
    """
    context = contextvars.copy_context()
    task = asyncio.get_running_loop().create_task(body, context=context)
    cancelled: asyncio.CancelledError | None = None
    timeout: float | None = None  # without a cancellation the body may outlive the lease, as in `async with`
    while not task.done():
        try:
            await asyncio.wait((task,), timeout=timeout)
        except asyncio.CancelledError as error:
            cancelled = error
        if cancelled is not None:
            timeout = lock.remaining() or None
            if timeout is None:
                task.cancel()
    for variable, value in context.items():  # what the body has set, for the caller
        variable.set(value)
    if cancelled is None:
        return task.result()
    if not task.cancelled():
        with contextlib.suppress(Exception):  # retrieved, and not logged: the caller gets its cancellation
            task.result()
    raise cancelled
