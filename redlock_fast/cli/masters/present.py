"""``redlock-fast masters status`` without ``--to``: what the records of the present masters say."""

from __future__ import annotations

import argparse
import json
from typing import Any

from ...algorithm.quorum import quorum
from ...masters.key_scan import Servers
from ...masters.membership import Record
from ...wire.text import clean
from .. import exit_codes
from ..output import print_error
from ..settings import Settings
from ..tables import show
from .records import answers_of


def status_of_present(options: argparse.Namespace, settings: Settings) -> int:
    """Print the records, and the lists of a change that is under way. Returns 0, or 69 without a quorum."""
    reading = settings.reading()
    with Servers(reading.targets, reading.timeout) as servers:
        answers = answers_of(servers, reading.prefix, reading.timeout)
        records = {n: one.record for n, one in answers.items() if one.record and one.record.epoch}
        masters = [_row(one.name, one.error, records.get(n)) for n, one in enumerate(servers.all)]
    code = 0 if len(answers) >= quorum(len(masters)) else exit_codes.UNAVAILABLE
    latest = max(records.values(), key=lambda record: record.epoch, default=None)
    why = "" if not code else f"too few of {len(masters)} masters answered"
    change = _change_of(latest)
    if options.json:
        print(json.dumps({"command": "status", "code": code, "why": why, "masters": masters, **change}))
        return code
    rows = [["-" if cell in (None, "") else str(cell) for cell in one.values()] for one in masters]
    show(("master", "epoch", "clients may be", "error"), rows)
    print()
    if why:
        print_error(f"status: {why}")
    elif not change["to"]:
        print("no change of the masters is under way, as far as these masters know")
    else:
        old, new = ",".join(change["from"]), ",".join(change["to"])
        print(f"a change is under way: give status with both lists\n  --from {old}\n  --to {new}")
    return code


def _row(name: str, error: str, record: Record | None) -> dict[str, Any]:
    steps = " or ".join(record.steps) if record and record.old else None
    return {"name": name, "epoch": record.epoch if record else None, "steps": steps, "error": clean(error)}


def _change_of(record: Record | None) -> dict[str, list[str]]:
    """The addresses of both lists of the change that a record is of; empty without one."""
    if record is None or not record.old:
        return {"from": [], "to": []}
    return {"from": [address for _, address in record.old], "to": [address for _, address in record.new]}
