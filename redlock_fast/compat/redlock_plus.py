"""Replaces redlock-plus: ``Lock``, ``RLock``, their factories. Milliseconds; timeouts are in seconds."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any, ClassVar, Literal, Unpack

from .. import Lock as OurLock
from ..errors import LockLost, QuorumUnavailable
from ..locks.batch_state import held_by, stop_auto_extension
from ..locks.options import DropInOptions
from ..wire.text import quoted
from ._clients import shared
from ._holder import LockHolder
from ._masters import clients_of, master_list
from ._names import encodable
from ._times import MILLISECONDS, check_seconds, retry_of, seconds_of_ttl


class RedlockError(Exception):
    """Base class; raised if too few masters answer, or the lease ended before the body of ``with`` did."""


class InvalidOperationError(RedlockError):
    """Release or extension of a lock that this object has not acquired."""


class InsufficientNodesError(RedlockError):
    """Never raised here: any number of masters is accepted, from one on."""


class Lock(LockHolder):
    """A lock on ``resource_name``, with the signature of ``threading.Lock``.

    ``ttl``: the lease in milliseconds. ``retry_delay``: milliseconds between two attempts at most.
    ``retry_times`` is ignored: ``timeout`` limits an acquire, and one with ``blocking=False`` is one attempt.
    ``nodes``: the masters, in place of ``connection_details``. ``options``: options of FastRedlock.
    Raises ValueError without masters, and ConfigError.

    Examples:
        >>> with Lock("orders:42", [{"host": "a", "port": 6379}], ttl=10_000):
        ...     ship("orders:42")
    """

    def __init__(
        self,
        resource_name: str,
        connection_details: Iterable[Any] | None = None,
        nodes: Iterable[Any] | None = None,
        retry_times: int = 3,
        retry_delay: float = 200,
        ttl: float = 120_000,
        **options: Unpack[DropInOptions],
    ) -> None:
        masters = connection_details if nodes is None else nodes
        if not masters:
            raise ValueError("connection_details or nodes: the masters are missing")
        super().__init__()
        self.resource_name = resource_name
        self.retry_times = retry_times
        self.retry_delay = retry_delay
        self.ttl = ttl
        seconds_of_ttl(ttl)  # raises ConfigError early
        retry = retry_of(retry_delay, units=MILLISECONDS)
        self._masters = master_list(masters)
        self._client = shared(self._masters, {"retry": retry, **options})
        self.quorum: int = self._client._core.policy.voters.lists.least

    @cached_property
    def redis_nodes(self) -> list[Any]:
        """A redis.Redis client for each master, to send other commands. Locks do not use these clients."""
        return clients_of(self._masters)

    def acquire(
        self,
        blocking: bool = True,
        timeout: float = -1,
        autoextend: bool = True,
        autoextend_timeout: float | None = None,
    ) -> float | Literal[False]:
        """The validity in milliseconds, or False: another holder has the lock.

        ``timeout``: seconds; 0 or less: no end. ``autoextend``: extend the lease in the background while the
        lock is held, for at most ``autoextend_timeout`` seconds. Raises RedlockError if too few masters
        answer, and ValueError for an invalid timeout.
        """
        kept: dict[str, Any] = {"auto_extend": True, "max_hold": autoextend_timeout} if autoextend else {}
        lock = self._client.lock(encodable(self.resource_name), seconds_of_ttl(self.ttl), **kept)
        if check_seconds("timeout", timeout) <= 0 and blocking:
            timeout = -1
        try:
            granted = self._acquire_lock(lock, blocking, timeout)
        except QuorumUnavailable as error:
            raise RedlockError(str(error)) from error
        return granted and lock.validity * MILLISECONDS

    def extend(self) -> float | Literal[False]:
        """Make the lease last ``ttl`` milliseconds from now.

        Returns the new validity in milliseconds, or False: the lock is lost, or too few masters answered.
        """
        try:
            return self._acquired().extend(seconds_of_ttl(self.ttl), confirm=True) * MILLISECONDS
        except (LockLost, QuorumUnavailable):
            return False

    def acquire_or_extend(self, *args: Any, **settings: Any) -> float | Literal[False]:
        """Extend the lock if this object holds it, or else acquire it. Arguments are those of ``acquire``."""
        return (self.locked() and self.extend()) or self.acquire(*args, **settings)

    def stop_autoextend(self) -> None:
        """Stop the extension in the background. The lease then ends by itself, or with ``release()``."""
        if self._lock is not None:
            stop_auto_extension(held_by(self._client._core, [self._lock]))

    def locked(self) -> bool:
        """Whether this object holds the lock now."""
        return self._lock is not None and self._lock.locked()

    def release(self) -> bool:
        """False: the lease had ended before. Raises InvalidOperationError if it was not acquired."""
        lock = None
        try:
            lock, hold = self._acquired(), self._holds.current()
            hold.depth = 0
            self._holds.end(hold, self._holds.owner())
            return lock.release()
        except BaseException:
            lock = lock or self._lock
            if lock is not None:
                lock.release()  # a signal handler raised, perhaps before the release began
            raise

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
    """A Lock that the holding thread may acquire again. It must release the lock as often."""

    def acquire(
        self,
        blocking: bool = True,
        timeout: float = -1,
        autoextend: bool = False,
        autoextend_timeout: float | None = None,
    ) -> float | Literal[False]:
        """As ``Lock.acquire``, but ``autoextend`` is off by default.

        Raises RedlockError if this thread lost the lock that it acquires again.
        """
        own = self._own_hold()
        if own is None:
            return super().acquire(blocking, timeout, autoextend, autoextend_timeout)
        left: float = own.lock.remaining()
        if not left:
            raise RedlockError(f"{quoted(self.resource_name)}: lost before it was acquired again")
        own.depth += 1
        return left * MILLISECONDS

    def acquire_or_extend(self, *args: Any, **settings: Any) -> float | Literal[False]:
        """Extend the lock if this thread holds it, or else acquire it. Each success needs a release."""
        own = self._own_hold()
        extended = own is not None and self.locked() and self.extend()
        if own is None or not extended:
            return self.acquire(*args, **settings)
        own.depth += 1
        return extended

    def release(self) -> bool:
        """As ``Lock.release``; InvalidOperationError also in a thread that does not hold the lock."""
        own = self._own_hold()
        if own is None:
            raise InvalidOperationError(f"{quoted(self.resource_name)} is not held by this thread")
        if own.depth > 1:
            own.depth -= 1
            return self.locked()
        return super().release()


class LockFactory:
    """Makes locks on the masters of ``connection_details``. ``settings``: arguments of all its locks."""

    lock_class: ClassVar[type[Lock]] = Lock

    def __init__(
        self, connection_details: Iterable[Any], lock_class: type[Lock] | None = None, **settings: Any
    ) -> None:
        self._masters = master_list(connection_details)
        self._class = lock_class or self.lock_class
        self._settings = settings

    @cached_property
    def redis_nodes(self) -> list[Any]:
        """See [`Lock.redis_nodes`][]."""
        return clients_of(self._masters)

    def __call__(self, resource_name: str, **settings: Any) -> Lock:
        settings = {**self._settings, **settings}
        return self._class(resource_name=resource_name, nodes=self._masters, **settings)


class RLockFactory(LockFactory):
    """A LockFactory that makes RLock objects."""

    lock_class: ClassVar[type[Lock]] = RLock
