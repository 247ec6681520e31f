"""``redlock-fast masters restore``: writes the record back to masters that lost it, on the operator's word.

A client that was connected before does this by itself. It is needed where there is none: a minority is down,
more masters lost their records, and all clients are new. What is left may be the record of a change that is
under way, or has ended: only the operator knows.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping

from ...algorithm.quorum import quorum
from ...errors import ConfigError
from ...masters.key_scan import Servers
from ...masters.membership import STEADY, Record
from ...wire.text import clean
from .. import exit_codes
from ..output import print_error
from ..settings import Settings
from .records import Answer, answers_of, write_record

QUESTION = """\
No change of the masters may be under way, and none may have ended since these masters lost their records.
Write the record of epoch {epoch} to {names}? Type yes: """


def restore(options: argparse.Namespace, settings: Settings) -> int:
    """Returns 0 if a quorum of the list has the record now, 1 if it is not written, 69 without a quorum."""
    if not options.yes and (options.json or not sys.stdin.isatty()):
        raise ConfigError("give --yes: restore asks for a confirmation on a terminal only, not with --json")
    reading = settings.reading()
    with Servers(reading.targets, reading.timeout) as servers:
        names = [server.name for server in servers.all]
        answers = answers_of(servers, reading.prefix, reading.timeout)
        if len(answers) < quorum(len(names)):
            errors = [f"; {clean(one.name)}: {clean(one.error)}" for one in servers.all if one.error]
            why = f"too few of {len(names)} masters answered"
            return _end(options, why + "".join(errors), exit_codes.UNAVAILABLE)
        record, why = _record(names, answers)
        if record is None:
            return _end(options, why, exit_codes.FAILED)
        ids = {address: id for id, address in record.new}
        blank = [n for n, answer in answers.items() if not answer.data]
        if not blank:
            return _end(options, "every master that answers has its record", 0)
        shown = ", ".join(names[n] for n in blank)
        if not options.yes and not _confirmed(record.epoch, shown):
            return _end(options, "nothing was written", exit_codes.FAILED)
        numbers = {server: n for n, server in enumerate(servers.all)}
        done = servers.each(
            lambda server: (
                numbers[server] in blank
                and write_record(server, reading.prefix, b"", record.of(ids[server.name]))
            ),
            reading.timeout,
        )
        written = [n for n, one in enumerate(done) if one]
    if len(written) < len(blank):
        return _end(options, "a master did not take it: give restore again", exit_codes.UNAVAILABLE)
    return _end(options, f"epoch {record.epoch} is on {shown}", 0)


def _record(names: list[str], answers: Mapping[int, Answer]) -> tuple[Record | None, str]:
    """The latest record that a master has, or None and why it cannot be written to the others."""
    records = [answer.record for answer in answers.values() if answer.record and answer.record.in_force]
    if not records:
        return None, "no master that answers has a record in force: clients write the first one"
    record = max(records, key=lambda one: one.epoch)
    if record.steps != STEADY:
        return None, "a change of the masters is under way: give masters status, finish or abort"
    if sorted(address for _, address in record.new) != sorted(names):
        return None, f"the record names other masters: {', '.join(address for _, address in record.new)}"
    return record, ""


def _confirmed(epoch: int, names: str) -> bool:
    print(QUESTION.format(epoch=epoch, names=names), end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() == "yes"


def _end(options: argparse.Namespace, why: str, code: int) -> int:
    if options.json:
        print(json.dumps({"command": "restore", "code": code, "why": why}), flush=True)
    elif code:
        print_error(f"restore: {why}")
    else:
        print(why)
    return code
