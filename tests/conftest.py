"""Which engines the tests run on: all that are built, or those of REDLOCK_FAST_TEST_ENGINES."""

from __future__ import annotations

import gc
from importlib.util import find_spec
from pathlib import Path

import hypothesis
import pytest
from support.engines import engines

import redlock_fast
from redlock_fast._engine import Engine, load

# A busy machine may take longer for an example than any time that could be set.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")


def pytest_configure() -> None:
    """Of a module that is compiled from its Python, what was compiled is tested: it has to be that Python."""
    for types in Path(redlock_fast.__file__).parent.glob("*.pxd"):
        source = types.with_suffix(".py")
        spec = find_spec(f"redlock_fast.{types.stem}")
        assert spec is not None
        assert spec.origin is not None
        built = Path(spec.origin)
        newest = max(source.stat().st_mtime, types.stat().st_mtime)
        if built != source and built.stat().st_mtime < newest:
            raise pytest.UsageError(f"{source.name} was changed after it was compiled: make build")


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
