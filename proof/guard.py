"""Identity and restart guard: when may the vote of a master that may have forgotten locks count?

Client A holds the lock on a bare quorum and extends it. Client B acquires. One fault happens to a master.
Time is discrete; a lease and ``max_ttl`` last TTL ticks. A client knows of each master the identity
(run_id, master_replid) of its last connection, and until when it gives that master no vote.

What B knows when the fault happens is one of:
    "known" - it is connected to all masters;
    "new" - it has its first contact later, and has tried nothing before;
    "waiting" - it runs, but has never been connected: it tries in vain while the master is down.

With a marker there may be a third client, of another service, whose leases last SHORT ticks: it meets the
restarted master first and stamps it.

Faults:
    "empty" - the process restarts with an empty disk;
    "older" - it restarts with a disk from before the lock, marker included, although it is "durable";
    "good" - it restarts with all that it had;
    "flush" - FLUSHALL; connected clients are pushed an invalidation of everything;
    "demotion" - the same process becomes a replica, copies another data set, and is promoted again;
    "failover" - a replica without the lock takes over the name; the old master serves its clients till then.

Violation: A and B are inside their validity at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from .checker import Case, Model, State, put

MASTERS = range(3)
QUORUM = 2
TTL, SHORT = 2, 1
A, B = 1, 2
BOTH = (A, B)
FAULTS = ("empty", "older", "good", "flush", "demotion", "failover")
MODES = ("off", "auto", "durable", "strict", "marker")
KNOWLEDGE = ("known", "new", "waiting")
#: The faults that end the process of a master, so that it does not answer for a while.
RESTARTS = ("empty", "older", "good")
#: Marker of a data set that was primed for the process it came from.
NO_MARKER = (0, 0, 0)


@dataclass(frozen=True)
class Guard:
    """The rules of a client, and how its masters are configured.

    Attributes:
        mode: One of MODES.
        replid: An identity has the master_replid; else it is the run_id alone.
        witness: After a pushed invalidation of everything the master is looked at again.
        promotion: What was a replica once is silent for the whole TTL, whatever its uptime says.
        durable: Whether the master writes each command to disk before its reply: (before the fault, now).
        before: "durable" asks for both moments; else for the present one alone.
        believes_disk: "auto" believes a durable master, and so does the marker.
        tries: A master whose process is younger than the first attempt in vain was restarted.
        facts: The marker has the time since when the process is known, and each client adds its own longest
            lease. Else it has the end that its writer calculated.
    """

    mode: str
    replid: bool = True
    witness: bool = True
    promotion: bool = True
    durable: tuple[bool, bool] = (True, True)
    before: bool = True
    believes_disk: bool = False
    tries: bool = True
    facts: bool = True


# State: (masters, A, B, fault to come).
# Master: (run_id, replid, promoted, age, owner, ticks left, marker (run_id, replid, silent ticks)).
# Client: (deadline, round, links, budget). Round: None or (age, mask of votes, mask of asked).
# Link: (known run_id, known replid, silent ticks, ticks away or -1 when connected, pushed).
# run_id 0: never connected; ticks away: since the first attempt in vain, 0 if there was none.


def guard(rules: Guard, fault: str, knowledge: str, stranger: bool = False) -> Model:
    """``knowledge``: of B, one of KNOWLEDGE. ``stranger``: whether there is the client with short leases."""
    marker = (1, 1, 0) if rules.mode == "marker" else NO_MARKER
    masters = tuple(
        (1, 1, 0, TTL + 1, A if m < QUORUM else 0, TTL if m < QUORUM else 0, marker) for m in MASTERS
    )
    known, unknown = (1, 1, 0, -1, 0), (0, 0, 0, 0, 0)
    first = (TTL, None, (known,) * 3, 1)
    second = (0, None, ((known if knowledge == "known" else unknown),) * 3, 1)
    drops = int(fault == "failover")
    initial = (masters, first, second, 1, drops)

    def silence(link: State, master: State) -> list[int]:
        """For how many ticks a client gives a master no vote that it has just looked at."""
        run, replid, _, away, pushed = link
        now, now_replid, promoted, age, *_ = master
        if rules.mode == "off":
            return [0]
        first_contact = run == 0
        same = run == now and (replid == now_replid or not rules.replid)
        # The reported uptime may be a tick too much: that tick is taken off.
        ages = [max(0, age + more - 1) for more in (0, 1)]
        if first_contact and promoted and rules.promotion:
            return [TTL]
        if first_contact and rules.mode != "strict":
            tried = away if rules.tries and rules.mode != "marker" else 0
            return [0 if one >= tried else max(0, TTL - one) for one in ages]
        if pushed and rules.witness:
            return [TTL]
        if same:
            return [0]
        if rules.mode == "marker" and not rules.replid:
            return [0]  # as first built: the marker is all that this mode looks at
        believed = rules.mode == "durable" or (rules.mode in ("auto", "strict") and rules.believes_disk)
        was_durable = rules.durable[0] or not rules.before or first_contact
        if believed and not promoted and now != run and rules.durable[1] and was_durable:
            return [0]
        if promoted and rules.promotion:
            return [TTL]
        return [max(0, TTL - (one if first_contact else min(one, max(0, away)))) for one in ages]

    def look(master: State, link: State) -> Iterator[State]:
        """The client reads the identity of a master, on a new connection or on the present one."""
        for ticks in set(silence(link, master)):
            yield (master[0], master[1], max(ticks, link[2]), -1, 0)

    def acquire(master: State, link: State, client: int) -> tuple[State, bool]:
        """SET NX, in marker mode by the script that looks at the marker first."""
        run, replid, promoted, age, owner, left, (stamp, stamp_replid, silent) = master
        if rules.mode == "marker":
            stamped = (stamp, stamp_replid if rules.replid else 0)
            if stamped != (run, replid if rules.replid else 0):
                trusted = rules.believes_disk and stamp and all(rules.durable)
                silent = silent if trusted else TTL
            mark = (run, replid, silent)
            if silent:
                return (run, replid, promoted, age, owner, left, mark), False
        else:
            mark = (stamp, stamp_replid, silent)
        if owner:
            return (run, replid, promoted, age, owner, left, mark), False
        return (run, replid, promoted, age, client, TTL, mark), True

    def failing(master: State) -> Iterator[State]:
        """The master after the fault."""
        run, replid, promoted, age, owner, left, mark = master
        if fault == "empty":
            yield (run + 1, replid + 1, 0, 0, 0, 0, NO_MARKER)
        elif fault == "older":
            yield (run + 1, replid + 1, 0, 0, 0, 0, mark)
        elif fault == "good":
            yield (run + 1, replid + 1, 0, 0, owner, left, mark)
        elif fault == "flush":
            yield (run, replid, promoted, age, 0, 0, NO_MARKER)
        elif fault == "demotion":
            yield (run, replid + 1, 1, age, 0, 0, mark)
        else:
            yield (run + 1, replid + 1, 1, TTL + 1, 0, 0, mark)

    def after_fault(link: State) -> State:
        """What a client sees of the fault on its connection."""
        run, replid, silent, away, pushed = link
        if not run and knowledge == "waiting" and fault in RESTARTS:
            return (0, 0, 0, 1, 0)  # its attempt began before the process
        if away >= 0:
            return link
        if fault in ("flush", "demotion"):
            return (run, replid, silent, away, 1)
        return (run, replid, silent, 0, pushed)

    def world(state: State) -> Iterator[tuple[str, State]]:
        masters, a, b, faults, drops = state
        if faults:
            for m in MASTERS:
                for master in failing(masters[m]):
                    hit = [
                        (end, asked, put(links, m, after_fault(links[m])), budget)
                        for end, asked, links, budget in (a, b)
                    ]
                    yield f"master {m}: {fault}", (put(masters, m, master), *hit, 0, drops)
        if stranger:
            for m in MASTERS:
                master = masters[m]
                if master[6][:2] != master[:2]:
                    stamped = (*master[:6], (*master[:2], TTL if rules.facts else SHORT))
                    label = f"a client with short leases stamps master {m}"
                    yield label, (put(masters, m, stamped), a, b, faults, drops)
        if drops:
            for which, (end, asked, links, budget) in ((1, a), (2, b)):
                for m in MASTERS:
                    run, replid, silent, away, pushed = links[m]
                    if away < 0:
                        lost = put(links, m, (run, replid, silent, 0, pushed))
                        client = (end, asked, lost, budget)
                        yield (
                            f"client {which} loses its connection to master {m}",
                            put((masters, a, b, faults, drops - 1), which, client),
                        )
        yield "one tick passes", tick(state)

    def tick(state: State) -> State:
        masters, a, b, faults, drops = state
        masters = tuple(
            (
                *master[:3],
                min(master[3] + 1, TTL + 1),
                master[4] if master[5] > 1 else 0,
                max(0, master[5] - 1),
                (*master[6][:2], max(0, master[6][2] - 1)),
            )
            for master in masters
        )
        clients = []
        for end, asked, links, budget in (a, b):
            if asked:
                asked = (asked[0] + 1, *asked[1:]) if asked[0] + 1 < TTL else None
            links = tuple(
                (run, replid, max(0, silent - 1), longer(run, away), pushed)
                for run, replid, silent, away, pushed in links
            )
            clients.append((max(0, end - 1), asked, links, budget))
        return (masters, *clients, faults, drops)

    def longer(run: int, away: int) -> int:
        """The ticks away after one more. At the first contact they are compared with an age: none is cut."""
        counts = away >= 0 if run else away > 0
        return min(away + 1, TTL if run else TTL + 2) if counts else away

    def act(state: State, which: int) -> Iterator[tuple[str, State]]:
        """Steps of a client: connect, look again, ask for a round, send to a master, give up."""
        masters, (end, asked, links, budget) = state[0], state[which]

        def become(client: State, masters: State = masters) -> State:
            return put((masters, *state[1:]), which, client)

        for m in MASTERS:
            if links[m][3] >= 0 or (links[m][4] and rules.witness):
                for link in look(masters[m], links[m]):
                    label = f"client {which} looks at master {m}: no vote for {link[2]} ticks"
                    # What a master said before is not counted once it has no vote.
                    kept = asked and link[2] and (asked[0], asked[1] & ~(1 << m), asked[2])
                    yield label, become((end, kept or asked, put(links, m, link), budget))
        if asked is None and budget and (end or which == B):
            yield f"client {which} asks for the lock", become((end, (0, 0, 0), links, budget - 1))
        if asked is None:
            return
        age, votes, sent = asked
        for m in MASTERS:
            _, _, silent, away, pushed = links[m]
            if sent >> m & 1 or away >= 0 or (pushed and rules.witness):
                continue  # the push is in front of the reply: the client looks first
            if end:
                owner = masters[m][4]
                yes = owner == which
                master = (*masters[m][:5], TTL if yes else masters[m][5], masters[m][6])
            else:
                master, yes = acquire(masters[m], links[m], which)
            counted = votes | (1 << m if yes and not silent else 0)
            after, deadline = (age, counted, sent | 1 << m), end
            if counted.bit_count() >= QUORUM:
                after, deadline = None, max(end, TTL - age)
            label = f"client {which} {'extends' if end else 'acquires'} on master {m}: {yes}"
            label += " (not counted)" if yes and silent else ""
            yield label, become((deadline, after, links, budget), put(masters, m, master))

    def successors(state: State) -> Iterator[tuple[str, State]]:
        if not state[1][0]:
            return  # A's lease has ended: nothing can go wrong any more
        yield from act(state, A)
        yield from act(state, B)
        yield from world(state)

    def violation(state: State) -> str | None:
        return "two holders" if state[1][0] and state[2][0] else None

    def canonical(state: State) -> State:
        """Masters are interchangeable: sort them, with the clients' links and bits."""
        masters, a, b, faults, drops = state

        def bits(client: State, m: int) -> tuple[int, int]:
            asked = client[1]
            return (asked[1] >> m & 1, asked[2] >> m & 1) if asked else (0, 0)

        columns = sorted((masters[m], a[2][m], b[2][m], bits(a, m), bits(b, m)) for m in MASTERS)
        masters, a_links, b_links, a_bits, b_bits = zip(*columns, strict=True)

        def renumbered(client: State, links: State, pairs: State) -> State:
            end, asked, _, budget = client
            if asked:
                votes, sent = (sum(pair[i] << m for m, pair in enumerate(pairs)) for i in (0, 1))
                asked = (asked[0], votes, sent)
            return (end, asked, links, budget)

        return masters, renumbered(a, a_links, a_bits), renumbered(b, b_links, b_bits), faults, drops

    return Model(initial, successors, violation, canonical=canonical)


#: Outside the promise of a mode: (mode, fault) that a client sees happen, that happen before its first
#: contact, and that happen while it tries in vain. docs/guarantees.md says so.
SEEN = {("off", fault) for fault in FAULTS if fault != "good"} | {("durable", "older")}
FLUSHES = {(mode, "flush") for mode in ("auto", "durable", "strict")}
UNSEEN = SEEN | FLUSHES | {(mode, fault) for mode in ("auto", "durable") for fault in ("empty", "older")}
OUTSIDE = {"known": SEEN, "new": UNSEEN, "waiting": SEEN | FLUSHES}


def matrix() -> Iterator[Case]:
    for mode, fault, knowledge in product(MODES, FAULTS, KNOWLEDGE):
        violated = (mode, fault) in OUTSIDE[knowledge]
        # A disk is durable where the mode or the fault says so.
        durable = mode == "durable" and fault in ("good", "older")
        rules = Guard(mode, durable=(durable, durable))
        title = f"{mode}, {fault}, B {knowledge}"
        quick = violated or (mode == "auto" and fault not in ("failover", "good"))
        yield case(title, rules, fault, knowledge, violated, quick)


def case(
    title: str,
    rules: Guard,
    fault: str,
    knowledge: str,
    violated: bool,
    quick: bool = True,
    stranger: bool = False,
) -> Case:
    reason = "two holders" if violated else ""
    return Case(title, lambda: guard(rules, fault, knowledge, stranger), reason, quick)


CASES = [
    *matrix(),
    case("auto believes the disk", Guard("auto", believes_disk=True), "older", "known", True),
    case("the marker believes the disk", Guard("marker", believes_disk=True), "older", "new", True),
    case("durable now, was not before", Guard("durable", durable=(False, True)), "empty", "known", False),
    case(
        "durable now, was not before, not looked at",
        Guard("durable", durable=(False, True), before=False),
        "empty",
        "known",
        True,
    ),
    case(
        "identity without replid or push",
        Guard("auto", replid=False, witness=False),
        "demotion",
        "known",
        True,
    ),
    case(
        "marker without replid or push",
        Guard("marker", replid=False, witness=False),
        "demotion",
        "known",
        True,
    ),
    case("a flush is not looked at", Guard("auto", witness=False), "flush", "known", True),
    case(
        "a promoted replica's uptime is believed",
        Guard("auto", promotion=False),
        "failover",
        "known",
        violated=True,
        quick=False,
    ),
    case("an attempt in vain is forgotten", Guard("auto", tries=False), "empty", "waiting", True),
    case("a promoted master is trusted at first", Guard("auto", promotion=False), "failover", "new", True),
    case("marker, two longest leases", Guard("marker"), "empty", "new", False, False, stranger=True),
    case(
        "marker, two longest leases, B known", Guard("marker"), "empty", "known", False, False, stranger=True
    ),
    case(
        "marker, two longest leases, the first client's end is believed",
        Guard("marker", facts=False),
        "empty",
        "new",
        violated=True,
        stranger=True,
    ),
]
