"""redlock-fast: a fast distributed lock (Redlock) over N independent Redis or Valkey masters."""

from ._engine import load as _load
from ._masters import MasterHealth
from ._quorum import Retry
from .aio import AsyncFastRedlock, AsyncLock
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
from .telemetry import Stats

__version__ = "0.1.0"

#: Which engine ``engine="auto"`` is in this process: "native" or "python".
ENGINE = "native" if _load().__name__ == "NativeEngine" else "python"

__all__ = [
    "ENGINE",
    "AsyncFastRedlock",
    "AsyncLock",
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
    "RedlockError",
    "Retry",
    "Stats",
    "TooManyExtensions",
    "WrongLoop",
]
