"""``redlock-fast break``: deletes the tokens that hold a lock. docs/cli.md says what that risks."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import Any

from ..algorithm.keys import MAX_SLOTS, key_of
from ..algorithm.tokens import owner_of
from ..errors import ConfigError
from ..wire.text import clean
from . import exit_codes
from .key_scan import Server, Servers
from .locks import Held, held, row, table_columns
from .output import print_error
from .settings import load
from .tables import show

WARNING = """\
The holder gets no notice. It believes in its lock until it extends or releases it, or until its lease ends,
in {left:.1f} s at most. Until then there may be two holders: only fencing tokens protect the resource."""


def run(options: argparse.Namespace) -> int:
    """Break the lock. Returns 0 if no quorum has it, 1 if nothing was broken, 69 without a quorum."""
    if not options.yes and (options.json or not sys.stdin.isatty()):
        raise ConfigError("give --yes: break asks for a confirmation on a terminal only, and not with --json")
    reading = load(options).reading()
    key, need = key_of(reading.prefix, os.fsencode(options.name)), reading.need
    with Servers(reading.targets, reading.timeout) as servers:
        found = _find(servers, key, need, options.timeout + reading.timeout)
        answered = [not server.error for server in servers.all]
        holders = [_shown(one) for one in found]
        result: dict[str, Any] = {"lock": clean(key), "broken": False, "holders": holders}
        if sum(answered) < need:
            return _end(options, result, exit_codes.UNAVAILABLE, _few(servers, need))
        if not found:
            return _end(options, result, exit_codes.FAILED, f"{clean(key)}: nothing is held")
        left = max(ttl for one in found for ttl in one.left if ttl is not None) / 1000
        if not options.json:
            show(table_columns(len(reading.targets)), [row(one, b"") for one in found])
            print()
        print_error(WARNING.format(left=left))
        if not options.yes and not _confirmed(key):
            return _end(options, result, exit_codes.FAILED, "nothing was broken")
        start = time.monotonic()
        tokens = [(one.name, one.token) for one in found]  # that were shown: one that is new since then stays
        list(servers.each(lambda server: _delete(server, key, tokens), options.timeout))
        rest = [one for one in _find(servers, key, need, options.timeout) if (one.name, one.token) in tokens]
        if any(one.quorum is not False for one in rest) or sum(not one.error for one in servers.all) < need:
            return _end(options, result, exit_codes.UNAVAILABLE, _few(servers, need))
    result["broken"] = True
    if options.wait:
        time.sleep(max(0.0, left - (time.monotonic() - start)))
    return _end(options, result, 0, f"{clean(key)}: broken")


def _find(servers: Servers, key: bytes, need: int, seconds: float) -> list[Held]:
    """What holds the lock, and what waits for it on the masters.

    Tokens are those of a plain lock, of the writer of a read-write lock, and of the slots of a semaphore. The
    entries of sorted sets are those of readers, of waiting writers, and of the queue of a fair lock.
    """
    names = [key, b"{%b}:w" % key, *(b"{%b}:%d" % (key, slot) for slot in range(MAX_SLOTS))]
    found = held(names, list(servers.each(lambda server: server.values(names), seconds)), need)
    sets = list(servers.each(lambda server: server.entries(_sets(key)), seconds))
    entries = sorted({entry for one in sets if one for entry in one})
    answers = [None if one is None else [_token(entry, one) for entry in entries] for one in sets]
    return found + held([name for name, _ in entries], answers, need)


def _sets(key: bytes) -> list[bytes]:
    return [b"{%b}:%b" % (key, use) for use in (b"r", b"i", b"e")]


def _token(entry: tuple[bytes, bytes], found: dict[tuple[bytes, bytes], int]) -> tuple[bytes, int] | None:
    return (entry[1], found[entry]) if entry in found else None


def _delete(server: Server, key: bytes, found: list[tuple[bytes, bytes]]) -> None:
    sets = _sets(key)
    server.delete_tokens([one for one in found if one[0] not in sets])
    entries = [one for one in found if one[0] in sets]
    places = [(b"{%b}:q" % key, token) for name, token in entries if name == sets[-1]]
    server.delete_entries(entries + places)


def _confirmed(key: bytes) -> bool:
    print(f"Break {clean(key)}? Type yes: ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() == "yes"


def _few(servers: Servers, need: int) -> str:
    errors = "; ".join(f"{server.name}: {server.error}" for server in servers.all if server.error)
    return f"a quorum is {need} of {len(servers.all)} masters, and too few could be asked: {errors}"


def _shown(one: Held) -> dict[str, Any]:
    left = [None if ttl is None else ttl / 1000 for ttl in one.left]
    return {"key": clean(one.name), "owner": owner_of(one.token), "quorum": one.quorum, "ttl": left}


def _end(options: argparse.Namespace, result: dict[str, Any], code: int, said: str) -> int:
    if options.json:
        print(json.dumps(result))
        sys.stdout.flush()
    if code:
        print_error(said)
    elif not options.json:
        print(said)
    return code
