"""redlock-fast: a fast distributed lock (Redlock) over N independent Redis or Valkey masters."""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING

from ._engine import load as _load
from ._quorum import Retry
from ._seat import MasterHealth
from ._stats import Stats
from .client import FastRedlock, Lock
from .errors import (
    ClientClosed,
    ConfigError,
    Contended,
    LockAlreadyHeld,
    LockLost,
    LockNotAcquired,
    MasterError,
    QuorumUnavailable,
    RedlockError,
    TooManyExtensions,
    WrongLoop,
)
from .kinds.rlock import RLock

if _TYPE_CHECKING:
    from .aio import AsyncFastRedlock, AsyncLock
    from .kinds.rlock_aio import AsyncRLock
    from .sharded import AsyncShardedRedlock, ShardedRedlock

#: Loaded when they are first asked for: they import asyncio and hashlib, which is most of what takes time.
_LATER = {
    "AsyncFastRedlock": "aio",
    "AsyncLock": "aio",
    "AsyncRLock": "kinds.rlock_aio",
    "AsyncShardedRedlock": "sharded",
    "ShardedRedlock": "sharded",
}


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(_import_module(f".{_LATER[name]}", __name__), name)


__version__ = "0.1.0"

ENGINE = "native" if _load().__name__ == "NativeEngine" else "python"
"""Which engine ``engine="auto"`` is in this process: "native" or "python"."""

__all__ = [
    "ENGINE",
    "AsyncFastRedlock",
    "AsyncLock",
    "AsyncRLock",
    "AsyncShardedRedlock",
    "ClientClosed",
    "ConfigError",
    "Contended",
    "FastRedlock",
    "Lock",
    "LockAlreadyHeld",
    "LockLost",
    "LockNotAcquired",
    "MasterError",
    "MasterHealth",
    "QuorumUnavailable",
    "RLock",
    "RedlockError",
    "Retry",
    "ShardedRedlock",
    "Stats",
    "TooManyExtensions",
    "WrongLoop",
]
