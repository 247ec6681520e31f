"""In place of redlock-plus: ``Lock``, ``RLock``, their factories. Milliseconds, but seconds to wait."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any, ClassVar, Literal

from .. import Lock as OurLock
from ..algorithm.quorum import Retry
from ..errors import LockLost, QuorumUnavailable
from ..wire.text import quoted
from ._clients import shared


class RedlockError(Exception):
    """Base of all; by itself: masters are down, or the lease ended before the body of ``with`` did."""


class InvalidOperationError(RedlockError):
    """Release or extension of a lock that this object never acquired."""


class InsufficientNodesError(RedlockError):
    """Never raised here: any number of masters from one on will do, if it is meant."""


class Lock:
    """A lock on ``resource_name``, with the signature of ``threading.Lock``. ``ttl`` in milliseconds;
    ``retry_delay``: milliseconds between two attempts, at most. ``options``: of FastRedlock.

    ``retry_times`` bounds nothing: ``timeout`` does, as the original says.
    """

    def __init__(
        self,
        resource_name: str,
        connection_details: Iterable[Any] | None = None,
        nodes: Iterable[Any] | None = None,
        retry_times: int = 3,
        retry_delay: float = 200,
        ttl: float = 120_000,
        **options: Any,
    ) -> None:
        masters = connection_details or nodes
        if not masters:
            raise ValueError("connection_details or nodes: the masters are missing")
        self.resource_name = resource_name
        self.retry_times = retry_times
        self.retry_delay = retry_delay
        self.ttl = ttl
        retry = Retry(retry_delay / 2000, retry_delay / 1000)
        self._client = shared(masters, {"retry": retry, **options})
        self._lock: OurLock | None = None

    def acquire(
        self,
        blocking: bool = True,
        timeout: float = -1,
        autoextend: bool = True,
        autoextend_timeout: float | None = None,
    ) -> float | Literal[False]:
        """Milliseconds for which it is held at least, or False: others hold it.

        ``timeout``: seconds. ``autoextend``: extended in the background as long as it is held, for
        ``autoextend_timeout`` seconds. Raises RedlockError where masters are down, ValueError for a
        timeout that means nothing.
        """
        kept: dict[str, Any] = {"max_extensions": None}
        if autoextend:
            kept = {"auto_extend": True, "max_extensions": None, "max_hold": autoextend_timeout}
        lock = self._client.lock(self.resource_name, self.ttl / 1000, **kept)
        try:
            granted = lock.acquire(blocking, timeout)
        except QuorumUnavailable as error:
            raise RedlockError(str(error)) from error
        if not granted:
            return False
        self._lock = lock
        return lock.validity * 1000

    def extend(self) -> float | Literal[False]:
        """Milliseconds for which it is held from now on, or False: it is lost, or masters are down."""
        try:
            return self._acquired().extend() * 1000
        except (LockLost, QuorumUnavailable):
            return False

    def locked(self) -> bool:
        """Whether this object holds the lock now."""
        return self._lock is not None and self._lock.locked()

    def release(self) -> bool:
        """False: the lease had ended before. Raises InvalidOperationError if it was never acquired."""
        return self._acquired().release()

    def _acquired(self) -> OurLock:
        if self._lock is None:
            raise InvalidOperationError(f"{quoted(self.resource_name)} was not acquired by this object")
        return self._lock

    def __enter__(self) -> float:
        validity = self.acquire()
        if validity is False:
            raise RedlockError(f"{quoted(self.resource_name)} was not acquired")
        return validity

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if not self.release() and kind is None:
            raise RedlockError(f"{quoted(self.resource_name)}: the lease ended before the body did")


class RLock(Lock):
    """The thread that holds it may acquire it again, and has to release it as often."""

    def __init__(self, resource_name: str, *args: Any, **options: Any) -> None:
        super().__init__(resource_name, *args, **options)
        self._owner: int | None = None
        self._depth = 0

    def acquire(
        self,
        blocking: bool = True,
        timeout: float = -1,
        autoextend: bool = False,
        autoextend_timeout: float | None = None,
    ) -> float | Literal[False]:
        """As that of Lock; without extension, unless it is asked for."""
        me = threading.get_ident()
        if self._owner == me and self._lock is not None and self._lock.locked():
            self._depth += 1
            return self._lock.remaining() * 1000
        validity = super().acquire(blocking, timeout, autoextend, autoextend_timeout)
        if validity is not False:
            self._owner, self._depth = me, 1
        return validity

    def release(self) -> bool:
        """As that of Lock; raises InvalidOperationError in another thread than the holder's, too."""
        if self._owner != threading.get_ident():
            raise InvalidOperationError(f"{quoted(self.resource_name)} is not held by this thread")
        self._depth -= 1
        if self._depth:
            return self.locked()
        self._owner = None
        return super().release()


class LockFactory:
    """Makes locks on the masters of ``connection_details``; ``settings``: what they have in common."""

    lock_class: ClassVar[type[Lock]] = Lock

    def __init__(
        self, connection_details: Iterable[Any], lock_class: type[Lock] | None = None, **settings: Any
    ) -> None:
        self._masters = list(connection_details)
        self._class = lock_class or self.lock_class
        self._settings = settings

    def __call__(self, resource_name: str, **settings: Any) -> Lock:
        return self._class(resource_name, self._masters, **{**self._settings, **settings})


class RLockFactory(LockFactory):
    """The same for locks that may be acquired again."""

    lock_class = RLock
