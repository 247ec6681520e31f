"""Greenlets: whether gevent or eventlet has replaced the blocking calls of the standard library.

Compiled code that waits would stop every greenlet of its thread. The pure engine takes locks, polls and
sleeps by the names in ``threading``, ``select`` and ``time``, so only its own greenlet waits. It looks these
names up when it uses them, because a program may import this package before it patches.
"""

from __future__ import annotations

import select
import socket
import threading

from ..errors import ConfigError

LIBRARIES = ("gevent", "eventlet")


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


def _patches() -> list[str]:
    modules = (socket.socket.__module__, select.select.__module__, threading.get_ident.__module__)
    return [name if (name := (module or "").partition(".")[0]) in LIBRARIES else "" for module in modules]
