"""``redlock-fast masters``: a change of the set of masters; docs/changing-masters.md has the runbook."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace

from ...errors import ConfigError
from ...locks.config import check_joint, number
from ...masters.address import Target, numbered
from ...masters.key_scan import Servers
from ...wire.text import clean
from .. import exit_codes
from ..output import print_error
from ..settings import has_new_masters, load, new_masters
from .phases import Command, Done, Lists, Phase, Refused, Wait, Write, follow, wait_seconds
from .present import status_of_present
from .records import Masters, Reading
from .report import Report
from .restore import restore

#: How often a phase is written again where a record was changed since it was read.
ATTEMPTS = 3


def run(options: argparse.Namespace) -> int:
    """Run one of the commands. Returns its exit code; docs/cli.md lists them."""
    if options.phase and options.action not in ("finish", "abort"):
        raise ConfigError(f"{options.action} has no --phase: finish and abort have one")
    settings = load(options)
    if any("+cluster://" in url for url in settings.masters):
        raise ConfigError(
            "masters: a Cluster has no list of masters that this command could change or show: its nodes "
            "know their primaries; `redlock-fast status` shows them"
        )
    if options.action == "restore":
        return restore(options, settings)
    if options.action == "status" and not has_new_masters(options):
        return status_of_present(options, settings)
    reading = settings.reading()
    targets, lists = _union(reading.targets, check_joint(reading.targets, new_masters(options), "--to"))
    if lists.old == lists.new:
        raise ConfigError("--from and --to are the same masters: there is nothing to change")
    max_ttl = settings.options.get("max_ttl")
    in_ms = None if max_ttl is None else round(number("max_ttl", max_ttl, above=0.0) * 1000)
    with Servers(targets, reading.timeout) as servers:
        masters = Masters(servers, lists, reading.prefix, reading.timeout, in_ms)
        if options.action in ("plan", "status"):
            seen = masters.read()
            return Report(options, servers, seen).show(_problem(servers, seen))
        outcome = _change(masters, options.action, options.phase, options.yes)
        return Report(options, servers, masters.read()).end(outcome)


def _union(old: Sequence[Target], new: Sequence[Target]) -> tuple[list[Target], Lists]:
    """The masters of both lists, each once, and the numbers of those of each list."""
    every, masks = numbered((), (old, new))
    targets = [one for one in every if one is not None]
    return targets, Lists(*(frozenset(n for n in range(len(targets)) if mask >> n & 1) for mask in masks))


def _problem(servers: Servers, reading: Reading) -> Refused | None:
    """Why nothing can be written; None: a phase can."""
    names = [server.name for server in servers.all]
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
            return Refused(f"{names[master]} belongs to another list of masters: {others}")
    return None


def _change(masters: Masters, command: Command, number: int | None, sure: bool) -> Done | Refused:
    """Follow the rules of the phases until the command has ended. ``number``: of the phase to end.

    ``sure``: see ``follow``.
    """
    own: Write | Wait | None = None
    attempts, changed = 0, False
    written: frozenset[int] = frozenset()
    before: Reading | None = None
    while True:
        reading = masters.read()
        lists = reading.lists
        gone = command == "abort" and not lists.written(frozenset(reading.answers), Phase.PHASE_1)
        if gone and sure:  # the operator says that the masters of the new list will not come back
            lists = lists.without_new()
        if isinstance(own, Wait) and before:
            # A master may have lost its record in that time, and may have had that of the phase before again.
            kept = reading.kept(before, written)
            own = own if lists.written(kept, own.state.phase) else None
        if problem := _problem(masters.servers, reading):
            return problem
        action = follow(command, lists, reading.seen, reading.clients(), own, number, sure)
        own = None
        if isinstance(action, Refused):
            return _with_errors(action, masters.servers)
        if isinstance(action, Done):
            return Done(action.state, changed)
        if isinstance(action, Wait):
            seconds = wait_seconds(reading.max_ttl, reading.late)
            print_error(f"waiting {seconds:.1f} s, until every lease that was granted before has ended")
            time.sleep(seconds)
            own, before = action, reading
            continue
        print_error(f"writing {action.state.phase.title}, epoch {action.state.epoch}")
        written = masters.write(reading, action.state)
        if lists.written(written, action.state.phase):
            own, attempts, changed = action, 0, True
        elif (attempts := attempts + 1) == ATTEMPTS:
            hint = "; if the masters of --to are gone for ever, give abort --yes" if gone else ""
            refused = Refused(f"too few masters took the record{hint}", exit_codes.UNAVAILABLE)
            return _with_errors(refused, masters.servers)


def _with_errors(refused: Refused, servers: Servers) -> Refused:
    """Where too few masters answered: with what is wrong with each."""
    if refused.code != exit_codes.UNAVAILABLE:
        return refused
    errors = [f"; {clean(one.name)}: {clean(one.error)}" for one in servers.all if one.error]
    return replace(refused, why=refused.why + "".join(errors))
