"""``redlock-fast break``: deletes the tokens that hold a lock. docs/cli.md says what that risks."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import Any

from ..algorithm.keys import key_of
from ..errors import ConfigError
from ..locks.inspection import Holder, delete, find
from ..masters.key_scan import Servers
from ..wire.text import clean
from . import exit_codes
from .locks import row, table_columns
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
    name = os.fsencode(options.name)
    reading = load(options).reading(name)
    key, need = key_of(reading.prefix, name), reading.need
    with Servers(reading.targets, reading.timeout) as servers:
        seconds = options.timeout + reading.timeout
        found = find(servers, key, reading.prefix, reading.quorums, seconds)
        answered = [not server.error for server in servers.all]
        holders = [_shown(one) for one in found]
        result: dict[str, Any] = {"lock": clean(key), "broken": False, "holders": holders}
        if sum(answered) < need:
            return _end(options, result, exit_codes.UNAVAILABLE, _few(servers, need))
        if not found:
            return _end(options, result, exit_codes.FAILED, f"{clean(key)}: nothing is held")
        left = max(ttl for one in found for ttl in one.ttls if ttl is not None)
        if not options.json:
            show(table_columns(len(reading.targets)), [row(one, b"") for one in found])
            print()
        print_error(WARNING.format(left=left))
        if not options.yes and not _confirmed(key):
            return _end(options, result, exit_codes.FAILED, "nothing was broken")
        start = time.monotonic()
        # What was shown is deleted: a token that is new since then stays.
        rest = delete(servers, key, found, reading.quorums, options.timeout)
        if rest or sum(not one.error for one in servers.all) < need:
            return _end(options, result, exit_codes.UNAVAILABLE, _few(servers, need))
    result["broken"] = True
    if options.wait:
        time.sleep(max(0.0, left - (time.monotonic() - start)))
    return _end(options, result, 0, f"{clean(key)}: broken")


def _confirmed(key: bytes) -> bool:
    print(f"Break {clean(key)}? Type yes: ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() == "yes"


def _few(servers: Servers, need: int) -> str:
    errors = "; ".join(f"{server.name}: {server.error}" for server in servers.all if server.error)
    return f"a quorum is {need} of {len(servers.all)} masters, and too few could be asked: {errors}"


def _shown(one: Holder) -> dict[str, Any]:
    return {"key": clean(one.key), "owner": one.owner, "quorum": one.held, "ttl": list(one.ttls)}


def _end(options: argparse.Namespace, result: dict[str, Any], code: int, said: str) -> int:
    if options.json:
        print(json.dumps(result))
        sys.stdout.flush()
    if code:
        print_error(said)
    elif not options.json:
        print(said)
    return code
