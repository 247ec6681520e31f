"""``redlock-fast locks``: lists the locks that each master reports."""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import dataclass
from typing import Any

from ..algorithm.keys import MAX_RESOURCE
from ..errors import ConfigError
from ..locks.inspection import Holder, read, scan
from ..masters.key_scan import Servers, escape_pattern
from ..wire.text import clean
from . import exit_codes
from .live import watch
from .output import print_error
from .settings import Reading, load
from .tables import Table, show

#: The number of characters of a token that are shown.
SHOWN = 8
#: Characters of a key in JSON: a byte may need four.
MAX_SHOWN = 4 * MAX_RESOURCE
MORE = "There is more: use a narrower PATTERN, or a higher --limit or --timeout."
QUORUM: dict[bool | None, str] = {True: "yes", False: "NO", None: "?"}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The locks that the masters have. ``errors``: of each master. ``cut``: names were left out.

    ``need``: how many masters are a quorum.
    """

    locks: list[Holder]
    errors: dict[str, str]
    cut: bool
    need: int

    @property
    def answered(self) -> int:
        return sum(not error for error in self.errors.values())

    @property
    def by_quorum(self) -> bool:
        """Whether a quorum of masters answered."""
        return self.answered >= self.need

    @property
    def complete(self) -> bool:
        """Whether each lock that is held is among them. A quorum has its key, so a quorum names it."""
        return self.by_quorum and not self.cut


@dataclass(frozen=True, slots=True)
class Search:
    """Which locks to read. ``seconds``: for the names."""

    reading: Reading
    pattern: str
    limit: int
    seconds: float

    def read(self, servers: Servers) -> Snapshot:
        timeout = self.reading.timeout
        pattern = escape_pattern(self.reading.prefix) + os.fsencode(self.pattern)
        names, all_names = scan(servers, pattern, self.limit, self.seconds)
        quorums = self.reading.quorums
        locks = read(servers, names, (), self.reading.prefix, quorums, self.seconds + timeout)
        errors = {server.name: server.error for server in servers.all}
        return Snapshot(locks, errors, not all_names, self.reading.need)


def run(options: argparse.Namespace) -> int:
    """Print the locks. Returns 0 if a quorum of masters answered, else 69."""
    if options.json and options.watch is not None:
        raise ConfigError("--watch draws on a terminal; `top --json` prints an object for each frame")
    reading = load(options).reading()
    prefix = reading.prefix
    search = Search(reading, options.pattern, options.limit, options.timeout)
    with Servers(reading.targets, reading.timeout) as servers:
        if options.watch is not None:
            return watch(
                lambda: _again(servers, search),
                lambda seen: tables_of(seen, prefix),
                options.watch,
                instead="leave --watch out",
            )
        seen = search.read(servers)
    if options.json:
        print(json.dumps(_as_json(seen, prefix)))
    else:
        _print_table(seen, prefix)
    return exit_code(seen, quiet=options.json)


def _again(servers: Servers, search: Search) -> Snapshot:
    servers.begin_again()
    return search.read(servers)


def exit_code(seen: Snapshot, quiet: bool) -> int:
    """0 if a quorum answered; else 69, with a message unless ``quiet``."""
    if seen.by_quorum:
        return 0
    sys.stdout.flush()
    if not quiet:  # the object has the error of each master
        many = f"only {seen.answered}" if seen.answered else "none"
        asked = f"{many} of {len(seen.errors)} masters could be asked"
        print_error(f"{asked}, a quorum is {seen.need}: any lock may be held")
    return exit_codes.UNAVAILABLE


def _print_table(seen: Snapshot, prefix: bytes) -> None:
    for place, (name, error) in enumerate(seen.errors.items(), 1):
        print(f"{place}: {name}" + (f": {error}" if error else ""))
    print()
    if seen.locks:
        show(*lock_table(seen, prefix))
    elif seen.by_quorum:
        print("nothing is held")
    if seen.cut:
        print("\n" + MORE)


def tables_of(seen: Snapshot, prefix: bytes) -> list[Table]:
    """The masters and the locks, for a live view."""
    masters = [[str(place), name, error or "-"] for place, (name, error) in enumerate(seen.errors.items(), 1)]
    return [(("", "master", "error"), masters), lock_table(seen, prefix)]


def lock_table(seen: Snapshot, prefix: bytes) -> Table:
    return table_columns(len(seen.errors)), [row(one, prefix) for one in seen.locks]


def table_columns(masters: int) -> list[str]:
    return ["lock", "owner", "token", "quorum", *(f"ttl {place + 1}" for place in range(masters))]


def row(one: Holder, prefix: bytes) -> list[str]:
    ttls = ("-" if left is None else f"{left:.1f} s" for left in one.ttls)
    name = clean(one.key.removeprefix(prefix))
    return [name, one.owner or "-", _token(one.token), QUORUM[one.held], *ttls]


def _as_json(seen: Snapshot, prefix: bytes) -> dict[str, Any]:
    masters = [{"name": name, "error": error} for name, error in seen.errors.items()]
    locks = [as_json(one, prefix) for one in seen.locks]
    return {"masters": masters, "locks": locks, "complete": seen.complete}


def as_json(one: Holder, prefix: bytes) -> dict[str, Any]:
    return {
        "lock": clean(one.key.removeprefix(prefix), MAX_SHOWN),
        "key": clean(one.key, MAX_SHOWN),
        "token": _token(one.token),
        "owner": one.owner,
        "quorum": one.held,
        "ttl": list(one.ttls),
    }


def _token(token: bytes) -> str:
    """The beginning of a token, at most half of it, because the whole token can release the lock.

    Printable text is shown as it is, random bytes in hexadecimal.
    """
    text = token.decode(errors="replace")
    shown = text if text.isascii() and text.isprintable() else token.hex()
    return shown[: min(SHOWN, len(shown) // 2)]
