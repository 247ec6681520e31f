"""The masters and client options of a process from its environment: variables, and a TOML file."""

from __future__ import annotations

import os
import re
from typing import Any

from ..algorithm.quorum import Retry
from ..errors import ConfigError
from .client_base import BaseClient

SECTION = "redlock-fast"
MASTERS, CONFIG = "REDLOCK_FAST_MASTERS", "REDLOCK_FAST_CONFIG"

#: The options in a file beside ``masters``: all client options that TOML can express.
OPTIONS = tuple(
    name
    for name in BaseClient.__init__.__annotations__
    if name not in ("masters", "clock", "unknown", "return")
)


def from_environment(
    masters: str = "",
    config: str | None = None,
    missing: str = f"set {MASTERS}, or name a file with {CONFIG}",
) -> tuple[list[str], dict[str, Any]]:
    """The URLs of the masters and the client options.

    ``masters`` goes before REDLOCK_FAST_MASTERS, and that before the file; ``config`` goes before
    REDLOCK_FAST_CONFIG. Raises ConfigError, whose text has no password; without masters it says ``missing``.
    """
    path = config or os.environ.get(CONFIG)
    options = _from_file(path) if path else {}
    in_file = options.pop("masters", [])
    urls = split_urls(masters) or split_urls(os.environ.get(MASTERS, "")) or in_file
    if not urls:
        raise ConfigError(f"no masters: {missing}")
    return urls, options


def split_urls(urls: str) -> list[str]:
    """Split before each scheme, because passwords and addresses of Sentinels may have commas."""
    return [url for url in re.split(r"[\s,]+(?=[\w+]+:/|$)", urls.strip()) if url]


def _from_file(path: str) -> dict[str, Any]:
    import tomllib

    try:
        with open(path, "rb") as file:
            said = tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{path}: no TOML: {error}") from None
    except RecursionError:
        raise ConfigError(f"{path}: no TOML: nested too deep") from None
    section = said.get(SECTION)
    if not isinstance(section, dict):
        raise ConfigError(f"{path}: has no section [{SECTION}]")
    unknown = [name for name in section if name not in ("masters", *OPTIONS)]
    if unknown:
        raise ConfigError(
            f"{path}: unknown: {', '.join(unknown)}; [{SECTION}] may have masters, {', '.join(OPTIONS)}"
        )
    masters = section.get("masters", [])
    if not isinstance(masters, list) or not all(isinstance(url, str) for url in masters):
        raise ConfigError(f"{path}: masters must be a list of URLs")
    if "retry" in section:
        section["retry"] = _retry(path, section["retry"])
    return section


def _retry(path: str, said: Any) -> Retry:
    try:
        return Retry(**said)
    except TypeError:
        raise ConfigError(f"{path}: retry must be a table of min_delay, max_delay, max_attempts") from None
