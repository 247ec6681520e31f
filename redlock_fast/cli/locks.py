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

from ..algorithm.keys import MAX_RESOURCE, encoded
from ..algorithm.quorum import quorum
from ..locks.config import check_masters, number
from ..wire.dialect import MARKER
from ..wire.text import clean
from . import exit_codes
from .key_scan import Found, Servers, escape_pattern
from .output import print_error
from .settings import load
from .tables import show

CONNECT_TIMEOUT = 2.0
#: The number of characters of a token that are shown.
SHOWN = 8
#: Characters of a key in JSON: a byte may need four.
MAX_SHOWN = 4 * MAX_RESOURCE
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


def run(options: argparse.Namespace) -> int:
    """Print the locks. Returns 0 if a quorum of masters answered, else 69."""
    settings = load(options)
    targets = check_masters(settings.masters)
    prefix = encoded("key_prefix", settings.options.get("key_prefix", ""))
    need = quorum(len(targets))
    timeout = number("connect_timeout", settings.options.get("connect_timeout", CONNECT_TIMEOUT), above=0.0)
    with Servers(targets, timeout) as servers:
        pattern = escape_pattern(prefix) + os.fsencode(options.pattern)
        names, complete = _names(servers, pattern, options.limit, options.timeout, timeout)
        answers = list(servers.each(lambda server: server.values(names), options.timeout + timeout))
        found = held(names, answers, need)
        errors = {server.name: server.error for server in servers.all}
    answered = sum(not error for error in errors.values())
    if options.json:
        _print_json(found, errors, complete, prefix)
    else:
        _print_table(found, errors, complete, prefix, answered >= need)
    if answered >= need:
        return 0
    sys.stdout.flush()
    if not options.json:  # the object has the error of each master
        many = f"only {answered}" if answered else "none"
        print_error(
            f"{many} of {len(errors)} masters could be asked, a quorum is {need}: any lock may be held"
        )
    return exit_codes.UNAVAILABLE


def _names(
    servers: Servers, pattern: bytes, limit: int, seconds: float, timeout: float
) -> tuple[list[bytes], bool]:
    """At most ``limit`` names that any master has, sorted; and whether these are all names.

    Names on most masters are preferred, so the invented names of one master displace no other.
    """
    deadline = time.monotonic() + seconds
    parts = servers.each(lambda server: server.names(pattern, limit, deadline), seconds + timeout)
    counts = Counter(name for part in parts if part for name in part if name != MARKER)
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


def _print_table(
    found: Sequence[Held], errors: dict[str, str], complete: bool, prefix: bytes, quorum: bool
) -> None:
    for place, (name, error) in enumerate(errors.items(), 1):
        print(f"{place}: {name}" + (f": {error}" if error else ""))
    print()
    if found:
        columns = ["lock", "token", "quorum", *(f"ttl {place + 1}" for place in range(len(errors)))]
        show(columns, [_row(one, prefix) for one in found])
    elif quorum:
        print("nothing is held")
    if not complete:
        print("\nThere is more: use a narrower PATTERN, or a higher --limit or --timeout.")


def _row(one: Held, prefix: bytes) -> list[str]:
    ttls = ("-" if left is None else f"{left / 1000:.1f} s" for left in one.left)
    name = clean(one.name.removeprefix(prefix))
    return [name, _token(one.token), QUORUM[one.quorum], *ttls]


def _print_json(found: Sequence[Held], errors: dict[str, str], complete: bool, prefix: bytes) -> None:
    locks = [
        {
            "lock": clean(one.name.removeprefix(prefix), MAX_SHOWN),
            "key": clean(one.name, MAX_SHOWN),
            "token": _token(one.token),
            "quorum": one.quorum,
            "ttl": [None if left is None else left / 1000 for left in one.left],
        }
        for one in found
    ]
    masters = [{"name": name, "error": error} for name, error in errors.items()]
    print(json.dumps({"masters": masters, "locks": locks, "complete": complete}))


def _token(token: bytes) -> str:
    """The beginning of a token, at most half of it, because the whole token can release the lock.

    Printable text is shown as it is, random bytes in hexadecimal.
    """
    text = token.decode(errors="replace")
    shown = text if text.isascii() and text.isprintable() else token.hex()
    return shown[: min(SHOWN, len(shown) // 2)]
