"""``redlock-fast`` against real masters."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.commands import Command
from support.waiting import PATIENT

from redlock_fast.embedded import Masters

#: The masters of the tests were started a moment ago, and ``exec`` and ``lead`` judge a master by its uptime.
SETTINGS = {"restart_guard": "auto", **PATIENT}


@pytest.fixture
def command(valkey: Masters, engine_name: str, tmp_path: Path) -> Command:
    """On both engines."""
    return Command(valkey, engine_name).with_options(tmp_path, **SETTINGS)


@pytest.fixture
def once(valkey: Masters, tmp_path: Path) -> Command:
    """For what no engine can change."""
    return Command(valkey).with_options(tmp_path, **SETTINGS)
