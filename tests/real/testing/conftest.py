"""Masters in memory in place of real ones."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.memory import MemoryFleet

from redlock_fast.testing import MemoryMasters


@pytest.fixture
def memory() -> Iterator[MemoryMasters]:
    with MemoryMasters(5) as masters:
        yield masters


@pytest.fixture
def valkey(memory: MemoryMasters) -> MemoryFleet:
    return MemoryFleet(memory)


@pytest.fixture
def masters(valkey: MemoryFleet) -> MemoryFleet:
    """In this directory the fixtures of real masters have masters in memory."""
    return valkey
