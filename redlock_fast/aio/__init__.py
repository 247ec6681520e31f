"""The asyncio client."""

from .client import AsyncFastRedlock
from .lock import AsyncLock

__all__ = ["AsyncFastRedlock", "AsyncLock"]
