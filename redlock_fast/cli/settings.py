"""The masters and client options: flags override the environment, which overrides a TOML file."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, field
from typing import Any

from ..algorithm.keys import key_of, prefix_of
from ..algorithm.quorum import quorum
from ..errors import ConfigError, MasterError, QuorumUnavailable
from ..locks.config import check_masters, number
from ..locks.environment import CONFIG, MASTERS, from_environment, split_urls
from ..masters.address import Target
from ..masters.probe import ConnectError

#: The new list of ``redlock-fast masters``.
NEW_MASTERS = "REDLOCK_FAST_NEW_MASTERS"

#: What a command says without masters.
MISSING = f"give --masters URL,URL or set {MASTERS}, or name a file with --config or {CONFIG}"

#: Seconds for one connection, or one reply, of a command that reads the masters itself.
CONNECT_TIMEOUT = 2.0


@dataclass(frozen=True, slots=True)
class Reading:
    """What a command needs that reads masters itself. ``timeout``: seconds for a connection or a reply.

    ``need``: how many of ``targets`` must answer: a quorum, or every shard of a Cluster.
    """

    targets: list[Target]
    need: int
    prefix: bytes
    timeout: float

    @property
    def quorums(self) -> list[tuple[int, int]]:
        """One list of all masters, and how many of them must have a lock."""
        return [((1 << len(self.targets)) - 1, 1 if self.targets[0].topology else self.need)]


@dataclass(frozen=True, slots=True)
class Settings:
    """``options``: the client options from flags, environment and file."""

    masters: list[str] = field(repr=False)
    options: dict[str, Any]

    def client(self, **defaults: Any) -> dict[str, Any]:
        """All arguments for a client; ``defaults`` are used for options that were not given."""
        return {"masters": self.masters, **defaults, **self.options}

    def reading(self, name: bytes | None = None) -> Reading:
        """What reads all locks, or the lock ``name`` only.

        Raises ConfigError for options that no client would take, and QuorumUnavailable if no node of a
        Cluster answers.
        """
        targets = check_masters(self.masters)
        prefix = prefix_of(self.options.get("key_prefix", ""))
        timeout = number("connect_timeout", self.options.get("connect_timeout", CONNECT_TIMEOUT), above=0.0)
        if targets[0].topology is not None:
            key = None if name is None else key_of(prefix, name)
            try:
                targets = targets[0].shards(timeout, key)
            except ConnectError as error:
                cause = MasterError(targets[0].name, str(error))
                raise QuorumUnavailable(str(error), [cause], resource="", reason="unavailable") from None
            return Reading(targets, len(targets), prefix, timeout)
        return Reading(targets, quorum(len(targets)), prefix, timeout)


def load(flags: argparse.Namespace) -> Settings:
    """The settings for these flags. Raises ConfigError, whose text has no password."""
    masters, options = from_environment(flags.masters or "", flags.config, MISSING)
    for name in ("ttl", "key_prefix"):
        given = getattr(flags, name, None)
        if given is not None:
            options[name] = given
    return Settings(masters, options)


def has_new_masters(flags: argparse.Namespace) -> bool:
    return bool(flags.to or os.environ.get(NEW_MASTERS))


def new_masters(flags: argparse.Namespace) -> list[str]:
    """The URLs of ``--to``. Raises ConfigError."""
    masters = split_urls(flags.to or "") or split_urls(os.environ.get(NEW_MASTERS, ""))
    if not masters:
        raise ConfigError(f"no new masters: give --to URL,URL or set {NEW_MASTERS}")
    return masters
