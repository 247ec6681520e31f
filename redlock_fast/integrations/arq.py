"""Jobs of arq that run once in the fleet.

    from redlock_fast.integrations.arq import single_run

    @single_run(client, once_per=50)
    async def clean_up(ctx): ...

A client may be a global of the module: it belongs to the event loop of the worker.
See docs/recipes/task-queues.md.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ParamSpec, TypeVar, Unpack

from ..aio.client import AsyncFastRedlock
from ..aio.lock import AsyncLock
from ..errors import LockNotAcquired, needs
from ..locks.decorated import check_async
from ..locks.options import AsyncLockOptions
from ..sharded.clients import AsyncShardedRedlock
from .jobs import IfJobTaken, JobName, check_client, name_of, single_runs

with needs("arq", "arq"):
    from arq import Retry

P = ParamSpec("P")
R = TypeVar("R")


def single_run(
    client: AsyncFastRedlock | AsyncShardedRedlock,
    name: JobName = None,
    ttl: float | None = None,
    *,
    if_taken: IfJobTaken = "skip",
    defer: float | None = None,
    once_per: float | None = None,
    **options: Unpack[AsyncLockOptions[AsyncLock]],
) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Coroutine[Any, Any, R | None]]]:
    """Decorator: the job runs once in the fleet.

    Args:
        client: The client for asyncio.
        name: The name of the lock, or a function of the job's arguments, without ``ctx``, that returns it.
            None: the qualified name of the function.
        ttl: The lease in seconds; None: the client's.
        if_taken: What a run does while another run has the lock. "skip": it returns None. "wait", "raise":
            as for [`AsyncFastRedlock.single_run`][]. "retry": arq runs the job again later, also if too few
            masters answer, at most ``max_tries`` times.
        defer: With "retry": the seconds until the next try; None: at once.
        once_per: Seconds for which the lock stays after a success, as for
            [`AsyncFastRedlock.single_run`][].
        options: Those of [`AsyncFastRedlock.single_run`][].

    With a ``ttl`` above the ``job_timeout`` of the worker and 10 s use "retry": arq then gives the job of a
    worker that died to another one before the lease of the dead one has ended.

    Examples:
        >>> @single_run(client, lambda account: f"account:{account}", if_taken="retry", defer=5)
        ... async def transfer(ctx, account): ...

    Raises:
        ConfigError: An invalid client or option, or a function that is not async.
        Contended: The run, as for [`AsyncFastRedlock.single_run`][].
        QuorumUnavailable: The run: too few masters can be reached.
        LockLost: The run: the lease ended before the job did.
    """
    check_client(client, "asyncio")
    made = single_runs(
        client.single_run, name, if_taken, {"defer": defer}, ttl=ttl, once_per=once_per, **options
    )

    def decorate(function: Callable[P, Awaitable[R]]) -> Callable[P, Coroutine[Any, Any, R | None]]:
        check_async(function, "single_run")

        @functools.wraps(function)
        async def run(*args: P.args, **kwargs: P.kwargs) -> R | None:
            began = False
            try:
                async with made(name_of(name, function.__qualname__, args[1:], kwargs)) as lock:
                    began = True
                    return None if lock is None else await function(*args, **kwargs)
            except LockNotAcquired as error:
                if began or if_taken != "retry":
                    raise
                raise Retry(defer) from error

        return run

    return decorate
