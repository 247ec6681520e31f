"""Tasks of Celery that run, or are queued, once in the fleet. Beat: `redlock_fast.integrations.celery_beat`.

    from redlock_fast.integrations.celery import queued_once, single_run

    @app.task
    @single_run(client, once_per=50)
    def clean_up(): ...

    @app.task(base=queued_once(client, expiry=50))
    def report(): ...

A client may be a global of the module: each process of a worker makes its own connections after the fork.
See docs/recipes/celery.md.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, Unpack

from ..errors import ConfigError, LockLost, LockNotAcquired, needs
from ..locks.decorated import check_plain
from ..locks.options import LockOptions
from ..sharded.clients import ShardedRedlock
from ..threads.client import FastRedlock
from ..threads.lock import Lock
from .jobs import IfJobTaken, JobName, check_client, name_of, single_runs

with needs("celery", "celery"):
    from celery import Task, current_task, states, uuid
    from celery.exceptions import Ignore, Retry, TaskRevokedError
    from celery.local import Proxy
    from celery.result import EagerResult

#: Why a task has the state REVOKED.
SKIPPED = "skipped: another run has its lock"
NOT_SENT = "not sent: the task is queued or running already"
#: The header of a message that has the token of its lock, in hexadecimal digits.
TOKEN = "redlock_fast_token"

P = ParamSpec("P")
R = TypeVar("R")


def single_run(
    client: FastRedlock | ShardedRedlock,
    name: JobName = None,
    ttl: float | None = None,
    *,
    if_taken: IfJobTaken = "skip",
    countdown: float | None = None,
    once_per: float | None = None,
    **options: Unpack[LockOptions[Lock]],
) -> Callable[[Callable[P, R]], Callable[P, R | None]]:
    """Decorator: the task runs once in the fleet. It stands below ``@app.task``.

    Args:
        client: The client for threads.
        name: The name of the lock, or a function of the task's arguments, without ``self``, that returns it.
            None: the name of the task.
        ttl: The lease in seconds; None: the client's.
        if_taken: What a run does while another run has the lock. "skip": its state is REVOKED, so that
            ``AsyncResult.get()`` raises TaskRevokedError, and a chain ends; a call without a worker returns
            None. "wait", "raise": as for [`FastRedlock.single_run`][]. "retry": Celery runs the task again
            later, also if too few masters answer. After ``max_retries`` of the task it fails with Contended
            or QuorumUnavailable.
        countdown: With "retry": the seconds until the next try; None: the task's ``default_retry_delay``.
        once_per: Seconds for which the lock stays after a success, as for [`FastRedlock.single_run`][].
        options: Those of [`FastRedlock.single_run`][].

    ``self.retry()`` in the task releases the lock. For a task with ``acks_late`` use "retry": the lock of a
    worker that died lasts until its lease ends, and a second delivery of the message may come before.

    Examples:
        >>> @app.task(bind=True, max_retries=None)
        ... @single_run(client, lambda account: f"account:{account}", if_taken="retry", countdown=5)
        ... def transfer(self, account): ...

    Raises:
        ConfigError: An invalid client or option, an async function, or the decorator stands above
            ``@app.task``. The run: ``name`` is None, and ``task.run()`` was called in place of the task.
        Contended: The run, as for [`FastRedlock.single_run`][].
        QuorumUnavailable: The run: too few masters can be reached.
        LockLost: The run: the lease ended before the task did.
    """
    check_client(client, "threads")
    made = single_runs(
        client.single_run, name, if_taken, {"countdown": countdown}, ttl=ttl, once_per=once_per, **options
    )

    def decorate(function: Callable[P, R]) -> Callable[P, R | None]:
        if isinstance(function, (Task, Proxy)):
            raise ConfigError("single_run: write @app.task above @single_run, not below it")
        check_plain(function, "single_run")

        @functools.wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> R | None:
            bound = bool(args) and isinstance(args[0], Task)
            task: Any = args[0] if bound else _task_of(run)
            if task is None and name is None:
                raise ConfigError("single_run: name is None, and this is no call of a task: call the task")
            began = False
            try:
                own = "" if task is None else task.name
                with made(name_of(name, own, args[bound:], kwargs)) as lock:
                    began = True
                    if lock is not None:
                        return function(*args, **kwargs)
                    _skip(task)
                    return None
            except LockNotAcquired as error:
                if began or if_taken != "retry" or task is None:
                    raise
                raise task.retry(exc=error, countdown=countdown) from error

        # Celery checks the arguments of delay() by it.
        run.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
        return run

    return decorate


def _skip(task: Any) -> None:
    """End a run that found its lock taken. In a worker a skipped task must not look like a success.

    The message of a task that still runs may be delivered a second time, with the same id: then the result is
    left to the run that has the lock.
    """
    request = None if task is None else task.request
    if request is None or request.called_directly or request.is_eager:
        return
    if not (request.delivery_info or {}).get("redelivered"):
        task.backend.mark_as_revoked(request.id, SKIPPED, request, store_result=not task.ignore_result)
    raise Ignore


def _task_of(run: Callable[..., Any]) -> Any:
    """The running task, if its body is ``run``. None: a program or another task has called ``run``."""
    task = body = current_task._get_current_object()
    while body is not None and body is not run:
        body = getattr(body, "__wrapped__", None)
    return None if body is None else task


def queued_once(client: FastRedlock | ShardedRedlock, name: JobName = None, *, expiry: float) -> type[Task]:
    """A base class of tasks: a task is not sent while it is queued or running already.

    The lock is acquired when the task is sent, and released when its run ends, also by an exception. A
    ``self.retry()`` keeps it. So it makes the *message* unique. A broker may still deliver one message twice:
    where runs must exclude each other, use [`single_run`][redlock_fast.integrations.celery.single_run], too.

    A task that is not sent is logged as ``run-skipped``. The result that ``delay()`` and ``apply_async()``
    return has the state REVOKED then: ``get()`` raises TaskRevokedError. ``app.send_task()`` and a direct
    call of the task do not look at the lock.

    Args:
        client: The client for threads. The processes that send and the workers have the same masters.
        name: As for ``single_run``. The name of the lock is this one after ``queued:``, so the two differ.
        expiry: Seconds, at most the client's ``max_ttl``. A message that waits for longer, or was purged,
            hinders no other one any more. While the task runs, the lock is renewed.

    Examples:
        >>> @app.task(base=queued_once(client, lambda account: f"account:{account}", expiry=50))
        ... def refresh(account): ...

    Raises:
        ConfigError: An invalid client, name or expiry.
        QuorumUnavailable: ``delay()``: too few masters can be reached. Nothing was sent.
        LockLost: ``delay()``: to send the message took longer than ``expiry``. It was sent.
    """
    check_client(client, "threads")
    runs = single_runs(client.single_run, name, "skip", {}, ttl=expiry, auto_extend=False)

    class QueuedOnce(Task):  # type: ignore[misc]
        abstract = True

        def lock_name(self, args: Any, kwargs: Any) -> str | bytes:
            named = name_of(name, self.name, args or (), kwargs or {})
            return b"queued:" + named if isinstance(named, bytes) else f"queued:{named}"

        def apply_async(
            self, args: Any = None, kwargs: Any = None, task_id: str | None = None, **options: Any
        ) -> Any:
            headers = options.pop("headers", None) or {}
            if TOKEN in headers:  # a retry
                return super().apply_async(args, kwargs, task_id, headers=headers, **options)
            with runs(self.lock_name(args, kwargs)) as lock:
                if lock is None:
                    error = TaskRevokedError(NOT_SENT)
                    return EagerResult(task_id or uuid(), error, states.REVOKED, name=self.name)
                assert lock.token
                headers = {**headers, TOKEN: lock.token.hex()}
                sent = super().apply_async(args, kwargs, task_id, headers=headers, **options)
                lock.detach()
                return sent

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            if self.request.called_directly:
                return super().__call__(*args, **kwargs)
            token = (self.request.headers or {}).get(TOKEN)
            if token is None:
                return self.run(*args, **kwargs)
            lock = client.lock(
                self.lock_name(args, kwargs), expiry, token=bytes.fromhex(token), auto_extend=True
            )
            with contextlib.suppress(LockNotAcquired, LockLost):  # its lease has ended: nothing to keep
                lock.acquire(blocking=False)
            try:
                return self.run(*args, **kwargs)
            except Retry:  # the next message has the token
                with contextlib.suppress(LockLost):
                    lock.detach()
                raise
            finally:
                lock.release()

    return QueuedOnce
