"""``redlock-fast masters``: a change of the set of masters; docs/changing-masters.md has the runbook."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace

from ...errors import ConfigError
from ...locks.config import check_joint, number
from ...masters.address import Target, numbered
from ...wire.text import clean
from .. import exit_codes
from ..key_scan import Servers
from ..settings import load, new_masters
from .phases import Command, Done, Lists, Refused, Wait, Write, follow, wait_seconds
from .records import Masters, Reading
from .report import Report

#: How often a phase is written again where a record was changed since it was read.
ATTEMPTS = 3


def run(options: argparse.Namespace) -> int:
    """Run one of the commands. Returns its exit code; docs/cli.md lists them."""
    if options.phase and options.action not in ("finish", "abort"):
        raise ConfigError(f"{options.action} has no --phase: finish and abort have one")
    settings = load(options)
    reading = settings.reading()
    targets, lists = _union(reading.targets, check_joint(reading.targets, new_masters(options), "--to"))
    if lists.old == lists.new:
        raise ConfigError("--from and --to are the same masters: there is nothing to change")
    max_ttl = settings.options.get("max_ttl")
    in_ms = None if max_ttl is None else round(number("max_ttl", max_ttl, above=0.0) * 1000)
    with Servers(targets, reading.timeout) as servers:
        change = _Change(Masters(servers, targets, lists, reading.prefix, reading.timeout), in_ms)
        report = Report(options, [one.name for one in targets], lists)
        if options.action in ("plan", "status"):
            seen = change.read()
            return report.show(seen, servers, change.problem(seen))
        outcome = change.run(options.action, options.phase, report)
        return report.end(outcome, change.read(), servers)


def _union(old: Sequence[Target], new: Sequence[Target]) -> tuple[list[Target], Lists]:
    """The masters of both lists, each once, and the numbers of those of each list."""
    every, masks = numbered((), (old, new))
    targets = [one for one in every if one is not None]
    return targets, Lists(*(frozenset(n for n in range(len(targets)) if mask >> n & 1) for mask in masks))


class _Change:
    """``max_ttl``: milliseconds; None: as the records say."""

    def __init__(self, masters: Masters, max_ttl: int | None) -> None:
        self._masters = masters
        self._max_ttl = max_ttl

    def read(self) -> Reading:
        return self._masters.read(self._max_ttl)

    def problem(self, reading: Reading) -> Refused | None:
        """Why nothing can be written; None: a phase can."""
        names = [server.name for server in self._masters.servers.all]
        for first, second in reading.duplicates():
            return Refused(f"{names[first]} and {names[second]} are one server, or one is a copy of it")
        spread, allowed = reading.clock_spread(), reading.max_ttl / 1000 / 2
        if spread >= allowed:
            return Refused(
                f"the clocks of the masters differ by {spread:.1f} s, and fencing tokens need "
                f"less than max_ttl / 2 ({allowed:g} s): correct the clocks"
            )
        max_ttls = {
            answer.record.max_ttl
            for master, answer in reading.answers.items()
            if answer.record and reading.seen[master] is not None
        } - {reading.max_ttl}
        if max_ttls:
            there = ", ".join(f"{one / 1000:g} s" for one in sorted(max_ttls))
            return Refused(f"max_ttl is {reading.max_ttl / 1000:g} s here, and {there} in the records")
        old = {reading.ids[master] for master in reading.lists.old}
        for master, record in reading.foreign.items():
            if record.id in record.addresses and not old & record.addresses.keys():
                others = ", ".join(sorted(record.addresses.values()))
                return Refused(f"{names[master]} is one of other masters: {others}")
        return None

    def run(self, command: Command, number: int | None, report: Report) -> Done | Refused:
        """Follow the rules of the phases until the command has ended."""
        own: Write | Wait | None = None
        attempts, changed = 0, False
        while True:
            reading = self.read()
            if problem := self.problem(reading):
                return problem
            action = follow(command, reading.lists, reading.seen, reading.clients(), own, number)
            own = None
            if isinstance(action, Refused):
                return self._with_errors(action)
            if isinstance(action, Done):
                return Done(action.state, changed)
            if isinstance(action, Wait):
                seconds = wait_seconds(reading.max_ttl, reading.late)
                report.say(f"waiting {seconds:.1f} s, until every lease that was granted before has ended")
                time.sleep(seconds)
                own = action
                continue
            report.say(f"writing {action.state.phase.title}, epoch {action.state.epoch}")
            written = self._masters.write(reading, action.state)
            if reading.lists.written(written, action.state.phase):
                own, attempts, changed = action, 0, True
            elif (attempts := attempts + 1) == ATTEMPTS:
                return self._with_errors(Refused("too few masters took the record", exit_codes.UNAVAILABLE))

    def _with_errors(self, refused: Refused) -> Refused:
        """Where too few masters answered: with what is wrong with each."""
        if refused.code != exit_codes.UNAVAILABLE:
            return refused
        errors = [
            f"; {clean(one.name)}: {clean(one.error)}" for one in self._masters.servers.all if one.error
        ]
        return replace(refused, why=refused.why + "".join(errors))
