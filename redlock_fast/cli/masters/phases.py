"""The phases of a change of masters, and which one may be written next. Numbers and sets, no I/O.

``finish`` moves down, ``abort`` moves up::

    OLD        clients at "old"
    PHASE_1    clients at "old" or "joint"
    TO_NEW     clients at "joint"             TO_OLD: the same, on the way up
    PHASE_2    clients at "joint" or "new"
    NEW        clients at "new"

A quorum of the old list and a quorum of the new list may have no master in common. So between a lease of the
old list alone and a lease of the new list alone, clients must be at "joint" for a while (``wait_seconds``).
Safety does not depend on what is known of clients:

- A phase is *written* when a quorum of each list has it. Then no client of a forbidden step has a quorum.
- PHASE_2 is written WAIT_FACTOR * ``max_ttl`` after TO_NEW was written, and PHASE_1 as long after TO_OLD.
  All that time a quorum of each list kept the record of that write. So no client has seen a quorum with the
  record before within that time, and none writes it back to a master that lost its own (proof/restore.py).
- On a master that has TO_NEW or TO_OLD, connections are cut after that: each client compares its lists again.
- TO_NEW and TO_OLD are phases of their own. Of two commands that move in opposite directions at the same
  time, at most one writes its direction on a quorum of each list; only then it allows another step.
- Each master changes its record only if the record is still the one that was read.
- A command that meets the record of another change of the same old list stops. Two commands ``start`` with
  other new lists may have begun at the same time, so that neither is written: ``abort`` then goes back to
  OLD, and so does ``abort --yes`` where masters that are down may have made the other one written.
- ``abort`` in PHASE_1 needs the old list alone, if the new one does not answer: no lease may rest on the new
  list alone yet. From any later phase the operator must say that the new list is gone for ever: then the old
  list decides alone about all phases of the way back (proof/rivals.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Literal, NamedTuple

from ...algorithm.quorum import quorum
from ...masters.membership import CONFIRMED_FOR
from .. import exit_codes

Command = Literal["start", "finish", "abort"]
Step = Literal["old", "joint", "new"]


class Phase(Enum):
    """Its title, and the steps that clients may be at.

    FOREIGN: the record is about other lists. RIVAL: it is phase 1 of another change of the same old list.
    """

    OLD = ("old list", ("old",))
    PHASE_1 = ("phase 1", ("old", "joint"))
    TO_NEW = ("end of phase 1", ("joint",))
    TO_OLD = ("end of phase 1, on the way back", ("joint",))
    PHASE_2 = ("phase 2", ("joint", "new"))
    NEW = ("new list", ("new",))
    FOREIGN = ("other lists", ())
    RIVAL = ("phase 1 of another change", ("old",))

    def __init__(self, title: str, steps: tuple[str, ...]) -> None:
        self.title = title
        self.steps = steps


#: For each command and phase the phase to write next.
MOVES: dict[tuple[Command, Phase], Phase] = {
    ("start", Phase.OLD): Phase.PHASE_1,
    ("finish", Phase.PHASE_1): Phase.TO_NEW,
    ("finish", Phase.TO_OLD): Phase.TO_NEW,
    ("finish", Phase.TO_NEW): Phase.PHASE_2,
    ("finish", Phase.PHASE_2): Phase.NEW,
    ("abort", Phase.PHASE_2): Phase.TO_OLD,
    ("abort", Phase.TO_NEW): Phase.TO_OLD,
    ("abort", Phase.TO_OLD): Phase.PHASE_1,
    ("abort", Phase.PHASE_1): Phase.OLD,
}
#: The phases at which a command ends.
ENDS: dict[Command, tuple[Phase, ...]] = {
    "start": (Phase.PHASE_1,),
    "finish": (Phase.PHASE_2, Phase.NEW),
    "abort": (Phase.PHASE_1, Phase.OLD),
}
#: Where a command that is to end one phase begins, if the other phase comes before.
BEGINS = {("finish", 2): Phase.PHASE_2, ("abort", 1): Phase.PHASE_1}
#: How many ``max_ttl`` fencing tokens need between the last lease of one list alone and the first one of the
#: other list alone: they must rise, and they rest on clocks then (proof/fencing_change.py). One is enough for
#: the leases.
FENCING_FACTOR = 2
#: How many ``max_ttl`` the command waits there: a client that believes in the record before must not write it
#: back any more.
WAIT_FACTOR = max(FENCING_FACTOR, CONFIRMED_FOR)
#: Leases end by the clocks of masters and clients, which may differ by this share, and these seconds.
DRIFT, GRANULARITY = 0.01, 0.1
OTHER_LISTS = "the records of these masters are about other lists than --from and --to"
OTHER_CHANGE = "another change of the masters of --from is under way: finish or abort that one, with its --to"
MAYBE_OTHER_CHANGE = (
    "masters that are down may have made another change of --from valid: start them; or, if that change "
    "does not go on, give abort --yes, which ends both"
)
JOINT_ONLY = (Phase.TO_NEW, Phase.TO_OLD)


class State(NamedTuple):
    """What the record of a master says: a later epoch replaces an earlier one."""

    epoch: int
    phase: Phase


#: The state of each master that answered; None: it has no record.
Seen = Mapping[int, State | None]


@dataclass(frozen=True)
class Lists:
    """The masters of each list, by number."""

    old: frozenset[int]
    new: frozenset[int]

    def needed(self, phase: Phase) -> tuple[frozenset[int], ...]:
        """The lists of which a quorum must have a phase: at both ends the other list may be gone."""
        alone = {Phase.OLD: (self.old,), Phase.RIVAL: (self.old,), Phase.NEW: (self.new,)}
        return alone.get(phase, (self.old, self.new))

    def without_new(self) -> Lists:
        """For the way back when the new list is gone for ever: the old list decides alone."""
        return Lists(self.old, self.old)

    @property
    def old_alone(self) -> bool:
        """Whether the old list decides alone, see ``without_new``."""
        return self.old == self.new

    def written(self, masters: frozenset[int], phase: Phase) -> bool:
        """Whether a phase that these masters have counts as written."""
        return all(len(masters & one) >= quorum(len(one)) for one in self.needed(phase))


@dataclass(frozen=True)
class Write:
    """Write this state on each master, then cut the connections of its clients."""

    state: State


@dataclass(frozen=True)
class Wait:
    """Wait until each lease that was granted before has ended, then go on. ``state``: was written."""

    state: State


@dataclass(frozen=True)
class Done:
    """The command has ended. ``changed``: by this run."""

    state: State
    changed: bool


@dataclass(frozen=True)
class Refused:
    """The command may not go on. ``code``: its exit code; NOT_YET: the same command may be allowed later."""

    why: str
    code: int = exit_codes.FAILED


Action = Write | Wait | Done | Refused


@dataclass(frozen=True)
class Present:
    """The newest state. ``written``: a quorum has it. ``conflict``: other records have the same epoch.

    ``rivals``: the masters whose record of that epoch is phase 1 of another change.
    """

    state: State
    written: bool
    conflict: bool
    rivals: frozenset[int] = frozenset()


def present(lists: Lists, seen: Seen) -> Present:
    """The phase of the masters that answered."""
    states = {state for state in seen.values() if state is not None}
    if not states:
        return Present(State(0, Phase.OLD), lists.written(frozenset(seen), Phase.OLD), False)
    epoch = max(state.epoch for state in states)
    newest = sorted((one for one in states if one.epoch == epoch), key=lambda one: [*Phase].index(one.phase))
    written = [state for state in newest if lists.written(holders(seen, state), state.phase)]
    if len(written) > 1:  # the old list and the new list are in use, each by itself
        return Present(State(epoch, Phase.FOREIGN), True, False)
    if written:
        return Present(written[0], True, False)
    foreign = State(epoch, Phase.FOREIGN)
    rivals = holders(seen, State(epoch, Phase.RIVAL))
    return Present(foreign if foreign in newest else newest[0], False, len(newest) > 1, rivals)


def holders(seen: Seen, state: State) -> frozenset[int]:
    return frozenset(master for master, one in seen.items() if one == state)


def wait_seconds(max_ttl: int, late: float = 0.0) -> float:
    """Seconds between the last grant of one list alone and the first of the other. ``max_ttl``: in ms.

    ``late``: seconds for which a master that Sentinels have replaced may still take writes.
    """
    return max_ttl / 1000 * WAIT_FACTOR * (1 + DRIFT) + GRANULARITY + late


def follow(
    command: Command,
    lists: Lists,
    seen: Seen,
    clients: Mapping[str, int],
    own: Write | Wait | None = None,
    number: int | None = None,
    sure: bool = False,
) -> Action:
    """What ``command`` does next. ``clients``: how many are at a step. ``own``: what it has just done.

    ``clients`` has the key "" for those whose step is not known for this epoch. ``number``: of the phase that
    is to end, 1 or 2, so that the same command does nothing after that; None: of the present one. ``sure``:
    the operator says that no other change goes on.
    """
    now = present(lists, seen)
    state = now.state
    if state.phase is Phase.FOREIGN:
        return Refused(OTHER_LISTS)
    if state.phase is Phase.RIVAL or now.rivals:
        return _beside_another_change(command, lists, seen, now, sure)
    if now.conflict:  # two commands at the same time: begin again where every step is compatible
        if command == "start":
            return Refused("another command was under way at the same time: give finish or abort")
        return Write(State(state.epoch + 1, Phase.TO_OLD if command == "abort" else Phase.TO_NEW))
    if command == "abort" and lists.old_alone and state.phase is Phase.NEW:
        return Write(State(state.epoch + 1, Phase.TO_OLD))
    done = own == Write(state) and now.written
    if not state.epoch and not now.written:
        return Refused("too few masters of --from answered", exit_codes.UNAVAILABLE)
    reachable = lists.written(frozenset(seen), state.phase)
    if (command, state.phase) == ("abort", Phase.PHASE_1) and number != 2 and not reachable:
        return refused(state.phase, Phase.OLD, clients) or Write(State(state.epoch + 1, Phase.OLD))
    if not now.written:
        if not _on_its_way(command, state.phase):
            return Refused(_wrong_way(command, state.phase))
        return Write(state)
    target = MOVES.get((command, state.phase))
    begin = BEGINS.get((command, number or 0))
    ended = state.phase in ENDS[command] and state.phase is not begin
    if ended and (done or number or target is None):
        return _complete(lists, seen, state, done)
    if target is None:
        return Refused(_wrong_way(command, state.phase))
    if begin not in (None, state.phase):
        other = 3 - (number or 0)
        return Refused(f"phase {other} comes first: give {command} --phase {other}")
    if state.phase in JOINT_ONLY and target not in JOINT_ONLY and own != Wait(state):
        # The connections are cut again: an earlier run may have been killed before it cut them.
        return Wait(state) if done else Write(state)
    return refused(state.phase, target, clients) or Write(State(state.epoch + 1, target))


def _beside_another_change(command: Command, lists: Lists, seen: Seen, now: Present, sure: bool) -> Action:
    """What a command does where masters of the old list are in phase 1 of another change.

    In phase 1 of any change every lease has a quorum of the old list. So OLD may follow at once. But it takes
    the locks of clients at the other change's joint step, so it does not where that phase is written.
    """
    rivals = now.rivals or holders(seen, now.state)
    possible = rivals | (lists.old - seen.keys())
    if command != "abort" or now.written or len(seen.keys() & lists.old) < quorum(len(lists.old)):
        return Refused(OTHER_CHANGE)
    states = {one.phase for one in seen.values() if one is not None and one.epoch == now.state.epoch}
    if not states <= {Phase.OLD, Phase.PHASE_1, Phase.RIVAL}:
        return Refused(OTHER_CHANGE)
    if len(possible & lists.old) >= quorum(len(lists.old)) and not sure:
        return Refused(MAYBE_OTHER_CHANGE)
    return Write(State(now.state.epoch + 1, Phase.OLD))


def refused(phase: Phase, target: Phase, clients: Mapping[str, int]) -> Refused | None:
    """Why clients must change their step first; None: the phase may change to ``target``."""
    unknown = clients.get("", 0)
    for step in _forbidden(phase, target):
        count = clients.get(step, 0)
        if count:
            return Refused(
                f"{_clients(count)} {'are' if count > 1 else 'is'} at step {step!r}", exit_codes.NOT_YET
            )
        if unknown:
            return Refused(f"{_clients(unknown)} may be at step {step!r}", exit_codes.NOT_YET)
    return None


def _forbidden(phase: Phase, target: Phase) -> list[str]:
    return [step for step in phase.steps if step not in target.steps]


def forbidden_steps(lists: Lists, seen: Seen) -> tuple[str, ...]:
    """The steps at which no client may be before the next command, and "" for those not known; or ()."""
    now = present(lists, seen)
    command = next_move(lists, seen, {})[0]
    target = MOVES.get((command, now.state.phase)) if command and not now.conflict else None
    found = _forbidden(now.state.phase, target) if target else []
    return (*found, "") if found else ()


def number_of(phase: Phase) -> int | None:
    """1 or 2: of the phase that the next command ends; None: there is none."""
    return {Phase.PHASE_1: 1, Phase.TO_NEW: 1, Phase.TO_OLD: 1, Phase.PHASE_2: 2}.get(phase)


def next_move(lists: Lists, seen: Seen, clients: Mapping[str, int]) -> tuple[Command | None, Refused | None]:
    """The command that leads towards the new list, and why it is not allowed yet."""
    now = present(lists, seen)
    if now.state.phase is Phase.FOREIGN:
        return None, Refused(OTHER_LISTS)
    if now.state.phase is Phase.RIVAL or now.rivals:
        return ("abort", None) if not now.written else (None, Refused(OTHER_CHANGE))
    if now.conflict:
        return "finish", None
    for command in ("start", "finish"):
        target = MOVES.get((command, now.state.phase))
        if target is not None:
            return command, refused(now.state.phase, target, clients)
    return None, None


def _complete(lists: Lists, seen: Seen, state: State, done: bool) -> Action:
    """The end of a command; first the masters that were down when the phase was written get it."""
    late = any(one != state for one in seen.values() if one is not None or state.phase is not Phase.OLD)
    if done or not late:
        return Done(state, done)
    return Write(state)


def _on_its_way(command: Command, phase: Phase) -> bool:
    """Whether a command completes a phase that another run has begun to write."""
    reached = {MOVES[key] for key in MOVES if key[0] == command}
    return phase in reached or (command, phase) in MOVES


def _wrong_way(command: Command, phase: Phase) -> str:
    if command == "start" and phase is Phase.NEW:
        return "the change has ended: --from is the former list"
    if command == "start":
        return f"a change is under way, in {phase.title}: give status, finish or abort"
    if command == "finish":
        return "no change was started: give start"
    return "the change has ended: the way back is a change with --from and --to exchanged"


def _clients(count: int) -> str:
    return f"{count} client{'s' * (count > 1)}"
