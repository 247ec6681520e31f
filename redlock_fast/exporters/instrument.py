"""Makes a client create its locks from another class. Locks that it made before do not change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..locks.client_base import BaseClient
from ..threads.client import FastRedlock, Lock

Methods = dict[str, Any]


def instrument(
    client: BaseClient, threads: Callable[[type[Any]], Methods], tasks: Callable[[type[Any]], Methods]
) -> None:
    """Make ``client`` create locks from a subclass of the present class of its locks.

    ``threads``: called for a FastRedlock, ``tasks``: for an AsyncFastRedlock, with the present class. They
    return the methods of the subclass.
    """
    observer = client.observe()
    before = observer.lock_class or lock_class(client)
    methods = (threads if isinstance(client, FastRedlock) else tasks)(before)
    names = {"__slots__": (), "__module__": before.__module__, **methods}
    observer.lock_class = type(before.__name__, (before,), names)


def lock_class(client: BaseClient) -> type[Any]:
    """The class of the locks of a client without an observer."""
    if isinstance(client, FastRedlock):
        return Lock
    from ..aio.client import AsyncLock  # late: asyncio is slow to import, and such a client has imported it

    return AsyncLock
