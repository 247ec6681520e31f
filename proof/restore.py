"""A master that lost its record: when may a client write it back, and is that enough for votes?

A master that lost its record has no vote. Its record may be lost while others are down, so that no quorum has
one any more. Then a client must write it back; but a client that was cut off during a change of the masters
must not bring the old list back. The rule: a client may write the record back for ``LEASE`` ticks after it
saw the record on a quorum, and the operator's command waits as long between two phases of a change. All that
time a quorum must keep the very record that the command wrote, which the command sees by a stamp.

The masters are those of the old list. Three phases of a change matter: in phase 0 their records allow the old
list, in phase 1 neither list alone, in phase 2 the new list. One client has the old list.

- *reads*: the client connects a master and reads its record. *hears*: it gets a reply on the connection that
  it has, and the master has some record: the command cuts the connections after each write, so the record is
  still the one that was read.
- *sends*: the client has read that a master has no record, and writes the one of phase 0 on the same
  connection.
  The write may arrive at any time, or never: between the look at the clock and the arrival the process may be
  stopped, and the network may be slow. A cut ends the connection, and the write with it.
- *loses*: a master loses its record. Its connections stay open, as after FLUSHALL.
- *gets a record back*: clients of other lists write that of phase 1 or 2 back, at any time from its begin on.
- A second run of the command may write in the wait of the first one.

Violation: phase 2 has begun, and a quorum of the old list has records that allow the old list.

The goal is for a fleet without a change, of which ``down`` masters end for ever. No time goes by while the
client can read or write a record. Then every state must lead to one in which a quorum has a record.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from .checker import Case, Model, majority, put

#: Ticks for which a client may write a record back after it saw a quorum with it.
LEASE = 2


@dataclass(frozen=True)
class Rules:
    """One variant, and its bounds.

    Attributes:
        masters: Of the old list.
        restore: When a client writes back: "confirmed" - it saw the record on a quorum within the lease;
            "present" - a quorum has it now; "always" - it once saw it.
        confirms: The records that confirm the list: "all"; "first" - not those that a client wrote back.
        waits: The command waits for the lease.
        keeps: A quorum must keep the record of the command during the wait; else it is looked at afterwards.
        same_connection: The write goes out on the connection on which the master was read as blank.
        losses: How often a master loses its record.
        down: For the goal: how many masters end for ever; None: there is a change, and no goal.
    """

    masters: int = 3
    restore: str = "confirmed"
    confirms: str = "all"
    waits: bool = True
    keeps: bool = True
    same_connection: bool = True
    losses: int = 2
    down: int | None = None


class Master(NamedTuple):
    """A master, and what the client knows of it.

    ``record``: a phase, or None. ``kept``: since the command wrote and cut it. ``back``: a client wrote it
    back. ``up``: it is not down. ``age``: ticks since the client saw the record of phase 0 there. ``open``:
    it has a connection on which it read that. ``sent``: it sent the record of phase 0, which has not arrived.
    """

    record: int | None = 0
    kept: bool = False
    back: bool = False
    up: bool = True
    age: int = LEASE
    open: bool = False
    sent: bool = False


class State(NamedTuple):
    """``phase``: that the command writes. ``waited``: ticks of its wait; -1: it does not wait."""

    phase: int
    waited: int
    masters: tuple[Master, ...]
    losses: int
    down: int


def nexts(rules: Rules, state: State) -> Iterator[tuple[str, State]]:
    """Each step that may come next, and where it leads."""
    steps = [*client_steps(rules, state)]
    yield from steps
    urgent = rules.down is not None
    if not urgent or all(after == state for _, after in steps):
        yield "a tick", ticked(state)
    for at, one in enumerate(state.masters):
        if state.losses and one.up and one.record is not None:
            lost = one._replace(record=None, kept=False, back=False)
            masters = put(state.masters, at, lost)
            yield f"{at} loses its record", state._replace(masters=masters, losses=state.losses - 1)
        if state.down and one.up:
            masters = put(state.masters, at, one._replace(up=False, open=False))
            yield f"{at} goes down", state._replace(masters=masters, down=state.down - 1)
    if not urgent:
        yield from change_steps(rules, state)


def ticked(state: State) -> State:
    masters = tuple(one._replace(age=min(LEASE, one.age + 1)) for one in state.masters)
    waited = state.waited if state.waited < 0 else min(LEASE, state.waited + 1)
    return state._replace(masters=masters, waited=waited)


def client_steps(rules: Rules, state: State) -> Iterator[tuple[str, State]]:
    """What the client of the old list does."""
    may_write = confirmed(rules, state)
    for at, one in enumerate(state.masters):
        for label, after in steps_at(rules, one, may_write):
            yield f"client {label} {at}", state._replace(masters=put(state.masters, at, after))


def steps_at(rules: Rules, one: Master, may_write: bool) -> Iterator[tuple[str, Master]]:
    if not one.up:
        return
    counts = rules.confirms == "all" or not one.back
    if one.record == 0:
        yield "reads", one._replace(age=0 if counts else one.age, open=True)
    elif one.record is not None:
        yield "reads another record at", one._replace(age=LEASE, open=False)
    if one.open and one.record is not None and counts:
        yield "hears", one._replace(age=0)
    if one.record is None and may_write and not one.sent:
        yield "sends the record to", one._replace(sent=True)
    if one.sent:
        arrived = one._replace(sent=False)
        if one.record is None:
            arrived = arrived._replace(record=0, back=True)
        yield "wrote the record to", arrived


def confirmed(rules: Rules, state: State) -> bool:
    """Whether the client may write the record of phase 0 back."""
    if rules.restore == "always":
        return True
    need = majority(rules.masters)
    if rules.restore == "present":
        return sum(one.up and one.record == 0 for one in state.masters) >= need
    return sum(one.age < LEASE for one in state.masters) >= need


def change_steps(rules: Rules, state: State) -> Iterator[tuple[str, State]]:
    """What the command does, and clients of other lists."""
    phase, masters = state.phase, state.masters
    for at, one in enumerate(masters):
        if phase and one.record != phase:
            written = one._replace(record=phase, kept=False, back=False)
            yield f"{at} gets phase {phase}", state._replace(masters=put(masters, at, written))
        if phase and one.record == phase:
            cut = one._replace(
                open=False, sent=one.sent and not rules.same_connection, kept=one.kept or state.waited < 0
            )
            yield f"{at} is cut", state._replace(masters=put(masters, at, cut))
        if one.record is None:
            for record in range(1, phase + 1):
                back = one._replace(record=record, kept=False, back=True)
                yield f"{at} gets record {record} back", state._replace(masters=put(masters, at, back))
    if phase == 0:
        yield "phase 1 begins", state._replace(phase=1)
    if phase != 1:
        return
    kept = sum(one.kept for one in masters) >= majority(rules.masters)
    if state.waited < 0 and kept:
        yield "the wait begins", state._replace(waited=0 if rules.waits else LEASE)
    if state.waited == LEASE:
        written = kept if rules.keeps else sum(one.record == 1 for one in masters) >= majority(rules.masters)
        if written:
            yield "phase 2 begins", state._replace(phase=2, waited=-1)
        else:
            again = tuple(one._replace(kept=False) for one in masters)
            yield "the command begins again", state._replace(masters=again, waited=-1)


def old_list_is_back(rules: Rules, state: State) -> str | None:
    old = sum(one.record == 0 for one in state.masters)
    return "the old list is back" if state.phase == 2 and old >= majority(rules.masters) else None


def a_quorum_votes(rules: Rules, state: State) -> bool:
    return sum(one.up and one.record == 0 for one in state.masters) >= majority(rules.masters)


def canonical(state: State) -> State:
    """Masters are interchangeable."""
    return state._replace(masters=tuple(sorted(state.masters, key=repr)))


def restore(rules: Rules) -> Model:
    initial = State(0, -1, (Master(),) * rules.masters, rules.losses, rules.down or 0)
    if rules.down is not None:  # the client is connected
        seen = (Master(age=0, open=True),) * rules.masters
        initial = initial._replace(masters=seen)
    return Model(
        initial,
        partial(nexts, rules),
        partial(old_list_is_back, rules),
        canonical=canonical,
        goal=None if rules.down is None else partial(a_quorum_votes, rules),
    )


def case(title: str, rules: Rules, violated: str = "", quick: bool = True) -> Case:
    return Case(title, partial(restore, rules), violated, quick, traced=True)


OURS, ALONE = Rules(), Rules(down=1, losses=3)
BACK, TRAP = "old list is back", "trap"

CASES = [
    case("a client writes back what it remembers", replace(OURS, restore="always"), BACK),
    case("a change does not wait", replace(OURS, waits=False), BACK),
    case("a change looks only at the end of its wait", replace(OURS, keeps=False, losses=3), BACK),
    case("the write goes out on a new connection", replace(OURS, same_connection=False, losses=3), BACK),
    case("ours, a record is lost", replace(OURS, losses=1)),
    case("ours, 2 records are lost", OURS, quick=False),
    case("ours, 3 records are lost", replace(OURS, losses=3), quick=False),
    case("1 of 3 down, a client writes back what a quorum has", replace(ALONE, restore="present"), TRAP),
    case("1 of 3 down, what was written back confirms nothing", replace(ALONE, confirms="first"), TRAP),
    case("1 of 3 down, ours, 3 records are lost", ALONE),
    case("2 of 5 down, ours, 4 records are lost", replace(ALONE, masters=5, down=2, losses=4), quick=False),
    case("3 of 7 down, ours, 4 records are lost", replace(ALONE, masters=7, down=3, losses=4), quick=False),
]
