"""FastAPI and Starlette: real servers, and what an application composes."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.web_server import UVICORN, check_server

from redlock_fast.embedded import Masters

pytest.importorskip("fastapi")


def test_requests_in_two_processes(valkey: Masters, tmp_path: Path) -> None:
    check_server(["uvicorn", "support.web_apps:fastapi_app", *UVICORN], valkey, tmp_path / "log", ["/orders/7"])
