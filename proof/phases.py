"""The phases of a change, as the masters have them: what of a client that slept at "old" through all of them?

The model "membership" changes the phase for all clients at once. Here each master has a record of the phase:
the steps at which clients may be. The operator writes a phase to one master after another, in any order, and
never reaches some of them. After each write it cuts the connections of that master. A client reads the record
when it connects, and asks on that connection for as long as it is open. The record must allow its step.

Client S is at "old" and knows nothing of the change: it sleeps, and wakes at any time. Client B is at "new".

- *next phase*: allowed when the last one counts as written. Before phase 2 the operator waits for the longest
  lease. Meanwhile S extends its lease where it may. If that is no quorum, its lease has ended.
- *lose*: a master loses its record, and its connections end. A client writes back the newest that it knows.
- *go back*: a master has the record of the phase before (an older disk), and its connections end.

The key of the lock is kept in both: the restart guard of the model "guard" is for lost keys.

Violation: S has a quorum of the old list, and B one of the new list.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, combinations
from typing import NamedTuple

from .checker import Case, Model, majority, put
from .membership import CHANGES, JOINT, NEW, OLD, Change, change

S, B = range(2)
STEP = (OLD, NEW)
#: The steps that each phase allows. The second one forbids "old" before the third one allows "new".
OURS = ((OLD, JOINT), (JOINT,), (JOINT, NEW))
TWO = ((OLD, JOINT), (JOINT, NEW))
#: Back to "old" out of the last phase: "new" is forbidden before "old" is allowed, or at the same time.
BACK = (*OURS, (JOINT,), (OLD, JOINT))
BACK_AT_ONCE = (*OURS, (OLD, JOINT))


@dataclass(frozen=True)
class Rules:
    """One variant.

    Attributes:
        cut: When the connections of a master are cut: "after" its record is written, "before", or "" - never.
        counts: The masters that must have a phase: "old" - so many of the list whose step it forbids that
            the others are no quorum; "fewer", "more" - one fewer, one more; "new" - a quorum of the new list.
        wait: The operator waits for leases of the old list before new is allowed, and the other way round.
        extend: Where a client may extend a lease: "allowed" - where the record allows its step; "all" - on
            each master that has its key.
        attempt: Client S may go from "old" to joint with an attempt under way, which the old list decides.
            The masters that count: "own" - whose record allows the old list; "present" - the lists of S.
        back_by: What a client writes back: "lists" - the newest record of a quorum of both lists; "own
            list" - of its own list; "most" - the one that most masters have; "memory" - that it remembers.
        lost, back: How many records get lost, or go back.
    """

    change: Change
    phases: tuple[tuple[int, ...], ...] = OURS
    cut: str = "after"
    counts: str = "old"
    wait: bool = True
    extend: str = "allowed"
    attempt: str = "own"
    back_by: str = "lists"
    lost: int = 0
    back: int = 0


class Master(NamedTuple):
    """``record``: the phase, None: it is lost. ``cut``: the phase when its connections ended last.

    ``key``: the client that has it. ``asked``: which clients have a connection on which they may ask.
    """

    record: int | None
    cut: int
    key: int | None
    asked: tuple[bool, bool]


class State(NamedTuple):
    """``phase``: that the operator writes. ``lost``, ``back``: how many of these steps there may still be."""

    phase: int
    masters: tuple[Master, ...]
    lost: int
    back: int


def nexts(rules: Rules, state: State) -> Iterator[tuple[str, State]]:
    """Each step that may come next, and where it leads."""
    phase, masters = state.phase, state.masters
    if phase + 1 < len(rules.phases) and written(rules, state):
        yield f"phase {phase + 1} begins", state._replace(phase=phase + 1, masters=begun(rules, state))
    for at, master in enumerate(masters):
        for label, after in operated(rules, phase, master):
            yield f"{at} {label}", state._replace(masters=put(masters, at, after))
        if master.record is not None and state.lost:
            after = connected(rules, master._replace(record=None), True)
            yield (
                f"{at} loses its record",
                state._replace(masters=put(masters, at, after), lost=state.lost - 1),
            )
        if master.record and state.back:
            after = connected(rules, master._replace(record=master.record - 1, cut=master.record - 1), True)
            label = f"the record of {at} goes back"
            yield label, state._replace(masters=put(masters, at, after), back=state.back - 1)
        if master.record is None:
            for record in restored(rules, state):
                after = connected(rules, master._replace(record=record, cut=record))
                yield f"{at} gets record {record} back", state._replace(masters=put(masters, at, after))
        for client, may in enumerate(master.asked):
            if may and master.key is None:
                after = master._replace(key=client)
                yield f"{'SB'[client]} is granted {at}", state._replace(masters=put(masters, at, after))


def begun(rules: Rules, state: State) -> tuple[Master, ...]:
    """The masters when the next phase begins.

    If it newly allows a step, keys of clients at the other one have ended, but for those that were extended.
    """
    before, after = rules.phases[state.phase : state.phase + 2]
    newly = set(after) - set(before) if rules.wait else set()
    ended = {client for client in (S, B) if STEP[1 - client] in newly}
    kept = {at for client in ended for at in extended(rules, state, client)}
    return tuple(
        one._replace(key=None) if one.key in ended and at not in kept else one
        for at, one in enumerate(state.masters)
    )


def extended(rules: Rules, state: State, client: int) -> set[int]:
    """The masters that extend the lease of a client; none if they are no quorum of its list."""
    (own,) = rules.change.lists(STEP[client])
    every = rules.extend == "all"
    asked = {at for at in own if every or state.masters[at].asked[client]}
    granted = {at for at in asked if state.masters[at].key == client}
    return granted if len(granted) >= majority(len(own)) else set()


def operated(rules: Rules, phase: int, master: Master) -> Iterator[tuple[str, Master]]:
    """What the operator does at one master: it writes the phase, and cuts the connections."""
    record, cut = master.record, master.cut
    if record is None:
        return
    if record < phase and (cut == phase or rules.cut != "before"):
        cut = cut if rules.cut else phase
        yield f"gets phase {phase}", connected(rules, master._replace(record=phase, cut=cut))
    if cut < phase and (rules.cut == "before" or record == phase):
        yield "is cut", connected(rules, master._replace(cut=phase), True)


def connected(rules: Rules, master: Master, ended: bool = False) -> Master:
    """The master when each client has connected that may. ``ended``: all connections ended before that."""
    allowed = set(rules.phases[master.record]) if master.record is not None else set()
    steps = ({OLD, JOINT} if rules.attempt == "present" else {OLD}, {NEW})
    asked = tuple(
        bool(steps[client] & allowed) or (was and not ended) for client, was in enumerate(master.asked)
    )
    return master._replace(asked=asked)


def written(rules: Rules, state: State) -> bool:
    """Whether the phase of the operator counts as written."""
    done = {at for at, one in enumerate(state.masters) if one.record == one.cut == state.phase}
    if not state.phase:
        return True
    if rules.counts == "new":
        new = rules.change.new
        return len(done & new) >= majority(len(new))
    forbidden = set(rules.phases[state.phase - 1]) - set(rules.phases[state.phase])
    for one in chain.from_iterable(map(rules.change.lists, forbidden)):
        others = majority(len(one)) - 1 + {"fewer": 1, "old": 0, "more": -1}[rules.counts]
        if len(one - done) > max(0, others):
            return False
    return True


def restored(rules: Rules, state: State) -> set[int]:
    """The records that a client may write back.

    It knows the newest of those that it read on open connections, which may be older than the masters' own.
    """
    if rules.back_by == "memory":
        return {0}
    known = {at: min(one.record, one.cut) for at, one in enumerate(state.masters) if one.record is not None}
    if rules.back_by == "most":
        return {max(known.values(), key=[*known.values()].count)}
    lists = (rules.change.old, rules.change.new)
    groups = [list(combinations(sorted(one & known.keys()), majority(len(one)))) for one in lists]
    if rules.back_by == "own list":
        chosen = [group for one in groups for group in one]
    else:
        chosen = [first + second for first in groups[0] for second in groups[1]]
    return {max(known[at] for at in group) for group in chosen}


def two_holders(rules: Rules, state: State) -> str | None:
    for client in (S, B):
        (own,) = rules.change.lists(STEP[client])
        if sum(state.masters[at].key == client for at in own) < majority(len(own)):
            return None
    return "two holders"


def canonical(rules: Rules, state: State) -> State:
    """Masters of the same lists are interchangeable."""
    masters = list(state.masters)
    one = rules.change
    for group in (one.old & one.new, one.old - one.new, one.new - one.old):
        ordered = sorted((state.masters[at] for at in group), key=repr)
        for at, master in zip(sorted(group), ordered, strict=True):
            masters[at] = master
    return state._replace(masters=tuple(masters))


def phases(rules: Rules) -> Model:
    masters = [
        Master(0, 0, None, (at in rules.change.old, False))
        for at in range(len(rules.change.old | rules.change.new))
    ]
    initial = State(0, tuple(masters), rules.lost, rules.back)
    return Model(
        initial,
        partial(nexts, rules),
        partial(two_holders, rules),
        canonical=partial(canonical, rules),
    )


def case(title: str, rules: Rules, violated: str = "", quick: bool = True) -> Case:
    return Case(title, partial(phases, rules), violated, quick, traced=True)


BAD = "two holders"
REPLACED, SHRUNK = Rules(CHANGES["1 of 3 replaced"]), Rules(CHANGES["5 to 3"])
ONE = Rules(change("0", "1"))
MOST = Rules(change("012", "034"))

CASES = [
    case("connections stay open", replace(REPLACED, cut=""), BAD),
    case("connections are cut before the write", replace(REPLACED, cut="before"), BAD),
    case("old is forbidden when new is allowed, 1 of 3 replaced", replace(REPLACED, phases=TWO), BAD),
    case("old is forbidden when new is allowed, 5 to 3", replace(SHRUNK, phases=TWO), BAD),
    case("one master fewer", replace(REPLACED, counts="fewer"), BAD),
    case("a quorum of the new list", replace(SHRUNK, counts="new"), BAD),
    case("new does not wait for old leases", replace(REPLACED, wait=False), BAD),
    case("a master that forbids the list extends a lease", replace(REPLACED, extend="all"), BAD),
    case("an attempt counts where the present lists are allowed", replace(REPLACED, attempt="present"), BAD),
    case(
        "lost, a client writes back what it remembers",
        replace(REPLACED, back_by="memory", lost=1),
        BAD,
        quick=False,
    ),
    case("lost, a client reads only its own list", replace(MOST, back_by="own list", lost=1), BAD, False),
    case(
        "lost, the record of most masters is written", replace(REPLACED, back_by="most", lost=1), BAD, False
    ),
    case("a record goes back", replace(REPLACED, back=1), BAD),
    case("ours, 1 of 3 replaced", REPLACED),
    case("ours, 1 to 3", Rules(CHANGES["1 to 3"])),
    case("new is forbidden when old is allowed again", replace(ONE, phases=BACK_AT_ONCE), BAD),
    case("ours, 1 to 1, back to old", replace(ONE, phases=BACK)),
    case("ours, 1 of 3 replaced, back to old", replace(REPLACED, phases=BACK), quick=False),
    case("ours, 3 to 5", Rules(CHANGES["3 to 5"]), quick=False),
    case("ours, 5 to 3", SHRUNK, quick=False),
    case("ours, all of 3 replaced", Rules(change("012", "345")), quick=False),
    case("ours, a record is lost", replace(REPLACED, lost=1), quick=False),
    case("ours, 2 records are lost", replace(REPLACED, lost=2), quick=False),
    case("ours, 2 of 3 replaced, a record is lost", replace(MOST, lost=1), quick=False),
    case("ours, one master more, a record goes back", replace(REPLACED, counts="more", back=1)),
]
