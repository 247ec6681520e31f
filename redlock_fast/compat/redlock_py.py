"""Replaces redlock-py, whose module is ``redlock``: ``Redlock``, ``Lock``. Times are in milliseconds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, Unpack

from ..algorithm.keys import encoded
from ..errors import ConfigError, MasterError, QuorumUnavailable, reduced
from ..locks.options import FastRedlockOptions
from ._clients import shared
from ._masters import clients_of, master_list
from ._names import encodable
from ._times import MILLISECONDS, retry_of


class Lock(NamedTuple):
    """An acquired lock. ``validity``: milliseconds. ``key``: the token, with which any process may unlock."""

    validity: int
    resource: str
    key: bytes


class CannotObtainLock(Warning):
    """Bad masters or settings. It is a Warning, because redlock-py raises Warning for bad settings."""


class MultipleRedlockException(Exception):
    """Too many masters failed; ``errors`` has an error for each. Contention does not raise it."""

    __reduce__ = reduced

    def __init__(self, errors: Sequence[MasterError], *args: object) -> None:
        super().__init__(*args)
        self.errors: list[MasterError] = list(errors)

    def __str__(self) -> str:
        return " :: ".join(map(str, self.errors)) or super().__str__()


class Redlock:
    """A lock manager over the masters of ``connection_list``: dicts, URLs or clients.

    ``retry_count``: number of attempts. ``retry_delay``: seconds between two attempts at most. ``options``:
    options of FastRedlock. Raises CannotObtainLock.

    Examples:
        >>> manager = Redlock([{"host": "a"}, {"host": "b"}, {"host": "c"}])
        >>> if lock := manager.lock("orders:42", 10_000):
        ...     manager.unlock(lock)
    """

    default_retry_count: ClassVar[int] = 3
    default_retry_delay: ClassVar[float] = 0.2
    clock_drift_factor: ClassVar[float] = 0.01

    def __init__(
        self,
        connection_list: Iterable[Any],
        retry_count: int | None = None,
        retry_delay: float | None = None,
        **options: Unpack[FastRedlockOptions],
    ) -> None:
        self.retry_count: int = retry_count or self.default_retry_count
        self.retry_delay: float = retry_delay or self.default_retry_delay
        drift_factor = self.clock_drift_factor
        try:
            retry = retry_of(self.retry_delay, self.retry_count)
            self._masters = master_list(connection_list)
            self._client = shared(self._masters, {"retry": retry, "drift_factor": drift_factor, **options})
        except ConfigError as error:
            raise CannotObtainLock(str(error)) from error
        self.quorum: int = self._client._core.policy.voters.lists.least

    @cached_property
    def servers(self) -> list[Any]:
        """A redis.Redis client for each master, to send other commands. Locks do not use these clients."""
        return clients_of(self._masters)

    def lock(self, resource: str, ttl: int) -> Lock | Literal[False]:
        """Acquire a lock with a lease of ``ttl`` milliseconds. False: another holder has it.

        Raises MultipleRedlockException if too few masters answer, ConfigError (a ValueError) for a bad ttl.
        """
        if isinstance(ttl, bool) or not isinstance(ttl, int):
            raise ConfigError(f"ttl must be whole milliseconds, not {ttl!r}")
        lock = self._client.lock(encodable(resource), ttl / MILLISECONDS)
        try:
            granted = lock.acquire()
            lease = lock._lease
            if not granted or lease is None:
                return False
            held = Lock(int(lease.validity * MILLISECONDS), resource, lease.token)
            lock._forget_lease(lease)  # from here on the tuple stands for the lock, in any process
            return held
        except QuorumUnavailable as error:
            raise MultipleRedlockException(error.causes, str(error)) from error
        except BaseException:
            lock.release()  # a signal handler may raise after the grant
            raise

    def unlock(self, lock: Lock | tuple[int, str, bytes | str]) -> None:
        """Release a lock that this or another process acquired. Never raises because of masters.

        Raises ConfigError for anything but a lock, such as the False of a ``lock()`` that did not acquire it.
        """
        if not isinstance(lock, (tuple, list)) or len(lock) != 3:
            raise ConfigError(
                f"unlock() needs a Lock, as lock() returns it if it acquired, not {type(lock).__name__}"
            )
        _, resource, key = lock
        self._client.lock(encodable(resource), token=encoded("key", key)).release()
