"""ShardedRedlock, AsyncShardedRedlock: several groups of masters, each resource on one of them.

A resource belongs to the group with the highest weight (rendezvous hashing, Thaler and Ravishankar
1998), so a new group takes its share from all others and moves nothing between those.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import fields
from hashlib import blake2b
from typing import Any, Generic, ParamSpec, TypeVar, cast

from ._core import Core, check_masters, encoded
from ._dial import Target
from ._lock import LockState
from ._many import check_resources
from ._masters import MasterHealth
from .aio import AsyncFastRedlock, AsyncLock
from .client import FastRedlock, Lock
from .errors import ConfigError, QuorumUnavailable
from .telemetry import Stats

P = ParamSpec("P")
R = TypeVar("R")
Client = TypeVar("Client", bound=Core)


class Sharding(Generic[Client]):
    """Which group has which resource, and what needs no waiting: the same for threads and asyncio."""

    def __init__(self, groups: Any, client: Callable[..., Client], options: dict[str, Any]) -> None:
        checked = check_groups(groups)
        self._clients = {name: client(masters, **options) for name, masters in checked.items()}
        # Whoever changes a weight lets two versions of this library hold one lock: tests pin them.
        # BLAKE2b, because Python's hash() differs by process and a CRC does not mix. hashlib is heavy to
        # import, so this module is loaded when it is first used; redis-py needs hashlib as well.
        keys = {name: blake2b(name.encode(), usedforsecurity=False).digest() for name in checked}
        self._hashes = {name: blake2b(key=keys[name], digest_size=8, usedforsecurity=False) for name in keys}

    def group_of(self, resource: str | bytes) -> str:
        """The name of the group that ``resource`` belongs to. No I/O; raises ConfigError."""
        key = encoded("resource", resource)

        def weight(name: str) -> bytes:
            hashing = self._hashes[name].copy()
            hashing.update(key)
            return hashing.digest()

        return max(self._hashes, key=weight)

    def health(self) -> dict[str, list[MasterHealth]]:
        """By name of the group, its masters as this client sees them. No I/O."""
        return {name: client.health() for name, client in self._clients.items()}

    def stats(self) -> Stats:
        """What this client has done so far, as counts over all groups."""
        every = [client.stats() for client in self._clients.values()]
        return Stats(*(sum(getattr(one, field.name) for one in every) for field in fields(Stats)))

    def _client(self, resource: str | bytes) -> Client:
        return self._clients[self.group_of(resource)]

    def _spread(self, resources: Sequence[str | bytes], ttl: float | None) -> dict[Client, list[int]]:
        """The places in ``resources`` that each group's client has to do with; all of them checked."""
        anyone = self._checked(ttl)
        check_resources(anyone, resources)
        places: dict[Client, list[int]] = {}
        for place, resource in enumerate(resources):
            places.setdefault(self._client(resource), []).append(place)
        return places

    def _sort(self, locks: Sequence[LockState]) -> dict[Client, list[int]]:
        """The places in ``locks`` that each group's client has to do with; all of them checked."""
        if isinstance(locks, (str, bytes)) or not isinstance(locks, Sequence):
            raise ConfigError(f"locks must be a list of locks, not {type(locks).__name__}")
        places: dict[Any, list[int]] = {client: [] for client in self._clients.values()}
        for place, lock in enumerate(locks):
            if not isinstance(lock, LockState) or lock._core not in places:
                raise ConfigError(f"locks: {lock!r} is no lock of this client")
            places[lock._core].append(place)
        if len(set(locks)) < len(locks):
            raise ConfigError("locks: one of them is there twice")
        return {client: own for client, own in places.items() if own}

    def _checked(self, ttl: float | None) -> Client:
        """Any group's client, all have the same options; it is open, and ``ttl`` is right."""
        client = next(iter(self._clients.values()))
        client.check_open()
        if ttl is not None:
            client.check_ttl(ttl)
        return client

    def _connecting(self, timeout: float | None) -> Iterator[tuple[Client, float]]:
        """Each group's client, and how long to wait for it; all of them connect meanwhile."""
        timeout = self._checked(None).connect_timeout if timeout is None else timeout
        for client in self._clients.values():
            client.masters.start()
        end = time.monotonic() + timeout
        for client in self._clients.values():
            yield client, max(0.0, end - time.monotonic())


class ShardedRedlock(Sharding[FastRedlock]):
    """A client for more locks than one group of masters can serve: each resource is on one group.

    ``groups``: a list of groups, each a list of masters as for :class:`FastRedlock`; or a dict of such
    lists by name. ``options``: those of FastRedlock, the same for every group.

    **Every process must map a resource to the same group, or two may hold its lock.** What decides is
    the groups' names. Without a dict a group's name is made of its masters' addresses: those must then
    be written alike everywhere (``localhost`` is not ``127.0.0.1``). With a dict the names are yours,
    and a master can move to another address. The order of groups and masters, databases, users,
    passwords and ``key_prefix`` do not matter.

    **A group that is added, removed or renamed moves resources**, and who holds a lock by the old map
    is not seen by the new one. Stop every process that uses the old map, wait ``max_ttl`` seconds (or
    until all have released), start the new ones; docs/scaling.md has a way that stops nobody.

    Raises ConfigError for bad settings, before any I/O.
    """

    def __init__(self, groups: Mapping[str, Sequence[Any]] | Sequence[Sequence[Any]], **options: Any) -> None:
        super().__init__(groups, FastRedlock, options)

    def lock(self, resource: str | bytes, ttl: float | None = None, **options: Any) -> Lock:
        """A lock on ``resource``, not acquired yet; no I/O. As FastRedlock.lock."""
        return self._client(resource).lock(resource, ttl, **options)

    def acquire(
        self, resource: str | bytes, ttl: float | None = None, blocking: bool = True, timeout: float = -1
    ) -> Lock | None:
        """The short way: an acquired lock, or None when others hold it. Raises as Lock.acquire does."""
        return self._client(resource).acquire(resource, ttl, blocking, timeout)

    def acquire_many(self, resources: Sequence[str | bytes], ttl: float | None = None) -> list[Lock | None]:
        """As FastRedlock.acquire_many, one group after the other; the result in the order of ``resources``.

        If one group raises (QuorumUnavailable), what the others granted is given back.
        """
        shares = self._spread(resources, ttl)
        locks: list[Lock | None] = [None] * len(resources)
        try:
            for client, places in shares.items():
                granted = client.acquire_many([resources[place] for place in places], ttl)
                put(locks, places, granted)
            check_alive(locks)
        except BaseException:
            self.release_many([lock for lock in locks if lock])
            raise
        return locks

    def release_many(self, locks: Sequence[Lock]) -> list[bool]:
        """As FastRedlock.release_many, one group after the other."""
        shares = self._sort(locks)
        released = [False] * len(locks)

        def release(client: FastRedlock, places: list[int]) -> None:
            put(released, places, client.release_many([locks[place] for place in places]))

        with ExitStack() as stack:  # what interrupts the release in one group keeps no other from it
            for client, places in shares.items():
                stack.callback(release, client, places)
        return released

    def extend_many(self, locks: Sequence[Lock], ttl: float | None = None) -> list[bool]:
        """As FastRedlock.extend_many, one group after the other."""
        self._checked(ttl)
        shares = self._sort(locks)
        extended = [False] * len(locks)
        for client, places in shares.items():
            put(extended, places, client.extend_many([locks[place] for place in places], ttl))
        return extended

    def synchronized(
        self, resource: str | bytes | Callable[..., str | bytes], ttl: float | None = None, **options: Any
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Decorator: the function runs only while it holds the lock. As FastRedlock.synchronized."""
        # Which needs nothing of a client but its lock(), and this one's finds the group for each call.
        return FastRedlock.synchronized(cast(FastRedlock, self), resource, ttl, **options)

    def locked(self, resource: str | bytes) -> bool:
        """Whether anybody holds ``resource`` now: asked of its group. As FastRedlock.locked."""
        return self._client(resource).locked(resource)

    def connect(self, timeout: float | None = None) -> bool:
        """Wait until every group has a quorum connected. False if ``timeout`` (seconds) came first."""
        return all(client.connect(left) for client, left in self._connecting(timeout))

    def close(self) -> None:
        """Close all connections. Locks that are held stay held until their leases end."""
        with ExitStack() as stack:
            for client in self._clients.values():
                stack.callback(client.close)

    def __enter__(self, /) -> ShardedRedlock:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class AsyncShardedRedlock(Sharding[AsyncFastRedlock]):
    """:class:`ShardedRedlock` for asyncio: the same arguments and warnings, the same names with ``await``."""

    def __init__(self, groups: Mapping[str, Sequence[Any]] | Sequence[Sequence[Any]], **options: Any) -> None:
        super().__init__(groups, AsyncFastRedlock, options)

    def lock(self, resource: str | bytes, ttl: float | None = None, **options: Any) -> AsyncLock:
        """A lock on ``resource``, not acquired yet; no I/O. As AsyncFastRedlock.lock."""
        return self._client(resource).lock(resource, ttl, **options)

    async def acquire(
        self, resource: str | bytes, ttl: float | None = None, blocking: bool = True, timeout: float = -1
    ) -> AsyncLock | None:
        """The short way: an acquired lock, or None when others hold it."""
        return await self._client(resource).acquire(resource, ttl, blocking, timeout)

    async def acquire_many(
        self, resources: Sequence[str | bytes], ttl: float | None = None
    ) -> list[AsyncLock | None]:
        """As ShardedRedlock.acquire_many; cancelled, it gives back what it was granted."""
        shares = self._spread(resources, ttl)
        locks: list[AsyncLock | None] = [None] * len(resources)
        try:
            for client, places in shares.items():
                granted = await client.acquire_many([resources[place] for place in places], ttl)
                put(locks, places, granted)
            check_alive(locks)
        except BaseException:
            await self.release_many([lock for lock in locks if lock])
            raise
        return locks

    async def release_many(self, locks: Sequence[AsyncLock]) -> list[bool]:
        """As AsyncFastRedlock.release_many, one group after the other; cancelled, it still releases all."""
        shares = self._sort(locks)
        released = [False] * len(locks)

        async def release(client: AsyncFastRedlock, places: list[int]) -> None:
            put(released, places, await client.release_many([locks[place] for place in places]))

        async with AsyncExitStack() as stack:
            for client, places in shares.items():
                stack.push_async_callback(release, client, places)
        return released

    async def extend_many(self, locks: Sequence[AsyncLock], ttl: float | None = None) -> list[bool]:
        """As AsyncFastRedlock.extend_many, one group after the other."""
        self._checked(ttl)
        shares = self._sort(locks)
        extended = [False] * len(locks)
        for client, places in shares.items():
            put(extended, places, await client.extend_many([locks[place] for place in places], ttl))
        return extended

    def synchronized(
        self, resource: str | bytes | Callable[..., str | bytes], ttl: float | None = None, **options: Any
    ) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Generator[Any, Any, R]]]:
        """Decorator: the async function runs only while it holds the lock."""
        return AsyncFastRedlock.synchronized(cast(AsyncFastRedlock, self), resource, ttl, **options)

    async def locked(self, resource: str | bytes) -> bool:
        """Whether anybody holds ``resource`` now: asked of its group. As AsyncFastRedlock.locked."""
        return await self._client(resource).locked(resource)

    async def connect(self, timeout: float | None = None) -> bool:
        """Wait until every group has a quorum connected. False if ``timeout`` (seconds) came first."""
        for client, left in self._connecting(timeout):
            if not await client.connect(left):
                return False
        return True

    async def close(self) -> None:
        """Close all connections. Locks that are held stay held until their leases end."""
        async with AsyncExitStack() as stack:
            for client in self._clients.values():
                stack.push_async_callback(client.close)

    async def __aenter__(self, /) -> AsyncShardedRedlock:
        for client in self._clients.values():
            client.pump()  # bound to this loop
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()


# --- groups ---------------------------------------------------------------------------------------


def check_groups(groups: Any) -> dict[str, list[Any]]:
    """Lists of masters by the group's name, in the order of the names; no server in two of them."""
    found: dict[str, list[Any]] = {}
    owners: dict[Any, str] = {}
    for name, masters, targets in named_groups(groups):
        for target in targets:
            other = owners.setdefault(target.address, name)
            if other != name or name in found:
                raise ConfigError(f"groups: {target.name} is in two groups; each needs masters of its own")
        found[name] = list(masters)
    if not found:
        raise ConfigError("groups must have at least one group of masters")
    return dict(sorted(found.items()))


def named_groups(groups: Any) -> Iterator[tuple[str, list[Any], list[Target]]]:
    """Each group's name, its masters as they were given, and as targets."""
    if isinstance(groups, Mapping):
        for name, masters in groups.items():
            if not isinstance(name, str) or not encoded("groups: a name", name):
                raise ConfigError(f"groups: a name must be a str and not empty, not {name!r}")
            yield name, masters, targets_of(f"groups[{name!r}]", masters)
    elif isinstance(groups, Sequence) and not isinstance(groups, (str, bytes)):
        for number, masters in enumerate(groups):
            targets = targets_of(f"groups[{number}]", masters)
            yield ",".join(sorted(":".join(map(str, one.address)) for one in targets)), masters, targets
    else:
        raise ConfigError(f"groups must be a list of lists, or a dict of lists, not {type(groups).__name__}")


def targets_of(where: str, masters: Any) -> list[Target]:
    try:
        return check_masters(masters)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


# --- batches --------------------------------------------------------------------------------------


def put(into: list[Any], places: Sequence[int], values: Sequence[Any]) -> None:
    """Back to the caller's order."""
    for place, value in zip(places, values, strict=True):
        into[place] = value


def check_alive(locks: Sequence[LockState | None]) -> None:
    """The leases of the first group run while the last group is asked."""
    if not all(lock.locked() for lock in locks if lock):
        raise QuorumUnavailable(
            "the first leases ended before the last were granted: use a longer ttl or fewer locks"
        )
