"""``redlock-fast masters status`` without ``--to``: what the records of the present masters say."""

from __future__ import annotations

import argparse
import json
from typing import Any

from ...algorithm.quorum import quorum
from ...masters.membership import Record
from ...wire.text import clean
from .. import exit_codes
from ..key_scan import Servers
from ..output import print_error
from ..settings import Settings
from ..tables import show
from .records import Answer, answer_of


def status_of_present(options: argparse.Namespace, settings: Settings) -> int:
    """Print the records, and the lists of a change that is under way. Returns 0, or 69 without a quorum."""
    reading = settings.reading()
    with Servers(reading.targets, reading.timeout) as servers:
        found = list(servers.each(lambda server: answer_of(server, reading.prefix), reading.timeout))
        rows = zip(servers.all, found, strict=True)
        masters = [_row(server.name, server.error, one) for server, one in rows]
    answered = sum(one is not None for one in found)
    code = 0 if answered >= quorum(len(masters)) else exit_codes.UNAVAILABLE
    records = [one.record for one in found if one is not None and one.record]
    latest = max(records, key=lambda record: record.epoch, default=None)
    why = "" if not code else f"too few of {len(masters)} masters answered"
    change = _change_of(latest)
    if options.json:
        print(json.dumps({"command": "status", "code": code, "why": why, "masters": masters, **change}))
        return code
    show(("master", "epoch", "clients may be", "error"), [[*map(str, one.values())] for one in masters])
    print()
    if why:
        print_error(f"status: {why}")
    elif not change["to"]:
        print("no change of the masters is under way, as far as these masters know")
    else:
        old, new = ",".join(change["from"]), ",".join(change["to"])
        print(f"a change is under way: give status with both lists\n  --from {old}\n  --to {new}")
    return code


def _row(name: str, error: str, answer: Answer | None) -> dict[str, Any]:
    record = answer.record if answer is not None else None
    steps = " or ".join(record.steps) if record and record.old else "-"
    epoch = record.epoch if record else "-"
    return {"name": name, "epoch": epoch, "steps": steps, "error": clean(error) or "-"}


def _change_of(record: Record | None) -> dict[str, list[str]]:
    """The addresses of both lists of the change that a record is of; empty without one."""
    if record is None or not record.old:
        return {"from": [], "to": []}
    return {"from": [address for _, address in record.old], "to": [address for _, address in record.new]}
