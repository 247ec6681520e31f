"""The asyncio client."""

from .client import AsyncFastRedlock, AsyncLock

__all__ = ["AsyncFastRedlock", "AsyncLock"]
