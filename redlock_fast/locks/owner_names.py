"""The owner that a token names: given by the caller, or by default ``host:pid:thread``.

The name is found once for each thread: it must cost an acquire next to nothing.
"""

from __future__ import annotations

import os
import socket
import threading
from typing import Any

from ..algorithm.tokens import MAX_OWNER, owner_part
from ..engine.fork import in_child_of_fork
from ..errors import ConfigError
from ..wire.text import clean

#: The largest part of the host's name, in characters. Its end tells the replicas of one service apart.
MAX_HOST = 36

_cache: Any = None


def check_owner(owner: Any, option: str = "owner") -> str:
    """``owner`` as printable text. Raises ConfigError unless it is text of at most ``MAX_OWNER`` bytes."""
    if not isinstance(owner, str):
        raise ConfigError(f"{option} must be text or None, not {type(owner).__name__}")
    shown = clean(owner, 10 * MAX_OWNER)  # an escape has at most ten characters
    if len(owner) > MAX_OWNER or len(shown.encode()) > MAX_OWNER:
        raise ConfigError(f"{option} must have at most {MAX_OWNER} bytes as printable UTF-8, not {shown!r}")
    return shown


def default_owner(name: str) -> str:
    """The owner of the thread or task ``name`` of this process, cut to ``MAX_OWNER`` bytes."""
    host = socket.gethostname().partition(".")[0][-MAX_HOST:]
    shown = clean(f"{host}:{os.getpid()}:{name}", MAX_OWNER)
    return shown.encode()[:MAX_OWNER].decode(errors="ignore")


def thread_owner() -> bytes:
    """The part of a token that names the calling thread."""
    try:
        part: bytes = _cache.part
    except AttributeError:  # the first token of this thread, in this process
        part = _cached_part()
    return part


def _cached_part() -> bytes:
    global _cache
    if _cache is None:
        _cache = threading.local()  # not at the import, after which gevent may replace it
    _cache.part = owner_part(default_owner(threading.current_thread().name))
    return _cache.part  # type: ignore[no-any-return]


def _forget() -> None:
    global _cache
    _cache = None


in_child_of_fork(_forget)
