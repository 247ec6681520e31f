"""One client for all locks of the same masters: other libraries' users make a lock object for each use."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Any, Generic, TypeVar

from ..aio.client import AsyncFastRedlock
from ..algorithm.lease import Lease
from ..algorithm.tokens import new_token, new_tokens
from ..locks.client_base import Core
from ..locks.lock_state import LockState, locks_of
from ..threads.client import FastRedlock
from ._masters import Given, given

#: The longest lease, in seconds, unless ``max_ttl`` says otherwise: what other libraries ask for by default.
MAX_TTL = 120.0
#: So many clients are kept although no lock uses them.
KEPT = 16

AnyCore = TypeVar("AnyCore", bound=Core)
AnyLock = TypeVar("AnyLock", bound=LockState)


def client_of(kind: type[AnyCore], masters: Iterable[Any], options: dict[str, Any]) -> AnyCore:
    """A client of its own. ConfigError; no I/O."""
    return _made(kind, given(masters), options)


def _made(kind: type[AnyCore], masters: tuple[Given, ...], options: dict[str, Any]) -> AnyCore:
    client = kind([one.master for one in masters], **{"max_ttl": MAX_TTL, **options})
    # Tokens are text, as those of all others: somebody may read them with decode_responses=True.
    client.rules = replace(client.rules, token=_token, tokens=_tokens)
    return client


def _token() -> bytes:
    return new_token().hex().encode()


def _tokens(count: int) -> list[bytes]:
    return [token.hex().encode() for token in new_tokens(count)]


# --- shared --------------------------------------------------------------------------------------


class _Shelf(Generic[AnyCore]):
    """Clients by their masters and options."""

    def __init__(self, kind: type[AnyCore]) -> None:
        self._kind = kind
        self._all: weakref.WeakSet[AnyCore] = weakref.WeakSet()
        self.find = lru_cache(KEPT)(self._make)

    def _make(self, masters: tuple[Given, ...], options: tuple[tuple[str, Any], ...]) -> AnyCore:
        client = _made(self._kind, masters, dict(options))
        self._all.add(client)
        return client

    def empty(self) -> list[AnyCore]:
        """All that there are; from now on others are made."""
        self.find.cache_clear()
        clients = list(self._all)
        self._all.clear()
        return clients


_threads = _Shelf(FastRedlock)
_loops: dict[asyncio.AbstractEventLoop, _Shelf[AsyncFastRedlock]] = {}
_mutex = threading.Lock()


def shared(masters: Iterable[Any], options: dict[str, Any]) -> FastRedlock:
    """The client of this process for these masters and options. ConfigError; no I/O."""
    return _threads.find(given(masters), tuple(sorted(options.items())))


def shared_aio(masters: Iterable[Any], options: dict[str, Any]) -> AsyncFastRedlock:
    """The same, of the running loop."""
    loop = asyncio.get_running_loop()
    with _mutex:
        for over in [one for one in _loops if one.is_closed()]:
            del _loops[over]
        shelf = _loops.setdefault(loop, _Shelf(AsyncFastRedlock))
    return shelf.find(given(masters), tuple(sorted(options.items())))


def close_all() -> None:
    """Close the shared clients for threads: at the end of a test, or of a process that counts its threads."""
    for client in _threads.empty():
        client.close()


async def aclose_all() -> None:
    """Close those of the running loop: before it is closed."""
    with _mutex:
        shelf = _loops.pop(asyncio.get_running_loop(), None)
    for client in shelf.empty() if shelf else ():
        await client.close()


# --- locks that change hands ---------------------------------------------------------------------


def handed_over(
    kind: type[AnyLock], client: Core, resource: str | bytes, token: bytes, ttl: float
) -> AnyLock:
    """A lock that was acquired elsewhere, perhaps in another process, by its token.

    How much is left of it nobody knows here: at most ``ttl`` seconds.
    """
    rules = client.rules
    lease = Lease(client.check_key(resource), token, rules.everyone, ttl, rules.clock() + ttl, ttl)
    (lock,) = locks_of(kind, client, [resource], [lease])
    assert lock is not None
    return lock
