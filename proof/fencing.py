"""Fencing tokens over N masters: is each token larger than those of all earlier holders?

A master sets the key, adds one to its counter and returns it. A client decides on any subset of at least a
quorum of grants; the token is made of their counters, and counts when a quorum vouches for it: by its reply,
or by accepting a write back. A master that has the key and refuses a write back replies with its counter.
Then the client may decide again, by all counters that it knows. Messages of abandoned acquisitions may still
arrive. Lost counters: see skew.py.

Violations: "exclusion" - two holders (timed); "order" - a token is not above those given before it;
"unique" - a token is given out twice; "raised" - a counter follows one that is far ahead.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from .checker import Case, Model, State, majority, put

IDLE, ASK, WRITE, HOLD = range(4)
#: In replies: nothing yet, refused, not to be written to. A grant is a counter above 0.
SILENT, REFUSED, LEFT_OUT = -2, 0, -1
SET_KEY, WRITE_BACK = range(2)


@dataclass(frozen=True)
class Rules:
    """The variant, and the bounds of the search.

    Attributes:
        token: Of the subset's counters: "largest", "smallest", or "rank" - the q-th smallest.
        write_back: "" - none; "all" - none where all masters granted, else to those that hold our key;
            "own" - to those that hold our key; "any" - to any master; "later" - at release.
        strict: A master vouches when this acquisition moved its counter to exactly the token; else when its
            counter is at least the token.
        timed: Keys vanish only when their acquisition is over; else at any moment.
        unique: Without timing, check also that no token is given out twice.
        late: Messages of abandoned acquisitions may still arrive.
        crash: What a master loses once: "", "counter" (the key when its owner is over), or "all".
        rises: So often a counter moves up by itself: it follows its clock.
        ahead: The counter at the start of masters that are far ahead, and how many they are.
        bounded: Other masters refuse to be raised so far.
    """

    token: str = "rank"
    write_back: str = "own"
    strict: bool = True
    timed: bool = True
    unique: bool = False
    late: bool = False
    crash: str = ""
    rises: int = 0
    ahead: tuple[int, int] = (0, 0)
    bounded: bool = True
    masters: int = 3
    clients: int = 2
    attempts: int = 2


# State: (masters, clients, late messages, largest token, tokens given out, faults to come), or a violation.
# Master: (name of the acquisition that holds the key or 0, counter).
# Client: (phase, attempt, replies, token, mask of masters that vouch, largest token when it started).
# Message: (master, SET_KEY or WRITE_BACK, name, token).


def fencing(rules: Rules) -> Model:
    everyone, quorum = range(rules.masters), majority(rules.masters)
    whole = (1 << rules.masters) - 1
    client = (IDLE, 0, (), 0, 0, 0)
    far, count = rules.ahead
    faults = rules.rises or int(bool(rules.crash))
    initial = (
        (*[(0, far)] * count, *[(0, 0)] * (rules.masters - count)),
        (client,) * rules.clients,
        (),
        0,
        (),
        faults,
    )

    def name(c: int, attempt: int) -> int:
        return c * 16 + attempt + 1

    def active(clients: State, acquisition: int) -> bool:
        c, attempt = divmod(acquisition - 1, 16)
        return clients[c][0] != IDLE and clients[c][1] == attempt

    def decided(replies: State, subset: tuple[int, ...]) -> tuple[int, int]:
        """The token of a decision on this subset of grants, and the masters that vouch for it already."""
        counters = sorted(replies[m] for m in subset)
        token = {"largest": counters[-1], "smallest": counters[0], "rank": counters[quorum - 1]}[rules.token]
        if rules.write_back in ("", "later") or (rules.write_back == "all" and len(subset) == len(replies)):
            return token, whole
        vouching = (m for m in subset if (replies[m] == token if rules.strict else replies[m] >= token))
        return token, sum(1 << m for m in vouching)

    def follows(counter: int, token: int) -> bool:
        """Whether a master takes a write back."""
        return counter < token and not (rules.bounded and 0 < far <= token)

    def complete(state: State, c: int, token: int, vouching: int) -> State:
        """The client has the lock, or the violation."""
        masters, clients, messages, largest, given, faults = state
        _, attempt, replies, _, _, floor = clients[c]
        if rules.timed and any(clients[o][0] == HOLD for o in range(rules.clients) if o != c):
            return "exclusion: two holders"
        if token <= (largest if rules.timed else floor):
            return f"order: token {token} after {largest if rules.timed else floor}"
        if rules.unique and token in given:
            return f"unique: token {token} is given out twice"
        given = tuple(sorted({*given, token})) if rules.unique else ()
        holder = (HOLD, attempt, replies, token, vouching, 0)
        return masters, put(clients, c, holder), messages, max(largest, token), given, faults

    def over(state: State, c: int) -> State:
        """The acquisition ends: what is still on its way may arrive late."""
        masters, clients, messages, *rest = state
        phase, attempt, replies, token, vouching, _ = clients[c]
        own, more = name(c, attempt), set(messages)
        for m, reply in enumerate(replies):
            if reply == SILENT:
                more.add((m, SET_KEY, own, 0))
            elif rules.write_back == "later":
                if phase == HOLD and reply > 0:
                    more.add((m, WRITE_BACK, own, token))
            elif (
                phase in (WRITE, HOLD)
                and not vouching >> m & 1
                and (reply != REFUSED or rules.write_back == "any")
            ):
                more.add((m, WRITE_BACK, own, token))
        if rules.late or rules.write_back == "later":
            messages = tuple(sorted(more))
        return masters, put(clients, c, (IDLE, attempt + 1, (), 0, 0, 0)), messages, *rest

    def act(state: State, c: int) -> Iterator[tuple[str, State]]:
        masters, clients, _, largest, *_ = state
        phase, attempt, replies, token, vouching, floor = clients[c]
        own = name(c, attempt)

        def become(client: State, masters: State = masters) -> State:
            return masters, put(clients, c, client), *state[2:]

        if phase == IDLE:
            if attempt < rules.attempts:
                yield "starts", become((ASK, attempt, (SILENT,) * rules.masters, 0, 0, largest))
            return
        for m in everyone:
            if replies[m] == SILENT:
                holder, counter = masters[m]
                reply = REFUSED if holder else counter + 1
                after = masters if holder else put(masters, m, (own, counter + 1))
                asked = (phase, attempt, put(replies, m, reply), token, vouching, floor)
                yield f"asks {m}: {reply}", become(asked, after)
        if phase == ASK:
            granted = [m for m in everyone if replies[m] > 0]
            for size in range(quorum, len(granted) + 1):
                for subset in itertools.combinations(granted, size):
                    number, mask = decided(replies, subset)
                    label = f"decides on masters {subset}: {number}"
                    if mask.bit_count() >= quorum:
                        yield label, complete(state, c, number, mask)
                    else:  # only masters that were heard are asked to take the write back
                        kept = tuple(
                            reply if m in subset or reply == SILENT else LEFT_OUT
                            for m, reply in enumerate(replies)
                        )
                        yield label + ", writes back", become((WRITE, attempt, kept, number, mask, floor))
        if phase == WRITE:
            for m in everyone:
                holder, counter = masters[m]
                if vouching >> m & 1 or (holder != own and rules.write_back != "any"):
                    continue
                taken = follows(counter, token) or not rules.strict
                number = max(counter, token) if taken else counter
                after = put(masters, m, (holder, number))
                mask = vouching | (number == token or not rules.strict) << m
                heard = become((WRITE, attempt, put(replies, m, number), token, mask, floor), after)
                if mask.bit_count() >= quorum:
                    heard = complete(heard, c, token, mask)
                yield f"writes {token} back to {m}: {number}", heard
            known = sorted(reply for reply in replies if reply > 0)
            for number in {*known[quorum - 1 :]} - {token} if rules.strict else ():
                mask = sum((reply == number) << m for m, reply in enumerate(replies))
                again = become((WRITE, attempt, replies, number, mask, floor))
                if rules.late:
                    late = {(m, WRITE_BACK, own, token) for m in everyone if not vouching >> m & 1}
                    again = *again[:2], tuple(sorted({*again[2], *late})), *again[3:]
                if mask.bit_count() >= quorum:
                    again = complete(again, c, number, mask)
                yield f"decides again: {number}", again
        yield "ends" if phase == HOLD else "gives up", over(state, c)

    def successors(state: State) -> Iterator[tuple[str, State]]:
        masters, clients, messages, largest, given, faults = state
        for c in range(rules.clients):
            for label, following in act(state, c):
                yield f"client {c} {label}", following
        for message in messages:
            m, verb, owner, token = message
            holder, counter = masters[m]
            rest = tuple(other for other in messages if other != message)
            after = None
            if verb == SET_KEY and not holder:
                after = (owner, counter + 1)
            elif (
                verb == WRITE_BACK
                and (rules.write_back == "any" or holder == owner)
                and follows(counter, token)
            ):
                after = (holder, token)
            if after:
                yield f"late message {message}", (put(masters, m, after), clients, rest, *state[3:])
        for m, (holder, counter) in enumerate(masters):
            gone = not holder or not active(clients, holder)
            if holder and (gone or not rules.timed):
                yield f"the key vanishes on {m}", (put(masters, m, (0, counter)), *state[1:])
            if faults and rules.rises:
                raised = put(masters, m, (holder, counter + 2))
                yield f"the counter of master {m} rises", (raised, *state[1:5], faults - 1)
            elif faults and (rules.crash == "all" or gone):
                after = (put(masters, m, (0, 0)), clients, messages, largest, given, faults - 1)
                yield f"master {m} loses its counter", after

    def violation(state: State) -> str | None:
        if isinstance(state, str):
            return state
        followed = sum(counter >= far > 0 for _, counter in state[0]) > count
        return "raised: a counter follows one that is far ahead" if followed else None

    def canonical(state: State) -> State:
        """Masters are interchangeable: sort them, with replies, masks and messages."""
        if isinstance(state, str):
            return state
        masters, clients, messages, *rest = state
        columns = [
            (
                masters[m],
                tuple((client[2][m], client[4] >> m & 1) if client[2] else (0, 0) for client in clients),
                tuple(message[1:] for message in messages if message[0] == m),
            )
            for m in everyone
        ]
        order = sorted(everyone, key=columns.__getitem__)
        if order == list(everyone):
            return state
        place = {m: number for number, m in enumerate(order)}

        def renumbered(client: State) -> State:
            phase, attempt, replies, token, vouching, floor = client
            if not replies:
                return client
            mask = sum((vouching >> m & 1) << place[m] for m in everyone)
            return phase, attempt, tuple(replies[m] for m in order), token, mask, floor

        moved = sorted((place[m], *message) for m, *message in messages)
        return tuple(masters[m] for m in order), tuple(map(renumbered, clients)), tuple(moved), *rest

    return Model(initial, successors, violation, canonical=canonical)


def case(title: str, rules: Rules, violated: str = "", quick: bool = True) -> Case:
    return Case(title, lambda: fencing(rules), violated, quick)


CASES = [
    case("the largest", Rules("largest", write_back="", strict=False), "order"),
    case("the smallest", Rules("smallest", write_back="", strict=False), "order"),
    case(
        "the largest, when all granted",
        Rules("largest", write_back="all", strict=False),
        "order",
        quick=False,
    ),
    case(
        "the largest, written back at release",
        Rules("largest", write_back="later", strict=False),
        "order",
        False,
    ),
    case(
        "the largest, written back to any master",
        Rules("largest", write_back="any", strict=False),
        "order",
        quick=False,
    ),
    case(
        "a larger counter vouches",
        Rules(strict=False, timed=False, unique=True, attempts=1, late=True),
        "unique",
    ),
    case("ours: 2 clients, late messages", Rules(attempts=1, late=True)),
    case("ours: 2 clients, 2 attempts", Rules(), quick=False),
    case("ours: 5 masters", Rules(masters=5, attempts=1)),
    case("ours: 4 masters, untimed", Rules(masters=4, attempts=1, timed=False, unique=True), quick=False),
    case("ours: untimed, late messages", Rules(attempts=1, timed=False, unique=True, late=True), quick=False),
    case("ours: counters follow their clocks", Rules(attempts=1, late=True, rises=2), quick=False),
    case("ours: one counter is far ahead", Rules(attempts=1, late=True, ahead=(20, 1))),
    case("ours: one is far ahead, untimed", Rules(attempts=1, timed=False, unique=True, ahead=(20, 1))),
    case("ours: two of five are far ahead", Rules(masters=5, attempts=1, ahead=(20, 2)), quick=False),
    case("a master follows any counter", Rules(attempts=1, ahead=(20, 1), bounded=False), "raised"),
    case("a counter is lost", Rules(crash="counter"), "order"),
    case("key and counter are lost", Rules(crash="all"), "exclusion"),
]
