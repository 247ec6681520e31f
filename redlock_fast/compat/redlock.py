"""Replaces redlock: ``RedLock``, ``ReentrantRedLock``, ``RedLockFactory``. Times are in milliseconds."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any, Unpack

from ..errors import LockLost, QuorumUnavailable
from ..locks.options import DropInOptions
from ..wire.text import quoted
from ._clients import shared
from ._holder import LockHolder
from ._masters import clients_of, master_list
from ._names import encodable
from ._times import MILLISECONDS, retry_of, seconds_of_ttl

LOCALHOST: tuple[dict[str, Any], ...] = ({"host": "localhost", "port": 6379, "db": 0},)


class RedLockError(Exception):
    """Not acquired, or too few masters answered, or the lease ended before the body of ``with`` did."""


class RedLock(LockHolder):
    """A lock on ``resource``.

    ``ttl``: the lease in milliseconds. ``retry_times``: number of attempts. ``retry_delay``: milliseconds
    between two attempts at most. ``connection_details``: None is a server on this machine. ``options``:
    options of FastRedlock. Raises ConfigError.

    Examples:
        >>> with RedLock("orders:42", [{"host": "a", "port": 6379}], ttl=10_000):
        ...     ship("orders:42")
    """

    #: The factory that made the lock.
    factory: RedLockFactory | None = None

    def __init__(
        self,
        resource: str,
        connection_details: Iterable[Any] | None = None,
        retry_times: int = 3,
        retry_delay: float = 200,
        ttl: float = 100_000,
        **options: Unpack[DropInOptions],
    ) -> None:
        super().__init__()
        self.resource = resource
        self.retry_times = retry_times
        self.retry_delay = retry_delay
        self.ttl = ttl
        seconds_of_ttl(ttl)  # raises ConfigError early
        retry = retry_of(retry_delay, retry_times, units=MILLISECONDS)
        # An empty list is an error: a program without its settings must not lock on a server of each machine.
        self._masters = master_list(LOCALHOST if connection_details is None else connection_details)
        self._client = shared(self._masters, {"retry": retry, **options})
        self.quorum: int = self._client._core.policy.voters.lists.least

    @cached_property
    def redis_nodes(self) -> list[Any]:
        """A redis.Redis client for each master, to send other commands. Locks do not use these clients."""
        return clients_of(self._masters) if self.factory is None else self.factory.redis_nodes

    def acquire(self) -> bool:
        """True: acquired. False: another holder had it. Raises RedLockError if too few masters answer."""
        # An object for each hold: no token is lost.
        lock = self._client.lock(encodable(self.resource), seconds_of_ttl(self.ttl))
        try:
            return self._acquire_lock(lock)
        except QuorumUnavailable as error:
            raise RedLockError(str(error)) from error

    def release(self) -> None:
        """Release the lock if this object holds it. Never raises because of masters."""
        self._release()

    def _release(self) -> bool:
        return self._release_lock()

    def __enter__(self) -> None:
        if not self.acquire():
            raise RedLockError("failed to acquire lock")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if not self._release() and kind is None:
            raise RedLockError("the lease ended before the body did") from LockLost(quoted(self.resource))


class ReentrantRedLock(RedLock):
    """A RedLock that the holding thread may acquire again. It must release the lock as often."""

    def acquire(self) -> bool:
        """As ``RedLock.acquire``. Raises RedLockError if this thread lost the lock that it acquires again."""
        own = self._own_hold()
        if own is None:
            return super().acquire()
        if not own.lock.locked():
            raise RedLockError(f"{quoted(self.resource)}: the lease ended before it was acquired again")
        own.depth += 1
        return True

    def _release(self) -> bool:
        own = self._own_hold()
        if own is None:
            return False
        if own.depth > 1:
            own.depth -= 1
            alive: bool = own.lock.locked()
            return alive
        return self._release_lock()


class RedLockFactory:
    """Makes locks on the masters of ``connection_details``."""

    def __init__(self, connection_details: Iterable[Any], **options: Any) -> None:
        self._masters = master_list(connection_details)
        self._options = options
        self.quorum: int = len(self._masters) // 2 + 1

    @cached_property
    def redis_nodes(self) -> list[Any]:
        """See [`RedLock.redis_nodes`][]."""
        return clients_of(self._masters)

    def create_lock(self, resource: str, **settings: Any) -> RedLock:
        """A lock on ``resource``. ``settings``: arguments of RedLock."""
        lock = RedLock(resource, self._masters, **{**self._options, **settings})
        lock.factory = self
        return lock
