"""Which engines there are to test."""

from __future__ import annotations

import importlib.util
import os

import pytest


def engines() -> list[str]:
    """All that are built, or those of REDLOCK_FAST_TEST_ENGINES: their tests fail where one is not."""
    required = os.environ.get("REDLOCK_FAST_TEST_ENGINES")
    if required:
        return [name.strip() for name in required.split(",")]
    built = importlib.util.find_spec("redlock_fast.engine._native") is not None
    return ["python", "native"] if built else ["python"]


#: For what takes long: each engine and each kind of server once, and not each engine on each of them.
ONCE = [(min(engines()), "valkey"), (max(engines()), "redis7")]
each_once = pytest.mark.parametrize(("engine_name", "masters"), ONCE, indirect=True)
