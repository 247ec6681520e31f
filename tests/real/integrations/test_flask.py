"""Flask: a real server that forks after it has loaded the application, and what an application composes."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from support.web_server import GUNICORN, check_server

from redlock_fast import ConfigError
from redlock_fast.embedded import Masters

# Not imported here: each worker of a run would do that.
pytestmark = pytest.mark.skipif(
    not all(map(find_spec, ("flask", "gunicorn"))),
    reason="no flask, or no gunicorn: pip install 'redlock-fast[integrations-test]'",
)


def test_requests_in_two_processes(valkey: Masters, tmp_path: Path) -> None:
    command = ["gunicorn", "support.web_apps:flask_app()", *GUNICORN]
    check_server(command, valkey, tmp_path / "log", ["/orders/7", "/async/7"])


def test_mistakes() -> None:
    from flask import Flask

    from redlock_fast.integrations.flask import Redlock

    app = Flask("app")
    with pytest.raises(ConfigError, match=r'app.config\["REDLOCK_FAST"\] must be a dict'):
        Redlock(app)
    app.config["REDLOCK_FAST"] = {"masters": ["redis://a"], "tll": 1}
    with pytest.raises(ConfigError, match="has no option 'tll'"):
        Redlock(app)
    redlock = Redlock()
    with app.app_context(), pytest.raises(ConfigError, match="call init_app"):
        _ = redlock.client

    def stream() -> Any:
        yield "a body that would be sent without the lock"

    with pytest.raises(ConfigError, match="generator function"):
        redlock.synchronized("r")(stream)
