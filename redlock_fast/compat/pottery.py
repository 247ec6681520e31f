"""Replaces pottery's locks: ``Redlock``, ``AIORedlock``, ``synchronize``. Times are in seconds."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from contextlib import AbstractContextManager
from functools import partial, wraps
from typing import Any, ClassVar, ParamSpec, TypeVar, Unpack

from .. import LockLost, QuorumUnavailable
from .. import TooManyExtensions as OurTooManyExtensions
from ..aio.rlock import coroutine_function
from ..errors import ConfigError, reduced
from ..locks.client_base import BaseClient
from ..locks.decorated import check_plain
from ..locks.options import FastRedlockOptions
from ._clients import keep_aio, shared, shared_aio
from ._errors import translated
from ._holder import LockHolder, TaskLockHolder
from ._holds import Hold, Owner
from ._masters import master_list
from ._times import time_left

P = ParamSpec("P")
R = TypeVar("R")

LOCALHOST = ("redis://localhost:6379/0",)
#: The prefix of each key in pottery, before a colon.
PREFIX = "redlock"


class PrimitiveError(Exception):
    """Base class of the errors of this module, with ``key``, ``masters`` and ``redis_errors``.

    ``masters``: as the caller passed them. A pickle or a copy has the ``repr()`` of each master that is a
    client, because connections cannot be copied.
    """

    def __init__(self, key: str, masters: Iterable[Any] = (), redis_errors: Iterable[Exception] = ()) -> None:
        super().__init__(key)
        self.key = key
        self.masters = masters
        self.redis_errors: list[Exception] = list(redis_errors)

    def __str__(self) -> str:
        return "; ".join([self.key, *map(str, self.redis_errors)])

    def __reduce__(self) -> tuple[Any, ...]:
        made, args, attributes = reduced(self)
        masters = frozenset(one if isinstance(one, str) else repr(one) for one in self.masters)
        return made, args, attributes | {"masters": masters}


class QuorumNotAchieved(PrimitiveError, RuntimeError):
    """The lock was not acquired, or not extended."""


class QuorumIsImpossible(PrimitiveError, RuntimeError):
    """Too few masters answered; raised only with ``raise_on_redis_errors``."""


class TooManyExtensions(PrimitiveError, RuntimeError):
    """The lock was extended ``num_extensions`` times already."""


class ExtendUnlockedLock(PrimitiveError, RuntimeError):
    """The lock is not held, or its lease has ended."""


class ReleaseUnlockedLock(PrimitiveError, RuntimeError):
    """The lock was not held, or its lease had ended."""


def _set_of(masters: Iterable[Any]) -> frozenset[Any]:
    """``masters``, which pottery keeps in a set. Raises ConfigError for a dict of settings as a master."""
    listed = master_list(masters)
    try:
        return frozenset(listed)
    except TypeError as error:
        raise ConfigError(f"masters: each must be a URL or a client: {error}") from None


def seconds_of(timeout: float) -> float:
    """``timeout``; -1 has no end. Raises ConfigError."""
    return -1 if timeout == -1 else time_left("timeout", timeout)


class _Settings:
    """Settings of both classes, and the methods that need no I/O. ``options``: options of FastRedlock."""

    _NUM_EXTENSIONS: ClassVar[int] = 3
    _DEFAULT_MASTERS: ClassVar[tuple[str, ...]] = LOCALHOST

    def __init__(
        self,
        *,
        key: str,
        masters: Iterable[Any] = frozenset(),
        raise_on_redis_errors: bool = False,
        auto_release_time: float = 10,
        num_extensions: int = _NUM_EXTENSIONS,
        context_manager_blocking: bool = True,
        context_manager_timeout: float = -1,
        **options: Unpack[FastRedlockOptions],
    ) -> None:
        super().__init__()  # the holder of the lock
        if not context_manager_blocking and context_manager_timeout != -1:
            raise ConfigError("context_manager_timeout must be -1 where context_manager_blocking is False")
        self.key = key
        self.masters: Iterable[Any] = _set_of(masters) or self._DEFAULT_MASTERS
        self.raise_on_redis_errors = raise_on_redis_errors
        self.auto_release_time = auto_release_time
        self.num_extensions = num_extensions
        self.context_manager_blocking = context_manager_blocking
        self.context_manager_timeout = context_manager_timeout
        self._options: dict[str, Any] = {**options}

    @property
    def key(self) -> str:
        """The key on the masters. It is set without the prefix, as in pottery."""
        return self._key

    @key.setter
    def key(self, key: str) -> None:
        self._key = f"{PREFIX}:{key}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} key={self.key}>"

    def _error(self, kind: type[PrimitiveError], cause: Exception | None = None) -> PrimitiveError:
        return kind(self.key, self.masters, getattr(cause, "causes", ()))

    def _loud(self, raise_on_redis_errors: bool | None) -> bool:
        return self.raise_on_redis_errors if raise_on_redis_errors is None else raise_on_redis_errors

    def _raise_unavailable(self, error: QuorumUnavailable, loud: bool | None) -> None:
        """Raise QuorumIsImpossible if ``loud``; otherwise an outage looks like contention."""
        if self._loud(loud):
            raise self._error(QuorumIsImpossible, error) from error

    def _translated(self, loud: bool | None, quiet: type[PrimitiveError]) -> AbstractContextManager[None]:
        """Translate this library's errors. Too few masters are ``quiet``, if this is not ``loud``."""
        return translated(
            {
                LockLost: partial(self._error, ExtendUnlockedLock),
                OurTooManyExtensions: partial(self._error, TooManyExtensions),
                QuorumUnavailable: partial(self._error, QuorumIsImpossible if self._loud(loud) else quiet),
            }
        )

    def _doubtful(self, client: BaseClient, loud: bool | None) -> bool:
        """Whether ``release`` must ask if a quorum of masters answers: pottery reports that."""
        connections, lists = client._core.masters.connector.connections, client._core.policy.voters.lists
        usable = sum(map(connections.is_usable, range(lists.masters)))
        return self._loud(loud) or usable < lists.least


class Redlock(_Settings, LockHolder):
    """A lock with the signature of ``threading.Lock``; its lease ends after ``auto_release_time`` seconds.

    A thread that acquired the lock releases and extends its own hold only; see [`AIORedlock`][].

    Examples:
        >>> with Redlock(key="orders:42", masters={redis.Redis(port=6379)}):
        ...     ship("orders:42")
    """

    def acquire(
        self, *, blocking: bool = True, timeout: float = -1, raise_on_redis_errors: bool | None = None
    ) -> bool:
        """True: acquired. False: another holder has the lock, or too few masters answered.

        ``raise_on_redis_errors``: raise QuorumIsImpossible if too few masters answered.
        """
        client = shared(self.masters, self._options)
        lock = client.lock(self.key, self.auto_release_time, max_extensions=self.num_extensions)
        try:
            return self._acquire_lock(lock, blocking, seconds_of(timeout))
        except QuorumUnavailable as error:
            self._raise_unavailable(error, raise_on_redis_errors)
            return False

    def locked(self, *, raise_on_redis_errors: bool | None = None) -> float:
        """Seconds that are left of the lease; 0 if this object does not hold the lock. No I/O."""
        return self._lock.remaining() if self._lock is not None else 0

    def extend(self, *, raise_on_redis_errors: bool | None = None) -> None:
        """Make the lease last ``auto_release_time`` seconds from now.

        Raises TooManyExtensions, and ExtendUnlockedLock, also if too few masters answered. The latter is
        QuorumIsImpossible with ``raise_on_redis_errors``.
        """
        if self._lock is None:
            raise self._error(ExtendUnlockedLock)
        with self._translated(raise_on_redis_errors, ExtendUnlockedLock):
            self._lock.extend(self.auto_release_time, confirm=True)

    def release(self, *, raise_on_redis_errors: bool | None = None) -> None:
        """Release the lock. Raises ReleaseUnlockedLock if it was not held or its lease had ended.

        If too few masters answer, it raises the same, or QuorumIsImpossible with ``raise_on_redis_errors``.
        The masters get the release after they are connected again.
        """
        alive = self._release_lock()
        client = shared(self.masters, self._options)
        if self._doubtful(client, raise_on_redis_errors):
            with self._translated(raise_on_redis_errors, ReleaseUnlockedLock):
                client.locked(self.key)
        if not alive:
            raise self._error(ReleaseUnlockedLock)

    def __enter__(self) -> Redlock:
        if not self.acquire(blocking=self.context_manager_blocking, timeout=self.context_manager_timeout):
            raise self._error(QuorumNotAchieved)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.release()
        except ReleaseUnlockedLock:
            if kind is None:
                raise


class AIORedlock(_Settings, TaskLockHolder):
    """Redlock for asyncio. ``masters``: clients of ``redis.asyncio``, or anything that Redlock accepts.

    They have no default, as in pottery: without masters, methods raise ConfigError.

    Any task may release the lock, as in pottery. But a task that acquired it itself releases and extends only
    its own hold: when its lease has ended, and another task has acquired the same object, the late task
    cannot release the lock of the other one.
    """

    _DEFAULT_MASTERS: ClassVar[tuple[str, ...]] = ()

    @coroutine_function
    def acquire(
        self, *, blocking: bool = True, timeout: float = -1, raise_on_redis_errors: bool | None = None
    ) -> Coroutine[Any, Any, bool]:
        """See [`Redlock.acquire`][]. A cancelled acquire leaves no key on the masters."""
        return self._acquire(self._holds.owner(), blocking, timeout, raise_on_redis_errors)

    async def _acquire(
        self, owner: Owner | None, blocking: bool, timeout: float, raise_on_redis_errors: bool | None
    ) -> bool:
        client = shared_aio(self.masters, self._options)
        lock = client.lock(self.key, self.auto_release_time, max_extensions=self.num_extensions)
        try:
            granted = await lock.acquire(blocking, seconds_of(timeout))
        except QuorumUnavailable as error:
            self._raise_unavailable(error, raise_on_redis_errors)
            return False
        if granted:
            keep_aio(lock)
            self._holds.begin(owner).grant(lock, lock.token)
        return granted

    @coroutine_function
    def locked(self, *, raise_on_redis_errors: bool | None = None) -> Coroutine[Any, Any, float]:
        """See [`Redlock.locked`][]."""
        return self._remaining(self._holds.current())

    async def _remaining(self, hold: Hold) -> float:
        return hold.lock.remaining() if hold.lock is not None else 0

    @coroutine_function
    def extend(self, *, raise_on_redis_errors: bool | None = None) -> Coroutine[Any, Any, None]:
        """See [`Redlock.extend`][]."""
        return self._extend(self._holds.current(), raise_on_redis_errors)

    async def _extend(self, hold: Hold, raise_on_redis_errors: bool | None) -> None:
        if hold.lock is None:
            raise self._error(ExtendUnlockedLock)
        with self._translated(raise_on_redis_errors, ExtendUnlockedLock):
            await hold.lock.extend(self.auto_release_time, confirm=True)

    @coroutine_function
    def release(self, *, raise_on_redis_errors: bool | None = None) -> Coroutine[Any, Any, None]:
        """See [`Redlock.release`][]."""
        return self._release(self._holds.current(), self._holds.owner(), raise_on_redis_errors)

    async def _release(self, hold: Hold, owner: Owner | None, raise_on_redis_errors: bool | None) -> None:
        lock, hold.lock = hold.lock, None
        self._holds.end(hold, owner)
        alive = lock is not None and await lock.release()
        client = shared_aio(self.masters, self._options)
        if self._doubtful(client, raise_on_redis_errors):
            with self._translated(raise_on_redis_errors, ReleaseUnlockedLock):
                await client.locked(self.key)
        if not alive:
            raise self._error(ReleaseUnlockedLock)

    async def __aenter__(self) -> AIORedlock:
        blocking, timeout = self.context_manager_blocking, self.context_manager_timeout
        if not await self.acquire(blocking=blocking, timeout=timeout):
            raise self._error(QuorumNotAchieved)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            await self.release()
        except ReleaseUnlockedLock:
            if kind is None:
                raise


def synchronize(
    *,
    key: str,
    masters: Iterable[Any] = frozenset(),
    blocking: bool = True,
    timeout: float = -1,
    **settings: Any,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorator: the function runs only while it holds the lock on ``key``. Raises QuorumNotAchieved."""
    settings |= {"context_manager_blocking": blocking, "context_manager_timeout": timeout}
    made = partial(Redlock, key=key, masters=_set_of(masters), **settings)

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        check_plain(function, "synchronize")

        @wraps(function)
        def locked(*args: P.args, **kwargs: P.kwargs) -> R:
            with made():  # a lock object for each call: several threads may call at the same time
                return function(*args, **kwargs)

        return locked

    return decorate
