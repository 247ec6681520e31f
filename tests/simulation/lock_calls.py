"""Acquire and release of a lock object, performed by the actor that steps them."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from redlock_fast.algorithm.operation import performed
from redlock_fast.locks.lock_state import LockState
from redlock_fast.locks.operations import new_acquire, new_release


def acquire(lock: LockState, blocking: bool, timeout: float | None) -> Generator[Any, Any, Any]:
    """Returns the lease, or why there is none."""
    return performed(new_acquire(lock, blocking, timeout))


def release(lock: LockState) -> Generator[Any, Any, Any]:
    """Returns whether a quorum still had the lease."""
    return performed(new_release(lock))
