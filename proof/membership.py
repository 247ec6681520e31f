"""Changing the set of masters while clients run: are there never two holders?

Two lists, old and new. A client is at a step: "old" needs a quorum of the old list, "joint" a quorum of each,
"new" a quorum of the new list. The operator changes phases. In phase 1 clients are at "old" or "joint", in
phase 2 at "joint" or "new". Phase 2 begins when every client is at "joint", and ``MAX_TTL`` has gone by since
the last one was at "old": then each lease of the old list alone has ended, or was extended by both quorums.
How phases get to the masters, and clients that sleep: see phases.py. Fencing tokens: see fencing_change.py.

- *Round*: a client asks all masters of its step. Each grants at any time. The round counts by the step at
  which it began, and its validity from its begin.
- *Change*: a client takes the next step at any time that the phase allows, also with a round under way or
  with a lease, which it keeps.
- *Restart*: a client without a lease starts with the list of any step that the phase allows.
- *Extend*: masters that have the token extend it, and masters that have no key take it. The lease counts by
  the client's present step.
- *Forget*: a master loses its key, and its grants do not count for ``MAX_TTL`` (the restart guard).

What only blocks a master is left out, because it can lead to no second holder: a grant whose reply is lost, a
round that fails, a command that arrives late.

Violation: two clients hold the lock at one time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import NamedTuple

from .checker import Case, Model, majority, put

OLD, JOINT, NEW = range(3)
STEPS = ("old", "joint", "new")
#: Ticks: of a lease, and of the longest lease.
TTL = MAX_TTL = 2
EMPTY: frozenset[int] = frozenset()
UNTIMED = -1


@dataclass(frozen=True)
class Change:
    """From one list of masters to another one. Masters are numbers."""

    old: frozenset[int]
    new: frozenset[int]

    def lists(self, step: int) -> tuple[frozenset[int], ...]:
        return ((self.old,), (self.old, self.new), (self.new,))[step]

    def asked(self, step: int) -> frozenset[int]:
        return EMPTY.union(*self.lists(step))


@dataclass(frozen=True)
class Rules:
    """One variant, and its bounds. ``steps``: at which clients may be in each phase."""

    change: Change
    steps: tuple[tuple[int, ...], ...] = ((OLD, JOINT), (JOINT, NEW))
    #: Phase 2 waits until the leases of the old list have ended.
    wait: bool = True
    #: Whether masters are a quorum at a step.
    quorum: Callable[[Rules, frozenset[int], int], bool] = lambda *args: of_each_list(*args)
    #: A round reads the clock before the lists.
    clock_first: bool = True
    #: An extension counts by the client's present step, and not by that of its acquire.
    extend_by_step: bool = True
    guard: bool = True
    extensions: int = 0
    forgets: int = 0


def of_each_list(rules: Rules, masters: frozenset[int], step: int) -> bool:
    return all(len(masters & one) >= majority(len(one)) for one in rules.change.lists(step))


def of_the_union(rules: Rules, masters: frozenset[int], step: int) -> bool:
    return len(masters) >= majority(len(rules.change.asked(step)))


class Master(NamedTuple):
    """``token``: the client that has the key, 0: none. ``silent``: ticks until its grants count again."""

    token: int
    left: int
    silent: int


class Round(NamedTuple):
    """A round under way: the step and the ticks since its begin, and the masters that granted.

    ``age`` is ``UNTIMED`` while the round has read the lists, and not the clock.
    """

    step: int
    age: int
    granted: frozenset[int]


class Client(NamedTuple):
    """``lease``: ticks that are left. ``by``: the step by which it counted. ``done``: it has asked."""

    step: int
    lease: int
    by: int
    round: Round | None
    done: bool


class State(NamedTuple):
    """``waited``: ticks since a client was at "old", at most ``MAX_TTL``."""

    phase: int
    waited: int
    masters: tuple[Master, ...]
    clients: tuple[Client, ...]
    extensions: int
    forgets: int


def nexts(rules: Rules, state: State) -> Iterator[tuple[str, State]]:
    """Each step that may come next, and where it leads."""
    yield "a tick", tick(state)
    ready = all(client.step == JOINT for client in state.clients)
    if ready and state.phase + 1 < len(rules.steps) and (state.waited >= MAX_TTL or not rules.wait):
        yield "phase 2", state._replace(phase=state.phase + 1)
    for at, master in enumerate(state.masters):
        if state.forgets and master.token:
            lost = put(state.masters, at, Master(0, 0, MAX_TTL if rules.guard else 0))
            yield f"{at} forgets", state._replace(masters=lost, forgets=state.forgets - 1)
    for number, client in enumerate(state.clients):
        for label, masters, changed in moves(rules, state, number + 1, client):
            after = state._replace(masters=masters, clients=put(state.clients, number, changed))
            if label[0] == "e":
                after = after._replace(extensions=state.extensions - 1)
            if changed.step == OLD:
                after = after._replace(waited=0)
            yield f"{'AB'[number]} {label}", after


def moves(
    rules: Rules, state: State, token: int, client: Client
) -> Iterator[tuple[str, tuple[Master, ...], Client]]:
    """The steps of one client, with the masters and the client after each."""
    masters, under_way = state.masters, client.round
    idle = under_way is None and not client.lease
    for step in rules.steps[state.phase]:
        if step > client.step or (idle and step != client.step):
            yield f"changes to {STEPS[step]}", masters, client._replace(step=step)
    if client.lease and state.extensions:
        yield from extensions(rules, masters, token, client)
    if idle and not client.done:
        begun = Round(client.step, 0 if rules.clock_first else UNTIMED, EMPTY)
        yield "asks", masters, client._replace(round=begun, done=True)
    if under_way is None:
        return
    if under_way.age == UNTIMED:
        yield "reads the clock", masters, client._replace(round=under_way._replace(age=0))
        return
    for at in rules.change.asked(under_way.step):
        if masters[at].token or masters[at].silent:
            continue
        taken = put(masters, at, Master(token, TTL, 0))
        votes = under_way.granted | {at}
        if not rules.quorum(rules, votes, under_way.step):
            yield f"is granted {at}", taken, client._replace(round=under_way._replace(granted=votes))
        elif under_way.age < TTL:
            held = client._replace(round=None, lease=TTL - under_way.age, by=under_way.step)
            yield f"is granted {at}, and holds", taken, held


def extensions(
    rules: Rules, masters: tuple[Master, ...], token: int, client: Client
) -> Iterator[tuple[str, tuple[Master, ...], Client]]:
    """Each smallest set of masters that confirms the lease: more masters would only protect it better."""
    step = client.step if rules.extend_by_step else client.by
    can = [
        at for at in rules.change.asked(step) if masters[at].token in (0, token) and not masters[at].silent
    ]
    found: list[frozenset[int]] = []
    for size in range(1, len(can) + 1):
        for chosen in map(frozenset, combinations(can, size)):
            if any(smaller <= chosen for smaller in found) or not rules.quorum(rules, chosen, step):
                continue
            found.append(chosen)
            after = tuple(Master(token, TTL, 0) if at in chosen else one for at, one in enumerate(masters))
            yield f"extends by {sorted(chosen)}", after, client._replace(lease=TTL, by=step)


def tick(state: State) -> State:
    masters = tuple(
        Master(one.token if one.left > 1 else 0, max(0, one.left - 1), max(0, one.silent - 1))
        for one in state.masters
    )
    clients = []
    for client in state.clients:
        under_way = client.round
        if under_way is not None and under_way.age != UNTIMED:
            under_way = under_way._replace(age=under_way.age + 1) if under_way.age + 1 < TTL else None
        clients.append(client._replace(lease=max(0, client.lease - 1), round=under_way))
    old = any(client.step == OLD for client in state.clients)
    waited = 0 if old else min(MAX_TTL, state.waited + 1)
    return state._replace(waited=waited, masters=masters, clients=tuple(clients))


def two_holders(state: State) -> str | None:
    return "two holders" if sum(client.lease > 0 for client in state.clients) > 1 else None


def canonical(change: Change, state: State) -> State:
    """Masters of the same lists are interchangeable."""

    def of(at: int) -> tuple[object, ...]:
        rounds = [client.round.granted if client.round else EMPTY for client in state.clients]
        return state.masters[at], [at in granted for granted in rounds]

    place: dict[int, int] = {}
    for group in (change.old & change.new, change.old - change.new, change.new - change.old):
        place.update(zip(sorted(group, key=of), sorted(group), strict=True))
    masters = list(state.masters)
    for at, to in place.items():
        masters[to] = state.masters[at]
    clients = []
    for client in state.clients:
        if client.round:
            votes = frozenset(place[at] for at in client.round.granted)
            client = client._replace(round=client.round._replace(granted=votes))
        clients.append(client)
    return state._replace(masters=tuple(masters), clients=tuple(clients))


def membership(rules: Rules) -> Model:
    client = Client(rules.steps[0][0], 0, 0, None, False)
    masters = (Master(0, 0, 0),) * len(rules.change.old | rules.change.new)
    initial = State(0, 0, masters, (client, client), rules.extensions, rules.forgets)
    return Model(initial, partial(nexts, rules), two_holders, canonical=partial(canonical, rules.change))


def case(title: str, rules: Rules, violated: str = "", quick: bool = True) -> Case:
    return Case(title, partial(membership, rules), violated, quick, traced=True)


def change(old: str, new: str) -> Change:
    return Change(frozenset(map(int, old)), frozenset(map(int, new)))


CHANGES = {
    "1 to 3": change("0", "012"),
    "3 to 5": change("012", "01234"),
    "5 to 3": change("01234", "012"),
    "1 of 3 replaced": change("012", "013"),
    "1 of 5 replaced": change("01234", "01235"),
}
#: Of a sharded client: the lists have no master in common.
GROUPS = change("012", "345")
NAIVE, STALE = ((OLD, NEW),), ((OLD, JOINT), (OLD, JOINT, NEW))
BUSY = Rules(CHANGES["3 to 5"], extensions=2, forgets=1)
AS_ACQUIRED = replace(BUSY, extend_by_step=False)

CASES = [
    *(case(f"no joint step, {name}", Rules(one, NAIVE), "two holders") for name, one in CHANGES.items()),
    *(case(f"ours, {name}", Rules(one, extensions=1), "", "5" not in name) for name, one in CHANGES.items()),
    case("a quorum of the union", replace(BUSY, quorum=of_the_union), "two holders"),
    case("the lists are read before the clock", Rules(CHANGES["1 to 3"], clock_first=False), "two holders"),
    case("a resource changes its group, no joint step", Rules(GROUPS, NAIVE), "two holders"),
    case("ours, a resource changes its group of 1 master", Rules(change("0", "1"), extensions=1)),
    case("ours, a resource changes its group", Rules(GROUPS, extensions=1), quick=False),
    case("no guard", replace(BUSY, guard=False), "two holders"),
    case("phase 2 does not wait", replace(BUSY, wait=False), "two holders", quick=False),
    case("a client restarts with the old list", replace(BUSY, steps=STALE), "two holders", quick=False),
    case("an old lease is extended as it was", AS_ACQUIRED, "two holders", quick=False),
    case("ours, 3 to 5, extensions, a master forgets", BUSY, quick=False),
]
