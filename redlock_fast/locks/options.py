"""Options that the kinds of locks have in common."""

from __future__ import annotations

from typing import Any

from ..errors import ConfigError


def check_options(options: dict[str, Any]) -> dict[str, Any]:
    """Those that every kind has of the plain lock's."""
    if "fencing" in options:
        raise ConfigError("fencing is an option of lock() only: on other kinds no single key decides")
    if "fair" in options:
        raise ConfigError("fair is an option of lock() only: other kinds have no queue")
    return options
