"""Semaphores with k permits over N masters: counting masters, and slots that are locks.

Violations: more holders than permits; two holders of one slot.
"""

from __future__ import annotations

from collections.abc import Iterator

from .checker import Case, Model, State, majority, put

PICK, ACQUIRE, HELD, RELEASE = range(4)
FREE = -1

# Vote: "?" not asked, "y" granted, "n" refused, "." released.


def counting(masters: int, permits: int, quorum: int, clients: int) -> Model:
    """Each master admits ``permits`` owners. State: (owner masks, (phase, votes) per client)."""
    everyone, unasked = range(masters), "?" * masters
    initial = ((0,) * masters, ((ACQUIRE, unasked),) * clients)

    def successors(state: State) -> Iterator[tuple[str, State]]:
        owners, phases = state
        for c, (phase, votes) in enumerate(phases):

            def become(phase: int, votes: str, owners: State = owners, c: int = c) -> State:
                return owners, put(phases, c, (phase, votes))

            for m in everyone:
                if votes[m] != "?":
                    continue
                if phase == RELEASE:
                    after = put(owners, m, owners[m] & ~(1 << c))
                    yield f"client {c} releases on {m}", become(phase, mark(votes, m, "."), after)
                else:
                    yes = owners[m].bit_count() < permits
                    after = put(owners, m, owners[m] | 1 << c) if yes else owners
                    word = "y" if yes else "n"
                    yield f"client {c} asks {m}: {yes}", become(phase, mark(votes, m, word), after)
            if phase == ACQUIRE and votes.count("y") >= quorum:
                yield f"client {c} holds a permit", become(HELD, votes)
            if phase == HELD or (phase == ACQUIRE and "?" not in votes and votes.count("y") < quorum):
                yield f"client {c} gives up", become(RELEASE, unasked)
            if phase == RELEASE and "?" not in votes:
                yield f"client {c} tries again", become(ACQUIRE, unasked)

    def violation(state: State) -> str | None:
        holders = sum(phase == HELD for phase, _ in state[1])
        return "more holders than permits" if holders > permits else None

    return Model(initial, successors, violation, canonical=canonical)


def slots(permits: int, clients: int) -> Model:
    """``permits`` locks on three masters. State: (owner of each slot per master, (phase, slot, votes))."""
    everyone, quorum, unasked = range(3), majority(3), "???"
    initial = (((FREE,) * permits,) * 3, ((PICK, 0, unasked),) * clients)

    def successors(state: State) -> Iterator[tuple[str, State]]:
        masters, phases = state
        for c, (phase, slot, votes) in enumerate(phases):

            def become(
                phase: int, votes: str, masters: State = masters, slot: int = slot, c: int = c
            ) -> State:
                return masters, put(phases, c, (phase, slot, votes))

            if phase == PICK:
                for chosen in range(permits):
                    yield f"client {c} picks slot {chosen}", become(ACQUIRE, unasked, slot=chosen)
            for m in everyone:
                owner = masters[m][slot]
                if phase in (ACQUIRE, HELD) and votes[m] == "?":
                    yes = owner == FREE
                    after = put(masters, m, put(masters[m], slot, c)) if yes else masters
                    word = "y" if yes else "n"
                    yield (
                        f"client {c} asks {m} for slot {slot}: {yes}",
                        become(phase, mark(votes, m, word), after),
                    )
                if phase == RELEASE and votes[m] != ".":
                    after = put(masters, m, put(masters[m], slot, FREE)) if owner == c else masters
                    yield f"client {c} releases on {m}", become(phase, mark(votes, m, "."), after)
            if phase == ACQUIRE and votes.count("y") >= quorum:
                yield f"client {c} holds slot {slot}", become(HELD, votes)
            if phase == HELD or (phase == ACQUIRE and votes.count("n") > 3 - quorum):
                yield f"client {c} gives up", become(RELEASE, votes)
            if phase == RELEASE and votes == "...":
                yield f"client {c} tries again", become(PICK, unasked, slot=0)

    def violation(state: State) -> str | None:
        held = [slot for phase, slot, _ in state[1] if phase == HELD]
        if len(held) > permits:
            return "more holders than permits"
        return "two holders of one slot" if len(set(held)) < len(held) else None

    return Model(initial, successors, violation, canonical=canonical)


def canonical(state: State) -> State:
    """Masters are interchangeable: sort them, with the votes of the clients."""
    masters, clients = state
    columns = sorted((master, *(votes[m] for *_, votes in clients)) for m, master in enumerate(masters))
    masters, *votes = zip(*columns, strict=True)
    renumbered = ((*first, "".join(own)) for (*first, _), own in zip(clients, votes, strict=True))
    return masters, tuple(renumbered)


def mark(votes: str, m: int, word: str) -> str:
    return votes[:m] + word + votes[m + 1 :]


CASES = [
    Case("counting masters, a majority of 3, 2 permits", lambda: counting(3, 2, 2, 3), "more holders"),
    Case("counting masters, all of 3, 2 permits", lambda: counting(3, 2, 3, 3), quick=False),
    Case("counting masters, 3 of 4, 2 permits", lambda: counting(4, 2, 3, 3), quick=False),
    Case("ours: 2 slots, 2 clients", lambda: slots(2, 2)),
    Case("ours: 1 slot, 3 clients", lambda: slots(1, 3), quick=False),
    Case("ours: 2 slots, 3 clients", lambda: slots(2, 3), quick=False),
]
