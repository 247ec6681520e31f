"""Shares one client among all locks of the same masters: other libraries make a lock for each use."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Generic, TypeVar

from ..aio.client import AsyncFastRedlock
from ..algorithm.tokens import new_token, new_tokens
from ..engine.mutex import new_mutex
from ..errors import ConfigError
from ..locks.client_base import BaseClient
from ..locks.lock_state import LockState
from ..threads.client import FastRedlock
from ._kept import Kept
from ._masters import MasterSpec, master_specs

#: Defaults of the options. ``max_ttl``: the longest default lease of the other libraries, in seconds.
#: ``release_at_exit``: the others leave a lock to its lease at exit; "once in N seconds" jobs rely on it.
#: ``check_masters``: clients of the other libraries share the masters, and write no records.
DEFAULTS: dict[str, Any] = {"max_ttl": 120.0, "release_at_exit": False, "check_masters": "off"}
#: The number of clients that are kept although no lock uses them.
MAX_IDLE_CLIENTS = 16

AnyClient = TypeVar("AnyClient", bound=BaseClient)


def client_of(kind: type[AnyClient], masters: Iterable[Any], options: dict[str, Any]) -> AnyClient:
    """A new client that is not shared. Raises ConfigError; no I/O."""
    return _made(kind, master_specs(masters), with_specs(options))


def with_specs(options: Mapping[str, Any]) -> dict[str, Any]:
    """``options`` with the specs of ``joint_with``. Raises ConfigError.

    A lock may read its options at each use. So an iterator, which ends after one use, is refused.
    """
    joint = options.get("joint_with")
    if joint is None:
        return {**options}
    if isinstance(joint, Iterator):
        raise ConfigError(f"joint_with must be a list of URLs or clients, not {type(joint).__name__}")
    return {**options, "joint_with": master_specs(joint, "joint_with")}


def masters_of(specs: Iterable[MasterSpec]) -> list[Any]:
    """The masters of ``specs`` in the forms that FastRedlock accepts."""
    return [spec.master for spec in specs]


def _made(kind: type[AnyClient], masters: tuple[MasterSpec, ...], options: dict[str, Any]) -> AnyClient:
    if options.get("owner"):
        raise ConfigError("owner is for redlock_fast's own locks: the tokens of a drop-in name none")
    settings = {**DEFAULTS, **options, "owner": ""}
    if settings.get("joint_with") is not None:
        settings["joint_with"] = masters_of(settings["joint_with"])
    client = kind(masters_of(masters), **settings)
    # Tokens are text, as in the other libraries: a client with decode_responses=True must be able to read
    # them. So they name no owner.
    client._core.policy = replace(client._core.policy, token=_token, tokens=_tokens)
    return client


def _token() -> bytes:
    return new_token().hex().encode()


def _tokens(count: int) -> list[bytes]:
    return [token.hex().encode() for token in new_tokens(count)]


# --- shared --------------------------------------------------------------------------------------


class _ClientCache(Generic[AnyClient]):
    """A cache of clients by their masters and options. ``kept``: locks that their programs may drop."""

    def __init__(self, kind: type[AnyClient]) -> None:
        self._kind = kind
        self.kept: Kept[LockState] = Kept(lambda lock: lock.locked())
        self._all: weakref.WeakSet[AnyClient] = weakref.WeakSet()
        self._find = lru_cache(MAX_IDLE_CLIENTS)(self._make)

    def find(self, masters: Iterable[Any], options: dict[str, Any]) -> AnyClient:
        """The client for these masters and options. Raises ConfigError."""
        return self._find(master_specs(masters), _key(with_specs(options)))

    def _make(self, masters: tuple[MasterSpec, ...], options: tuple[tuple[str, Any], ...]) -> AnyClient:
        client = _made(self._kind, masters, dict(options))
        self._all.add(client)
        return client

    def empty(self) -> list[AnyClient]:
        """Remove and return all clients. Later calls of ``find`` make new clients."""
        clients = list(self._all)  # before the cache drops them: a held lease may keep the connections alone
        self.kept.clear()
        self._find.cache_clear()
        self._all.clear()
        return clients


def _key(options: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    """``options`` as a part of the key of a cache. Raises ConfigError for a value that is not hashable."""
    for name, value in options.items():
        try:
            hash(value)
        except TypeError:
            raise ConfigError(
                f"{name} must be hashable, because locks with equal options share one client; "
                f"a {type(value).__name__} is not"
            ) from None
    return tuple(sorted(options.items()))


_threads = _ClientCache(FastRedlock)
_loops: dict[asyncio.AbstractEventLoop, _ClientCache[AsyncFastRedlock]] = {}
_mutex = new_mutex()


def shared(masters: Iterable[Any], options: dict[str, Any]) -> FastRedlock:
    """The shared client for these masters and options. Raises ConfigError; no I/O."""
    return _threads.find(masters, options)


def shared_aio(masters: Iterable[Any], options: dict[str, Any]) -> AsyncFastRedlock:
    """The shared client for asyncio, one for each event loop. Raises ConfigError; no I/O."""
    return _of_running_loop().find(masters, options)


def keep(lock: LockState) -> None:
    """Refer to ``lock``, which is held, if it is extended in the background.

    In other libraries such a lock lasts until its release or the end of its process, also if the program
    drops the object, or the thread that has acquired it ends.
    """
    if lock._auto_extension is not None:
        _threads.kept.add(lock)


def keep_aio(lock: LockState) -> None:
    """``keep`` for a lock of the running event loop."""
    if lock._auto_extension is not None:
        _of_running_loop().kept.add(lock)


def _of_running_loop() -> _ClientCache[AsyncFastRedlock]:
    loop = asyncio.get_running_loop()
    with _mutex:
        for closed in [other for other in _loops if other.is_closed()]:
            del _loops[closed]
        return _loops.setdefault(loop, _ClientCache(AsyncFastRedlock))


def close_all() -> None:
    """Close the shared clients for threads, for example at the end of a test."""
    for client in _threads.empty():
        client.close()


async def aclose_all() -> None:
    """Close the shared clients of the running event loop. Call it before the loop is closed."""
    with _mutex:
        cache = _loops.pop(asyncio.get_running_loop(), None)
    for client in cache.empty() if cache else ():
        await client.close()
