"""Two operators change one old list to two new ones: what may a command do that meets the other change?

The model "phases" has one change. Here the masters 0, 1 and 2 are the old list; master 3 alone is the new
list of the first operator, master 4 that of the second one. A master has a record: an epoch, whose change it
is, and a phase. A command reads all records and writes its next phase to some masters, in one step: it may be
killed before it has written to all of them, and given again. What two commands do that run at the same time
is in ``tests/unit/cli/masters/test_phases.py``; leases, and the waits between the phases, are in "phases".

Violation: clients of two lists alone have a quorum at the same time, of the old list and a new one, or of
both new ones. Goal: from every state commands lead to a steady list, although master 3 may be down for ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, combinations, product

from .checker import Case, Model, State, put

OLD, PHASE_1, TO_NEW, TO_OLD, PHASE_2, NEW, RIVAL, FOREIGN = range(8)
NAMES = ("old", "phase 1", "to new", "to old", "phase 2", "new")
#: The phases in which a client of the old list alone, and one of the new list alone, may vote.
OLD_ALONE, NEW_ALONE = (OLD, PHASE_1), (PHASE_2, NEW)
OF_OLD, MASTERS = (0, 1, 2), range(5)
START, FINISH, ABORT = "start", "finish", "abort"
MOVES = {
    (START, OLD): PHASE_1,
    (FINISH, PHASE_1): TO_NEW,
    (FINISH, TO_OLD): TO_NEW,
    (FINISH, TO_NEW): PHASE_2,
    (FINISH, PHASE_2): NEW,
    (ABORT, PHASE_2): TO_OLD,
    (ABORT, TO_NEW): TO_OLD,
    (ABORT, TO_OLD): PHASE_1,
    (ABORT, PHASE_1): OLD,
}
#: The epochs of a goal are not bounded: the newest is renumbered to this.
NEWEST = 4

Record = tuple[int, int, int]

# State: (records, phases that may still be begun, whether master 3 is up).
# Record: (epoch, whose change, phase).


@dataclass(frozen=True)
class Rules:
    """One variant.

    Attributes:
        stops: A command that meets the other change stops; else that is a conflict of two commands.
        alone: The old list leads back alone, where the operator says that the new list is gone.
        writes: How many phases are begun in all; 0: so many as it takes, for the goal.
        down: Master 3 may end for ever.
    """

    stops: bool = True
    alone: bool = True
    writes: int = 5
    down: bool = False


def own(which: int) -> tuple[int, ...]:
    return (*OF_OLD, 3 + which)


def seen_by(which: int, record: Record) -> tuple[int, int]:
    epoch, whose, phase = record
    if whose == which or phase == OLD:
        return epoch, phase
    return epoch, RIVAL if phase == PHASE_1 else FOREIGN


def written(which: int, seen: dict[int, tuple[int, int]], one: tuple[int, int], alone: bool) -> bool:
    """Whether a quorum of each list that the phase needs has it. ``alone``: the old list decides alone."""
    old = sum(seen[m] == one for m in OF_OLD) >= 2
    new = seen.get(3 + which) == one
    return old if alone or one[1] in (OLD, RIVAL) else new if one[1] == NEW else old and new


def follow(rules: Rules, which: int, command: str, state: State) -> tuple[int, int] | None:
    """The epoch and the phase that the command writes next; None: it is refused, or has ended."""
    records, _, up = state
    seen = {m: seen_by(which, records[m]) for m in own(which) if up or m != 3}
    epoch = max(one[0] for one in seen.values())
    newest = sorted({one for one in seen.values() if one[0] == epoch})
    alone = rules.alone and command == ABORT and 3 + which not in seen  # the operator says that it is gone
    valid = [one for one in newest if written(which, seen, one, alone)]
    phases = {phase for _, phase in newest}
    if rules.stops and FOREIGN in phases:
        return None
    if rules.stops and RIVAL in phases and (not valid or valid[0][1] == RIVAL):
        only_first = phases <= {OLD, PHASE_1, RIVAL}
        return (epoch + 1, OLD) if command == ABORT and not valid and only_first else None
    if not valid and len(newest) > 1:
        return None if command == START else (epoch + 1, TO_OLD if command == ABORT else TO_NEW)
    now = valid[0] if valid else newest[0]
    if now[1] in (RIVAL, FOREIGN):
        return None
    if alone and now[1] == NEW:
        return epoch + 1, TO_OLD
    if not valid:
        reached = {to for (given, _), to in MOVES.items() if given == command}
        return now if now[1] in reached or (command, now[1]) in MOVES else None
    target = MOVES.get((command, now[1]))
    return None if target is None else (epoch + 1, target)


def nexts(rules: Rules, state: State) -> Iterator[tuple[str, State]]:
    records, left, up = state
    if rules.down and up:
        yield "master 3 ends for ever", (records, left, 0)
    if rules.writes and not left:
        return
    for which, command in product((0, 1), (START, FINISH, ABORT)):
        to = follow(rules, which, command, state)
        if to is None:
            continue
        reached = [m for m in own(which) if up or m != 3]
        for some in chain.from_iterable(combinations(reached, size + 1) for size in range(len(reached))):
            after = records
            for m in some:
                after = put(after, m, (to[0], which, to[1]))
            label = f"operator {which}: {command} writes {NAMES[to[1]]}, epoch {to[0]}, to {some}"
            yield label, (after, max(0, left - 1), up)


def two_lists_alone(state: State) -> str | None:
    records = state[0]
    old = sum(records[m][2] in OLD_ALONE for m in OF_OLD) >= 2
    new = [records[3 + n][1] == n and records[3 + n][2] in NEW_ALONE for n in (0, 1)]
    return "two lists alone" if old + sum(new) > 1 else None


def steady(state: State) -> bool:
    """A list is steady: a quorum of it has the newest epoch, in the phase of that list alone."""
    records = state[0]
    newest = max(record[0] for record in records)
    old = sum(record[0] == newest and record[2] == OLD for record in records[:3]) >= 2
    return old or any(records[m][0] == newest and records[m][2] == NEW for m in (3, 4))


def canonical(state: State, rules: Rules) -> State:
    """The masters of the old list are interchangeable; with a goal, only the order of the epochs counts."""
    records, left, up = state
    if not rules.writes:
        order = {epoch: n for n, epoch in enumerate(sorted({record[0] for record in records}))}
        records = tuple((order[record[0]] + NEWEST - len(order) + 1, *record[1:]) for record in records)
    return (*sorted(records[:3]), *records[3:]), left, up


def rivals(rules: Rules) -> Model:
    records = tuple((1, 0, OLD) if m in OF_OLD else (0, 0, OLD) for m in MASTERS)
    return Model(
        (records, rules.writes, 1),
        partial(nexts, rules),
        two_lists_alone,
        canonical=partial(canonical, rules=rules),
        goal=None if rules.writes else steady,
    )


def case(title: str, rules: Rules, violated: str = "", quick: bool = True) -> Case:
    return Case(title, partial(rivals, rules), violated, quick, traced=not rules.writes)


CASES = [
    case("ours, 4 phases are begun", Rules(writes=4)),
    case("ours, 6 phases are begun", Rules(writes=6), quick=False),
    case("no way back without the new list", Rules(alone=False, writes=0, down=True), "trap", quick=False),
    case("ours, the new list ends for ever", Rules(writes=0, down=True), quick=False),
]
