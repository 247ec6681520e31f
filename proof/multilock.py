"""Several resources at once, all or none, over N masters.

Violations: a resource has two holders; or every client keeps something and waits for what another keeps.
"""

from __future__ import annotations

from collections.abc import Iterator

from .checker import Case, Model, State, majority, put

ACQUIRE, HELD, DROP, RELEASE = range(4)
FREE = -1

# State: (masters, clients, replies to lose). Master: owner of each resource.
# Client: (phase, votes per master, index of the resource that a sequential client asks for).
# Vote: "?" not asked, "y" granted, "n" refused, "x" no reply, "." undone.


def multilock(wanted: tuple[tuple[int, ...], ...], *, sequential: bool = False, lost: int = 0) -> Model:
    """``wanted``: resources of each client. ``sequential``: one lock after the other, in that order,
    keeping those that it has; else one script per master takes all or none.
    """
    everyone, quorum = range(3), majority(3)
    resources = 1 + max(map(max, wanted))
    unasked = ("?",) * 3
    initial = (((FREE,) * resources,) * 3, ((ACQUIRE, unasked, 0),) * len(wanted), lost)

    def replaced(master: State, client: int, resource: int | None = None) -> State:
        """A master after the client gave ``resource`` back, or everything."""
        return tuple(
            FREE if owner == client and resource in (None, r) else owner for r, owner in enumerate(master)
        )

    def successors(state: State) -> Iterator[tuple[str, State]]:
        for client in range(len(wanted)):
            yield from act(state, client)

    def act(state: State, c: int) -> Iterator[tuple[str, State]]:
        masters, clients, lost = state
        phase, votes, index = clients[c]

        def become(
            phase: int, votes: State, index: int = index, masters: State = masters, lost: int = lost
        ) -> State:
            return masters, put(clients, c, (phase, votes, index)), lost

        asked = (wanted[c][index],) if sequential else wanted[c]
        if phase in (ACQUIRE, HELD):
            for m in everyone:
                if votes[m] != "?":
                    continue
                free = all(masters[m][r] == FREE for r in asked)
                taken = tuple(c if free and r in asked else owner for r, owner in enumerate(masters[m]))
                after = put(masters, m, taken)
                word = "y" if free else "n"
                yield (
                    f"client {c} asks master {m} for {asked}: {free}",
                    become(phase, put(votes, m, word), masters=after),
                )
                if lost and phase == ACQUIRE:
                    yield (
                        f"client {c} asks master {m} for {asked}: the reply is lost",
                        become(phase, put(votes, m, "x"), masters=after, lost=lost - 1),
                    )
        if phase == ACQUIRE:
            if votes.count("y") >= quorum:
                if sequential and index + 1 < len(wanted[c]):
                    yield f"client {c} has {asked}, asks for the next", become(ACQUIRE, unasked, index + 1)
                else:
                    yield f"client {c} holds {wanted[c]}", become(HELD, votes)
            elif votes.count("y") + votes.count("?") < quorum:
                yield f"client {c} is refused {asked}", become(DROP if sequential else RELEASE, votes)
        if phase == HELD:
            yield f"client {c} releases", become(RELEASE, votes)
        if phase in (DROP, RELEASE):
            for m in everyone:
                if votes[m] != ".":
                    after = replaced(masters[m], c, wanted[c][index] if phase == DROP else None)
                    yield (
                        f"master {m} releases for client {c}",
                        become(phase, put(votes, m, "."), masters=put(masters, m, after)),
                    )
            if set(votes) == {"."}:
                yield f"client {c} tries again", become(ACQUIRE, unasked, index if phase == DROP else 0)

    def violation(state: State) -> str | None:
        masters, clients, _ = state
        holders = [c for c in range(len(wanted)) if clients[c][0] == HELD]
        for c in holders:
            for other in holders:
                if c < other and set(wanted[c]) & set(wanted[other]):
                    return "two holders of one resource"
        if not sequential or any(client[:2] != (ACQUIRE, unasked) or not client[2] for client in clients):
            return None
        kept = [
            sum(masters[m][wanted[c][clients[c][2]]] not in (FREE, c) for m in everyone) >= quorum
            for c in range(len(wanted))
        ]
        return "deadlock: each client keeps what another waits for" if all(kept) else None

    return Model(initial, successors, violation)


CASES = [
    Case("ours: {0,1} {1,2}, a lost reply", lambda: multilock(((0, 1), (1, 2)), lost=1)),
    Case("ours: {0,1} {1,0}, a lost reply", lambda: multilock(((0, 1), (1, 0)), lost=1)),
    Case("ours: {0,1} {1,2} {2,0}", lambda: multilock(((0, 1), (1, 2), (2, 0))), quick=False),
    Case("one after the other", lambda: multilock(((0, 1), (1, 0)), sequential=True), "deadlock"),
]
