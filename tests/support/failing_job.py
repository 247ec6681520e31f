"""A job for another process: it fails."""

from __future__ import annotations


def fail(error: BaseException) -> None:
    raise error
