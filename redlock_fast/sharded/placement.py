"""Maps resources to groups of masters: pure arithmetic, without I/O.

A resource belongs to the group with the highest weight (rendezvous hashing, Thaler and Ravishankar, 1998). So
a new group takes its share from all other groups, and no resource moves between those.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple
from hashlib import blake2b
from typing import Any, ClassVar, Generic, TypeVar, Unpack

from ..algorithm.batch import Completion, UnfinishedBatch
from ..algorithm.keys import encoded
from ..errors import ConfigError, QuorumUnavailable
from ..locks.client_base import BaseClient, refuse_copy
from ..locks.config import check_masters, takes_only
from ..locks.lock_state import LockState
from ..locks.many import check_resources, end_batch
from ..locks.options import ClientOptions, Groups, ListOf, Resource
from ..masters.address import Target
from ..masters.health import MasterHealth
from ..masters.stats import Stats
from ..wire.text import quoted

Client = TypeVar("Client", bound=BaseClient)


class Sharding(Generic[Client]):
    """Base of the sharded clients: the groups, and the methods that need no waiting."""

    #: The class of the client of each group.
    _client_class: ClassVar[Callable[..., Any]]

    @takes_only("groups", "lists of masters")
    def __init__(
        self, groups: Groups, *, joint_with: Groups | None = None, **options: Unpack[ClientOptions]
    ) -> None:
        new = check_groups("groups", groups)
        old = new if joint_with is None else check_groups("joint_with", joint_with)
        #: The groups before the change, and after it.
        self._maps = [{name: hash_of(name) for name in one} for one in (old, new)]
        self._clients: dict[str, Client] = {}
        for before, after in pairs(old, new):
            name = named(before, after)
            if name in self._clients:
                raise ConfigError(
                    f"joint_with: {name!r} is the name of a group, and of a move; rename the group"
                )
            more: dict[str, Any] = {} if old[before] == new[after] else {"joint_with": old[before]}
            if before != after:  # the records of each group name its own list only
                more["check_masters"] = "off"
            self._clients[name] = self._client_class(new[after], **{**options, **more})

    __reduce__ = refuse_copy

    def group_of(self, resource: str | bytes) -> str:
        """The name of the group that ``resource`` belongs to. No I/O; raises ConfigError.

        It depends only on the groups' names. During a change it is the new group. docs/scaling.md has the
        arithmetic.
        """
        next(iter(self._clients.values()))._core.check_key(resource)
        return heaviest(self._maps[1], encoded("resource", resource))

    def health(self) -> dict[str, list[MasterHealth]]:
        """The state of the masters as this client sees it, by the name of the group. No I/O, never raises.

        During a change there are also the masters of resources that move, as "old -> new".
        """
        return {name: client.health() for name, client in self._clients.items()}

    def __repr__(self) -> str:
        groups = [f"{name} ({client._states()})" for name, client in vars(self).get("_clients", {}).items()]
        return f"<{type(self).__name__}: {', '.join(groups)}>"

    def stats(self) -> Stats:
        """The counters of this client, summed over all groups. No I/O, never raises."""
        every = (astuple(client.stats()) for client in self._clients.values())
        return Stats(*map(sum, zip(*every, strict=True)))

    def _name(self, resource: str | bytes) -> str:
        """The name of the client of ``resource``."""
        key = encoded("resource", resource)
        before, after = self._maps
        group = heaviest(after, key)
        return named(heaviest(before, key), group) if before is not after else group

    def _client(self, resource: str | bytes) -> Client:
        return self._clients[self._name(resource)]

    def _common(self, resources: ListOf[Resource]) -> Client:
        """The client of the group of all ``resources``. ConfigError if there are several groups."""
        client = self._checked(None)
        check_resources(client._core, resources)
        groups = {self._name(resource): resource for resource in resources}
        if len(groups) > 1:
            by_group = ", ".join(
                f"{quoted(resource)} to {name!r}" for name, resource in sorted(groups.items())
            )
            raise ConfigError(
                f"resources that are locked at once must belong to one group of masters, and {by_group}"
            )
        return self._clients[next(iter(groups))] if groups else client

    def _partition_resources(self, resources: ListOf[Resource], ttl: float | None) -> dict[Client, list[int]]:
        """The positions in ``resources`` of each group's client. Raises ConfigError and ClientClosed."""
        client = self._checked(ttl)
        check_resources(client._core, resources)
        positions: dict[Client, list[int]] = {}
        for position, resource in enumerate(resources):
            positions.setdefault(self._client(resource), []).append(position)
        return positions

    def _partition_locks(self, locks: Sequence[LockState]) -> dict[Client, list[int]]:
        """The positions in ``locks`` of each group's client. Raises ConfigError."""
        if isinstance(locks, (str, bytes)) or not isinstance(locks, Sequence):
            raise ConfigError(f"locks must be a list of locks, not {type(locks).__name__}")
        positions: dict[Any, tuple[Client, list[int]]] = {
            client._core: (client, []) for client in self._clients.values()
        }
        for position, lock in enumerate(locks):
            if not isinstance(lock, LockState) or lock._core not in positions:
                raise ConfigError(f"locks: {lock!r} is no lock of this client")
            positions[lock._core][1].append(position)
        if len(set(locks)) < len(locks):
            raise ConfigError("locks: one of them is there twice")
        return {client: own for client, own in positions.values() if own}

    def _checked(self, ttl: float | None) -> Client:
        """The client of the first group. Raises ClientClosed, and ConfigError for a bad ``ttl``."""
        client = next(iter(self._clients.values()))
        client._core.check_open()
        if ttl is not None:
            client._core.check_ttl(ttl)
        return client

    def _connecting(self, timeout: float | None) -> Iterator[tuple[Client, float]]:
        """Each group's client, and the seconds left to wait for it. All groups connect from the start."""
        timeout = self._checked(None)._core.connect_seconds(timeout)
        for client in self._clients.values():
            client._core.masters.connector.start()
        end = time.monotonic() + timeout
        for client in self._clients.values():
            yield client, max(0.0, end - time.monotonic())


# --- groups ---------------------------------------------------------------------------------------


def hash_of(name: str) -> blake2b:
    """The hash of a group: BLAKE2b-64, keyed by its name. With the resource added, it gives the weight.

    Invariant: it never changes, or two versions of this library could have two holders of one lock. Tests pin
    it.
    """
    # Python's hash() differs between processes, and a CRC is linear, so its weights are not independent.
    # hashlib is slow to import: the package loads this module on first use.
    key = blake2b(name.encode(), usedforsecurity=False).digest()
    return blake2b(key=key, digest_size=8, usedforsecurity=False)


def heaviest(hashes: Mapping[str, blake2b], key: bytes) -> str:
    """The name of the group that ``key`` belongs to."""

    def weight(name: str) -> bytes:
        own = hashes[name].copy()
        own.update(key)
        return own.digest()

    return max(hashes, key=weight)


def pairs(old: Collection[str], new: Collection[str]) -> Iterator[tuple[str, str]]:
    """The old and the new group of each resource that there may be.

    A resource moves only to a group that was added, or from a group that was removed.
    """
    for before in old:
        for after in new:
            if before == after or before not in new or after not in old:
                yield before, after


def named(before: str, after: str) -> str:
    """The name of the client of the resources with these groups."""
    return after if before == after else f"{before} -> {after}"


def check_groups(option: str, groups: Any) -> dict[str, list[Any]]:
    """The masters of each group, sorted by the group's name. ConfigError for a server in two groups."""
    found: dict[str, list[Any]] = {}
    owners: dict[Any, str] = {}
    for name, masters, targets in named_groups(option, groups):
        for target in targets:
            other = owners.setdefault(target.address, name)
            if other != name or name in found:
                raise ConfigError(f"{option}: {target.name} is in two groups; each needs masters of its own")
        found[name] = list(masters)
    if not found:
        raise ConfigError(f"{option} must have at least one group of masters")
    return dict(sorted(found.items()))


def named_groups(option: str, groups: Any) -> Iterator[tuple[str, list[Any], list[Target]]]:
    """The name, the masters as passed by the caller, and the targets of each group."""
    if isinstance(groups, Mapping):
        for name, masters in groups.items():
            if not isinstance(name, str) or not encoded(f"{option}: a name", name):
                raise ConfigError(f"{option}: a name must be a str and not empty, not {name!r}")
            yield name, masters, targets_of(f"{option}[{name!r}]", masters)
    elif isinstance(groups, Sequence) and not isinstance(groups, (str, bytes)):
        for number, masters in enumerate(groups):
            targets = targets_of(f"{option}[{number}]", masters)
            yield ",".join(sorted(":".join(map(str, one.address)) for one in targets)), masters, targets
    else:
        raise ConfigError(
            f"{option} must be a list of lists, or a dict of lists, not {type(groups).__name__}"
        )


def targets_of(where: str, masters: Any) -> list[Target]:
    """The targets of ``masters``. The ConfigError names ``where``."""
    try:
        return check_masters(masters)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


# --- batches --------------------------------------------------------------------------------------


def new_batches(clients: Iterable[Client], completion: Completion) -> dict[Client, UnfinishedBatch]:
    """A batch for each client. They are completed, or cancelled by ``close`` of any client, together."""
    return {client: UnfinishedBatch(completion) for client in clients}


def end_batches(batches: Mapping[Client, UnfinishedBatch]) -> None:
    """Forget batches that were undone."""
    for client, batch in batches.items():
        end_batch(client._core, batch)


def restore_order(into: list[Any], positions: Sequence[int], values: Sequence[Any]) -> None:
    """Put ``values`` into ``into`` at ``positions``."""
    for position, value in zip(positions, values, strict=True):
        into[position] = value


def check_alive(locks: Sequence[LockState | None]) -> None:
    """Raise QuorumUnavailable if a lease ended while the other groups were asked."""
    if not all(lock.locked() for lock in locks if lock):
        raise QuorumUnavailable(
            "the first leases ended before the last were granted: use a longer ttl or fewer locks",
            reason="late",
        )
