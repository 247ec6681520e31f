"""``redlock-fast`` against real masters."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.commands import Command
from support.waiting import PATIENT

from redlock_fast.embedded import Masters


@pytest.fixture
def command(valkey: Masters, engine_name: str, tmp_path: Path) -> Command:
    """On both engines."""
    return Command(valkey, engine_name).with_options(tmp_path, **PATIENT)


@pytest.fixture
def once(valkey: Masters, tmp_path: Path) -> Command:
    """For what no engine can change."""
    return Command(valkey).with_options(tmp_path, **PATIENT)
