"""Read-write lock over N masters. Each script is atomic on its master; messages are lost at will.

A connection is in order: a release follows the acquire that it undoes. A late request of a decided round
still runs. The entries of a client disappear only after its validity has ended.

Violations: a valid writer beside another valid holder; a reader gets in that started after the intent of a
waiting writer was on a quorum.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .checker import Case, Model, State, majority, put

FREE = -1
IDLE, WAITING, ACQUIRE, HELD, BACK, RELEASE, DOWNGRADE, DEAD, CHECK, ACT = range(10)
UNASKED = "???"
MASTERS = range(3)
QUORUM = majority(3)


@dataclass(frozen=True)
class Rules:
    """The variant, and the bounds of the search.

    Attributes:
        clients: "R" or "W" of each.
        intent: "kept" until release; "granted" - removed by the grant of one master; "ignored" by readers.
        checks: A reader looks for a writer on a quorum first, and counts itself afterwards.
        downgrade: "" - not offered; "atomic" - one script; "steps" - release, then read.
        lost: How many messages are lost.
    """

    clients: str
    intent: str = "kept"
    checks: bool = False
    downgrade: str = ""
    lost: int = 0


# State: (masters, clients, messages to lose). Master: (writer, mask of readers, mask of intents).
# Client: (phase, votes, whether it started after a waiting writer's intent was on a quorum).


def rwlock(rules: Rules) -> Model:
    everyone = range(len(rules.clients))
    writes = [kind == "W" for kind in rules.clients]
    initial = (((FREE, 0, 0),) * 3, ((IDLE, UNASKED, 0),) * len(writes), rules.lost)

    def acquire(master: State, c: int) -> tuple[State, bool]:
        writer, readers, intents = master
        if not writes[c]:
            blocked = intents and rules.intent != "ignored"
            if readers >> c & 1 or (writer == FREE and not blocked):
                return (writer, readers | 1 << c, intents), True
            return master, False
        granted = writer == FREE and not readers & ~(1 << c)
        if rules.intent == "granted" and granted:
            return (c, readers, intents & ~(1 << c)), True
        return (c if granted else writer, readers, intents | 1 << c), granted

    def release(master: State, c: int, keep: bool) -> State:
        writer, readers, intents = master
        intents = intents if keep else intents & ~(1 << c)
        return (FREE if writer == c else writer, readers & ~(1 << c), intents)

    def downgrade(master: State, c: int, vote: str) -> tuple[State, str] | None:
        """One master's step, or None where there is nothing to do now."""
        writer, readers, intents = master
        if rules.downgrade == "atomic":
            return ((FREE, readers | 1 << c, intents) if writer == c else master), "y"
        if vote == "?":
            return (FREE if writer == c else writer, readers, intents), "-"
        return ((writer, readers | 1 << c, intents), "y") if writer == FREE else None

    def overtakes(masters: State, clients: State, c: int) -> int:
        """Whether a reader that starts now is behind the intent of a waiting writer."""
        return int(
            not writes[c]
            and any(
                writes[w]
                and clients[w][0] in (ACQUIRE, BACK, WAITING)
                and sum(intents >> w & 1 for _, _, intents in masters) >= QUORUM
                for w in everyone
            )
        )

    def successors(state: State) -> Iterator[tuple[str, State]]:
        for c in everyone:
            for label, following in act(state, c):
                yield f"{rules.clients[c]}{c} {label}", following

    def act(state: State, c: int) -> Iterator[tuple[str, State]]:
        masters, clients, lost = state
        phase, votes, late = clients[c]

        def become(
            phase: int, votes: str, masters: State = masters, late: int = late, lost: int = lost
        ) -> State:
            return masters, put(clients, c, (phase, votes, late)), lost

        def forget_late(following: State) -> State:
            """A writer got in or died: readers that were behind it may pass."""
            masters, clients, lost = following
            if not writes[c]:
                return following
            return masters, tuple((phase, votes, 0) for phase, votes, _ in clients), lost

        if phase in (IDLE, WAITING):
            behind = overtakes(masters, clients, c)
            first = CHECK if rules.checks and not writes[c] else ACQUIRE
            yield "starts", become(first, UNASKED, late=behind)
        elif phase in (CHECK, ACT):
            yield from check_then_act(state, c)
        elif phase == DOWNGRADE:
            for m in MASTERS:
                step = downgrade(masters[m], c, votes[m]) if votes[m] in "?-" else None
                if step:
                    yield (
                        f"downgrades on {m}",
                        become(phase, mark(votes, m, step[1]), put(masters, m, step[0])),
                    )
            yield "releases", become(RELEASE, "yyy", late=0)
        elif phase == DEAD:
            left = [m for m in MASTERS if release(masters[m], c, False) != masters[m]]
            for m in left:
                yield f"expires on {m}", become(DEAD, votes, put(masters, m, release(masters[m], c, False)))
            if not left:
                yield "is gone", become(IDLE, UNASKED, late=0)
        if phase in (ACQUIRE, HELD, BACK, RELEASE) and not (
            phase != ACQUIRE and rules.checks and not writes[c]
        ):
            for m in MASTERS:
                if votes[m] != "?":
                    continue
                master, yes = acquire(masters[m], c)
                after, word = put(masters, m, master), "y" if yes else "n"
                yield f"acquires on {m}: {yes}", become(phase, mark(votes, m, word), after)
                if lost and phase == ACQUIRE:
                    unknown = mark(votes, m, "x")
                    yield f"acquires on {m}: {yes}, reply lost", become(phase, unknown, after, lost=lost - 1)
                    yield f"acquires on {m}: request lost", become(phase, unknown, lost=lost - 1)
        if phase == ACQUIRE:
            if votes.count("y") >= QUORUM:
                yield "holds", forget_late(become(HELD, votes, late=0 if writes[c] else late))
            elif votes.count("y") + votes.count("?") < QUORUM:
                yield "fails, keeps its intent", become(BACK, votes)
            yield "dies", forget_late(become(DEAD, votes, late=0))
        if phase == HELD:
            yield "releases", become(RELEASE, votes, late=0)
            if rules.downgrade and writes[c]:
                yield "downgrades", become(DOWNGRADE, UNASKED)
        if phase in (HELD, DOWNGRADE):
            yield "ends its validity", become(DEAD, votes, late=0)
        if phase in (BACK, RELEASE):
            for m in MASTERS:
                if votes[m] in "ynx":
                    after = put(masters, m, release(masters[m], c, phase == BACK))
                    yield f"releases on {m}", become(phase, mark(votes, m, "."), after)
            if votes == "...":
                yield "is idle", become(WAITING if phase == BACK and writes[c] else IDLE, UNASKED)

    def check_then_act(state: State, c: int) -> Iterator[tuple[str, State]]:
        """A reader as some libraries have it: GET the writer's key, then count itself."""
        masters, clients, lost = state
        phase, votes, late = clients[c]

        def become(phase: int, votes: str, masters: State = masters, late: int = late) -> State:
            return masters, put(clients, c, (phase, votes, late)), lost

        for m in MASTERS:
            writer, readers, intents = masters[m]
            if votes[m] == "?" and phase == CHECK:
                yield f"looks at {m}", become(CHECK, mark(votes, m, "y" if writer == FREE else "n"))
            if votes[m] == "?" and phase == ACT:
                after = put(masters, m, (writer, readers | 1 << c, intents))
                yield f"counts itself on {m}", become(ACT, mark(votes, m, "y"), after)
        if votes.count("y") >= QUORUM:
            yield "goes on", become(*((ACT, UNASKED) if phase == CHECK else (HELD, votes)))
        elif votes.count("y") + votes.count("?") < QUORUM:
            yield "saw a writer", become(IDLE, UNASKED, late=0)

    def violation(state: State) -> str | None:
        phases = [client[0] for client in state[1]]
        inside = sum(phase in (HELD, DOWNGRADE) for phase in phases)
        if inside > 1 and any(phases[c] == HELD and writes[c] for c in everyone):
            return "a writer beside another holder"
        if any(phase == HELD and late for phase, _, late in state[1]):
            return "a later reader overtakes a waiting writer"
        return None

    return Model(initial, successors, violation, canonical=canonical)


def canonical(state: State) -> State:
    """Masters are interchangeable: sort them, with the votes of the clients."""
    masters, clients, lost = state
    columns = sorted((masters[m], *(votes[m] for _, votes, _ in clients)) for m in MASTERS)
    masters, *votes = zip(*columns, strict=True)
    renumbered = ((phase, "".join(own), late) for (phase, _, late), own in zip(clients, votes, strict=True))
    return masters, tuple(renumbered), lost


def mark(votes: str, m: int, word: str) -> str:
    return votes[:m] + word + votes[m + 1 :]


def case(title: str, rules: Rules, violated: str = "", quick: bool = True) -> Case:
    return Case(title, lambda: rwlock(rules), violated, quick)


CASES = [
    case("ours: writer and reader, a lost message", Rules("WR", lost=1), quick=False),
    case("ours: two writers, a lost message", Rules("WW", lost=1), quick=False),
    case("ours: writer and reader", Rules("WR")),
    case("ours: downgrade, another writer", Rules("WW", downgrade="atomic"), quick=False),
    case("ours: downgrade, a reader", Rules("WR", downgrade="atomic")),
    case("a grant removes the intent", Rules("WR", intent="granted", lost=1), "overtakes", quick=False),
    case("readers ignore intents", Rules("WR", intent="ignored"), "overtakes"),
    case("check, then act", Rules("WR", checks=True), "beside"),
    case("downgrade in two steps", Rules("WW", downgrade="steps"), "beside"),
]
