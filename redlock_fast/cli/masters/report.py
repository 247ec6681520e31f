"""What ``redlock-fast masters`` prints: tables and sentences, or one JSON object."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

from ...masters.marks import MARK_TTL, REFUSED
from ...wire.text import clean
from .. import exit_codes
from ..key_scan import Servers
from ..output import print_error
from ..tables import show
from .phases import WAIT_FACTOR, Done, Lists, Phase, Refused, next_move
from .records import Reading

#: Clients that are named, of each step.
NAMED = 10

STEPS = """\
  1. redlock-fast masters start     clients may be at step old or joint
  2. give every client FastRedlock(new, joint_with=old)
  3. redlock-fast masters finish    when no client is at step old; takes {wait:g} s
  4. give every client FastRedlock(new)
  5. redlock-fast masters finish    when no client is at step joint; then stop masters that are not in --to

Before the last step redlock-fast masters abort leads back, in the same way."""


class Report:
    """The output of one command. ``names``: of the masters."""

    def __init__(self, options: argparse.Namespace, names: Sequence[str], lists: Lists) -> None:
        self._json: bool = options.json
        self._action: str = options.action
        self._names = names
        self._lists = lists

    def say(self, text: str) -> None:
        """What happens now, on stderr."""
        print_error(text)

    def show(self, reading: Reading, servers: Servers, problem: Refused | None) -> int:
        """Print the masters, the phase and the clients. Returns the exit code of plan or status."""
        why = problem or self._quorum(reading) or self._later(reading)
        code = why.code if why else 0
        if self._json:
            self._print_json(reading, servers, code, why)
            return code
        self._print_masters(reading, servers)
        self._print_clients(reading)
        if self._action == "plan":
            print(f"steps:\n{STEPS.format(wait=WAIT_FACTOR * reading.max_ttl / 1000)}\n")
        command = next_move(reading.lists, reading.seen, reading.clients())[0]
        if why:
            print(f"next: {command or 'nothing'}, not allowed now: {why.why}")
        else:
            print(f"next: {command}" if command else "next: nothing, the change has ended")
        return code

    def end(self, outcome: Done | Refused, reading: Reading, servers: Servers) -> int:
        """Print how a command ended. Returns its exit code."""
        code = outcome.code if isinstance(outcome, Refused) else 0
        if self._json:
            self._print_json(reading, servers, code, outcome if isinstance(outcome, Refused) else None)
        if isinstance(outcome, Refused):
            print_error(f"{self._action}: {outcome.why}")
        elif not self._json:
            self._print_masters(reading, servers)
            steps = " or ".join(outcome.state.phase.steps)
            done = "" if outcome.changed else "; it was so before"
            phase, epoch = outcome.state.phase.title, outcome.state.epoch
            print(f"{phase}, epoch {epoch}: clients may be at step {steps}{done}")
        return code

    def _later(self, reading: Reading) -> Refused | None:
        return next_move(reading.lists, reading.seen, reading.clients())[1]

    def _quorum(self, reading: Reading) -> Refused | None:
        answered = frozenset(reading.answers)
        if reading.lists.written(answered, Phase.PHASE_1):
            return None
        return Refused("a quorum of each list must answer", exit_codes.UNAVAILABLE)

    def _print_masters(self, reading: Reading, servers: Servers) -> None:
        columns = ("master", "list", "epoch", "phase", "connections", "clients", "error")
        rows = []
        for master, name in enumerate(self._names):
            one = self._master(reading, servers, master)
            cells = (one["epoch"], one["phase"], one["connections"], one["marks"], one["error"])
            shown = ["-" if cell in (None, "") else str(cell) for cell in cells]
            rows.append([name, ", ".join(one["lists"]), *shown])
        show(columns, rows)
        now = reading.present
        print(
            f"\nphase: {now.state.phase.title}, epoch {now.state.epoch}" + _doubt(now.written, now.conflict)
        )

    def _master(self, reading: Reading, servers: Servers, master: int) -> dict[str, Any]:
        answer, state = reading.answers.get(master), reading.seen.get(master)
        return {
            "name": self._names[master],
            "lists": [name for name in ("old", "new") if master in getattr(self._lists, name)],
            "id": reading.ids[master],
            "epoch": state.epoch if state else None,
            "phase": state.phase.title if state else None,
            "connections": answer.connections if answer else None,
            "marks": len(answer.marks) if answer else None,
            "error": clean(servers.all[master].error),
        }

    def _print_clients(self, reading: Reading) -> None:
        counts = reading.clients()
        shown = ", ".join(f"{counts[step]} {step}" for step in ("old", "joint", "new"))
        print(f"clients: {shown}" + f", {counts['']} not yet seen in this phase" * bool(counts[""]))
        for step in ("old", "joint", "new", REFUSED, ""):
            owners = sorted(mark.owner for mark, _ in reading.marks.values() if reading.step(mark) == step)
            if owners:
                more = f" and {len(owners) - NAMED} more" if len(owners) > NAMED else ""
                print(f"  {step or '?'}: {', '.join(owners[:NAMED])}{more}")
        if self._unmarked(reading):
            print(
                f"  {self._unmarked(reading)} connections have no mark: other programs, or clients with "
                "check_masters='off', or that may not write marks"
            )
        print()

    def _unmarked(self, reading: Reading) -> int:
        """Connections to one master beyond the clients that left a mark there: the most of all masters."""
        return max(
            (max(0, (one.connections or 0) - len(one.marks)) for one in reading.answers.values()), default=0
        )

    def _print_json(self, reading: Reading, servers: Servers, code: int, why: Refused | None) -> None:
        now, counts = reading.present, reading.clients()
        clients = [
            {"id": client, "owner": mark.owner, "step": reading.step(mark) or None, "expires": left / 1000}
            for client, (mark, left) in sorted(reading.marks.items())
        ]
        result = {
            "command": self._action,
            "code": code,
            "why": why.why if why else "",
            "phase": now.state.phase.title,
            "epoch": now.state.epoch,
            "steps": now.state.phase.steps,
            "written": now.written,
            "next": next_move(reading.lists, reading.seen, counts)[0],
            "max_ttl": reading.max_ttl / 1000,
            "mark_ttl": MARK_TTL,
            "counts": {step or "unknown": count for step, count in counts.items()},
            "unmarked": self._unmarked(reading),
            "clients": clients,
            "masters": [self._master(reading, servers, master) for master in range(len(self._names))],
        }
        print(json.dumps(result), flush=True)


def _doubt(written: bool, conflict: bool) -> str:
    if conflict:
        return " (two commands at the same time: give finish or abort)"
    return "" if written else " (too few masters have it: give the command again)"
