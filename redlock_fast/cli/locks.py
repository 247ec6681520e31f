"""``redlock-fast locks``: lists the locks that each master reports."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..algorithm.keys import MAX_RESOURCE
from ..algorithm.tokens import owner_of
from ..errors import ConfigError
from ..masters.marks import MARK_KEY
from ..wire.dialect import MARKER
from ..wire.text import clean
from . import exit_codes
from .key_scan import Found, Servers, escape_pattern
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
class Held:
    """One token under one name. ``left``: milliseconds on each master, None where the token is absent.

    ``quorum``: whether a quorum has the token; None: that depends on masters that did not answer.
    """

    name: bytes
    token: bytes
    left: list[int | None]
    quorum: bool | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The locks that the masters have. ``errors``: of each master. ``cut``: names were left out.

    ``need``: how many masters are a quorum.
    """

    locks: list[Held]
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
        names, all_names = _names(servers, pattern, self.limit, self.seconds, timeout)
        answers = list(servers.each(lambda server: server.values(names), self.seconds + timeout))
        errors = {server.name: server.error for server in servers.all}
        need = self.reading.need
        return Snapshot(held(names, answers, need), errors, not all_names, need)


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


def _names(
    servers: Servers, pattern: bytes, limit: int, seconds: float, timeout: float
) -> tuple[list[bytes], bool]:
    """At most ``limit`` names that any master has, sorted; and whether these are all names.

    Names on most masters are preferred, so the invented names of one master displace no other.
    """
    deadline = time.monotonic() + seconds
    parts = servers.each(lambda server: server.names(pattern, limit, deadline), seconds + timeout)
    counts = Counter(
        name for part in parts if part for name in part if not name.endswith(MARKER) and MARK_KEY not in name
    )
    names = sorted(counts, key=lambda name: (-counts[name], name))[:limit]
    return sorted(names), len(counts) <= limit and all(server.complete for server in servers.all)


def held(names: Sequence[bytes], masters: Sequence[Found | None], need: int) -> list[Held]:
    """The reported tokens by name; several tokens of a name begin with the most widely held."""
    found = []
    for place, name in enumerate(names):
        votes = [None if answers is None else answers[place] for answers in masters]
        for token in {vote[0] for vote in votes if vote}:
            left = [vote[1] if vote and vote[0] == token else None for vote in votes]
            has = sum(one is not None for one in left)
            possible = has + sum(answers is None for answers in masters) >= need
            found.append(Held(name, token, left, True if has >= need else None if possible else False))
    return sorted(found, key=lambda one: (one.name, not one.quorum, one.token))


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


def row(one: Held, prefix: bytes) -> list[str]:
    ttls = ("-" if left is None else f"{left / 1000:.1f} s" for left in one.left)
    name = clean(one.name.removeprefix(prefix))
    return [name, owner_of(one.token) or "-", _token(one.token), QUORUM[one.quorum], *ttls]


def _as_json(seen: Snapshot, prefix: bytes) -> dict[str, Any]:
    masters = [{"name": name, "error": error} for name, error in seen.errors.items()]
    locks = [as_json(one, prefix) for one in seen.locks]
    return {"masters": masters, "locks": locks, "complete": seen.complete}


def as_json(one: Held, prefix: bytes) -> dict[str, Any]:
    return {
        "lock": clean(one.name.removeprefix(prefix), MAX_SHOWN),
        "key": clean(one.name, MAX_SHOWN),
        "token": _token(one.token),
        "owner": owner_of(one.token),
        "quorum": one.quorum,
        "ttl": [None if left is None else left / 1000 for left in one.left],
    }


def _token(token: bytes) -> str:
    """The beginning of a token, at most half of it, because the whole token can release the lock.

    Printable text is shown as it is, random bytes in hexadecimal.
    """
    text = token.decode(errors="replace")
    shown = text if text.isascii() and text.isprintable() else token.hex()
    return shown[: min(SHOWN, len(shown) // 2)]
