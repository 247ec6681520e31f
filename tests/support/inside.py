"""What a client keeps inside. The tests reach it here, and nowhere else, by a private name."""

from __future__ import annotations

from typing import overload

from redlock_fast import AsyncFastRedlock, FastRedlock
from redlock_fast.aio.core import LoopCore
from redlock_fast.threads.core import ThreadCore


@overload
def core_of(client: FastRedlock) -> ThreadCore: ...
@overload
def core_of(client: AsyncFastRedlock) -> LoopCore: ...
def core_of(client: FastRedlock | AsyncFastRedlock) -> ThreadCore | LoopCore:
    """The core of ``client``: its settings, its masters, its leases and its renewal."""
    return client._core
