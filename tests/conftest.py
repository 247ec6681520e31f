"""Which engines the tests run on: all that are built, or those of REDLOCK_FAST_TEST_ENGINES."""

from __future__ import annotations

import importlib.util
import os

import pytest

from redlock_fast._engine import Engine, load


def engines() -> list[str]:
    """An engine named by the variable has to be there: its tests fail where it is not."""
    required = os.environ.get("REDLOCK_FAST_TEST_ENGINES")
    if required:
        return [name.strip() for name in required.split(",")]
    built = importlib.util.find_spec("redlock_fast._native") is not None
    return ["python", "native"] if built else ["python"]


@pytest.fixture(scope="session", params=engines())
def engine_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def engine_class(engine_name: str) -> type[Engine]:
    return load(engine_name)
