"""The pytest plugin of redlock-fast: fixtures for fault tests on real masters; docs/recipes/fault-tests.md.

pytest imports this module in every run of every project where redlock-fast is installed. So it lies outside
of the package, and imports nothing of it before a fixture is used: the start stays fast, and coverage sees
all lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from redlock_fast import AsyncFastRedlock, FastRedlock
    from redlock_fast.integrations.pytest import FaultyMasters
    from redlock_fast.testing import MemoryMasters

#: By name: the default, and the help.
OPTIONS = {
    "masters": ("5", "number of masters of redlock_masters and of redlock_memory"),
    "server": ("auto", "auto, valkey, redis, or the path of a server binary"),
    "engine": ("auto", "engine of the clients: auto, native or python"),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("redlock-fast")
    for name, (default, text) in OPTIONS.items():
        group.addoption(f"--redlock-{name}", dest=f"redlock_{name}", help=f"{text} (default: {default})")
        parser.addini(f"redlock_{name}", f"{text} (default: {default})", default=default)


@pytest.fixture(scope="session")
def redlock_masters(request: pytest.FixtureRequest) -> Iterator[FaultyMasters]:
    """Real masters that a test can kill, stop and partition; after each test they are well and empty."""
    from redlock_fast.integrations.pytest import masters

    with masters(request.config) as fleet:
        yield fleet


@pytest.fixture
def redlock_memory(request: pytest.FixtureRequest) -> Iterator[MemoryMasters]:
    """Masters in memory, new ones for each test: no server is needed, and a test can move their time."""
    from redlock_fast.integrations.pytest import memory_masters

    with memory_masters(request.config) as fleet:
        yield fleet


@pytest.fixture(scope="session")
def redlock_options() -> dict[str, Any]:
    """Options of the clients of the fixtures redlock and aredlock. Override it to choose them."""
    return {}


@pytest.fixture
def redlock(
    request: pytest.FixtureRequest, redlock_masters: FaultyMasters, redlock_options: dict[str, Any]
) -> Iterator[FastRedlock]:
    """A FastRedlock on redlock_masters, connected to all of them."""
    from redlock_fast.integrations.pytest import client

    with client(request.config, redlock_masters.urls, redlock_options) as one:
        yield one


@pytest.fixture
def aredlock(
    request: pytest.FixtureRequest, redlock_masters: FaultyMasters, redlock_options: dict[str, Any]
) -> Iterator[AsyncFastRedlock]:
    """An AsyncFastRedlock on redlock_masters, for async tests of pytest-asyncio or anyio."""
    from redlock_fast.integrations.pytest import async_client

    with async_client(request, redlock_masters.urls, redlock_options) as one:
        yield one
