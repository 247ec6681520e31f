"""In place of aioredlock: ``Aioredlock``, ``Lock``, ``Sentinel``. Seconds."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from types import TracebackType
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from .. import AsyncFastRedlock, AsyncLock, LockLost, QuorumUnavailable
from ..algorithm.quorum import Retry
from ..errors import ConfigError
from ..wire.text import quoted
from ._clients import adopt_lock, client_of

LOCALHOST = ({"host": "localhost", "port": 6379},)


class AioredlockError(Exception):
    """Base of all."""


class LockError(AioredlockError):
    """The lock was not acquired, not extended, or had ended before its release."""


class LockAcquiringError(LockError):
    """Others hold it, through all attempts."""


class LockRuntimeError(LockError):
    """Masters are down; the text has the cause for each."""


class Lock:
    """A lock that ``Aioredlock.lock`` acquired. ``id``: its token; ``valid``: whether it is held now."""

    def __init__(
        self, lock_manager: Aioredlock, resource: str, held: AsyncLock, lock_timeout: float | None
    ) -> None:
        self.lock_manager = lock_manager
        self.resource = resource
        self.lock_timeout = lock_timeout
        self.id = (held.token or b"").decode()
        self.held = held
        self.released = False

    @property
    def valid(self) -> bool:
        """Whether it is held now: by this process's clock, without asking the masters."""
        return not self.released and self.held.locked()

    async def extend(self) -> None:
        """See [`Aioredlock.extend`][]."""
        await self.lock_manager.extend(self)

    async def release(self) -> None:
        """See [`Aioredlock.unlock`][]."""
        await self.lock_manager.unlock(self)

    async def is_locked(self) -> bool:
        """See [`Aioredlock.is_locked`][]."""
        return await self.lock_manager.is_locked(self)

    def __repr__(self) -> str:
        return f"<Lock {quoted(self.resource)} id={self.id} valid={self.valid}>"

    async def __aenter__(self) -> Lock:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.release()
        except LockError:
            if error is None:
                raise


class Aioredlock:
    """A lock manager for the tasks of one event loop.

    ``retry_count``: attempts; ``retry_delay_min`` and ``retry_delay_max``: seconds between two of them.
    ``internal_lock_timeout``: the lease of locks without a ``lock_timeout``, which are extended as long as
    they are held. ``options``: of AsyncFastRedlock. ConfigError (a ValueError) for bad settings.
    """

    def __init__(
        self,
        redis_connections: Iterable[Any] = LOCALHOST,
        retry_count: int = 3,
        retry_delay_min: float = 0.1,
        retry_delay_max: float = 0.3,
        internal_lock_timeout: float = 10.0,
        **options: Any,
    ) -> None:
        retry = Retry(retry_delay_min, retry_delay_max, retry_count)
        self.internal_lock_timeout = internal_lock_timeout
        settings = {"retry": retry, "ttl": internal_lock_timeout, **options}
        self._client = client_of(AsyncFastRedlock, redis_connections, settings)
        self._locks: set[Lock] = set()
        self._prune_at = 100

    async def lock(
        self, resource: str, lock_timeout: float | None = None, lock_identifier: None = None
    ) -> Lock:
        """Acquire. ``lock_timeout``: the lease in seconds; None: it lasts until it is released.

        Raises LockAcquiringError, LockRuntimeError, ConfigError. An identifier of one's own is refused: two
        holders with the same would be one.
        """
        if lock_identifier is not None:
            raise ConfigError("lock_identifier: tokens are drawn at random; Lock.id says which it is")
        endless = lock_timeout is None
        held = self._client.lock(resource, lock_timeout, max_extensions=None, auto_extend=endless)
        try:
            granted = await held.acquire()
        except QuorumUnavailable as error:
            raise LockRuntimeError(str(error)) from error
        if not granted:
            raise LockAcquiringError(f"{quoted(resource)} is held by others")
        lock = Lock(self, resource, held, lock_timeout)
        self._remember(lock)
        return lock

    async def extend(self, lock: Lock, lock_timeout: float | None = None) -> None:
        """Another ``lock_timeout`` from now. RuntimeError if it was released; LockError if it had ended:
        it is never acquired anew.
        """
        if lock.released:
            raise RuntimeError("Lock is not valid")
        try:
            await lock.held.extend(lock.held.ttl if lock_timeout is None else lock_timeout, confirm=True)
        except LockLost as error:
            raise LockError(str(error)) from error
        except QuorumUnavailable as error:
            raise LockRuntimeError(str(error)) from error

    async def unlock(self, lock: Lock) -> None:
        """Release. The second time nothing happens. Raises LockError where the lease had ended before."""
        if lock.released:
            return
        if not self._client.client_state.ready:
            await self._client.connect()
        lock.released = True
        self._locks.discard(lock)
        if not await lock.held.release():
            raise LockError(f"{quoted(lock.resource)}: the lease had ended before; others may have held it")

    async def is_locked(self, resource_or_lock: str | Lock) -> bool:
        """Whether anybody holds the resource; for a lock that is not released: whether that one is held.

        Raises LockRuntimeError where too few masters answer.
        """
        if isinstance(resource_or_lock, Lock):
            return resource_or_lock.valid
        try:
            return await self._client.locked(resource_or_lock)
        except QuorumUnavailable as error:
            raise LockRuntimeError(str(error)) from error

    async def get_active_locks(self) -> list[Lock]:
        """Those of this manager that are held now."""
        return [lock for lock in self._locks if lock.valid]

    def _remember(self, lock: Lock) -> None:
        """It is extended as long as it is held, though nobody else has it; what has ended is forgotten."""
        if len(self._locks) >= self._prune_at:
            self._locks = {one for one in self._locks if one.valid}
            self._prune_at = 2 * len(self._locks) + 100
        self._locks.add(lock)

    async def get_lock(self, resource: str, lock_identifier: str) -> Lock:
        """A lock that another process acquired, by its ``id``: to be released here."""
        ttl = self._client.max_ttl
        held = adopt_lock(AsyncLock, self._client, resource, lock_identifier.encode(), ttl)
        return Lock(self, resource, held, None)

    async def destroy(self) -> None:
        """Release what is held, and close the connections."""
        for lock in await self.get_active_locks():
            with contextlib.suppress(LockError):  # it had ended, or somebody else released it
                await self.unlock(lock)
        await self._client.close()


def Sentinel(  # noqa: N802  # it is a class there
    connection: str | tuple[str, int],
    master: str | None = None,
    password: str | None = None,
    db: int | None = None,
) -> str:
    """The URL of a master that a Sentinel knows. ``connection``: an address, or a URL with ``?master=``."""
    if isinstance(connection, tuple):
        connection = "redis://{}:{}".format(*connection)
    url = urlsplit(connection)
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
