"""What a lock object does, performed by the actor that steps it."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from redlock_fast.locks.lock_state import LockState
from redlock_fast.locks.operations import new_acquire, new_release
from redlock_fast.locks.procedures import new_extend, validity_of

from .performed import performed


def acquire(lock: LockState, blocking: bool, timeout: float | None) -> Generator[Any, Any, Any]:
    """Returns the lease, or why there is none."""
    return performed(new_acquire(lock, blocking, timeout))


def release(lock: LockState) -> Generator[Any, Any, Any]:
    """Returns whether a quorum still had the lease."""
    return performed(new_release(lock))


def extend(lock: LockState, ttl: float | None) -> Generator[Any, Any, float]:
    """Returns the new validity in seconds."""
    return validity_of((yield from performed(new_extend(lock, ttl))))
