"""redlock-fast: a fast distributed lock (Redlock) over N independent Redis or Valkey masters."""

import sys as _sys
import typing as _typing
from importlib import import_module as _import_module

if _sys.platform == "win32":  # no fork, no select.poll, no signal masks
    raise ImportError("redlock-fast does not run on Windows; in WSL 2 it does (docs/deployments.md)")

from .algorithm.quorum import Retry
from .errors import (
    ClientClosed,
    ConfigError,
    Contended,
    ContendedTimeout,
    LockAlreadyHeld,
    LockLost,
    LockNotAcquired,
    MasterError,
    QuorumTimeout,
    QuorumUnavailable,
    RedlockError,
    StaleToken,
    TooManyExtensions,
    WrongLoop,
)
from .locks.inspection import Holder
from .locks.rlock import RLock
from .masters.health import MasterHealth
from .masters.stats import Stats
from .threads.client import FastRedlock
from .threads.leader import Leader
from .threads.lock import Lock
from .threads.single_run import SingleRun

if _typing.TYPE_CHECKING:
    from .aio.client import AsyncFastRedlock
    from .aio.leader import AsyncLeader
    from .aio.lock import AsyncLock
    from .aio.rlock import AsyncRLock
    from .aio.single_run import AsyncSingleRun
    from .sharded.clients import AsyncShardedRedlock, ShardedRedlock

#: Imported at their first use: they import asyncio and hashlib, which take most of the import time.
_LATER = {
    "AsyncFastRedlock": "aio",
    "AsyncLeader": "aio.leader",
    "AsyncLock": "aio.lock",
    "AsyncRLock": "aio.rlock",
    "AsyncShardedRedlock": "sharded",
    "AsyncSingleRun": "aio.single_run",
    "ShardedRedlock": "sharded",
}


if not _typing.TYPE_CHECKING:  # a checker would believe in every name

    def __getattr__(name: str) -> object:
        # Not at the import: gevent may patch later, and a bad variable is no import error.
        if name == "ENGINE":
            from .engine import load

            return "native" if load().__name__ == "NativeEngine" else "python"
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(_import_module(f".{_LATER[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__version__ = "0.1.0"

ENGINE: str
"""The engine that ``engine="auto"`` chooses for a client that is made now: "native" or "python".

Raises ConfigError for a wrong ``REDLOCK_FAST_ENGINE``.
"""

__all__ = [
    "ENGINE",
    "AsyncFastRedlock",
    "AsyncLeader",
    "AsyncLock",
    "AsyncRLock",
    "AsyncShardedRedlock",
    "AsyncSingleRun",
    "ClientClosed",
    "ConfigError",
    "Contended",
    "ContendedTimeout",
    "FastRedlock",
    "Holder",
    "Leader",
    "Lock",
    "LockAlreadyHeld",
    "LockLost",
    "LockNotAcquired",
    "MasterError",
    "MasterHealth",
    "QuorumTimeout",
    "QuorumUnavailable",
    "RLock",
    "RedlockError",
    "Retry",
    "ShardedRedlock",
    "SingleRun",
    "StaleToken",
    "Stats",
    "TooManyExtensions",
    "WrongLoop",
]
