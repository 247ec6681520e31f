"""The record of a list of masters: can clients with different lists still both hold one lock?

Clients of two lists start on masters without records. No client knows the other list. A master keeps the list
that was written first (SET NX). A client reads the record of a master when it connects to it, at any time or
never: an unreachable master is a connection that is not made.

A client writes its list where there is no record, once it has reached all masters of its list and has read no
other list. A list is *in force* when all its masters have its record. A client knows that from its own reads,
or from a mark in a record. A client that knows adds the mark.

- *lose*: a master loses its record, and all connections to it end. A client that knows that its list is in
  force writes it back. The key of the lock is kept: the model "guard" is about lost keys.

Violation: two clients with different lists have a quorum of their list each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from .checker import Case, Model, majority, put

UNREAD, BLANK, OWN, OTHER, FAILED = range(5)


@dataclass(frozen=True)
class Rules:
    """One variant. ``lists``: the list of each client.

    Attributes:
        vote: Which masters a client asks: "any"; "no other" - those without another list; "fits" - those with
            its list; "quorum", "but one" - the same, if a quorum, or all but one, have it; "tried" - the
            same, if it has tried all, and has its list on each that it reached; "force" - the same, if its
            list is in force.
        write_alone: A client writes its list before it has reached all masters.
        atomic: A record is written only where there is none; else it may replace what came after the read.
        lost: How many records get lost.
    """

    lists: tuple[frozenset[int], ...]
    vote: str = "force"
    write_alone: bool = False
    atomic: bool = True
    lost: int = 0
    #: Only two holders that both reached a common master are wrong.
    met: bool = False


class Master(NamedTuple):
    """``record``: a list, or None. ``marked``: it is in force. ``key``: the client that has the key."""

    record: frozenset[int] | None
    marked: bool
    key: int | None


class Client(NamedTuple):
    """``read``: what it read at each master. ``force``: it knows that its list is in force."""

    read: tuple[int, ...]
    force: bool


class State(NamedTuple):
    masters: tuple[Master, ...]
    clients: tuple[Client, ...]
    lost: int


def nexts(rules: Rules, state: State) -> Iterator[tuple[str, State]]:
    """Each step that may come next, and where it leads."""
    for number, own in enumerate(rules.lists):
        for at in sorted(own):
            for label, master, changed in moves(rules, state, number, at):
                clients = put(state.clients, number, changed)
                after = state._replace(masters=put(state.masters, at, master), clients=clients)
                yield f"{'ABC'[number]} {label} {at}", after
    if state.lost:
        for at, master in enumerate(state.masters):
            if master.record is not None:
                masters = put(state.masters, at, Master(None, False, master.key))
                clients = tuple(one._replace(read=put(one.read, at, UNREAD)) for one in state.clients)
                yield f"{at} loses its record", State(masters, clients, state.lost - 1)


def moves(rules: Rules, state: State, number: int, at: int) -> Iterator[tuple[str, Master, Client]]:
    """The steps of one client at one master, with the two after each."""
    own, client, master = rules.lists[number], state.clients[number], state.masters[at]
    read = client.read[at]

    def reads(master: Master) -> Client:
        now = BLANK if master.record is None else OWN if master.record == own else OTHER
        every = put(client.read, at, now)
        force = client.force or (now == OWN and master.marked) or all(every[m] == OWN for m in own)
        return Client(every, force)

    if read == UNREAD:
        yield "connects to", master, reads(master)
        if rules.vote == "tried":
            yield "cannot reach", master, client._replace(read=put(client.read, at, FAILED))
    known = [client.read[m] for m in own]
    if read == BLANK and OTHER not in known and (UNREAD not in known or rules.write_alone or client.force):
        free = master.record is None or not rules.atomic
        written = Master(own, client.force, master.key) if free else master
        yield "writes its list to" if free else "finds a list at", written, reads(written)
    if read == OWN and client.force and master.record == own and not master.marked:
        yield "marks", master._replace(marked=True), client
    if master.key is None and may_vote(rules, client, own, read):
        yield "is granted", master._replace(key=number), client


def may_vote(rules: Rules, client: Client, own: frozenset[int], read: int) -> bool:
    if rules.vote == "any":
        return read != UNREAD
    if rules.vote == "no other":
        return read in (BLANK, OWN)
    need = {"quorum": majority(len(own)), "but one": len(own) - 1}.get(rules.vote, 0)
    if sum(client.read[m] == OWN for m in own) < need:
        return False
    if rules.vote == "tried":
        return read == OWN and all(client.read[m] in (OWN, FAILED) for m in own)
    return read == OWN and (rules.vote != "force" or client.force)


def two_holders(rules: Rules, state: State) -> str | None:
    holders = set()
    for number, own in enumerate(rules.lists):
        if sum(state.masters[at].key == number for at in own) >= majority(len(own)):
            holders.add(own)
    reached = [
        all(one.read[at] not in (UNREAD, FAILED) for one in state.clients) for at in range(len(state.masters))
    ]
    return "two holders" if len(holders) > 1 and (any(reached) or not rules.met) else None


def canonical(rules: Rules, state: State) -> State:
    """Masters of the same lists are interchangeable."""
    groups: dict[object, list[int]] = {}
    for at in range(len(state.masters)):
        groups.setdefault(tuple(at in one for one in rules.lists), []).append(at)
    order = list(range(len(state.masters)))

    def of(at: int) -> tuple[object, ...]:
        record, marked, key = state.masters[at]
        name = -1 if record is None else rules.lists.index(record)
        return name, marked, -1 if key is None else key, [client.read[at] for client in state.clients]

    for group in groups.values():
        for place, at in zip(group, sorted(group, key=of), strict=True):
            order[place] = at
    clients = [Client(tuple(one.read[at] for at in order), one.force) for one in state.clients]
    return State(tuple(state.masters[at] for at in order), tuple(clients), state.lost)


def records(rules: Rules) -> Model:
    masters = len(frozenset().union(*rules.lists))
    clients = (Client((UNREAD,) * masters, False),) * len(rules.lists)
    return Model(
        State((Master(None, False, None),) * masters, clients, rules.lost),
        partial(nexts, rules),
        partial(two_holders, rules),
        canonical=partial(canonical, rules),
    )


def case(title: str, rules: Rules, violated: str = "", quick: bool = True) -> Case:
    return Case(title, partial(records, rules), violated, quick, traced=True)


def lists(*names: str) -> tuple[frozenset[int], ...]:
    return tuple(frozenset(map(int, name)) for name in names)


#: Lists that share three masters, two, one.
GROWN, REPLACED, SHARED = lists("012", "01234"), lists("012", "123"), lists("012", "234")
OURS = Rules(REPLACED)
BAD = "two holders"

CASES = [
    case("nothing is compared", replace(OURS, vote="any"), BAD),
    case("masters without a record vote", replace(OURS, vote="no other"), BAD),
    case("masters that fit vote", replace(OURS, vote="fits"), BAD),
    case("the record on a quorum, 3 and 5", Rules(GROWN, vote="quorum"), BAD),
    case("the record on a quorum, 1 shared", Rules(SHARED, vote="quorum"), BAD),
    case("the record on all masters but one, 1 shared", Rules(SHARED, vote="but one"), BAD),
    case("the record replaces another one", replace(OURS, atomic=False), BAD),
    case("all masters were tried, those that were reached fit", replace(OURS, vote="tried"), BAD),
    case("the same, a common master was reached by both", replace(OURS, vote="tried", met=True)),
    case("as many records are lost as masters are shared", Rules(SHARED, lost=1), BAD, quick=False),
    case("ours, 3 and 5", Rules(GROWN)),
    case("ours, 2 shared", OURS),
    case("ours, 1 shared", Rules(SHARED)),
    case("ours, 2 shared, a record is lost", replace(OURS, lost=1), quick=False),
    case("ours, 2 shared, written before all are reached", replace(OURS, write_alone=True), quick=False),
    case("ours, 2 shared, three clients", Rules(lists("012", "012", "123")), quick=False),
    case("ours, 3 and 5, 2 records are lost", Rules(GROWN, lost=2), quick=False),
]
