"""Replaces aioredlock: ``Aioredlock``, ``Lock``, ``Sentinel``. Times are in seconds."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any, Unpack
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from .. import AsyncFastRedlock, AsyncLock, LockLost, QuorumUnavailable
from ..algorithm.keys import encoded
from ..algorithm.quorum import Retry
from ..errors import ConfigError
from ..locks.options import FastRedlockOptions
from ..wire.text import quoted
from ._clients import client_of
from ._errors import Dictionary, translated
from ._kept import Kept
from ._masters import master_list
from ._names import encodable

#: Options of a pool of aioredis, which has no counterpart: one connection for each master is enough.
POOL = ("minsize", "maxsize")
LOCALHOST: tuple[dict[str, Any], ...] = ({"host": "localhost", "port": 6379},)


class AioredlockError(Exception):
    """Base class of the errors of this module."""


class LockError(AioredlockError):
    """The lock was not acquired, not extended, or had ended before its release."""


class LockAcquiringError(LockError):
    """Another holder had the lock in all attempts."""


class LockRuntimeError(LockError):
    """Too few masters answered. The text has the cause for each master."""


#: The errors of this module for those of FastRedlock.
ERRORS: Dictionary = {
    LockLost: lambda error: LockError(str(error)),
    QuorumUnavailable: lambda error: LockRuntimeError(str(error)),
}


class Lock:
    """A lock that ``Aioredlock.lock`` acquired. ``id``: its token. ``async with`` releases it at the end."""

    def __init__(
        self,
        lock_manager: Aioredlock,
        resource: str,
        held: AsyncLock,
        lock_timeout: float | None,
        adopted: str = "",
    ) -> None:
        self.lock_manager = lock_manager
        self.resource = resource
        self.lock_timeout = lock_timeout
        self.id: str = adopted or (held.token or b"").decode()
        self.held = held
        self.adopted: bool = bool(adopted)  # the token of a lock that another object acquired
        self.released = False

    @property
    def valid(self) -> bool:
        """Whether the lock is held now, by the clock of this process. No I/O."""
        return not self.released and self.held.locked()

    async def extend(self) -> None:
        """See [`Aioredlock.extend`][]."""
        await self.lock_manager.extend(self)

    async def release(self) -> None:
        """See [`Aioredlock.unlock`][]."""
        await self.lock_manager.unlock(self)

    async def is_locked(self) -> bool:
        """Ask the masters whether the resource is locked now; see [`Aioredlock.is_locked`][]."""
        return await self.lock_manager.is_locked(self)

    def __repr__(self) -> str:
        return f"<Lock {quoted(self.resource)} id={self.id} valid={self.valid}>"

    async def __aenter__(self) -> Lock:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            await self.release()
        except LockError:
            if kind is None:
                raise


class Aioredlock:
    """A lock manager for the tasks of one event loop.

    ``retry_count``: number of attempts. ``retry_delay_min``, ``retry_delay_max``: seconds between two
    attempts.
    ``internal_lock_timeout``: the lease in seconds of locks without a ``lock_timeout``, which are extended
    while they are held. ``options``: options of AsyncFastRedlock. Raises ConfigError (a ValueError).

    Examples:
        >>> manager = Aioredlock([{"host": "a", "port": 6379}])
        >>> async with await manager.lock("orders:42", lock_timeout=10):
        ...     await ship("orders:42")
    """

    def __init__(
        self,
        redis_connections: Iterable[Any] = LOCALHOST,
        retry_count: int = 3,
        retry_delay_min: float = 0.1,
        retry_delay_max: float = 0.3,
        internal_lock_timeout: float = 10.0,
        **options: Unpack[FastRedlockOptions],
    ) -> None:
        retry = Retry(retry_delay_min, retry_delay_max, retry_count)
        self.internal_lock_timeout = internal_lock_timeout
        settings = {"retry": retry, "ttl": internal_lock_timeout, **options}
        masters = [_master_of(one) for one in master_list(redis_connections)]
        self._client = client_of(AsyncFastRedlock, masters, settings)
        self._locks: Kept[Lock] = Kept(lambda lock: lock.valid)  # their renewal goes on

    async def lock(
        self, resource: str, lock_timeout: float | None = None, lock_identifier: None = None
    ) -> Lock:
        """Acquire and return a lock. ``lock_timeout``: the lease in seconds; None: until the release.

        Raises LockAcquiringError if another holder has the lock, LockRuntimeError if too few masters answer,
        and ConfigError, also for a ``lock_identifier``: two holders with the same token would be one.
        """
        if lock_identifier is not None:
            raise ConfigError("lock_identifier: tokens are drawn at random; Lock.id says which it is")
        endless = lock_timeout is None
        held = self._client.lock(encodable(resource), lock_timeout, auto_extend=endless, max_hold=None)
        with translated(ERRORS):
            granted = await held.acquire()
        if not granted:
            raise LockAcquiringError(f"{quoted(resource)} has another holder")
        lock = Lock(self, resource, held, lock_timeout)
        self._locks.add(lock)
        return lock

    async def extend(self, lock: Lock, lock_timeout: float | None = None) -> None:
        """Make the lease last ``lock_timeout`` seconds from now; None: that of ``lock``.

        Raises RuntimeError if the lock was released, LockError if the lease has ended (extend() never
        acquires again), and LockRuntimeError if too few masters answered.
        """
        if lock.released:
            raise RuntimeError("Lock is not valid")
        ttl = lock.lock_timeout if lock_timeout is None else lock_timeout
        ttl = self.internal_lock_timeout if ttl is None else ttl
        if lock.adopted:  # only the masters know how much of its lease is left
            lock.held = self._client.lock(encodable(lock.resource), ttl, token=lock.id.encode())
        with translated(ERRORS):
            await lock.held.extend(ttl, confirm=True)

    async def unlock(self, lock: Lock) -> None:
        """Release ``lock``; a second call has no effect. Raises LockError if the lease had ended before."""
        if lock.released:
            return
        if not self._client._core.client_state.ready:
            await self._client.connect()
        lock.released = True
        self._locks.discard(lock)
        if not await lock.held.release():
            raise LockError(f"{quoted(lock.resource)}: the lease had ended before; others may have held it")

    async def is_locked(self, resource_or_lock: str | Lock) -> bool:
        """Ask the masters whether a resource, or that of a Lock object, is locked now by any holder.

        Raises LockRuntimeError if too few masters answer, and ConfigError (a TypeError) for anything that is
        neither. ``Lock.valid`` tells of the object, without I/O.
        """
        if not isinstance(resource_or_lock, (str, Lock)):
            raise ConfigError(
                f"is_locked() takes a Lock of this class or a str, not {type(resource_or_lock).__name__}"
            )
        resource = resource_or_lock.resource if isinstance(resource_or_lock, Lock) else resource_or_lock
        with translated(ERRORS):
            return await self._client.locked(encodable(resource))

    async def get_active_locks(self) -> list[Lock]:
        """The locks of this manager that are held now, by the clock of this process. No I/O."""
        return self._locks.held()

    async def get_lock(self, resource: str, lock_identifier: str) -> Lock:
        """A Lock object for a lock that another process acquired, by its ``id``: extend or release it here.

        Asks the masters, which make the lease last at least ``internal_lock_timeout`` seconds from now.
        Raises LockAcquiringError if a quorum does not have the lock with this ``id``, and LockRuntimeError if
        too few masters answer. ConfigError for a ``lock_identifier`` that is not text.
        """
        if not isinstance(lock_identifier, str):
            raise ConfigError(
                f"lock_identifier must be the id of a Lock, not {type(lock_identifier).__name__}"
            )
        ttl = self.internal_lock_timeout
        token = encoded("lock_identifier", lock_identifier)
        held = self._client.lock(encodable(resource), ttl, token=token)
        lock = Lock(self, resource, held, ttl, lock_identifier)
        try:
            await lock.extend()
        except LockRuntimeError:
            raise
        except LockError as error:
            raise LockAcquiringError(f"{quoted(resource)} is not locked with this identifier") from error
        return lock

    async def destroy(self) -> None:
        """Release all held locks and close the connections. Never raises because of masters."""
        for lock in await self.get_active_locks():
            with contextlib.suppress(LockError):  # the lease had ended, or another object released the lock
                await self.unlock(lock)
        await self._client.close()


def _master_of(connection: Any) -> Any:
    """A connection of aioredlock in a form that all drop-ins accept."""
    if isinstance(connection, str) and connection.startswith("/"):
        return f"unix://{connection}"
    if isinstance(connection, list):
        return tuple(connection)
    if isinstance(connection, Mapping):
        return {name: value for name, value in connection.items() if name not in POOL}
    return connection


def _url_of(connection: Any) -> str:
    """The URL of a Sentinel, or of several. Raises ConfigError."""
    given = [connection] if isinstance(connection, tuple) else connection
    if isinstance(given, list) and given and all(isinstance(one, tuple) and len(one) == 2 for one in given):
        return "redis://" + ",".join("{}:{}".format(*one) for one in given)
    if not isinstance(connection, str):
        raise ConfigError(
            "Sentinel: connection must be (host, port), a list of these, a dict or a URL, not "
            f"{type(connection).__name__}"
        )
    return connection


def Sentinel(  # noqa: N802  # a class in aioredlock
    connection: str | tuple[str, int] | list[tuple[str, int]] | dict[str, Any],
    master: str | None = None,
    password: str | None = None,
    db: int | None = None,
) -> str:
    """The URL of a master behind a Sentinel.

    ``connection``: an address, a list of addresses, a URL with ``?master=``, or a dict with ``host`` and
    perhaps ``port``, ``master``, ``password`` and ``db``. Raises ConfigError.
    """
    if isinstance(connection, dict):
        given = {name: value for name, value in connection.items() if name not in POOL}
        master, password = master or given.pop("master", None), password or given.pop("password", None)
        db = given.pop("db", None) if db is None else db
        connection = (given.pop("host", ""), given.pop("port", 26379))
        unknown = {*given} - {"master", "password", "db"}
        if unknown or not connection[0]:
            raise ConfigError(f"Sentinel: connection has no host, or unknown options: {sorted(unknown)}")
    url = urlsplit(_url_of(connection))
    query = dict(parse_qsl(url.query))
    master = master or query.pop("master", None)
    if not master:
        raise ConfigError("Sentinel: the master's name is missing")
    query.pop("encoding", None)
    login, at, where = url.netloc.rpartition("@")
    if password is not None:
        login, at = f":{quote(password, safe='')}", "@"
    database = url.path.strip("/") if db is None else db
    rest = f"?{urlencode(query)}" if query else ""
    return f"{url.scheme}+sentinel://{login}{at}{where}/{quote(master, safe='')}/{database or 0}{rest}"
