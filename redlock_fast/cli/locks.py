"""``redlock-fast locks``: who holds what, as each master says."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass

from .._commands import MARKER
from .._core import check_masters, number
from .._keys import encoded
from .._quorum import quorum
from . import codes
from .keys import Found, Servers, literally
from .settings import load
from .tables import show
from .words import printable

CONNECT_TIMEOUT = 2.0
#: Of a token, for people.
SHOWN = 8
QUORUM = {True: "yes", False: "NO", None: "?"}


@dataclass(frozen=True, slots=True)
class Held:
    """One token under one name. ``left``: milliseconds on each master, None where it has not this token.

    ``quorum``: whether a quorum has it; None: those that did not answer would decide.
    """

    name: bytes
    token: bytes
    left: list[int | None]
    quorum: bool | None


def run(options: argparse.Namespace) -> int:
    """0: a quorum of masters has answered."""
    settings = load(options)
    targets = check_masters(settings.masters)
    prefix = encoded("key_prefix", settings.options.get("key_prefix", ""))
    need = quorum(len(targets))
    timeout = number("connect_timeout", settings.options.get("connect_timeout", CONNECT_TIMEOUT), above=0.0)
    with Servers(targets, timeout) as servers:
        pattern = literally(prefix) + os.fsencode(options.pattern)
        names, complete = _names(servers, pattern, options.limit, time.monotonic() + options.timeout)
        found = held(names, list(servers.each(lambda server: server.values(names))), need)
        errors = {server.name: server.error for server in servers.all}
    if options.json:
        _print_json(found, errors, complete, prefix)
    else:
        _print_table(found, errors, complete, prefix)
    return 0 if sum(not error for error in errors.values()) >= need else codes.UNAVAILABLE


def _names(servers: Servers, pattern: bytes, limit: int, deadline: float) -> tuple[list[bytes], bool]:
    """All that any master has, in order, ``limit`` at most; whether that is all there is."""
    parts = servers.each(lambda server: server.names(pattern, limit, deadline))
    names = sorted({name for part in parts if part for name in part if name != MARKER})
    return names[:limit], len(names) <= limit and all(server.complete for server in servers.all)


def held(names: Sequence[bytes], masters: Sequence[Found | None], need: int) -> list[Held]:
    """What the masters said, by name and token; most widely held first where there are several."""
    found = []
    for place, name in enumerate(names):
        votes = [None if answers is None else answers[place] for answers in masters]
        for token in {vote[0] for vote in votes if vote}:
            left = [vote[1] if vote and vote[0] == token else None for vote in votes]
            has = sum(one is not None for one in left)
            possible = has + sum(answers is None for answers in masters) >= need
            found.append(Held(name, token, left, True if has >= need else None if possible else False))
    return sorted(found, key=lambda one: (one.name, not one.quorum, one.token))


def _print_table(found: Sequence[Held], errors: dict[str, str], complete: bool, prefix: bytes) -> None:
    for place, (name, error) in enumerate(errors.items(), 1):
        print(f"{place}: {name}" + (f": {error}" if error else ""))
    print()
    if found:
        columns = ["lock", "token", "quorum", *(f"ttl on {place + 1}" for place in range(len(errors)))]
        show(columns, [_row(one, prefix) for one in found])
    else:
        print("nothing is held")
    if not complete:
        print("\nThere is more: use a narrower PATTERN, or a higher --limit or --timeout.")


def _row(one: Held, prefix: bytes) -> list[str]:
    ttls = ("-" if left is None else f"{left / 1000:.1f} s" for left in one.left)
    name = printable(one.name.removeprefix(prefix))
    return [name, _token(one.token)[:SHOWN], QUORUM[one.quorum], *ttls]


def _print_json(found: Sequence[Held], errors: dict[str, str], complete: bool, prefix: bytes) -> None:
    locks = [
        {
            "lock": printable(one.name.removeprefix(prefix)),
            "key": printable(one.name),
            "token": _token(one.token),
            "quorum": one.quorum,
            "ttl": [None if left is None else left / 1000 for left in one.left],
        }
        for one in found
    ]
    masters = [{"name": name, "error": error} for name, error in errors.items()]
    print(json.dumps({"masters": masters, "locks": locks, "complete": complete}))


def _token(token: bytes) -> str:
    """Text of other libraries as it is, our random bytes in hexadecimal."""
    text = token.decode(errors="replace")
    return text if text.isascii() and text.isprintable() else token.hex()
