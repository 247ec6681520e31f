"""The masters and client options: flags override the environment, which overrides a TOML file."""

from __future__ import annotations

import argparse
import os
import re
from dataclasses import dataclass, field
from typing import Any

from ..algorithm.keys import prefix_of
from ..algorithm.quorum import Retry, quorum
from ..errors import ConfigError
from ..locks.client_base import BaseClient
from ..locks.config import check_masters, number
from ..masters.address import Target

SECTION = "redlock-fast"
MASTERS, CONFIG = "REDLOCK_FAST_MASTERS", "REDLOCK_FAST_CONFIG"
#: The new list of ``redlock-fast masters``.
NEW_MASTERS = "REDLOCK_FAST_NEW_MASTERS"

#: The options in a file beside ``masters``: all client options that TOML can express.
OPTIONS = tuple(
    name
    for name in BaseClient.__init__.__annotations__
    if name not in ("masters", "clock", "unknown", "return")
)

#: Seconds for one connection, or one reply, of a command that reads the masters itself.
CONNECT_TIMEOUT = 2.0


@dataclass(frozen=True, slots=True)
class Reading:
    """What a command needs that reads masters itself. ``timeout``: seconds for a connection or a reply."""

    targets: list[Target]
    need: int
    prefix: bytes
    timeout: float


@dataclass(frozen=True, slots=True)
class Settings:
    """``options``: the client options from flags, environment and file."""

    masters: list[str] = field(repr=False)
    options: dict[str, Any]

    def client(self, **defaults: Any) -> dict[str, Any]:
        """All arguments for a client; ``defaults`` are used for options that were not given."""
        return {"masters": self.masters, **defaults, **self.options}

    def reading(self) -> Reading:
        """Raises ConfigError for options that no client would take."""
        targets = check_masters(self.masters)
        prefix = prefix_of(self.options.get("key_prefix", ""))
        timeout = number("connect_timeout", self.options.get("connect_timeout", CONNECT_TIMEOUT), above=0.0)
        return Reading(targets, quorum(len(targets)), prefix, timeout)


def load(flags: argparse.Namespace) -> Settings:
    """The settings for these flags. Raises ConfigError, whose text has no password."""
    path = flags.config or os.environ.get(CONFIG)
    options = _from_file(path) if path else {}
    in_file = options.pop("masters", [])
    masters = _split(flags.masters or "") or _split(os.environ.get(MASTERS, "")) or in_file
    if not masters:
        raise ConfigError(
            f"no masters: give --masters URL,URL or set {MASTERS}, or name a file with --config or {CONFIG}"
        )
    for name in ("ttl", "key_prefix"):
        given = getattr(flags, name, None)
        if given is not None:
            options[name] = given
    return Settings(masters, options)


def has_new_masters(flags: argparse.Namespace) -> bool:
    return bool(flags.to or os.environ.get(NEW_MASTERS))


def new_masters(flags: argparse.Namespace) -> list[str]:
    """The URLs of ``--to``. Raises ConfigError."""
    masters = _split(flags.to or "") or _split(os.environ.get(NEW_MASTERS, ""))
    if not masters:
        raise ConfigError(f"no new masters: give --to URL,URL or set {NEW_MASTERS}")
    return masters


def _split(urls: str) -> list[str]:
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
