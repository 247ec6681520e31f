"""Gives a client another class of locks: one that writes spans. Locks that it made before do not change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..locks.client_base import BaseClient
from ..threads.client import FastRedlock, Lock

Methods = dict[str, Any]


def instrument(
    client: BaseClient, threads: Callable[[type[Any]], Methods], tasks: Callable[[type[Any]], Methods]
) -> None:
    """Make ``client`` create locks with these methods instead of those of their class.

    ``threads``, ``tasks``: given the class that its locks have now, the new methods, for a FastRedlock or
    for an AsyncFastRedlock.
    """
    observer = client.observe()
    before = observer.lock_class or lock_class(client)
    methods = (threads if isinstance(client, FastRedlock) else tasks)(before)
    names = {"__slots__": (), "__module__": before.__module__, **methods}
    observer.lock_class = type(before.__name__, (before,), names)


def lock_class(client: BaseClient) -> type[Any]:
    if isinstance(client, FastRedlock):
        return Lock
    from ..aio.client import AsyncLock  # asyncio takes long to import, and is there if there is such a client

    return AsyncLock
