"""Lock classes for the ``lock_class=`` of redis-py's and valkey-py's ``lock()``. Times are in seconds.

The lock is over a quorum of masters. The client that ``lock()`` is called on is not used and may belong to
any server. Errors are those of the client's library.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import threading
import weakref
from collections.abc import Awaitable, Iterable
from contextlib import AbstractContextManager
from types import SimpleNamespace, TracebackType
from typing import Any, ClassVar

from .. import AsyncLock, Lock, LockLost, QuorumUnavailable
from ..errors import ConfigError
from ..locks.config import check_masters
from ..wire.text import quoted
from ._clients import shared, shared_aio
from ._errors import translated
from ._masters import master_specs

logger = logging.getLogger("redlock_fast")


class _Settings:
    """Settings of both classes, and the errors of the client's library."""

    masters: ClassVar[tuple[Any, ...]] = ()
    options: ClassVar[dict[str, Any]] = {}

    def __init__(
        self,
        redis: Any,
        name: str | bytes,
        timeout: float | None = None,
        sleep: float = 0.1,
        blocking: bool = True,
        blocking_timeout: float | None = None,
        thread_local: bool = True,
        raise_on_release_error: bool = True,
    ) -> None:
        self.redis = redis
        self.name = name
        self.timeout = timeout
        self.sleep = sleep  # unused: the masters report when the lock is free
        self.blocking = blocking
        self.blocking_timeout = blocking_timeout
        self.thread_local = bool(thread_local)
        self.raise_on_release_error = raise_on_release_error
        library = type(redis).__module__.partition(".")[0]
        self._errors = importlib.import_module(f"{library if library == 'valkey' else 'redis'}.exceptions")

    def _acquire_args(
        self, blocking: bool | None, blocking_timeout: float | None, token: object
    ) -> tuple[bool, float]:
        if token is not None:
            raise ConfigError("token: tokens are drawn at random, so that no two holders have the same")
        blocking = self.blocking if blocking is None else blocking
        seconds = self.blocking_timeout if blocking_timeout is None else blocking_timeout
        return blocking, -1 if seconds is None or not blocking else seconds

    def _lock_options(self) -> dict[str, Any]:
        """Options of ``lock()``. Without a timeout the lock is extended while it is held."""
        return {"ttl": self.timeout, "auto_extend": self.timeout is None, "max_hold": None}

    def _new_ttl(self, held: Any, additional_time: float, replace_ttl: bool) -> float:
        if self.timeout is None:
            raise self._error("LockError", "Cannot extend a lock with no timeout")
        return additional_time if replace_ttl else held.remaining() + additional_time

    def _error(self, kind: str, text: str) -> Exception:
        error: Exception = getattr(self._errors, kind)(text)
        return error

    def _unlocked(self) -> Exception:
        return self._error("LockError", f"{quoted(self.name)}: not locked by this object")

    def _lost(self) -> Exception:
        why = f"{quoted(self.name)}: the lease had ended; others may hold it"
        return self._error("LockNotOwnedError", why)

    def _unavailable(self, error: QuorumUnavailable) -> Exception:
        return self._error("ConnectionError", str(error))

    def _translated(self) -> AbstractContextManager[None]:
        """Translate this library's errors into those of the client's library."""
        return translated({LockLost: lambda _: self._lost(), QuorumUnavailable: self._unavailable})


class QuorumLock(_Settings):
    """A lock class that [`lock_class`][] makes, with the methods and errors of ``redis.lock.Lock``."""

    def __init__(self, redis: Any, name: str | bytes, *args: Any, **settings: Any) -> None:
        super().__init__(redis, name, *args, **settings)
        self._client = shared(self.masters, self.options)
        self._local: Any = threading.local() if self.thread_local else SimpleNamespace()

    def acquire(
        self,
        sleep: float | None = None,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: None = None,
    ) -> bool:
        """True: acquired. False: another holder has it. Raises ConnectionError if too few masters answer.

        ``blocking_timeout``: seconds to try; None: no end. ``sleep`` is ignored. ConfigError for a ``token``.
        """
        acquire_args = self._acquire_args(blocking, blocking_timeout, token)
        lock = self._client.lock(self.name, **self._lock_options())
        with self._translated():
            granted = lock.acquire(*acquire_args)
        if granted:
            self._local.lock = lock
        return granted

    def release(self) -> None:
        """Release. Raises LockError if it was not acquired, LockNotOwnedError if the lease had ended."""
        held = self._held()
        self._local.lock = None
        if not held.release():
            raise self._lost()

    def extend(self, additional_time: float, replace_ttl: bool = False) -> bool:
        """Add ``additional_time`` seconds to the lease, or with ``replace_ttl`` count them from now.

        A lease is never shortened. Returns True. Raises LockError, LockNotOwnedError and ConnectionError.
        """
        held = self._held()
        return self._extend(held, self._new_ttl(held, additional_time, replace_ttl))

    def reacquire(self) -> bool:
        """Make the lease last ``timeout`` seconds from now; see [`QuorumLock.extend`][]."""
        return self._extend(self._held(), self._new_ttl(self._held(), self.timeout or 0, True))

    def _extend(self, held: Lock, ttl: float) -> bool:
        with self._translated():
            held.extend(ttl, confirm=True)
        return True

    def locked(self) -> bool:
        """Ask the masters whether the lock has a holder. Raises ConnectionError."""
        with self._translated():
            return self._client.locked(self.name)

    def owned(self) -> bool:
        """Whether this object holds the lock; in this thread, if it is ``thread_local``. No I/O."""
        held = getattr(self._local, "lock", None)
        return held is not None and held.locked()

    def _held(self) -> Lock:
        held: Lock | None = getattr(self._local, "lock", None)
        if held is None:
            raise self._unlocked()
        return held

    def __enter__(self) -> QuorumLock:
        if not self.acquire():
            raise self._error("LockError", f"{quoted(self.name)}: not acquired within the time specified")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.release()
        except self._errors.LockError as trouble:
            if self.raise_on_release_error and error is None:
                raise
            logger.warning("release-error: %s", trouble, extra={"event": "release-error"})


class AsyncQuorumLock(_Settings):
    """A lock class that [`async_lock_class`][] makes, like ``redis.asyncio.lock.Lock``.

    With ``thread_local``, the default, only the task that acquired the lock can release it.
    """

    def __init__(self, redis: Any, name: str | bytes, *args: Any, **settings: Any) -> None:
        super().__init__(redis, name, *args, **settings)
        self._locks: weakref.WeakKeyDictionary[object, AsyncLock] = weakref.WeakKeyDictionary()

    async def acquire(
        self, blocking: bool | None = None, blocking_timeout: float | None = None, token: None = None
    ) -> bool:
        """See [`QuorumLock.acquire`][]. A cancelled acquire leaves no key on the masters."""
        acquire_args = self._acquire_args(blocking, blocking_timeout, token)
        lock = shared_aio(self.masters, self.options).lock(self.name, **self._lock_options())
        with self._translated():
            granted = await lock.acquire(*acquire_args)
        if granted:
            self._locks[self._owner()] = lock
        return granted

    async def release(self) -> None:
        """See [`QuorumLock.release`][]."""
        held = self._held()
        del self._locks[self._owner()]
        if not await held.release():
            raise self._lost()

    def extend(self, additional_time: float, replace_ttl: bool = False) -> Awaitable[bool]:
        """See [`QuorumLock.extend`][]."""
        held = self._held()
        return self._extend(held, self._new_ttl(held, additional_time, replace_ttl))

    def reacquire(self) -> Awaitable[bool]:
        """See [`QuorumLock.reacquire`][]."""
        return self._extend(self._held(), self._new_ttl(self._held(), self.timeout or 0, True))

    async def _extend(self, held: AsyncLock, ttl: float) -> bool:
        with self._translated():
            await held.extend(ttl, confirm=True)
        return True

    async def locked(self) -> bool:
        """See [`QuorumLock.locked`][]."""
        with self._translated():
            return await shared_aio(self.masters, self.options).locked(self.name)

    async def owned(self) -> bool:
        """See [`QuorumLock.owned`][]."""
        held = self._locks.get(self._owner())
        return held is not None and held.locked()

    def _owner(self) -> object:
        return asyncio.current_task() if self.thread_local else self

    def _held(self) -> AsyncLock:
        held = self._locks.get(self._owner())
        if held is None:
            raise self._unlocked()
        return held

    async def __aenter__(self) -> AsyncQuorumLock:
        if not await self.acquire():
            raise self._error("LockError", f"{quoted(self.name)}: not acquired within the time specified")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.release()
        except self._errors.LockError as trouble:
            if self.raise_on_release_error and error is None:
                raise
            logger.warning("release-error: %s", trouble, extra={"event": "release-error"})


def lock_class(masters: Iterable[Any], **options: Any) -> type[QuorumLock]:
    """A class for ``lock_class=`` of ``redis.Redis.lock`` and ``valkey.Valkey.lock``.

    ``masters``: URLs or clients. ``options``: options of FastRedlock. Raises ConfigError; no I/O.

    Examples:
        >>> QuorumLock = lock_class(["redis://a", "redis://b", "redis://c"])
        >>> with redis.Redis().lock("orders:42", timeout=10, lock_class=QuorumLock):
        ...     ship("orders:42")
    """
    return type("QuorumLock", (QuorumLock,), _checked(masters, options))


def async_lock_class(masters: Iterable[Any], **options: Any) -> type[AsyncQuorumLock]:
    """[`lock_class`][] for ``redis.asyncio.Redis.lock`` and ``valkey.asyncio.Valkey.lock``."""
    return type("AsyncQuorumLock", (AsyncQuorumLock,), _checked(masters, options))


def _checked(masters: Iterable[Any], options: dict[str, Any]) -> dict[str, Any]:
    masters = tuple(masters)
    check_masters([spec.master for spec in master_specs(masters)])  # raises ConfigError early
    return {"masters": masters, "options": options, "__doc__": "A lock over a quorum of masters."}
