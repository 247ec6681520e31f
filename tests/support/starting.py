"""Threads whose start fails, or is interrupted."""

from __future__ import annotations

import threading

import pytest


def fail_start(monkeypatch: pytest.MonkeyPatch, name: str, error: BaseException, *, begun: bool) -> None:
    """The next ``start`` of a thread of that name raises ``error``; ``begun``: after the thread has begun."""
    start = threading.Thread.start
    errors = [error]

    def failing(thread: threading.Thread) -> None:
        if thread.name != name or not errors:
            start(thread)
            return
        if begun:
            start(thread)
        raise errors.pop()

    monkeypatch.setattr(threading.Thread, "start", failing)
