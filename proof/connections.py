"""Connections that are given up: which late commands may take a counted vote back, or shorten it?

A connection that is given up may still deliver what was written to it, at any later time, also after what
its successor delivers. Client A has one current connection to each master (in order, its replies arrive)
and one old connection (in order, its replies are lost). Client X takes a quorum of free keys at once.
Time is discrete; leases last ``ttl`` ticks.

Violation: X holds the lock while A is inside its validity.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .checker import Case, Model, State, put

MASTERS = range(3)
QUORUM = 2
SET, EXTEND, DELETE = "SET", "EXTEND", "DELETE"


@dataclass(frozen=True)
class Rules:
    """The client's rules, and the bounds of the search.

    Attributes:
        undo: What a client writes behind the SETs that a connection owes when it gives it up:
            "never" - nothing for a lease that is held or still awaited;
            "owed" - the release of every owed SET;
            "uncounted" - the same, and that master never counts again for that token.
        never_shorten: An extension keeps a longer remaining time; else it sets its own.
        fresh_tokens: Each round of one acquire draws its own token; else all rounds share one.
        ttl, short: Ticks that acquires last, and the shorter time that an extension may ask for.
        connections, extensions, rounds, refills: How often each may happen.
    """

    undo: str = "never"
    never_shorten: bool = True
    fresh_tokens: bool = True
    ttl: int = 3
    short: int = 1
    connections: int = 1
    extensions: int = 1
    rounds: int = 1
    refills: int = 1


# State: (masters, old queues, current queues, A, X).
# Master: (token, ticks left). Command: (verb, token, ttl, number of the request that it belongs to).
# A: (token, deadline or 0, pending, number, budgets, masks of uncounted masters, has tried).
# Pending: None or (number, is an acquire, age, ttl, mask of votes). X: ticks left of its hold, or 0.
# A budget is (connections, extensions, rounds, refills). Number 0: the reply counts for nothing.


def connections(rules: Rules) -> Model:
    free = (0, 0)
    budgets = (rules.connections, rules.extensions, rules.rounds, rules.refills)
    initial = ((free,) * 3, ((),) * 3, ((),) * 3, (1, 0, None, 0, budgets, 0), 0)

    def execute(master: State, command: State) -> tuple[State, bool]:
        """One command on one master, atomically. Tokens of A are positive; X's is -1."""
        owner, left = master
        verb, token, ttl, _ = command
        if verb == SET:
            return ((token, ttl), True) if owner == 0 else (master, False)
        if owner != token:
            return master, False
        if verb == DELETE:
            return free, True
        return (owner, max(left, ttl) if rules.never_shorten else ttl), True

    def tick(state: State) -> State:
        masters, old, current, (token, deadline, pending, number, budgets, uncounted), x = state
        masters = tuple((owner, left - 1) if left > 1 else free for owner, left in masters)
        if pending:
            number_, acquire, age, ttl, votes = pending
            pending = (number_, acquire, age + 1, ttl, votes) if age + 1 < ttl else None
        a = (token, max(0, deadline - 1), pending, number, budgets, uncounted)
        return masters, old, current, a, max(0, x - 1)

    def requests(state: State) -> Iterator[tuple[str, State]]:
        """What A may ask for now."""
        masters, old, current, a, x = state
        token, deadline, pending, number, (gaps, extensions, rounds, refills), uncounted = a

        def send(*commands: State, mask: int = 0b111) -> State:
            return tuple(queue + commands if mask >> m & 1 else queue for m, queue in enumerate(current))

        counted = 0b111 & ~uncounted
        if pending is None and not deadline and rounds:
            following = token + 1 if number and rules.fresh_tokens else token
            undo = ((DELETE, token, 0, 0),) if number else ()
            queues = send(*undo, (SET, following, rules.ttl, number + 1))
            asked = (number + 1, 1, 0, rules.ttl, 0)
            a = (following, 0, asked, number + 1, (gaps, extensions, rounds - 1, refills), uncounted)
            yield f"A acquires with token {following}", (masters, old, queues, a, x)
        if pending is None and deadline and extensions:
            for ttl in (rules.ttl, rules.short):
                if ttl > deadline:  # else the lease lasts longer already, and no master is asked
                    queues = send((EXTEND, token, ttl, number + 1), mask=counted)
                    asked = (number + 1, 0, 0, ttl, 0)
                    a = (
                        token,
                        deadline,
                        asked,
                        number + 1,
                        (gaps, extensions - 1, rounds, refills),
                        uncounted,
                    )
                    yield f"A extends to {ttl}, {deadline} left", (masters, old, queues, a, x)
        if pending is None and deadline and refills:
            for m in MASTERS:
                if counted >> m & 1:
                    queues = send((SET, token, deadline, 0), mask=1 << m)
                    a = (token, deadline, None, number, (gaps, extensions, rounds, refills - 1), uncounted)
                    yield f"A refills master {m}", (masters, old, queues, a, x)
        if pending:
            a = (token, deadline, None, number, (gaps, extensions, rounds, refills), uncounted)
            yield "A gives its request up", (masters, old, current, a, x)

    def give_up_connection(state: State) -> Iterator[tuple[str, State]]:
        masters, old, current, a, x = state
        token, deadline, pending, number, (gaps, extensions, rounds, refills), uncounted = a
        held = deadline or (pending and pending[1])
        for m in MASTERS:
            if not gaps or old[m] or not current[m]:
                continue
            tail, mask = current[m], uncounted
            for verb, owner, _, _ in current[m]:
                own = bool(held) and owner == token
                if verb == SET and not (own and rules.undo == "never"):
                    tail += ((DELETE, owner, 0, 0),)
                    mask |= 1 << m if own and rules.undo == "uncounted" else 0
            a = (token, deadline, pending, number, (gaps - 1, extensions, rounds, refills), mask)
            written = len(tail) - len(current[m])
            label = f"A gives up its connection to master {m} and writes {written} releases behind"
            yield label, (masters, put(old, m, tail), put(current, m, ()), a, x)

    def deliveries(state: State) -> Iterator[tuple[str, State]]:
        masters, old, current, a, x = state
        token, deadline, pending, number, budgets, uncounted = a
        for m in MASTERS:
            for late, queues in ((True, old), (False, current)):
                if not queues[m]:
                    continue
                command = queues[m][0]
                master, yes = execute(masters[m], command)
                asked, end = pending, deadline
                if yes and not late and pending and command[3] == pending[0]:
                    _, acquire, age, ttl, votes = pending
                    votes |= 1 << m
                    asked = (*pending[:4], votes)
                    if votes.bit_count() >= QUORUM:
                        asked = None
                        if acquire or deadline:
                            end = max(deadline, ttl - age)
                rest = put(queues, m, queues[m][1:])
                after = (rest, current) if late else (old, rest)
                label = f"master {m} executes {'late ' * late}{command[0]} {command[1]} {command[2]}: {yes}"
                yield (
                    label,
                    (put(masters, m, master), *after, (token, end, asked, number, budgets, uncounted), x),
                )

    def successors(state: State) -> Iterator[tuple[str, State]]:
        masters, old, current, a, x = state
        yield from requests(state)
        yield from give_up_connection(state)
        yield from deliveries(state)
        vacant = [m for m in MASTERS if masters[m] == free]
        if not x and len(vacant) >= QUORUM:
            taken = tuple((-1, rules.ttl) if m in vacant else masters[m] for m in MASTERS)
            yield f"X acquires masters {vacant}", (taken, old, current, a, rules.ttl)
        if a[1] or a[2] or x or any(left for _, left in masters):
            yield "one tick passes", tick(state)

    def violation(state: State) -> str | None:
        return "two holders" if state[3][1] and state[4] else None

    def canonical(state: State) -> State:
        """Masters are interchangeable: sort them, with their queues and their bits."""
        masters, old, current, (token, deadline, pending, number, budgets, uncounted), x = state
        votes = pending[4] if pending else 0
        columns = sorted(
            (masters[m], old[m], current[m], uncounted >> m & 1, votes >> m & 1) for m in MASTERS
        )
        masters, old, current, bits, voted = zip(*columns, strict=True)
        if pending:
            pending = (*pending[:4], sum(bit << m for m, bit in enumerate(voted)))
        uncounted = sum(bit << m for m, bit in enumerate(bits))
        return masters, old, current, (token, deadline, pending, number, budgets, uncounted), x

    return Model(initial, successors, violation, canonical=canonical)


def case(title: str, rules: Rules, violated: bool, quick: bool = True) -> Case:
    return Case(title, lambda: connections(rules), "two holders" if violated else "", quick)


CASES = [
    case("releases behind all owed SETs", Rules(undo="owed"), True),
    case("the same, that master is not counted again", Rules(undo="uncounted"), True),
    case(
        "an extension sets its ttl",
        Rules(never_shorten=False, refills=0, ttl=4, short=2, extensions=2),
        True,
        quick=False,
    ),
    case(
        "the second round keeps the token",
        Rules(fresh_tokens=False, rounds=2, extensions=0, refills=0, ttl=2),
        True,
    ),
    case("ours, one refill, ttl 2", Rules(ttl=2), False),
    case("ours, one refill", Rules(), False, quick=False),
    case("ours, two connections given up", Rules(connections=2, extensions=2), False, quick=False),
    case("ours, two extensions", Rules(refills=0, extensions=2, ttl=2), False, quick=False),
    case("ours, two rounds", Rules(refills=0, rounds=2, ttl=2), False, quick=False),
]
