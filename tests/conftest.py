"""Which engines the tests run on: all that are built, or those of REDLOCK_FAST_TEST_ENGINES."""

from __future__ import annotations

import pytest
from support.engines import engines

from redlock_fast._engine import Engine, load


@pytest.fixture(scope="session", params=engines())
def engine_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def engine_class(engine_name: str) -> type[Engine]:
    return load(engine_name)
