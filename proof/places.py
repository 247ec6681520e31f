"""One waiter is woken: can a waiter sleep although the lock is free and it is its turn?

Each master has the lock's owner, a queue of places by ticket, and for each place that is not the first a
*wait key*. A waiter that is not the first on a quorum watches its own wait keys only, and only the first one
watches the lock. Whatever makes a place the first deletes its wait key, which the server pushes to the
waiter: this passes the turn on. Reading and arming are one command. A waiter joins with one above the largest
ticket of each master; if masters report different tickets, it writes the largest to all of them. Its place
stays until it releases the lock, and both end in one step. A strict (fair) lock is granted on a master only
to the first place, any other lock to whoever asks.

Violations: two holders; no step is left, and a waiter sleeps (only the refresh of its place would end that);
of strict locks, a client gets the lock that joined after the ticket of a living waiter was on a quorum. The
dead, and holders whose release was lost, are found by a refresh: it is allowed only while such a client has a
place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .checker import Case, Model, State, majority, put

MASTERS = range(3)
QUORUM = majority(3)
FREE = -1
START, JOIN, OWN, LOCK, TRY, BACK, HELD, DONE, DEAD = range(9)
UNASKED = "???"
#: The state with another client.
Become = Callable[..., State]
#: Per master, of a request: not executed; executed later, after the client went on; lost; granted; refused
#: as the first of the queue, or behind others. Of a watch: busy and armed, or known to be free.
LATE, LOST, YES, FIRST, BEHIND, BUSY, KNOWN_FREE = "~xy0nbf"


@dataclass(frozen=True)
class Rules:
    """The variant, and the bounds of the search.

    Attributes:
        roles: One letter a client: "h" holds the lock at the start, without a place, as any Redlock client
            may; "w" waits with a place; "b" asks once without a place, at any time.
        strict: The lock is fair.
        reads: Arming also reads. Else only what the join replied is known.
        counts_read: A wait key that is missing when it is armed counts. Else only pushes do.
        keeps: The place of a holder stays. Else each master removes it at its grant.
        passes: A release deletes the wait key of the new first place.
        lost, pushes, deaths: How many requests and pushes are lost, and how many clients die.
        late: A quorum decides a round; else all replies do.
    """

    roles: str = "hww"
    strict: bool = False
    reads: bool = True
    counts_read: bool = True
    keeps: bool = True
    passes: bool = True
    lost: int = 0
    pushes: int = 0
    deaths: int = 0
    late: bool = False


# State: (masters, clients, requests to lose, pushes to lose, deaths to come).
# Master: (owner, queue of (ticket, client), mask of wait keys, mask of armed wait keys, mask of armed locks).
# Client: (phase, a letter for each master, ticket, tickets that the masters reported, clients that were on a
# quorum with their ticket before it began).


def places(rules: Rules) -> Model:
    everyone = range(len(rules.roles))
    holder = rules.roles.find("h")
    fresh = (START, UNASKED, 0, (0, 0, 0), 0)
    clients = tuple((HELD, *fresh[1:]) if c == holder else fresh for c in everyone)
    initial = (((holder, (), 0, 0, 0),) * 3, clients, rules.lost, rules.pushes, rules.deaths)

    def executed(state: State, m: int, change: tuple[State, int, bool]) -> Iterator[State]:
        """``change``: the master afterwards, the mask of changed wait keys, whether its lock changed."""
        masters, clients, lost, pushes, deaths = state
        (owner, queue, flags, own, locks), changed, lock_changed = change
        told = [c for c in everyone if (own & changed) >> c & 1 and clients[c][0] == OWN]
        told += [c for c in everyone if lock_changed and locks >> c & 1 and clients[c][0] == LOCK]
        master = (owner, queue, flags, own & ~changed, 0 if lock_changed else locks)
        after = clients
        for c in told:
            after = put(after, c, (after[c][0], mark(after[c][1], m, KNOWN_FREE), *after[c][2:]))
        yield put(masters, m, master), after, lost, pushes, deaths
        if pushes and told:
            yield put(masters, m, master), clients, lost, pushes - 1, deaths

    def purged(queue: State, clients: State) -> State:
        return tuple(place for place in queue if clients[place[1]][0] not in (DEAD, DONE))

    def joined(master: State, c: int, ticket: int, clients: State) -> tuple[State, int, str]:
        """The master with the place, what it reports, and whether that is the first."""
        owner, queue, flags, own, locks = master
        queue = purged(queue, clients)
        ticket = ticket or 1 + max((number for number, _ in queue), default=0)
        queue = tuple(sorted([(ticket, c), *(place for place in queue if place[1] != c)]))
        first = queue[0][1]
        flags = (flags & ~(1 << first)) if first == c else (flags & ~(1 << first)) | 1 << c
        return (owner, queue, flags, own, locks), ticket, FIRST if first == c else BEHIND

    def asked(state: State, c: int, m: int) -> tuple[tuple[State, int, bool], int, str]:
        """One request of JOIN or TRY on a master."""
        master, (phase, _, ticket, *_) = state[0][m], state[1][c]
        owner, queue, flags, own, locks = master
        if phase == TRY and rules.roles[c] != "w":
            yes = owner == FREE
            return ((c if yes else owner, queue, flags, own, locks), 0, yes), 0, YES if yes else BEHIND
        if phase == TRY and not rules.strict:
            yes = owner == FREE
            return ((c if yes else owner, queue, flags, own, locks), 0, yes), ticket, YES if yes else FIRST
        living = purged(queue, state[1])
        if phase == TRY and owner == FREE and (not living or living[0][1] == c):
            living = living if rules.keeps else tuple(place for place in living if place[1] != c)
            return ((c, living, flags, own, locks), master[2] & ~flags, True), ticket, YES
        (_, queue, flags, *_), ticket, word = joined(master, c, ticket, state[1])
        return ((owner, queue, flags, own, locks), master[2] & ~flags & ~(1 << c), False), ticket, word

    def released(master: State, c: int) -> tuple[State, int, bool]:
        return ((FREE, *master[1:]), 0, True) if master[0] == c else (master, 0, False)

    def left(master: State, c: int) -> tuple[State, int, bool]:
        """The release of a holder: its key and its place go."""
        (owner, queue, flags, own, locks), _, was_owner = released(master, c)
        queue = tuple(place for place in queue if place[1] != c)
        after = flags & ~(1 << queue[0][1]) if queue and rules.passes else flags
        return (owner, queue, after & ~(1 << c), own, locks), flags & ~after & ~(1 << c), was_owner

    def successors(state: State) -> Iterator[tuple[str, State]]:
        for c in everyone:
            for label, following in act(state, c):
                yield f"client {c} {label}", following

    def act(state: State, c: int) -> Iterator[tuple[str, State]]:
        masters, clients, lost, pushes, deaths = state
        phase, words, ticket, told, before = clients[c]

        def become(state: State, phase: int, words: str = UNASKED, **more: State) -> State:
            new = (
                phase,
                words,
                more.get("ticket", ticket),
                more.get("told", told),
                more.get("before", before),
            )
            return (state[0], put(state[1], c, new), *state[2:])

        if phase == START:
            ahead = sum(
                1 << other for other in everyone if other != c and queued(masters, clients[other], other)
            )
            first = TRY if rules.strict or rules.roles[c] == "b" else JOIN
            yield "starts", become(state, first, before=ahead)
        for m in MASTERS:
            if phase in (JOIN, TRY) and words[m] == "?":
                change, number, word = asked(state, c, m)
                for after in executed(state, m, change):
                    yield (
                        f"asks {m}: {word}",
                        become(after, phase, mark(words, m, word), told=put(told, m, number)),
                    )
                if lost:
                    after = (masters, clients, lost - 1, pushes, deaths)
                    yield f"asks {m}: lost", become(after, phase, mark(words, m, LOST))
            if phase in (OWN, LOCK, HELD) and words[m] == LATE:
                earlier = become(
                    state, TRY if phase == HELD else JOIN
                )  # a grant of TRY would be given back at once
                for after in executed(earlier, m, asked(earlier, c, m)[0]):
                    yield f"is heard late by {m}", become(after, phase, mark(words, m, "?"))
            if phase in (OWN, LOCK) and words[m] == "?":
                yield f"arms {m}", arm(become, state, c, m)
            if phase == BACK and words[m] == YES:
                for after in executed(state, m, released(masters[m], c)):
                    yield f"gives {m} back", become(after, phase, mark(words, m, BEHIND))
            if phase == HELD and words[m] == "?":
                for after in executed(state, m, left(masters[m], c)):
                    yield f"releases {m}", become(after, phase, mark(words, m, "r"))
                if lost:
                    after = (masters, clients, lost - 1, pushes, deaths)
                    yield f"releases {m}: lost", become(after, phase, mark(words, m, "r"))
            if phase in (DEAD, DONE) and masters[m][0] == c:
                for after in executed(state, m, released(masters[m], c)):
                    yield f"its lease ends on {m}", after
        yield from decide(become, state, c)
        if deaths and phase in (OWN, LOCK, TRY, BACK, HELD) and rules.roles[c] == "w":
            yield "dies", become((masters, clients, lost, pushes, deaths - 1), DEAD)
        if phase in (OWN, LOCK) and any(
            clients[other][0] in (DEAD, DONE) for master in masters for _, other in master[1] if other != c
        ):
            yield "refreshes its place", become(state, JOIN, told=(0, 0, 0))

    def arm(become: Become, state: State, c: int, m: int) -> State:
        masters, clients, *_ = state
        owner, queue, flags, own, locks = masters[m]
        phase, words, _, told, _ = clients[c]
        if phase == LOCK:
            word, master = (KNOWN_FREE if owner == FREE else BUSY), (owner, queue, flags, own, locks | 1 << c)
        else:
            free = not flags >> c & 1
            if not rules.reads:
                free = told[m] < 0
            word = KNOWN_FREE if free and rules.counts_read else BUSY
            master = (owner, queue, flags, own | 1 << c, locks)
        return become((put(masters, m, master), *state[1:]), phase, mark(words, m, word))

    def decide(become: Become, state: State, c: int) -> Iterator[tuple[str, State]]:
        """What a client concludes from what it knows."""
        phase, words, ticket, told, _ = state[1][c]
        answered = 3 - words.count("?") - words.count(LOST)
        complete = "?" not in words or (rules.late and answered >= QUORUM)
        later = words.replace("?", LATE)
        waits = rules.roles[c] == "w"
        if phase in (JOIN, TRY) and complete and answered >= QUORUM:
            if phase == TRY and words.count(YES) >= QUORUM:
                yield "holds", become(state, HELD, "".join(LATE if w == "?" else "?" for w in words))
                return
            if phase == TRY and YES in words:
                if "?" in words:
                    return
                number = ticket or (max(told) + (max(told) == 0))
                yield "gives its votes back", become(state, BACK, words, ticket=number if waits else 0)
                return
            if not waits:
                yield "gives up", become(state, DONE)
                return
            yield from settle(become, state, c, later)
        elif phase in (JOIN, TRY) and complete:
            yield "asks again", become(state, phase, told=(0, 0, 0))
        if phase == BACK and YES not in words:
            if not waits:
                yield "gives up", become(state, DONE)
            else:
                yield "joins again", become(state, JOIN, told=(0, 0, 0))
        if phase in (OWN, LOCK) and words.count(KNOWN_FREE) >= QUORUM and LATE not in words:
            yield "tries", become(state, TRY, told=(0, 0, 0))
        if phase == HELD and words == "rrr":
            yield "is done", become(state, DONE)

    def settle(become: Become, state: State, c: int, words: str) -> Iterator[tuple[str, State]]:
        """All masters that answered must have one ticket; then it waits for its turn, or for the lock."""
        phase, _, _, told, _ = state[1][c]
        if phase == TRY and not rules.strict:
            yield "joins again", become(state, JOIN, told=(0, 0, 0))
            return
        numbers = {told[m] for m in MASTERS if words[m] in (FIRST, BEHIND)}
        if len(numbers) > 1:
            yield (
                f"writes ticket {max(numbers)} to all",
                become(state, JOIN, ticket=max(numbers), told=(0, 0, 0)),
            )
            return
        first = words.count(FIRST) >= QUORUM
        shown = tuple(-1 if words[m] == FIRST else 0 for m in MASTERS)
        known = "".join(LATE if w == LATE else "?" for w in words)
        phase = LOCK if first else OWN
        yield (
            "waits for the lock" if first else "waits for its turn",
            become(
                state, phase, known, ticket=numbers.pop(), told=(0, 0, 0) if rules.reads or first else shown
            ),
        )

    def queued(masters: State, client: State, c: int) -> bool:
        """Whether a living waiter has its ticket on a quorum."""
        own = sum((client[2], c) in master[1] for master in masters)
        return bool(client[2]) and client[0] in (OWN, LOCK, TRY, BACK) and own >= QUORUM

    def violation(state: State) -> str | None:
        clients = state[1]
        holders = [c for c in everyone if clients[c][0] == HELD and "r" not in clients[c][1]]
        if len(holders) > 1:
            return "two holders"
        for c in holders if rules.strict else ():
            passed = [
                o for o in everyone if clients[c][4] >> o & 1 and clients[o][0] in (OWN, LOCK, TRY, BACK)
            ]
            if passed:
                return f"client {c} overtakes client {passed[0]}"
        return None

    def stuck(state: State) -> str | None:
        asleep = [c for c in everyone if state[1][c][0] not in (DONE, DEAD)]
        return f"asleep: client {asleep[0]}, although no lock is held" if asleep else None

    return Model(initial, successors, violation, stuck, canonical=canonical)


def canonical(state: State) -> State:
    """Masters are interchangeable: sort them, with the words and tickets of the clients."""
    masters, clients, *rest = state
    columns = sorted((masters[m], *((c[1][m], c[3][m]) for c in clients)) for m in MASTERS)
    masters, *owns = zip(*columns, strict=True)
    renumbered = tuple(
        (c[0], "".join(word for word, _ in own), c[2], tuple(number for _, number in own), c[4])
        for c, own in zip(clients, owns, strict=True)
    )
    return (masters, renumbered, *rest)


def mark(words: str, m: int, word: str) -> str:
    return words[:m] + word + words[m + 1 :]


def case(title: str, rules: Rules, violated: str = "", quick: bool = True) -> Case:
    return Case(title, lambda: places(rules), violated, quick)


CASES = [
    case("the rule: a foreign holder, two waiters", Rules(), quick=False),
    case("the rule: two waiters", Rules("ww"), quick=False),
    case("the rule: two waiters, a fair lock, two losses", Rules("ww", True, lost=1, pushes=1)),
    case("the rule: two waiters, a death", Rules("ww", deaths=1), quick=False),
    case("the rule: two waiters, a fair lock, a death", Rules("ww", True, deaths=1)),
    case("the rule: a foreign holder, late requests, two losses", Rules("hw", lost=1, pushes=1, late=True)),
    case("the rule: a waiter, a caller without a place", Rules("wb")),
    case("arms without reading", Rules(reads=False), "asleep", quick=False),
    case("counts pushes only", Rules(counts_read=False), "asleep", quick=False),
    case("a release passes no turn on", Rules(passes=False), "asleep", quick=False),
    case("the rule: a foreign holder, two waiters, a fair lock", Rules("hww", True), quick=False),
    case("the rule: two waiters, a fair lock, late", Rules("ww", True, lost=1, late=True), quick=False),
    case("a grant removes the place", Rules("hww", True, keeps=False, lost=1), "overtakes", quick=False),
]
