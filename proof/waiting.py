"""Waiting by server push: can a waiter sleep for ever although the lock is free?

One holder, one waiter. Releases reach each master on their own; some are lost. A key may expire without a
push. A connection may drop. A refused waiter tries, arms the push and reads the remaining time (SET NX,
CLIENT CACHING YES, PTTL), gives its votes back, and sleeps until a quorum of masters is known to be free,
or until its timer.

Violation: no step is left, the waiter sleeps, and a quorum of connected masters is free.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .checker import Case, Model, State, majority, put

HOLDER, WAITER = 1, 2
#: What the waiter knows of a master.
UNKNOWN, VOTED, REFUSED, BUSY, FREE, ABSENT = "?", "v", "r", "b", "f", "-"
TRY, GIVE_BACK, SLEEP, DONE = range(4)


@dataclass(frozen=True)
class Rules:
    """The waiter's rules, and the bounds of the search.

    Attributes:
        reads: The remaining time is read together with the arming.
        arms_all: Every master is armed; else N - q of them.
        counts_free: A master whose vote was given back counts as free; else only pushes count.
        timer: It wakes when a quorum of the read times has passed.
        rearms: A connection that is back is armed and read again.
        masters, held: How many there are, and how many the holder has.
        lost, expiries, drops: How many releases are lost, whether keys expire, how often connections drop.
    """

    reads: bool = True
    arms_all: bool = True
    counts_free: bool = True
    timer: bool = True
    rearms: bool = True
    masters: int = 3
    held: int = 3
    lost: int = 0
    expiries: int = 0
    drops: int = 0


# State: (masters, phase, knowledge, holder has released, releases that may be lost, drops left).
# Master: (owner, armed, release done, connected, push on its way).


def waiting(rules: Rules) -> Model:
    everyone, quorum = range(rules.masters), majority(rules.masters)
    armed_masters = rules.masters if rules.arms_all else rules.masters - quorum
    masters = tuple((HOLDER if m < rules.held else 0, 0, 0, 1, 0) for m in everyone)
    initial = (masters, TRY, UNKNOWN * rules.masters, 0, rules.lost, rules.drops)

    def learn(knowledge: str, m: int, word: str) -> str:
        return knowledge[:m] + word + knowledge[m + 1 :]

    def successors(state: State) -> Iterator[tuple[str, State]]:
        masters, phase, known, released, lost, drops = state
        if phase == DONE:
            return
        for m in everyone:
            yield from waiter(state, m)
            owner, armed, done, connected, push = masters[m]
            if owner == HOLDER:
                if released and not done:
                    pushed = 1 if armed and connected else push
                    after = put(masters, m, (0, 0, 1, connected, pushed))
                    yield f"the release deletes the key on {m}", (after, *state[1:])
                    if lost:
                        after = put(masters, m, (owner, armed, 1, connected, push))
                        yield f"the release to {m} is lost", (after, phase, known, released, lost - 1, drops)
                if rules.expiries:
                    after = put(masters, m, (0, armed, 1, connected, push))
                    yield f"the key expires on {m} without a push", (after, *state[1:])
            if drops and connected:
                after = put(masters, m, (owner, 0, done, 0, 0))
                seen = learn(known, m, ABSENT) if phase == SLEEP or known[m] in (REFUSED, BUSY) else known
                yield f"the connection to {m} drops", (after, phase, seen, released, lost, drops - 1)
        if phase == TRY and UNKNOWN not in known and REFUSED not in known:
            if known.count(VOTED) >= quorum:
                yield "the waiter has the lock", (masters, DONE, known, released, lost, drops)
            else:
                yield "no quorum: it gives its votes back", (masters, GIVE_BACK, *state[2:])
        if phase == GIVE_BACK and VOTED not in known:
            yield "the waiter sleeps", (masters, SLEEP, *state[2:])
        if phase == SLEEP:
            again = (masters, TRY, UNKNOWN * rules.masters, released, lost, drops)
            ended = any(masters[m][0] == 0 and known[m] == BUSY and masters[m][3] for m in everyone)
            if known.count(FREE) >= quorum:
                yield "a quorum is free: the waiter wakes", again
            elif rules.timer and rules.expiries and ended:
                yield "its timer wakes the waiter", again
        if not released:
            yield "the holder releases", (masters, phase, known, 1, lost, drops)

    def waiter(state: State, m: int) -> Iterator[tuple[str, State]]:
        """What happens between the waiter and one master."""
        masters, phase, known, *rest = state
        owner, armed, done, connected, push = masters[m]
        now = FREE if owner == 0 else BUSY

        def after(label: str, master: State, word: str) -> tuple[str, State]:
            return f"{label}, master {m}", (put(masters, m, master), phase, learn(known, m, word), *rest)

        if phase == TRY and known[m] == UNKNOWN:
            if not connected:
                yield after("not connected", masters[m], ABSENT)
            elif owner == 0:
                yield after("granted", (WAITER, armed, done, connected, push), VOTED)
            else:
                yield after("refused", masters[m], REFUSED)
        if phase == TRY and known[m] == REFUSED and connected:
            if m >= armed_masters:
                yield after("not armed", masters[m], BUSY)
            else:
                yield after("armed", (owner, 1, done, connected, push), now if rules.reads else BUSY)
        if push:
            knowledge = FREE if known[m] == BUSY else known[m]
            yield after("pushed", (owner, armed, done, connected, 0), knowledge)
        if phase == GIVE_BACK and known[m] == VOTED:
            yield after(
                "vote given back", (0, armed, done, connected, push), FREE if rules.counts_free else BUSY
            )
        if not connected:
            if not rules.rearms:
                word = BUSY if known[m] == ABSENT else known[m]
                yield after("connected again", (owner, armed, done, 1, push), word)
            elif known[m] == ABSENT:
                yield after("connected, armed and read again", (owner, 1, done, 1, push), now)
            elif known[m] in (UNKNOWN, VOTED, FREE):
                yield after("connected again", (owner, armed, done, 1, push), known[m])

    def stuck(state: State) -> str | None:
        masters, phase, *_ = state
        free = [m for m in everyone if masters[m][0] == 0 and masters[m][3]]
        if phase == SLEEP and len(free) >= quorum:
            return f"asleep for ever although {free} are free"
        return None

    return Model(initial, successors, lambda state: None, stuck)


def case(title: str, rules: Rules, violated: bool, quick: bool = True) -> Case:
    return Case(title, lambda: waiting(rules), "asleep" if violated else "", quick)


CASES = [
    case("ours, a lost release", Rules(lost=1), False),
    case("ours, 5 masters, 2 lost releases", Rules(masters=5, held=5, lost=2), False, quick=False),
    case("ours, a bare quorum is held, a lost release", Rules(held=2, lost=1), False),
    case("ours, silent expiries, a lost release", Rules(lost=1, expiries=1), False),
    case("ours, connections drop, a lost release", Rules(lost=1, drops=2), False),
    case("arms without reading", Rules(reads=False), True),
    case("arms N - q masters, a lost release", Rules(arms_all=False, lost=1), True),
    case("counts pushes only", Rules(counts_free=False, held=2, lost=1), True),
    case("no timer, silent expiries", Rules(timer=False, expiries=1), True),
    case("a new connection is not armed", Rules(rearms=False, lost=1, drops=1), True),
]
