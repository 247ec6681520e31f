"""What ``redlock-fast masters`` prints: tables and sentences, or one JSON object."""

from __future__ import annotations

import argparse
import json
import textwrap
from collections.abc import Sequence
from typing import Any

from ...masters.marks import MARK_TTL, REFUSED
from ...wire.text import clean
from .. import exit_codes
from ..key_scan import Servers
from ..output import print_error
from ..tables import show
from .phases import Done, Lists, Phase, Refused, forbidden_steps, next_move, number_of, wait_seconds
from .records import Reading

#: Clients that are named, of each step.
NAMED = 10
#: Characters of a line of names.
LINE = 79

STEPS = """\
  1. redlock-fast masters start             clients may be at step old or joint
  2. give every client FastRedlock(new, joint_with=old)
  3. redlock-fast masters finish --phase 1  when no client is at step old;
                                            it waits {wait:.0f} s
  4. give every client FastRedlock(new)
  5. redlock-fast masters finish --phase 2  when no client is at step joint
  6. stop the masters that are not in --to

Before step 5, redlock-fast masters abort leads back."""


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
        now = reading.present
        print(
            f"\nphase: {now.state.phase.title}, epoch {now.state.epoch}" + _doubt(now.written, now.conflict)
        )
        self._print_clients(reading)
        if self._action == "plan":
            print(f"steps:\n{STEPS.format(wait=wait_seconds(reading.max_ttl, reading.late))}\n")
        command, number = self._next(reading)
        shown = f"{command} --phase {number}" if number else command
        if why:
            print(f"next: {shown or 'nothing'}, not allowed now: {why.why}")
            if expires := self._expires(reading):
                print(f"  the marks of clients that were killed expire within {expires:.0f} s")
        elif shown:
            wait = self._wait(reading)
            print(f"next: {shown}" + f", which waits {wait:.0f} s" * bool(wait))
        else:
            print("next: nothing, the change has ended")
        return code

    def _next(self, reading: Reading) -> tuple[str | None, int | None]:
        """The next command, and the number of the phase that it ends."""
        command = next_move(reading.lists, reading.seen, reading.clients())[0]
        return command, number_of(reading.present.state.phase) if command else None

    def _wait(self, reading: Reading) -> float:
        """Seconds that the next command waits between two writes."""
        return wait_seconds(reading.max_ttl, reading.late) if self._next(reading)[1] == 1 else 0.0

    def _expires(self, reading: Reading) -> float:
        """Seconds until the last mark expires of those that forbid the next command; 0.0: none does."""
        steps = forbidden_steps(reading.lists, reading.seen)
        late = [left for mark, left in reading.marks.values() if reading.step(mark) in steps]
        return max(late, default=0) / 1000

    def end(self, outcome: Done | Refused, reading: Reading, servers: Servers) -> int:
        """Print how a command ended. Returns its exit code."""
        code = outcome.code if isinstance(outcome, Refused) else 0
        if self._json:
            self._print_json(reading, servers, code, outcome if isinstance(outcome, Refused) else None)
        if isinstance(outcome, Refused):
            print_error(f"{self._action}: {outcome.why}")
        elif not self._json:
            self._print_masters(reading, servers)
            print()
            steps = " or ".join(outcome.state.phase.steps)
            done = "" if outcome.changed else "; it was so before"
            phase, epoch = outcome.state.phase.title, outcome.state.epoch
            print(f"{phase}, epoch {epoch}: clients may be at step {steps}{done}")
        return code

    def _later(self, reading: Reading) -> Refused | None:
        return next_move(reading.lists, reading.seen, reading.clients())[1]

    def _quorum(self, reading: Reading) -> Refused | None:
        ended = self._next(reading)[0] is None and reading.present.written
        if ended or reading.lists.written(frozenset(reading.answers), Phase.PHASE_1):
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
        shown += f", {counts[REFUSED]} refused" * bool(counts[REFUSED])
        print(f"clients: {shown}" + f", {counts['']} not yet seen in this phase" * bool(counts[""]))
        for step in ("old", "joint", "new", REFUSED, ""):
            owners = sorted(mark.owner for mark, _ in reading.marks.values() if reading.step(mark) == step)
            if owners:
                more = [f"and {len(owners) - NAMED} more"] if len(owners) > NAMED else []
                text = f"{step or '?'}: {', '.join([*owners[:NAMED], *more])}"
                print(_folded(text))
        if self._unmarked(reading):
            print(
                f"  {self._unmarked(reading)} connections have no mark: other programs, clients with\n"
                "  check_masters='off', or clients that may not write marks"
            )
        print()

    def _unmarked(self, reading: Reading) -> int:
        """Connections to one master beyond the clients that left a mark there: the most of all masters."""
        return max(
            (max(0, (one.connections or 0) - len(one.marks)) for one in reading.answers.values()), default=0
        )

    def _print_json(self, reading: Reading, servers: Servers, code: int, why: Refused | None) -> None:
        now, counts = reading.present, reading.clients()
        command, number = self._next(reading)
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
            "next": command,
            "next_phase": number,
            "wait": self._wait(reading),
            "expires": self._expires(reading),
            "max_ttl": reading.max_ttl / 1000,
            "mark_ttl": MARK_TTL,
            "counts": {step or "unknown": count for step, count in counts.items()},
            "unmarked": self._unmarked(reading),
            "clients": clients,
            "masters": [self._master(reading, servers, master) for master in range(len(self._names))],
        }
        print(json.dumps(result), flush=True)


def _folded(text: str) -> str:
    """A line that is as short as the others."""
    return textwrap.fill(text, LINE, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)


def _doubt(written: bool, conflict: bool) -> str:
    if conflict:
        return " (two commands at the same time: give finish or abort)"
    return "" if written else " (too few masters have it: give the command again)"
