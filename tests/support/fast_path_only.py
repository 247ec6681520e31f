"""Acquires and releases that one exchange decides need no procedure."""

from __future__ import annotations

import pytest

from redlock_fast.aio import driver
from redlock_fast.threads import fast_path


def fast_path_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on a procedure that is run fails the test."""

    def procedure_used(*_: object) -> None:
        raise AssertionError("a procedure was run")

    for module in (driver, fast_path):
        monkeypatch.setattr(module, "acquire_lock", procedure_used)
        monkeypatch.setattr(module, "release_lock", procedure_used)
