"""A lock that is held while its client goes from "old" over "joint" to "new": is it never lost unnoticed?

Client A holds a lease of the old list, and extends it. It is reconfigured at run time. An extension counts by
the lists of the client when it starts. Masters of these lists that the lease never asked get its token first
(SET NX), on the same connection, in front of the extension. X is any other client, at "joint", or at "new" in
phase 2: it takes all free masters of its step at once.

A has one current connection to each master: in order, and its replies arrive. A connection that A gives up
may still deliver what was written to it, at any later time. Time is in ticks, each lease lasts ``MAX_TTL``.
Phase 2 begins at the earliest ``MAX_TTL`` after A left "old".

Violations: "two holders"; "extended although X had the lock"; "orphan" - A has released, nothing is on its
way, and a master still has its token.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from .checker import Case, Model, majority, put
from .membership import CHANGES, JOINT, MAX_TTL, NEW, OLD, STEPS, Change, change

SET, EXTEND, DELETE = "SET", "EXTEND", "DELETE"
FREE, A, X = range(3)


@dataclass(frozen=True)
class Rules:
    """One variant, and its bounds.

    Attributes:
        in_time: An extension counts only when it is decided before the lease has ended.
        again: Masters that are not in both lists get the token in front of each extension, also if they were
            asked before.
        present: It counts by the present lists; else by those of its acquire.
        undo: A connection that is given up gets a release behind the SET that it owes.
        leave: A master that is in no list any more: "keep" - its connection stays while the lease lasts;
            "detach" - its connection is given up; "release" - the same, with a release.
        connections, extensions, returns: How often A gives a connection up, extends, goes back to "old".
    """

    change: Change = CHANGES["1 to 3"]
    in_time: bool = True
    again: bool = False
    present: bool = True
    undo: bool = False
    leave: str = "keep"
    connections: int = 0
    extensions: int = 2
    returns: int = 0


class Master(NamedTuple):
    """Its key, and A's commands on their way: on a connection that was given up, and on the current one."""

    owner: int
    left: int
    late: tuple[tuple[str, int], ...]
    queue: tuple[tuple[str, int], ...]


class Extension(NamedTuple):
    """``until``: ticks of the lease that it asks for. ``yes``: the masters that extended."""

    number: int
    step: int
    until: int
    yes: frozenset[int]


class State(NamedTuple):
    """``validity``: of A's lease. ``asked``: the masters that may have its token. ``seen``: X had the lock.

    ``waited``: ticks since A was at "old". ``x``: ticks that X still holds. ``over``: A has released.
    """

    masters: tuple[Master, ...]
    phase: int
    step: int
    waited: int
    validity: int
    extension: Extension | None
    asked: frozenset[int]
    seen: bool
    x: int
    over: bool
    connections: int
    extensions: int
    returns: int
    fault: str = ""


def nexts(rules: Rules, state: State) -> Iterator[tuple[str, State]]:
    """Each step that may come next, and where it leads."""
    if state.validity or state.extension or state.x or any(one.left for one in state.masters):
        yield "a tick", tick(state)
    if not state.phase and state.waited >= MAX_TTL:
        yield "phase 2", state._replace(phase=1)
    if not state.over:
        yield from holder(rules, state)
    for at, master in enumerate(state.masters):
        yield from deliveries(rules, state, at, master)
    if state.x:
        freed = tuple(one._replace(owner=FREE, left=0) if one.owner == X else one for one in state.masters)
        yield "X releases", state._replace(masters=freed, x=0)
        return
    for step in (JOINT, NEW)[: state.phase + 1]:
        free = {at for at in rules.change.asked(step) if state.masters[at].owner == FREE}
        if quorum(rules, free, step):
            taken = tuple(
                one._replace(owner=X, left=MAX_TTL) if at in free else one
                for at, one in enumerate(state.masters)
            )
            yield f"X holds at {STEPS[step]}", state._replace(masters=taken, x=MAX_TTL, seen=not state.over)


def quorum(rules: Rules, masters: frozenset[int] | set[int], step: int) -> bool:
    return all(len(masters & one) >= majority(len(one)) for one in rules.change.lists(step))


def holder(rules: Rules, state: State) -> Iterator[tuple[str, State]]:
    """The steps of A."""
    step = state.step
    allowed = ((OLD, JOINT), (JOINT, NEW))[state.phase]
    for target in (step + 1, step - 1):
        if target in allowed and (target > step or (target == OLD and state.returns)):
            waited = 0 if target == OLD else state.waited
            moved = state._replace(step=target, waited=waited, returns=state.returns - (target < step))
            yield f"A changes to {STEPS[target]}", left_masters(rules, moved)
    if state.extension:
        yield "A gives its extension up", state._replace(extension=None)
    elif state.validity and state.extensions:
        yield "A extends", extends(rules, state)
    for at, master in enumerate(state.masters):
        if state.connections and master.queue and not master.late:
            given_up = state._replace(connections=state.connections - 1)
            owes = rules.undo and any(verb == SET for verb, _ in master.queue)
            yield f"A gives up its connection to {at}", detached(given_up, at, owes)
    if state.validity and not state.extension:
        masters = tuple(
            one._replace(queue=(*one.queue, (DELETE, 0))) if at in state.asked else one
            for at, one in enumerate(state.masters)
        )
        yield "A releases", state._replace(masters=masters, validity=0, over=True)


def extends(rules: Rules, state: State) -> State:
    step, number = state.step if rules.present else OLD, state.extensions
    masters = list(state.masters)
    for at in rules.change.asked(step):
        both = at in rules.change.old and at in rules.change.new
        known = at in state.asked and (both or not rules.again)
        first = () if known else ((SET, number),)
        masters[at] = masters[at]._replace(queue=(*masters[at].queue, *first, (EXTEND, number)))
    return state._replace(
        masters=tuple(masters),
        extension=Extension(number, step, MAX_TTL, frozenset()),
        asked=state.asked | rules.change.asked(step),
        extensions=number - 1,
    )


def detached(state: State, at: int, release: bool) -> State:
    """The connection to a master is given up, with a release behind what was written to it."""
    master = state.masters[at]
    late = master.late + master.queue + (((DELETE, 0),) if release else ())
    return state._replace(masters=put(state.masters, at, master._replace(late=late, queue=())))


def left_masters(rules: Rules, state: State) -> State:
    """What becomes of the masters that are in no list of A any more."""
    if rules.leave == "keep":
        return state
    for at in sorted(state.asked - rules.change.asked(state.step)):
        state = detached(state, at, rules.leave == "release")
        state = state._replace(asked=state.asked - {at})
    return state


def deliveries(rules: Rules, state: State, at: int, master: Master) -> Iterator[tuple[str, State]]:
    """The next command of each connection is executed."""
    for late in (True, False):
        queue = master.late if late else master.queue
        if not queue:
            continue
        verb, number = queue[0]
        rest = master._replace(late=queue[1:]) if late else master._replace(queue=queue[1:])
        yes = master.owner == (FREE if verb == SET else A)
        if yes:
            rest = (
                rest._replace(owner=FREE, left=0) if verb == DELETE else rest._replace(owner=A, left=MAX_TTL)
            )
        after = state._replace(masters=put(state.masters, at, rest))
        asked = state.extension
        if yes and verb == EXTEND and not late and asked and asked.number == number:
            after = answered(rules, after, asked._replace(yes=asked.yes | {at}))
        yield f"{at} executes {'late ' * late}{verb}: {'yes' if yes else 'no'}", after


def answered(rules: Rules, state: State, extension: Extension) -> State:
    if not quorum(rules, extension.yes, extension.step) or not (state.validity or not rules.in_time):
        return state._replace(extension=extension)
    fault = "extended although X had the lock" if state.seen else ""
    return state._replace(extension=None, validity=extension.until, fault=fault)


def tick(state: State) -> State:
    masters = tuple(
        one._replace(left=one.left - 1) if one.left > 1 else one._replace(owner=FREE, left=0)
        for one in state.masters
    )
    asked = state.extension
    if asked:
        asked = asked._replace(until=asked.until - 1) if asked.until > 1 else None
    return state._replace(
        masters=masters,
        waited=0 if state.step == OLD else min(MAX_TTL, state.waited + 1),
        validity=max(0, state.validity - 1),
        extension=asked,
        x=max(0, state.x - 1),
    )


def violation(orphans: bool, state: State) -> str | None:
    if state.validity and state.x:
        return "two holders"
    on_its_way = any(one.late or one.queue for one in state.masters)
    if orphans and state.over and not on_its_way and any(one.owner == A for one in state.masters):
        return "orphan"
    return state.fault or None


def canonical(change: Change, state: State) -> State:
    """Masters of the same lists are interchangeable."""
    yes = state.extension.yes if state.extension else frozenset()

    def of(at: int) -> tuple[object, ...]:
        return (*state.masters[at], at in yes, at in state.asked)

    place: dict[int, int] = {}
    for group in (change.old & change.new, change.old - change.new, change.new - change.old):
        place.update(zip(sorted(group, key=of), sorted(group), strict=True))
    masters = list(state.masters)
    for at, to in place.items():
        masters[to] = state.masters[at]
    extension = state.extension
    if extension:
        extension = extension._replace(yes=frozenset(place[at] for at in extension.yes))
    asked = frozenset(place[at] for at in state.asked)
    return state._replace(masters=tuple(masters), extension=extension, asked=asked)


def reconfigure(rules: Rules) -> Model:
    """A has the token on all masters of the old list, and its lease has just begun."""
    old = rules.change.old
    masters = tuple(
        Master(A, MAX_TTL, (), ()) if at in old else Master(FREE, 0, (), ())
        for at in range(len(old | rules.change.new))
    )
    initial = State(
        masters, 0, OLD, 0, MAX_TTL, None, old, False, 0, False,
        rules.connections, rules.extensions, rules.returns,
    )  # fmt: skip
    orphans = not rules.connections
    return Model(
        initial,
        partial(nexts, rules),
        partial(violation, orphans),
        canonical=partial(canonical, rules.change),
    )


def case(title: str, rules: Rules, violated: str = "", quick: bool = True) -> Case:
    return Case(title, partial(reconfigure, rules), violated, quick, traced=True)


OURS = Rules()
ONE = Rules(change("0", "1"))

CASES = [
    case("an extension is decided after the lease has ended", replace(OURS, in_time=False), "extended"),
    case("an extension counts by the lists of the acquire", replace(OURS, present=False), "two holders"),
    case("a release behind an owed SET", replace(ONE, undo=True, connections=1), "two holders"),
    case(
        "a master that leaves is released",
        replace(ONE, leave="release", returns=1),
        "two holders",
        quick=False,
    ),
    case("a master that leaves is detached", replace(ONE, leave="detach"), "orphan"),
    case("ours, 1 to 1", ONE),
    case("ours, 1 to 1, back to old once", replace(ONE, returns=1, extensions=3), quick=False),
    case("ours, 1 to 1, a connection is given up", replace(ONE, connections=1), quick=False),
    case("ours, 1 to 3", OURS, quick=False),
    case("ours, 1 to 1, the same, 3 extensions", replace(ONE, connections=1, extensions=3), quick=False),
    case("ours, 1 to 3, a connection is given up", replace(OURS, connections=1), quick=False),
    case("ours, 1 to 3, back to old once", replace(OURS, returns=1), quick=False),
    case("ours, 1 to 3, the token in front of each extension", replace(OURS, again=True), quick=False),
    case("ours, 1 of 3 replaced", replace(OURS, change=CHANGES["1 of 3 replaced"]), quick=False),
]
