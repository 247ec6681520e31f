"""Reentrant lock: a hold count on the servers against one in the client.

Client A nests, client B tries all the time. No master crashes and no lease ends: only requests or replies
of a nested acquire are lost. A server counts with HINCRBY and deletes at 0.

Violation: B holds a quorum while A is inside; or A left and a quorum cannot be had any more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .checker import Case, Model, State, majority, put

MAX_DEPTH = 3
OTHER = -1
IDLE, ENTER, LEAVE, UNDO = range(4)


@dataclass(frozen=True)
class Rules:
    """``on_servers``: the count is kept there. ``undo_all``: a failed nested acquire is taken back on all
    masters; else on those that granted it. ``judge``: "B holds" or "stays", the violation to look for.
    """

    on_servers: bool = False
    masters: int = 3
    lost: int = 2
    undo_all: bool = True
    judge: str = ""


# State: (counts of A per master or OTHER, depth of A, operation, answers, messages to lose, has left).


def reentrant(rules: Rules) -> Model:
    everyone, quorum = range(rules.masters), majority(rules.masters)
    nothing = (None,) * rules.masters
    initial = ((1,) * rules.masters, 1, IDLE, nothing, rules.lost, 0)

    def successors(state: State) -> Iterator[tuple[str, State]]:
        counts, depth, operation, answers, lost, left = state
        if operation == IDLE and depth:
            if depth < MAX_DEPTH and rules.on_servers:
                yield "A asks for another level", (counts, depth, ENTER, nothing, lost, left)
            elif depth < MAX_DEPTH:
                yield (
                    "A enters another level, nothing is sent",
                    (counts, depth + 1, IDLE, nothing, lost, left),
                )
            if depth > 1 and not rules.on_servers:
                yield "A leaves a level, nothing is sent", (counts, depth - 1, IDLE, nothing, lost, left)
            else:
                yield "A leaves a level", (counts, depth - 1, LEAVE, nothing, lost, left)
        if operation != IDLE:
            yield from requests(state)
        if operation != IDLE and None not in answers:
            if operation != ENTER:
                yield f"A is at level {depth}", (counts, depth, IDLE, nothing, lost, int(depth == 0) or left)
            elif answers.count(1) >= quorum:
                yield f"A is at level {depth + 1}", (counts, depth + 1, IDLE, nothing, lost, left)
            else:
                todo = tuple(None if rules.undo_all or yes else 0 for yes in answers)
                yield "A could not enter and takes it back", (counts, depth, UNDO, todo, lost, left)
        if not left:
            for m in everyone:
                if counts[m] == 0:
                    yield f"B locks master {m}", (put(counts, m, OTHER), *state[1:])

    def requests(state: State) -> Iterator[tuple[str, State]]:
        counts, depth, operation, answers, lost, left = state
        for m in everyone:
            if answers[m] is not None:
                continue
            count = counts[m]
            if count == OTHER:
                after, yes = OTHER, int(operation != ENTER)
            elif operation == ENTER:
                after, yes = count + 1, 1
            else:
                after, yes = (max(0, count - 1) if rules.on_servers else 0), 1

            def answered(after: int, yes: int, lost: int, m: int = m) -> State:
                return (put(counts, m, after), depth, operation, put(answers, m, yes), lost, left)

            yield f"master {m}: count {count} -> {after}", answered(after, yes, lost)
            if lost and operation == ENTER:
                yield f"the request to master {m} is lost", answered(count, 0, lost - 1)
                if count != OTHER:
                    yield f"master {m}: the reply is lost, sent again", answered(count + 2, 1, lost - 1)

    def violation(state: State) -> str | None:
        counts, depth, _, _, _, left = state
        if rules.judge != "stays" and depth and counts.count(OTHER) >= quorum:
            return "B holds a quorum while A is inside"
        keys = sum(count > 0 for count in counts)
        if rules.judge != "B holds" and left and keys > rules.masters - quorum:
            return "A left, and its key stays"
        return None

    return Model(initial, successors, violation)


def case(title: str, rules: Rules) -> Case:
    return Case(title, lambda: reentrant(rules), rules.judge)


CASES = [
    case("count on the servers", Rules(on_servers=True, judge="B holds")),
    case("count on the servers, the lock stays", Rules(on_servers=True, judge="stays")),
    case("count on the servers, undo where granted", Rules(on_servers=True, undo_all=False, judge="B holds")),
    case("count on the servers, 5 masters", Rules(on_servers=True, masters=5, lost=3, judge="B holds")),
    case("ours: count in the client", Rules()),
    case("ours: count in the client, 5 masters", Rules(masters=5, lost=3)),
]
