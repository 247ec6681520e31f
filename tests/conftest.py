"""Which engines the tests run on: all that are built, or those of REDLOCK_FAST_TEST_ENGINES."""

from __future__ import annotations

import gc

import hypothesis
import pytest
from support.engines import engines

from redlock_fast._engine import Engine, load

# A busy machine may take longer for an example than any time that could be set.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")


def pytest_collection_finish() -> None:
    """All that is there by now stays: who collects garbage in a test need not look at it, each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", params=engines())
def engine_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def engine_class(engine_name: str) -> type[Engine]:
    return load(engine_name)
