"""Lock classes for the ``lock_class=`` of redis-py's and valkey-py's ``lock()``. Times are in seconds.

The lock is over a quorum of masters. The client that ``lock()`` is called on is not used and may belong to
any server. Errors are those of the client's library. For programs that pass no ``lock_class`` there are
clients whose ``lock()`` makes these locks.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import re
from collections.abc import Awaitable, Coroutine, Iterable
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Unpack

from .. import AsyncFastRedlock, AsyncLock, Lock, LockLost, QuorumUnavailable
from ..aio.rlock import coroutine_function
from ..algorithm.keys import encoded
from ..errors import ConfigError
from ..locks.config import check_lists
from ..locks.lock_state import LockState
from ..locks.options import FastRedlockOptions
from ..telemetry import log_outcome
from ..wire.text import quoted
from ._clients import keep, keep_aio, masters_of, shared, shared_aio, with_specs
from ._errors import Dictionary, translated
from ._holds import Hold, Holds, Owner, ThreadHold, task_holds, thread_holds
from ._masters import master_list, master_specs
from ._names import encodable
from ._times import check_seconds, time_left

#: Matches a script that makes a lease last ARGV[2] milliseconds from now, as that of RedBeat does.
_EXTENDS_FROM_NOW = re.compile(r"[^+]*'pexpire'\s*,\s*KEYS\[1\]\s*,\s*ARGV\[2\]\s*\)[^+]*")


def _library_of(client: type[Any]) -> str:
    """The package of a class of clients or of its bases: "redis" or "valkey"."""
    packages = {kind.__module__.partition(".")[0] for kind in client.__mro__}
    return "valkey" if "valkey" in packages else "redis"


class _Settings:
    """Settings of both classes, and the errors of the client's library."""

    masters: ClassVar[tuple[Any, ...]] = ()
    options: ClassVar[dict[str, Any]] = {}

    def __init__(
        self,
        redis: Any,
        name: str | bytes | memoryview | int | float,
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
        self.thread_local: bool = bool(thread_local)
        self.raise_on_release_error = raise_on_release_error
        self._resource: str | bytes = encodable(name)
        self._extends_from_now = False
        self._errors = importlib.import_module(f"{_library_of(type(redis))}.exceptions")

    # --- the scripts that programs replace in redis-py's class ---

    @property
    def lua_extend(self) -> Any:
        """None: the masters run the scripts of this library.

        Only a script that makes the lease last ``ARGV[2]`` milliseconds from now may be set, as RedBeat does:
        then [`QuorumLock.extend`][] counts from now. Raises ConfigError for other scripts.
        """
        return None

    @lua_extend.setter
    def lua_extend(self, script: Any) -> None:
        if not _EXTENDS_FROM_NOW.fullmatch(str(getattr(script, "script", script))):
            raise ConfigError(
                "lua_extend: the masters run the scripts of this library; only a script that makes the lease "
                "last ARGV[2] milliseconds from now can take its place"
            )
        self._extends_from_now = True

    @property
    def lua_release(self) -> Any:
        """None: the masters run the scripts of this library. It cannot be set."""
        return None

    @property
    def lua_reacquire(self) -> Any:
        """None, as ``lua_release``."""
        return None

    # --- arguments ---

    def _acquire_args(
        self, blocking: bool | None, blocking_timeout: float | None, token: object
    ) -> tuple[bool, float]:
        if token is not None:
            raise ConfigError(
                "token: tokens are drawn at random, because a failed acquire takes its token back from all "
                "masters: with the token of a holder that would free the lock; local.token has the token"
            )
        blocking = self.blocking if blocking is None else blocking
        seconds = self.blocking_timeout if blocking_timeout is None else blocking_timeout
        if seconds is None or not blocking:
            return blocking, -1
        return True, time_left("blocking_timeout", seconds)

    def _lock_options(self) -> dict[str, Any]:
        """Options of ``lock()``. Without a timeout the lock is extended while it is held."""
        endless = not self.timeout
        return {"ttl": None if endless else self.timeout, "auto_extend": endless, "max_hold": None}

    def _lock_of(self, hold: Hold, client: Any) -> Any:
        """The lock of ``hold``. A token that the program has set stands for a lock acquired elsewhere."""
        if hold.token is None:
            raise self._error("LockError", f"{quoted(self._resource)}: not locked by this object")
        if hold.token != hold.granted:
            token = encoded("token", encodable(hold.token))
            hold.grant(client.lock(self._resource, self.timeout or None, token=token), token)
        return hold.lock

    def _new_ttl(self, held: LockState, additional_time: float, replace_ttl: bool) -> float:
        """The lease from now on in seconds. A sum of times is at most ``max_ttl``."""
        if not self.timeout:
            raise self._error("LockError", "Cannot extend a lock with no timeout")
        with self._translated(bad_ttl=True):
            check_seconds("additional_time", additional_time)
        if not replace_ttl and not self._extends_from_now:
            additional_time = min(held.remaining() + additional_time, held._core.max_ttl)
        return additional_time

    # --- errors ---

    def _error(self, kind: str, text: str) -> Exception:
        error: Exception = getattr(self._errors, kind)(text)
        if isinstance(error, self._errors.LockError):
            error.lock_name = self.name
        return error

    def _not_acquired(self) -> Exception:
        return self._error("LockError", f"{quoted(self._resource)}: not acquired within the time specified")

    def _lost(self) -> Exception:
        why = f"{quoted(self._resource)}: the lease had ended; others may hold it"
        return self._error("LockNotOwnedError", why)

    def _translated(self, *, bad_ttl: bool = False) -> AbstractContextManager[None]:
        """Translate errors into those of the client's library; with ``bad_ttl`` also ConfigError."""
        errors: Dictionary = {
            LockLost: lambda _: self._lost(),
            QuorumUnavailable: lambda error: self._error("ConnectionError", str(error)),
        }
        if bad_ttl:
            errors[ConfigError] = lambda error: self._error("LockError", str(error))
        return translated(errors)

    def _left(self, trouble: Exception, failing: bool) -> None:
        """Raise an error of the release at the end of ``with``; log it where the body has raised another."""
        if self.raise_on_release_error and not failing:
            raise trouble
        log_outcome("release-error", str(trouble), reason=type(trouble).__name__, level=logging.WARNING)


class QuorumLock(_Settings):
    """A lock class that [`lock_class`][] makes, with the methods and errors of ``redis.lock.Lock``.

    ``local.token``: the token of the held lock, or None. A program may set it to the token of a lock that
    another object or process acquired, to release or extend that lock here.

    With ``thread_local``, the default, only the thread that acquired the lock may release it. Otherwise any
    thread may. But a thread that acquired the lock itself releases and extends only its own hold: when its
    lease has ended, and another thread has acquired the same object, it cannot release the lock of that one.
    """

    def __init__(self, redis: Any, name: str | bytes | memoryview | int, *args: Any, **settings: Any) -> None:
        super().__init__(redis, name, *args, **settings)
        self._client = shared(self.masters, self.options)
        self.local: ThreadHold | Holds = ThreadHold() if self.thread_local else thread_holds()

    def acquire(
        self,
        sleep: float | None = None,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: None = None,
    ) -> bool:
        """True: acquired. False: another holder has it. Raises ConnectionError if too few masters answer.

        ``blocking_timeout``: seconds to try; None: no end; 0 or less: one attempt. ``sleep`` is ignored.
        ConfigError for a ``token``: tokens are drawn at random, see ``local.token``.
        """
        acquire_args = self._acquire_args(blocking, blocking_timeout, token)
        lock = self._client.lock(self._resource, **self._lock_options())
        try:
            with self._translated():
                granted = lock.acquire(*acquire_args)
            if granted:
                keep(lock)
                local = self.local
                hold = local.begin(local.owner()) if isinstance(local, Holds) else local
                hold.grant(lock, lock.token)
            return granted
        except BaseException:
            lock.release()  # a signal handler may raise after the grant
            raise

    def release(self) -> None:
        """Release. Raises LockError if it was not acquired, LockNotOwnedError if the lease had ended."""
        held, local, hold = self._held(), self.local, self._hold()
        try:
            if isinstance(local, Holds):
                local.end(hold, local.owner())
            hold.token = None
            alive = held.release()
        except BaseException:
            held.release()  # a signal handler raised, perhaps before the release began
            raise
        if not alive:
            raise self._lost()

    def extend(self, additional_time: float, replace_ttl: bool = False) -> bool:
        """Add ``additional_time`` seconds to the lease, or with ``replace_ttl`` count them from now.

        A lease is never shortened. A sum is at most ``max_ttl``. Returns True. Raises LockError, also for an
        ``additional_time`` above ``max_ttl``, LockNotOwnedError and ConnectionError.
        """
        held = self._held()
        ttl = self._new_ttl(held, additional_time, replace_ttl)
        with self._translated(bad_ttl=True):
            held.extend(ttl, confirm=True)
        return True

    def reacquire(self) -> bool:
        """Make the lease last ``timeout`` seconds from now; see [`QuorumLock.extend`][]."""
        return self.extend(self.timeout or 0, replace_ttl=True)

    def locked(self) -> bool:
        """Ask the masters whether the lock has a holder. Raises ConnectionError."""
        with self._translated():
            return self._client.locked(self._resource)

    def owned(self) -> bool:
        """Whether this object holds the lock; in this thread, if it is ``thread_local``. No I/O."""
        return self.local.token is not None and self._held().locked()

    def _hold(self) -> Hold:
        return self.local.current() if isinstance(self.local, Holds) else self.local

    def _held(self) -> Lock:
        lock: Lock = self._lock_of(self._hold(), self._client)
        return lock

    def __enter__(self) -> QuorumLock:
        if not self.acquire():
            raise self._not_acquired()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.release()
        except self._errors.LockError as trouble:
            self._left(trouble, failing=kind is not None)


class AsyncQuorumLock(_Settings):
    """A lock class that [`async_lock_class`][] makes, like ``redis.asyncio.lock.Lock``.

    Any task may release the lock, as in redis-py. But a task that called ``acquire()`` only releases what it
    acquired. So a task whose lease has ended cannot release the lock of the next task that uses the same
    object. ``local.token``: see [`QuorumLock`][]. ``thread_local`` makes no difference.
    """

    def __init__(self, redis: Any, name: str | bytes | memoryview | int, *args: Any, **settings: Any) -> None:
        super().__init__(redis, name, *args, **settings)
        self.local: Holds = task_holds()

    @coroutine_function
    def acquire(
        self,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: None = None,
    ) -> Coroutine[Any, Any, bool]:
        """See [`QuorumLock.acquire`][]. A cancelled acquire leaves no key on the masters."""
        return self._acquire(self.local.owner(), blocking, blocking_timeout, token)

    async def _acquire(
        self,
        owner: Owner | None,
        blocking: bool | None,
        blocking_timeout: float | None,
        token: Any,
    ) -> bool:
        acquire_args = self._acquire_args(blocking, blocking_timeout, token)
        lock = self._client.lock(self._resource, **self._lock_options())
        with self._translated():
            granted = await lock.acquire(*acquire_args)
        if granted:
            keep_aio(lock)
            self.local.begin(owner).grant(lock, lock.token)
        return granted

    @coroutine_function
    def release(self) -> Coroutine[Any, Any, None]:
        """See [`QuorumLock.release`][]. A cancelled release still releases, and may be repeated."""
        return self._release(self.local.current(), self.local.owner())

    async def _release(self, hold: Hold, owner: Owner | None) -> None:
        held: AsyncLock = self._lock_of(hold, self._client)
        try:
            alive = hold.released or await held.release()
        except asyncio.CancelledError:
            hold.released = True
            raise
        self.local.end(hold, owner)
        if not alive:
            raise self._lost()

    def extend(self, additional_time: float, replace_ttl: bool = False) -> Awaitable[bool]:
        """See [`QuorumLock.extend`][]."""
        held = self._held()
        return self._extend(held, self._new_ttl(held, additional_time, replace_ttl))

    def reacquire(self) -> Awaitable[bool]:
        """See [`QuorumLock.reacquire`][]."""
        return self.extend(self.timeout or 0, replace_ttl=True)

    async def _extend(self, held: AsyncLock, ttl: float) -> bool:
        with self._translated(bad_ttl=True):
            await held.extend(ttl, confirm=True)
        return True

    async def locked(self) -> bool:
        """See [`QuorumLock.locked`][]."""
        with self._translated():
            return await self._client.locked(self._resource)

    async def owned(self) -> bool:
        """See [`QuorumLock.owned`][]."""
        return self.local.token is not None and self._held().locked()

    @property
    def _client(self) -> AsyncFastRedlock:
        return shared_aio(self.masters, self.options)

    def _held(self) -> AsyncLock:
        lock: AsyncLock = self._lock_of(self.local.current(), self._client)
        return lock

    async def __aenter__(self) -> AsyncQuorumLock:
        if not await self.acquire():
            raise self._not_acquired()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            await self.release()
        except self._errors.LockError as trouble:
            self._left(trouble, failing=kind is not None)


def lock_class(masters: Iterable[Any], **options: Unpack[FastRedlockOptions]) -> type[QuorumLock]:
    """A class for ``lock_class=`` of ``redis.Redis.lock`` and ``valkey.Valkey.lock``.

    ``masters``: URLs or clients. ``options``: options of FastRedlock. Raises ConfigError; no I/O.

    Examples:
        >>> QuorumLock = lock_class(["redis://a", "redis://b", "redis://c"])
        >>> with redis.Redis().lock("orders:42", timeout=10, lock_class=QuorumLock):
        ...     ship("orders:42")
    """
    return type("QuorumLock", (QuorumLock,), _checked(masters, options))


def async_lock_class(masters: Iterable[Any], **options: Unpack[FastRedlockOptions]) -> type[AsyncQuorumLock]:
    """[`lock_class`][] for ``redis.asyncio.Redis.lock`` and ``valkey.asyncio.Valkey.lock``."""
    return type("AsyncQuorumLock", (AsyncQuorumLock,), _checked(masters, options))


def client_class(
    masters: Iterable[Any], base: type[Any] | None = None, **options: Unpack[FastRedlockOptions]
) -> type[Any]:
    """A subclass of ``base`` (None: ``redis.Redis``) whose ``lock()`` is over a quorum of ``masters``.

    For programs that call ``client.lock()`` without a ``lock_class``, or with that of redis-py. All other
    commands go to the client's own server. ``options``: options of FastRedlock. Raises ConfigError; no I/O.

    Examples:
        >>> QuorumRedis = client_class(["redis://a", "redis://b", "redis://c"])
        >>> with QuorumRedis("cache").lock("orders:42", timeout=10):
        ...     ship("orders:42")
    """
    return _client_class("redis", base, lock_class(masters, **options))


def async_client_class(
    masters: Iterable[Any], base: type[Any] | None = None, **options: Unpack[FastRedlockOptions]
) -> type[Any]:
    """[`client_class`][] for ``redis.asyncio.Redis``, or another ``base``."""
    return _client_class("redis.asyncio", base, async_lock_class(masters, **options))


def _client_class(library: str, base: type[Any] | None, kind: type[Any]) -> type[Any]:
    base = importlib.import_module(library).Redis if base is None else base
    modules = (f"{_library_of(base)}.lock", f"{_library_of(base)}.asyncio.lock")
    originals = tuple(importlib.import_module(module).Lock for module in modules)

    class QuorumRedis(base):  # type: ignore[misc,valid-type]
        """A client whose ``lock()`` makes locks over a quorum of masters."""

        def lock(
            self,
            name: str | bytes | memoryview | int,
            timeout: float | None = None,
            sleep: float = 0.1,
            blocking: bool = True,
            blocking_timeout: float | None = None,
            lock_class: type[Any] | None = None,
            thread_local: bool = True,
            raise_on_release_error: bool = True,
        ) -> Any:
            """A lock over the quorum, or one of ``lock_class``, if that is not the class of the library."""
            chosen = kind if lock_class is None or lock_class in originals else lock_class
            return chosen(
                self, name, timeout=timeout, sleep=sleep, blocking=blocking,
                blocking_timeout=blocking_timeout, thread_local=thread_local,
                raise_on_release_error=raise_on_release_error,
            )  # fmt: skip

    return QuorumRedis


def _checked(masters: Iterable[Any], options: FastRedlockOptions) -> dict[str, Any]:
    masters = master_list(masters)
    joint = with_specs(options).get("joint_with")
    # Raises ConfigError early.
    check_lists(masters_of(master_specs(masters)), None if joint is None else masters_of(joint))
    return {"masters": masters, "options": options, "__doc__": "A lock over a quorum of masters."}
