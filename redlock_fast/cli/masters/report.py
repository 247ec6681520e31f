"""What ``redlock-fast masters`` prints: tables and sentences, or one JSON object."""

from __future__ import annotations

import argparse
import json
import textwrap
from typing import Any

from ...masters.key_scan import Server, Servers
from ...masters.marks import MARK_TTL, REFUSED
from ...wire.text import clean
from .. import exit_codes
from ..output import print_error
from ..tables import show
from .phases import Done, Phase, Refused, forbidden_steps, next_move, number_of, wait_seconds
from .records import Reading

#: Clients that are named, of each step.
NAMED = 10
#: Breaks a line of names.
FOLDED = textwrap.TextWrapper(79, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)

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
    """What one command prints of the masters, as they were read last."""

    def __init__(self, options: argparse.Namespace, servers: Servers, reading: Reading) -> None:
        self._json: bool = options.json
        self._action: str = options.action
        self._servers = servers.all
        self._reading = reading
        #: The next command, and why it is not allowed yet; the number of the phase that it ends.
        self._next, self._later = next_move(reading.lists, reading.seen, reading.clients())
        self._ends = number_of(reading.present.state.phase) if self._next else None
        #: Seconds that it waits between two writes.
        self._wait = wait_seconds(reading.max_ttl, reading.late) if self._ends == 1 else 0.0

    def show(self, problem: Refused | None) -> int:
        """Print the masters, the phase and the clients. Returns the exit code of plan or status."""
        reading = self._reading
        why = problem or self._quorum() or self._later
        code = why.code if why else 0
        if self._json:
            self._print_json(code, why)
            return code
        self._print_masters()
        now = reading.present
        phase = f"{self._phase}, epoch {now.state.epoch}" + _doubt(now.written, now.conflict)
        print(f"\nphase: {phase if self._phase else 'unknown, no quorum of a list answered'}")
        self._print_clients()
        if self._action == "plan":
            print(f"steps:\n{STEPS.format(wait=wait_seconds(reading.max_ttl, reading.late))}\n")
        shown = f"{self._next} --phase {self._ends}" if self._ends else self._next
        if why:
            print(f"next: {shown or 'nothing'}, not allowed now: {why.why}")
            if expires := self._expires():
                print(f"  the marks of clients that were killed expire within {expires:.0f} s")
        elif shown:
            print(f"next: {shown}" + f", which waits {self._wait:.0f} s" * bool(self._wait))
        else:
            print("next: nothing, the change has ended")
        return code

    def _expires(self) -> float:
        """Seconds until the last mark expires of those that forbid the next command; 0.0: none does."""
        reading = self._reading
        steps = forbidden_steps(reading.lists, reading.seen)
        late = [left for mark, left in reading.marks.values() if reading.step(mark) in steps]
        return max(late, default=0) / 1000

    def end(self, outcome: Done | Refused) -> int:
        """Print how a command ended. Returns its exit code."""
        refused = outcome if isinstance(outcome, Refused) else None
        code = refused.code if refused else 0
        if self._json:
            self._print_json(code, refused)
        if isinstance(outcome, Refused):
            print_error(f"{self._action}: {outcome.why}")
        elif not self._json:
            self._print_masters()
            print()
            steps = " or ".join(outcome.state.phase.steps)
            done = "" if outcome.changed else "; it was so before"
            phase, epoch = outcome.state.phase.title, outcome.state.epoch
            print(f"{phase}, epoch {epoch}: clients may be at step {steps}{done}")
        return code

    @property
    def _phase(self) -> str | None:
        """The phase by its title. None: too few masters answered, so the rest may be in another phase."""
        now = self._reading.present
        return now.state.phase.title if now.written or self._quorum() is None else None

    def _quorum(self) -> Refused | None:
        reading = self._reading
        ended = self._next is None and reading.present.written
        masters = frozenset(reading.answers)
        if ended or reading.lists.written(masters, Phase.PHASE_1):
            return None
        lost_new = reading.lists.without_new().written(masters, Phase.PHASE_1)
        way_back = "; if the masters of --to are gone for ever, give abort" if lost_new else ""
        return Refused(f"a quorum of each list must answer{way_back}", exit_codes.UNAVAILABLE)

    def _print_masters(self) -> None:
        columns = ("master", "list", "epoch", "phase", "connections", "clients", "error")
        rows = []
        for one in self._masters():
            cells = (one["epoch"], one["phase"], one["connections"], one["marks"], one["error"])
            shown = ["-" if cell in (None, "") else str(cell) for cell in cells]
            rows.append([one["name"], ", ".join(one["lists"]), *shown])
        show(columns, rows)

    def _masters(self) -> list[dict[str, Any]]:
        return [self._master(number, server) for number, server in enumerate(self._servers)]

    def _master(self, number: int, server: Server) -> dict[str, Any]:
        reading = self._reading
        answer, state = reading.answers.get(number), reading.seen.get(number)
        return {
            "name": server.name,
            "lists": [name for name in ("old", "new") if number in getattr(reading.lists, name)],
            "id": reading.ids[number],
            "epoch": state.epoch if state else None,
            "phase": state.phase.title if state else None,
            "connections": answer.connections if answer else None,
            "marks": len(answer.marks) if answer else None,
            "error": clean(server.error),
        }

    def _print_clients(self) -> None:
        reading = self._reading
        counts = reading.clients()
        shown = ", ".join(f"{counts[step]} {step}" for step in ("old", "joint", "new"))
        shown += f", {counts[REFUSED]} refused" * bool(counts[REFUSED])
        print(f"clients: {shown}" + f", {counts['']} not yet seen in this phase" * bool(counts[""]))
        for step in counts:
            owners = sorted(mark.owner for mark, _ in reading.marks.values() if reading.step(mark) == step)
            if owners:
                more = [f"and {len(owners) - NAMED} more"] if len(owners) > NAMED else []
                print(FOLDED.fill(f"{step or '?'}: {', '.join([*owners[:NAMED], *more])}"))
        if unmarked := self._unmarked():
            print(
                f"  {unmarked} connections have no mark: other programs, clients with\n"
                "  check_masters='off', or clients that may not write marks"
            )
        print()

    def _unmarked(self) -> int:
        """Connections to one master beyond the clients that left a mark there: the most of all masters."""
        answers = self._reading.answers.values()
        return max((max(0, (one.connections or 0) - len(one.marks)) for one in answers), default=0)

    def _print_json(self, code: int, why: Refused | None) -> None:
        reading, now = self._reading, self._reading.present
        clients = [
            {"id": client, "owner": mark.owner, "step": reading.step(mark) or None, "expires": left / 1000}
            for client, (mark, left) in sorted(reading.marks.items())
        ]
        result = {
            "command": self._action,
            "code": code,
            "why": why.why if why else "",
            "phase": self._phase,
            "epoch": now.state.epoch,
            "steps": now.state.phase.steps,
            "written": now.written,
            "next": self._next,
            "next_phase": self._ends,
            "wait": self._wait,
            "expires": self._expires(),
            "max_ttl": reading.max_ttl / 1000,
            "mark_ttl": MARK_TTL,
            "counts": {step or "unknown": count for step, count in reading.clients().items()},
            "unmarked": self._unmarked(),
            "clients": clients,
            "masters": self._masters(),
        }
        print(json.dumps(result), flush=True)


def _doubt(written: bool, conflict: bool) -> str:
    if conflict:
        return " (two commands at the same time: give finish or abort)"
    return "" if written else " (too few masters have it: give the command again)"
