"""Flask: a real server that forks after it has loaded the application, and what an application composes."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.web_server import GUNICORN, check_server

from redlock_fast.embedded import Masters

pytest.importorskip("flask", reason="no flask: pip install 'redlock-fast[integrations-test]'")
pytest.importorskip("gunicorn", reason="no gunicorn: pip install 'redlock-fast[integrations-test]'")


def test_requests_in_two_processes(valkey: Masters, tmp_path: Path) -> None:
    command = ["gunicorn", "support.web_apps:flask_app()", *GUNICORN]
    check_server(command, valkey, tmp_path / "log", ["/orders/7", "/async/7"])
