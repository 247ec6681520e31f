"""First-come-first-served lock over N masters.

Each master has the lock's owner and a queue of waiters, ordered by (ticket, client). A ticket is one above
the largest ticket that a quorum has shown to a failed first try; it is then written to every master. A
master grants to the head of its queue only. A grant does not remove the queue entry.

Violations: two holders; a client gets the lock that started after the ticket of a living waiter was on a
quorum; a state from which no client can ever get the lock.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .checker import Case, Model, State, majority, put

MASTERS = range(3)
QUORUM = majority(3)
FREE = -1
START, FIRST, TRY, BACK, HELD, RELEASE, DONE, DEAD = range(8)
UNASKED = "???"


@dataclass(frozen=True)
class Rules:
    """The variant, and the bounds of the search.

    Attributes:
        clients: How many there are.
        holder: Client 0 has the lock at the start.
        tickets: "seen" - as above; "few" - after too few answers as well; "clock" - the client's own clock,
            which may be behind; "arrival" - the order of arrival at each master.
        removed: A grant removes the queue entry.
        lost, deaths: How many messages are lost, and how many clients die.
    """

    clients: int = 2
    holder: bool = False
    tickets: str = "seen"
    removed: bool = False
    lost: int = 0
    deaths: int = 0


# State: (masters, clients, messages to lose, deaths to come). Master: (owner, queue of clients).
# Client: (phase, votes, ticket, largest ticket seen, mask of masters with its entry, mask of clients that
# were on a quorum before it started).


def fair(rules: Rules, masters: State | None = None, clients: State | None = None, **goal: bool) -> Model:
    everyone = range(rules.clients)
    fresh = (START, UNASKED, 0, 0, 0, 0)
    owner = 0 if rules.holder else FREE
    masters = masters or ((owner, ()),) * 3
    clients = clients or tuple((HELD, *fresh[1:]) if c == owner else fresh for c in everyone)
    initial = (masters, clients, rules.lost, rules.deaths)

    def enqueue(master: State, c: int, clients: State) -> tuple[State, bool]:
        """A try with a ticket, on one master."""
        owner, queue = master
        if c not in queue:
            queue = (*queue, c)
        if rules.tickets == "arrival":
            head = queue[0]
        else:
            queue = tuple(sorted(queue))
            head = min(queue, key=lambda other: (clients[other][2], other))
        granted = owner == FREE and head == c
        if granted and rules.removed:
            queue = without(queue, c)
        return (c if granted else owner, queue), granted

    def without(queue: State, c: int) -> State:
        return tuple(other for other in queue if other != c)

    def successors(state: State) -> Iterator[tuple[str, State]]:
        for c in everyone:
            for label, following in act(state, c):
                yield f"client {c} {label}", following

    def act(state: State, c: int) -> Iterator[tuple[str, State]]:
        masters, clients, lost, deaths = state
        phase, votes, ticket, seen, entries, before = clients[c]

        def become(
            phase: int,
            votes: str,
            *,
            masters: State = masters,
            ticket: int = ticket,
            seen: int = seen,
            entries: int = entries,
            before: int = before,
            lost: int = lost,
            deaths: int = deaths,
        ) -> State:
            client = (phase, votes, ticket, seen, entries, before)
            return masters, put(clients, c, client), lost, deaths

        granted, asked = votes.count("y"), 3 - votes.count("?")
        hopeless = granted + 3 - asked < QUORUM
        if phase == START:
            waiting = sum(
                1 << other
                for other in everyone
                if other != c and clients[other][0] in (TRY, BACK) and clients[other][4].bit_count() >= QUORUM
            )
            yield "starts", become(FIRST, votes, before=waiting)
        if phase == FIRST:
            for m in MASTERS:
                if votes[m] != "?":
                    continue
                owner, queue = masters[m]
                largest = max((clients[other][2] for other in queue), default=0)
                yes = owner == FREE and not queue
                after = put(masters, m, (c, queue)) if yes else masters
                word = mark(votes, m, "y" if yes else "n")
                yield f"tries {m}: {yes}", become(phase, word, masters=after, seen=max(seen, largest))
                if lost:
                    yield f"tries {m}: lost", become(phase, mark(votes, m, "x"), lost=lost - 1)
            answers = granted + votes.count("n")
            if granted >= QUORUM:
                yield "holds", become(HELD, votes)
            elif hopeless and (answers >= QUORUM or rules.tickets == "few"):
                drawn = -c if rules.tickets == "clock" else seen + 1
                yield f"takes ticket {drawn}", become(BACK, votes, ticket=drawn)
            elif "?" not in votes and not granted:
                yield "starts again", become(START, UNASKED)
        if phase == TRY or (phase == HELD and ticket):
            for m in MASTERS:  # a late request still runs, before the release
                if votes[m] != "?":
                    continue
                master, yes = enqueue(masters[m], c, clients)
                after, word = put(masters, m, master), mark(votes, m, "y" if yes else "n")
                yield f"tries {m}: {yes}", become(phase, word, masters=after, entries=entries | 1 << m)
                if lost and phase == TRY:
                    yield f"tries {m}: lost", become(phase, mark(votes, m, "x"), lost=lost - 1)
        if phase == TRY:
            if granted >= QUORUM:
                yield "holds", become(HELD, votes)
            elif hopeless:
                yield "fails, keeps its place", become(BACK, votes)
        if phase in (BACK, RELEASE):
            for m in MASTERS:
                if votes[m] != ".":
                    owner, queue = masters[m]
                    master = (FREE if owner == c else owner, queue if phase == BACK else without(queue, c))
                    after = put(masters, m, master)
                    yield f"releases on {m}", become(phase, mark(votes, m, "."), masters=after)
            if votes == "...":
                yield "goes on", become(TRY, UNASKED) if phase == BACK else become(DONE, votes, entries=0)
        if phase == HELD:
            yield "releases", become(RELEASE, UNASKED)
        if deaths and phase in (FIRST, TRY, BACK, HELD):
            yield "dies", become(DEAD, votes, deaths=deaths - 1)
        if phase == DEAD:
            for m in MASTERS:
                owner, queue = masters[m]
                if owner == c or c in queue:
                    after = put(masters, m, (FREE if owner == c else owner, without(queue, c)))
                    yield f"its lease ends on {m}", become(phase, votes, masters=after)

    def violation(state: State) -> str | None:
        clients = state[1]
        holders = [c for c in everyone if clients[c][0] == HELD]
        if len(holders) > 1:
            return "two holders"
        for c in holders:
            passed = [o for o in everyone if clients[c][5] >> o & 1 and clients[o][0] in (TRY, BACK)]
            if passed:
                return f"client {c} overtakes client {passed[0]}"
        return None

    def reached(state: State) -> bool:
        phases = [client[0] for client in state[1]]
        return HELD in phases or all(phase in (DONE, DEAD) for phase in phases)

    return Model(initial, successors, violation, canonical=canonical, goal=reached if goal else None)


def canonical(state: State) -> State:
    """Masters are interchangeable: sort them, with the votes and entries of the clients."""
    masters, clients, lost, deaths = state
    columns = sorted(
        (masters[m], *((votes[m], entries >> m & 1) for _, votes, _, _, entries, _ in clients))
        for m in MASTERS
    )
    masters, *owns = zip(*columns, strict=True)
    renumbered = []
    for (phase, _, ticket, seen, _, before), own in zip(clients, owns, strict=True):
        votes = "".join(vote for vote, _ in own)
        entries = sum(bit << m for m, (_, bit) in enumerate(own))
        renumbered.append((phase, votes, ticket, seen, entries, before))
    return masters, tuple(renumbered), lost, deaths


def cyclic_arrival() -> Model:
    """Three waiters, queued in another order on each master; the lock is free."""
    masters = ((FREE, (0, 1, 2)), (FREE, (1, 2, 0)), (FREE, (2, 0, 1)))
    waiter = (TRY, UNASKED, 1, 0, 0b111, 0)
    return fair(Rules(3, tickets="arrival"), masters, (waiter,) * 3, goal=True)


def waiter_on_a_quorum(rules: Rules) -> Model:
    """Client 0 has the lock, the ticket of client 2 is on masters 0 and 1; client 1 has not started."""
    masters = ((0, (2,)), (0, (2,)), (0, ()))
    holder, other, waiter = (
        (HELD, UNASKED, 0, 0, 0, 0),
        (START, UNASKED, 0, 0, 0, 0),
        (TRY, "nn?", 1, 0, 3, 0),
    )
    return fair(rules, masters, (holder, other, waiter))


def mark(votes: str, m: int, word: str) -> str:
    return votes[:m] + word + votes[m + 1 :]


def case(title: str, rules: Rules, violated: str = "", quick: bool = True) -> Case:
    return Case(title, lambda: fair(rules), violated, quick)


CASES = [
    case("ours: holder and two waiters", Rules(3, holder=True), quick=False),
    case("ours: two waiters, a lost message, a death", Rules(lost=1, deaths=1), quick=False),
    case("ours: two waiters, a lost message", Rules(lost=1)),
    Case("ours: no trap, two waiters, a death", lambda: fair(Rules(deaths=1), goal=True), quick=False),
    Case("ours: no trap, two waiters", lambda: fair(Rules(), goal=True)),
    case("a grant removes the entry", Rules(3, holder=True, removed=True), "overtakes", quick=False),
    case("ticket by the client's clock", Rules(3, holder=True, tickets="clock"), "overtakes", quick=False),
    Case(
        "ticket after too few answers",
        lambda: waiter_on_a_quorum(Rules(3, tickets="few", lost=2)),
        "overtakes",
        quick=False,
    ),
    Case("ours: ticket after a quorum's answers", lambda: waiter_on_a_quorum(Rules(3, lost=1)), quick=False),
    Case("order of arrival", cyclic_arrival, "trap", quick=False),
]
