"""Acquires and releases that one exchange decides need no generator."""

from __future__ import annotations

import pytest

from redlock_fast.algorithm import operations


def one_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on an acquire that needs more than its first exchange fails the test."""

    def more(*_: object) -> None:
        raise AssertionError("one exchange did not decide it")

    monkeypatch.setattr(operations, "RetryLoop", more)
