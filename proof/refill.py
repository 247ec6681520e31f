"""Refill: masters restart empty while A holds its lock; may A put its key back?

Time is discrete; leases last ``ttl`` ticks. A holds and extends; B acquires. A guarded master casts no vote
for ``ttl`` ticks after its restart; a refill may be sent to it.

Violations: A and B are inside their validity at once; A's extension succeeds after B has had the lock.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .checker import Case, Model, State, majority, put

FREE, A, B = range(3)
IDLE, ACQUIRE, HELD, RELEASE = range(4)
#: Answers to an extension: not asked, mine, missing, another's, none.
UNASKED, MINE, MISSING, OTHER, NONE = "?ymnx"


@dataclass(frozen=True)
class Rules:
    """The variant, and the bounds of the search.

    Attributes:
        refill: "after" - SET NX after a confirmed round to masters that said "missing", not counted in it;
            "never"; "counted" - SET NX in the round itself, counted, also when A's validity is over;
            "valid" - the same, only started while A is valid; "put" - the same, decided while A is valid,
            and not counted on a guarded master.
        in_time: A round counts only when it is decided before the validity ends.
        guard: A restarted master casts no vote.
        held: How many masters A has at the start.
    """

    refill: str = "after"
    in_time: bool = True
    guard: bool = True
    masters: int = 3
    ttl: int = 2
    restarts: int = 0
    lost: int = 0
    held: int = 3


# State: (masters, A, mask of refills on their way, B, seen, restarts to come, messages to lose).
# Master: (owner, ticks left, guarded ticks). A: (validity, lost, round); round: None or (validity, answers).
# B: (phase, validity, votes). seen: 1 - B has had the lock; 2 - an extension of A succeeded after that.


def refill(rules: Rules) -> Model:
    everyone, quorum, ttl = range(rules.masters), majority(rules.masters), rules.ttl
    unasked = UNASKED * rules.masters
    masters = tuple((A, ttl, 0) if m < rules.held else (FREE, 0, 0) for m in everyone)
    initial = (masters, (ttl, 0, None), 0, (IDLE, 0, unasked), 0, rules.restarts, rules.lost)

    def tick(state: State) -> State:
        masters, (validity, gone, asked), flying, (phase, end, votes), *rest = state
        masters = tuple(
            (owner if left > 1 else FREE, max(0, left - 1), max(0, guarded - 1))
            for owner, left, guarded in masters
        )
        asked = (max(0, asked[0] - 1), asked[1]) if asked else None
        end = max(0, end - 1)
        if phase == HELD and not end:
            phase, votes = RELEASE, unasked
        return masters, (max(0, validity - 1), gone, asked), flying, (phase, end, votes), *rest

    def extend(master: State) -> tuple[State, str]:
        owner, _, guarded = master
        if owner == FREE and rules.refill == "put":
            return (A, ttl, guarded), NONE if guarded else MINE
        if owner == A or (owner == FREE and rules.refill in ("counted", "valid")):
            return (A, ttl, guarded), MINE
        return master, MISSING if owner == FREE else OTHER

    def holder(state: State) -> Iterator[tuple[str, State]]:
        masters, (validity, gone, asked), flying, b, seen, restarts, lost = state
        if gone:
            return
        late = rules.refill == "counted" or not rules.in_time

        def become(a: State, masters: State = masters, lost: int = lost) -> State:
            return masters, a, flying, b, seen, restarts, lost

        if asked is None:
            if validity or rules.refill == "counted":
                yield f"A extends, {validity} left", become((validity, 0, (ttl, unasked)))
            else:
                yield "A has lost the lock", become((0, 1, None))
            return
        end, answers = asked
        for m in everyone:
            if answers[m] != UNASKED:
                continue
            master, word = extend(masters[m])
            after = put(masters, m, master)
            yield f"A extends on {m}: {word}", become((validity, 0, (end, mark(answers, m, word))), after)
            if lost:
                unknown = (validity, 0, (end, mark(answers, m, NONE)))
                yield f"A extends on {m}: {word}, reply lost", become(unknown, after, lost - 1)
                yield f"A extends on {m}: request lost", become(unknown, lost=lost - 1)
        if UNASKED in answers:
            return
        if answers.count(MINE) >= quorum and end and (validity or late or rules.refill == "valid"):
            missing = sum(1 << m for m in everyone if answers[m] == MISSING) if rules.refill == "after" else 0
            label = f"A's extension succeeds, {end} left"
            yield label, (masters, (end, 0, None), flying | missing, b, 2 if seen else 0, restarts, lost)
        elif validity:
            yield "A is not confirmed, still valid", become((validity, 0, None))
        else:
            yield "A has lost the lock", become((0, 1, None))

    def other(state: State) -> Iterator[tuple[str, State]]:
        masters, a, flying, (phase, end, votes), seen, *rest = state

        def become(b: State, masters: State = masters, seen: int = seen) -> State:
            return masters, a, flying, b, seen, *rest

        if phase == IDLE:
            yield "B acquires", become((ACQUIRE, ttl, unasked))
        if phase == ACQUIRE:
            for m in everyone:
                owner, _, guarded = masters[m]
                if votes[m] == UNASKED:
                    yes = owner == FREE and not guarded
                    after = put(masters, m, (B, ttl, 0)) if yes else masters
                    word = MINE if yes else OTHER
                    yield f"B acquires on {m}: {yes}", become((ACQUIRE, end, mark(votes, m, word)), after)
            if votes.count(MINE) >= quorum and end:
                yield "B holds", become((HELD, end, votes), seen=1)
            elif UNASKED not in votes or not end:
                yield "B gives up", become((RELEASE, 0, unasked))
        if phase == HELD:
            yield "B releases", become((RELEASE, 0, unasked))
        if phase == RELEASE:
            for m in everyone:
                if votes[m] == UNASKED:
                    owner, _, guarded = masters[m]
                    after = put(masters, m, (FREE, 0, guarded)) if owner == B else masters
                    yield f"B releases on {m}", become((RELEASE, 0, mark(votes, m, NONE)), after)
            if UNASKED not in votes:
                yield "B is idle", become((IDLE, 0, unasked))

    def successors(state: State) -> Iterator[tuple[str, State]]:
        masters, a, flying, b, seen, restarts, lost = state
        yield from holder(state)
        yield from other(state)
        for m in everyone:
            owner, _, guarded = masters[m]
            if flying >> m & 1:
                after = put(masters, m, (A, ttl, guarded)) if owner == FREE else masters
                yield f"A's refill reaches {m}", (after, a, flying & ~(1 << m), b, seen, restarts, lost)
            if restarts:
                after = put(masters, m, (FREE, 0, ttl if rules.guard else 0))
                yield f"master {m} restarts empty", (after, a, flying, b, seen, restarts - 1, lost)
        if flying or not a[1]:
            yield "one tick passes", tick(state)

    def violation(state: State) -> str | None:
        _, (validity, gone, _), _, (phase, end, _), seen, *_ = state
        if validity and not gone and phase == HELD and end:
            return "two holders"
        return "extended although B had the lock" if seen == 2 else None

    def canonical(state: State) -> State:
        """Masters are interchangeable: sort them, with answers, refills and votes."""
        masters, (validity, gone, asked), flying, (phase, end, votes), *rest = state
        answers = asked[1] if asked else unasked
        columns = sorted((masters[m], answers[m], flying >> m & 1, votes[m]) for m in everyone)
        masters, answers, bits, votes = zip(*columns, strict=True)
        asked = (asked[0], "".join(answers)) if asked else None
        flying = sum(bit << m for m, bit in enumerate(bits))
        return masters, (validity, gone, asked), flying, (phase, end, "".join(votes)), *rest

    return Model(initial, successors, violation, canonical=canonical)


def mark(votes: str, m: int, word: str) -> str:
    return votes[:m] + word + votes[m + 1 :]


def case(title: str, rules: Rules, violated: str = "", quick: bool = True) -> Case:
    return Case(title, lambda: refill(rules), violated, quick)


CASES = [
    case("ours: no fault", Rules()),
    case("ours: a lost message, a bare quorum is held", Rules(lost=1, held=2), quick=False),
    case("ours: a restart, a bare quorum is held", Rules(restarts=1, held=2), quick=False),
    case("never refilled: a restart", Rules(refill="never", restarts=1, held=2), quick=False),
    case("refill counted in its round", Rules(refill="counted"), "extended although"),
    case("the same, started while valid", Rules(refill="valid"), "extended although"),
    case("ours: put in front of an extension", Rules(refill="put"), quick=False),
    case(
        "ours: the same, a restart, a bare quorum is held",
        Rules(refill="put", restarts=1, held=2),
        quick=False,
    ),
    case("decided after the validity ended", Rules(in_time=False, held=2), "extended although", quick=False),
    case(
        "no guard, no refill, a restart",
        Rules(refill="never", guard=False, restarts=1, held=2),
        "two holders",
    ),
    case("no guard, a restart", Rules(guard=False, restarts=1, held=2), "two holders"),
]
