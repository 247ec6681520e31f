"""A client whose locks do something besides: write spans. All others stay as they are.

The client gets a class of its own, below that which it had, and so do the locks that it makes from then
on. Nothing on the way of other locks asks whether it is so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..locks.client_base import Core
from ..threads.client import FastRedlock, Lock

Methods = dict[str, Any]

#: The methods of clients that make locks by themselves; all others use these.
MAKERS = ("lock", "multilock")


def refine(
    client: Core, threads: Callable[[type[Any]], Methods], tasks: Callable[[type[Any]], Methods]
) -> None:
    """From now on ``client`` makes locks with these methods in place of those of their class.

    ``threads``, ``tasks``: given the class that its locks have now, the new methods, for a FastRedlock or
    for an AsyncFastRedlock.
    """
    kind: Any = type(client)
    before = getattr(kind, "refined_lock", None) or lock_class(client)
    methods = (threads if isinstance(client, FastRedlock) else tasks)(before)
    refined = type(before.__name__, (before,), {"__slots__": (), "__module__": before.__module__, **methods})
    makers = {name: maker(getattr(kind, name), refined) for name in MAKERS if hasattr(kind, name)}
    client.__class__ = type(
        kind.__name__, (kind,), {"refined_lock": refined, "__module__": kind.__module__, **makers}
    )


def lock_class(client: Core) -> type[Any]:
    if isinstance(client, FastRedlock):
        return Lock
    from ..aio.client import AsyncLock  # asyncio takes long to import, and is there if there is such a client

    return AsyncLock


def maker(make: Callable[..., Any], refined: type[Any]) -> Callable[..., Any]:
    """``make``, with locks of that class."""

    def refined_maker(*args: Any, **options: Any) -> Any:
        lock = make(*args, **options)
        lock.__class__ = refined
        return lock

    refined_maker.__doc__ = make.__doc__
    return refined_maker
