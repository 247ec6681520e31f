"""Acquires and releases that one exchange decides need no procedure."""

from __future__ import annotations

import pytest

from redlock_fast.locks.lock_state import LockState


def no_detours(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on a procedure that is run fails the test."""

    def detour(*_: object) -> None:
        raise AssertionError("a procedure was run")

    for name in ("_attempt", "_release"):
        monkeypatch.setattr(LockState, name, detour)
