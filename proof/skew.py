"""Fencing tokens over masters that lose their counters, and whose clocks differ: do they still rise?

The model "fencing" shows that concurrent acquisitions are ordered while counters only rise. This one is about
counters that are lost, so an acquisition is one step here, and what others leave behind is another:

- *acquire*: a client that knows which masters forgot counts on a quorum, or more, of the masters that it
  trusts. A master is trusted again ``max_ttl`` after it forgot (the restart guard). The token is the q-th
  smallest of the counters, or a larger one; masters below it are lifted until a quorum vouches. A master
  refuses a lift by more than a step above its clock, or of a counter that is higher, by more than a little.
- *stray*: one master executes the counting script of a request that was on its way when the master forgot,
  or that came from a client that does not know of it. Nothing comes of it but the counter.
- *late lift*: one master executes a lift to an earlier token.
- *forget*: a master loses its counter: FLUSHALL, or a restart without its data.
- *copy*: a master becomes a copy of another one: it was its replica, and is a master again.
- *go back*: a counter is an earlier token again: an older disk, a backup.
- *expire*: a counter that was not used for the retention, which is ``max_ttl`` at least, ends.

Violation: an acquisition gets a token that is not larger than every earlier one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import NamedTuple

from .checker import Case, Model, majority, put

QUORUM = majority(3)
#: Ticks.
MAX_TTL = 4
STEP = MAX_TTL // 2
#: One tick of a clock, in the unit of counters: more than all counting within a run.
TICK = 100


@dataclass(frozen=True)
class Rules:
    """One variant. ``skew``: how far each master's clock is ahead, in ticks."""

    skew: tuple[int, ...] = (1, 0, 0)
    #: A counter is never behind its clock, rounded down to whole steps of so many ticks. 0: it only counts.
    step: int = STEP
    #: Masters refuse to be lifted by more than a step above their clocks.
    bounded: bool = True
    #: Masters that forgot are not trusted for ``MAX_TTL``.
    guard: bool = True
    #: The guard notices that a counter went back.
    noticed: bool = True
    stray: int = 1
    acquire: int = 2
    forget: int = 2
    expire: int = 0
    copy: int = 0
    go_back: int = 0
    ticks: int = MAX_TTL + STEP


class Master(NamedTuple):
    """``silent``, ``kept``: for how many ticks more it is not trusted, and its counter is kept."""

    counter: int | None
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
    copy: int
    go_back: int
    fault: str = ""


def counted(rules: Rules, counter: int | None, clock: int) -> int:
    """The counter after one grant."""
    if counter is None:
        return clock * TICK
    least = clock - clock % rules.step if rules.step else 0
    return max(counter + 1, least * TICK)


def follows(rules: Rules, state: State, at: int, token: int) -> bool:
    """Whether a master can be lifted to the token."""
    counter, highest = state.masters[at].counter, (state.now + rules.skew[at] + STEP) * TICK
    if counter is not None and counter > highest:
        highest = counter + 2
    return not rules.bounded or token <= highest


def used(state: State, at: int, counter: int | None) -> State:
    """The state in which a master has used its counter."""
    master = state.masters[at]._replace(counter=counter, kept=MAX_TTL if state.expire else 0)
    return state._replace(masters=put(state.masters, at, master))


def silent(noticed: bool, state: State, at: int, counter: int | None) -> State:
    """The state in which a master has another counter, and is not trusted for a while if that is noticed."""
    after = used(state, at, counter)
    master = after.masters[at]._replace(silent=MAX_TTL if noticed else 0)
    return after._replace(masters=put(after.masters, at, master))


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
            yield f"stray count at {at}: {after}", used(spent, at, after)
            for token in state.given:
                if counter is not None and counter < token and follows(rules, state, at, token):
                    yield f"late lift of {at} to {token}", used(spent, at, token)
        if counter is None:
            continue
        if state.forget:
            spent = state._replace(forget=state.forget - 1)
            yield f"{at} forgets", silent(rules.guard, spent, at, None)
        if state.expire and not master.kept:
            yield f"the counter of {at} expires", used(state._replace(expire=state.expire - 1), at, None)
        if state.copy:
            spent = state._replace(copy=state.copy - 1)
            for other, source in enumerate(state.masters):
                if source.counter != counter:
                    yield f"{at} becomes a copy of {other}", silent(rules.guard, spent, at, source.counter)
        if state.go_back:
            spent = state._replace(go_back=state.go_back - 1)
            for token in state.given:
                if token < counter:
                    yield f"the counter of {at} is {token} again", silent(rules.noticed, spent, at, token)
    if state.acquire:
        yield from acquisitions(rules, state._replace(acquire=state.acquire - 1))


def acquisitions(rules: Rules, state: State) -> Iterator[tuple[str, State]]:
    """Every acquisition that succeeds: whichever masters granted, and were lifted."""
    trusted = [at for at, master in enumerate(state.masters) if not master.silent]
    for size in range(QUORUM, len(trusted) + 1):
        for asked in combinations(trusted, size):
            after, numbers = state, {}
            for at in asked:
                numbers[at] = counted(rules, state.masters[at].counter, state.now + rules.skew[at])
                after = used(after, at, numbers[at])
            for token in {*sorted(numbers.values())[QUORUM - 1 :]}:
                vouching = sum(number == token for number in numbers.values())
                behind = [at for at in asked if numbers[at] < token and follows(rules, state, at, token)]
                for lift in combinations(behind, max(0, QUORUM - vouching)):
                    done = after
                    for at in lift:
                        done = used(done, at, token)
                    last = max(state.given, default=0)
                    fault = f"token {token} after {last}" if token <= last else ""
                    label = f"token {token}, counted {numbers}, lifted {lift}"
                    yield label, done._replace(given=(*state.given, token), fault=fault)


def skew(rules: Rules) -> Model:
    kept = MAX_TTL if rules.expire else 0
    masters = tuple(Master((1 + ahead) * TICK, 0, kept) for ahead in rules.skew)
    steps = (rules.stray, rules.acquire, rules.forget, rules.expire, rules.copy, rules.go_back)
    initial = State(1, masters, (), *steps)
    return Model(initial, partial(nexts, rules), lambda state: state.fault or None)


def case(title: str, rules: Rules, violated: str = "", quick: bool = True) -> Case:
    return Case(title, partial(skew, rules), violated, quick, traced=True)


ROLES = Rules(stray=0, acquire=3, forget=0, copy=2)
DISKS = Rules(stray=0, acquire=3, forget=0, go_back=2)

CASES = [
    case("a lost counter only counts", Rules(step=0), "token"),
    case("the same, and nothing is on its way", Rules(step=0, stray=0)),
    case("the same, a master becomes a copy of another", replace(ROLES, step=0), "token"),
    case("the same, a counter goes back", replace(DISKS, step=0), "token"),
    case("a clock is far ahead, and masters follow it", Rules(skew=(STEP + 1, 0, 0), bounded=False), "token"),
    case("ours, a clock is a little too far ahead", Rules(skew=(STEP + 1, 0, 0)), quick=False),
    case("ours, a clock is far ahead", Rules(skew=(10 * STEP, 0, 0))),
    case("ours, a clock is far behind", Rules(skew=(10 * STEP, 10 * STEP, 0))),
    case("ours, no two clocks agree", Rules(skew=(2 * STEP + 2, STEP + 1, 0))),
    case("no guard", Rules(guard=False), "token"),
    case("a counter goes back unnoticed", replace(DISKS, skew=(0, 0, 0), noticed=False), "token"),
    case("ours", Rules(), quick=False),
    case("ours, one clock is behind", Rules(skew=(1, 1, 0)), quick=False),
    case("ours, more is on its way", Rules(stray=2, forget=1), quick=False),
    case("ours, the retention ends", Rules(forget=1, expire=1), quick=False),
    case("ours, a master becomes a copy of another", ROLES, quick=False),
    case("ours, copies, and requests on their way", replace(ROLES, stray=1, acquire=2), quick=False),
    case("ours, a counter goes back", DISKS, quick=False),
]
