"""Greenlets: whether gevent or eventlet has replaced the blocking calls of the standard library.

Compiled code that waits would stop every greenlet of its thread. The pure engine takes locks, polls and
sleeps by the names in ``threading``, ``select`` and ``time``, so only its own greenlet waits. It looks these
names up when it uses them, because a program may import this package before it patches.
"""

from __future__ import annotations

import select
import socket
import sys
import threading
import weakref
from typing import Protocol

from ..errors import ConfigError

LIBRARIES = ("gevent", "eventlet")


class MadeBefore(Protocol):
    """What was made before gevent patched, and cannot be used afterwards."""

    def check_patch(self) -> None:
        """Raise ConfigError if a library has patched threads since this was made."""


_made_before: weakref.WeakSet[MadeBefore] = weakref.WeakSet()


def patched_by() -> str:
    """The library that replaced sockets, select or threads in this process: one of LIBRARIES, or ""."""
    return next(filter(None, _patches()), "")


def check_patches() -> None:
    """Raise ConfigError if a greenlet that waits would stop the others, or would share their locks."""
    library = patched_by()
    if library == "eventlet":
        raise ConfigError(
            "eventlet patched the standard library, and has no select.poll, which the pure engine needs: "
            "use gevent, asyncio or threads"
        )
    if library and not all(_patches()):
        raise ConfigError(
            f"{library} patched only a part of sockets, select and threads: "
            f"call {library}.monkey.patch_all() without exceptions before a client is made"
        )


def check_at_patch(made: MadeBefore) -> None:
    """Call ``made.check_patch`` when gevent patches, if this program has imported gevent.

    A worker of gunicorn patches after the application was loaded. A ConfigError ends its start there, and
    not each of its requests.
    """
    if "gevent" not in sys.modules or patched_by():
        return
    from gevent import events

    _made_before.add(made)
    if _check_all not in events.subscribers:
        events.subscribers.append(_check_all)


def _check_all(event: object) -> None:
    from gevent import events

    if isinstance(event, events.GeventDidPatchAllEvent):
        for made in list(_made_before):
            made.check_patch()


def _patches() -> list[str]:
    modules = (socket.socket.__module__, select.select.__module__, threading.get_ident.__module__)
    return [name if (name := (module or "").partition(".")[0]) in LIBRARIES else "" for module in modules]
