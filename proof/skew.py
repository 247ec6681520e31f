"""Fencing tokens over masters that lose their counters, and whose clocks differ: do they still rise?

The model "fencing" shows that concurrent acquisitions are ordered while counters only rise. This one is about
counters that are lost, so an acquisition is one step here, and what others leave behind is another:

- *acquire*: a client that knows which masters forgot counts on a quorum, or more, of the masters that it
  trusts. A master is trusted again ``max_ttl`` after it forgot (the restart guard). The token is the q-th
  smallest of the counters; masters below it are lifted until a quorum vouches.
- *stray*: one master executes the counting script of a request that was on its way when the master forgot,
  or that came from a client that does not know of it. Nothing comes of it but the counter.
- *late lift*: one master executes a lift to an earlier token.
- *forget*: a master loses its counter: FLUSHALL, or a restart without its data.
- *expire*: a counter that was not used for the retention, which is ``max_ttl`` at least, ends.

Violation: an acquisition gets a token that is not larger than every earlier one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import NamedTuple

from .checker import Case, Model, majority, put

QUORUM = majority(3)
#: Ticks.
MAX_TTL = 4
YOUTH = MAX_TTL // 2
#: One tick of a clock, in the unit of counters: more than all counting within a run.
TICK = 100


@dataclass(frozen=True)
class Rules:
    """One variant. ``skew``: how far each master's clock is ahead, in ticks."""

    skew: tuple[int, ...] = (1, 0, 0)
    #: A counter that began is young. It moves to the clock once, when it is behind it by ``YOUTH``.
    youth: bool = True
    #: A lift keeps a young counter young.
    lift_keeps_youth: bool = True
    #: Masters that forgot are not trusted for ``MAX_TTL``.
    guard: bool = True
    #: In the beginning.
    young: bool = False
    stray: int = 1
    acquire: int = 2
    forget: int = 2
    expire: int = 0
    #: A counter goes back to an earlier token, and nobody knows: an older disk, a backup.
    go_back: int = 0
    ticks: int = MAX_TTL + YOUTH


class Counter(NamedTuple):
    """One counter of fencing tokens."""

    number: int
    young: bool


class Master(NamedTuple):
    """``silent``, ``kept``: for how many ticks more it is not trusted, and its counter is kept."""

    counter: Counter | None
    silent: int
    kept: int


class State(NamedTuple):
    """``given``: the tokens. The others: how many of these steps there may still be."""

    now: int
    masters: tuple[Master, ...]
    given: tuple[int, ...]
    stray: int
    acquire: int
    forget: int
    expire: int
    go_back: int
    fault: str = ""


def counted(rules: Rules, counter: Counter | None, clock: int) -> Counter:
    """The counter after one grant."""
    if counter is None:
        return Counter(clock * TICK, rules.youth)
    if counter.young and clock * TICK - counter.number >= YOUTH * TICK:
        return Counter(clock * TICK, False)
    return Counter(counter.number + 1, counter.young)


def lifted(rules: Rules, counter: Counter, number: int) -> Counter:
    """The counter after a lift to ``number``."""
    return Counter(number, counter.young and rules.lift_keeps_youth)


def used(state: State, at: int, counter: Counter | None) -> State:
    """The state in which a master has used its counter."""
    master = state.masters[at]._replace(counter=counter, kept=MAX_TTL if state.expire else 0)
    return state._replace(masters=put(state.masters, at, master))


def nexts(rules: Rules, state: State) -> Iterator[tuple[str, State]]:
    """Each step that may come next, and where it leads."""
    if state.now <= rules.ticks:
        older = [m._replace(silent=max(0, m.silent - 1), kept=max(0, m.kept - 1)) for m in state.masters]
        yield "a tick", state._replace(now=state.now + 1, masters=tuple(older))
    for at, master in enumerate(state.masters):
        counter = master.counter
        if state.stray:
            spent = state._replace(stray=state.stray - 1)
            after = counted(rules, counter, state.now + rules.skew[at])
            yield f"stray count at {at}: {after.number}", used(spent, at, after)
            for token in state.given:
                if counter is not None and counter.number < token:
                    yield f"late lift of {at} to {token}", used(spent, at, lifted(rules, counter, token))
        if counter is None:
            continue
        if state.forget:
            spent = used(state._replace(forget=state.forget - 1), at, None)
            silent = spent.masters[at]._replace(silent=MAX_TTL if rules.guard else 0)
            yield f"{at} forgets", spent._replace(masters=put(spent.masters, at, silent))
        if state.expire and not master.kept:
            yield f"the counter of {at} expires", used(state._replace(expire=state.expire - 1), at, None)
        if state.go_back:
            for token in state.given:
                if token < counter.number:
                    back = used(state._replace(go_back=state.go_back - 1), at, Counter(token, False))
                    yield f"the counter of {at} goes back to {token}", back
    if state.acquire:
        yield from acquisitions(rules, state._replace(acquire=state.acquire - 1))


def acquisitions(rules: Rules, state: State) -> Iterator[tuple[str, State]]:
    """Every acquisition that succeeds: whichever masters granted, and were lifted."""
    trusted = [at for at, master in enumerate(state.masters) if not master.silent]
    for size in range(QUORUM, len(trusted) + 1):
        for asked in combinations(trusted, size):
            after = state
            for at in asked:
                counter = counted(rules, state.masters[at].counter, state.now + rules.skew[at])
                after = used(after, at, counter)
            numbers = {at: counter.number for at in asked if (counter := after.masters[at].counter)}
            token = sorted(numbers.values())[QUORUM - 1]
            vouching = sum(number == token for number in numbers.values())
            behind = [at for at in asked if numbers[at] < token]
            for lift in combinations(behind, max(0, QUORUM - vouching)):
                done = after
                for at in lift:
                    counter_of = done.masters[at].counter
                    assert counter_of
                    done = used(done, at, lifted(rules, counter_of, token))
                last = max(state.given, default=0)
                fault = f"token {token} after {last}" if token <= last else ""
                label = f"token {token}, counted {numbers}, lifted {lift}"
                yield label, done._replace(given=(*state.given, token), fault=fault)


def skew(rules: Rules) -> Model:
    kept = MAX_TTL if rules.expire else 0
    masters = tuple(Master(Counter((1 + ahead) * TICK, rules.young), 0, kept) for ahead in rules.skew)
    initial = State(1, masters, (), rules.stray, rules.acquire, rules.forget, rules.expire, rules.go_back)
    return Model(initial, partial(nexts, rules), lambda state: state.fault or None)


def case(title: str, rules: Rules, violated: str = "") -> Case:
    return Case(title, partial(skew, rules), violated, traced=True)


CASES = [
    case("a lost counter only counts", Rules(youth=False), "token"),
    case("the same, and nothing is on its way", Rules(youth=False, stray=0)),
    case("a lift ends the youth", Rules(lift_keeps_youth=False, stray=2, acquire=3, forget=1), "token"),
    case("clocks differ by more than half of max_ttl", Rules(skew=(YOUTH + 1, 0, 0)), "token"),
    case("no guard", Rules(guard=False), "token"),
    case("a counter goes back", Rules(skew=(0, 0, 0), go_back=2, stray=0, forget=0, acquire=3), "token"),
    case("ours", Rules()),
    case("ours, counters are young", Rules(young=True)),
    case("ours, one clock is behind", Rules(skew=(1, 1, 0))),
    case("ours, more is on its way", Rules(stray=2, forget=1)),
    case("ours, the retention ends", Rules(forget=1, expire=1)),
]
