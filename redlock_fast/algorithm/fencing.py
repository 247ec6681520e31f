"""The fencing token of a grant: a number that a quorum of each list of masters vouches for.

A master vouches for a number only if this grant moved its counter to exactly that number. So two holders
never get the same number. A token exceeds every earlier one: the two quorums share a master, and its counter
had reached the earlier token before this grant moved it.

The first number is the q-th smallest of the counters of a list, for a quorum of q; of two lists, the larger
one. A quorum can be raised to it. (With an even number of masters, counting from the largest gives a lower
number, which no quorum may reach.) Usually all counters agree, and no further request is needed.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Set

from ..engine.contract import FAULT, NO_REPLY, Wait
from ..engine.messages import Quorums, Request, Votes
from .effects import Effect, Exchange
from .lock_kind import FencedKind
from .master_lists import MasterLists, mask_of
from .redlock import Attempt, distrusted

#: Why a master's counter decides no token.
AHEAD = "its fencing counter is ahead: other masters refuse to be raised to it"


def agreed_number(lists: MasterLists, votes: Votes) -> int | None:
    """The token that ``fence`` returns without a further request; None: it needs one, or there is none.

    A quorum of each list has moved its counters to this number, and no master that granted is behind it.
    """
    least, there = 0, 0
    for master, value in enumerate(votes.values):
        if value > 0 and (value < least or not least):
            least, there = value, 0
        if value == least:
            there |= 1 << master
    return least if least and lists.is_quorum(there) else None


def fence(
    attempt: Attempt, lock_kind: FencedKind, votes: Votes, timeout: float
) -> Generator[Effect, list[Votes], tuple[int, bool]]:
    """The fencing token of a grant with these ``votes``, and whether a quorum of each list vouches for it.

    Masters whose counters are lower are raised to it. A master does not follow a number that is too far ahead
    of its clock: it replies with its counter. So the next round ranks more counters, and a bad minority does
    not decide. If a number was tried in vain, the next larger counter is tried. ``timeout``: seconds for all
    rounds.
    """
    policy, lists = attempt.policy, attempt.lists
    end = policy.clock() + timeout
    counters = {master: value for master, value in enumerate(votes.values) if value > 0}
    silent = votes.sent & mask_of(master for master, value in enumerate(votes.values) if value == NO_REPLY)
    tried: set[int] = set()
    refused: set[int] = set()
    while number := _candidate(lists, counters, tried):
        tried.add(number)
        vouching = _masters_at(counters, number)
        behind = mask_of(master for master, value in counters.items() if value < number)
        missing = lists.without(vouching)
        if not missing:
            if behind:  # makes the counters equal for the next grant
                yield Exchange([lock_kind.raise_fence_request(attempt.token, number, behind)], 0, 0.0)
            break
        behind |= silent & ~mask_of(counters) & ~distrusted(attempt)
        request = lock_kind.raise_fence_request(attempt.token, number, behind)
        replies = yield from _raise(attempt, lock_kind, request, missing, max(0.0, end - policy.clock()))
        for master, value in enumerate(replies.values):
            if value > 0:
                counters[master] = number
            elif FAULT < value < 0:
                counters[master] = -value
                if -value < number:
                    refused.add(number)
        if lists.is_quorum(_masters_at(counters, number)):
            break
    for master, value in counters.items():
        if value in refused and value > number:
            policy.report(master, AHEAD)
    return number, number > 0


def _raise(
    attempt: Attempt, lock_kind: FencedKind, request: Request, missing: int | Quorums, timeout: float
) -> Generator[Effect, list[Votes], Votes]:
    """The votes on ``request``. Until then ``close`` releases the grant, because no caller has it yet."""
    entries = attempt.policy.server_entries
    try:
        entries.end_round(attempt, lock_kind.release_requests(attempt.token, attempt.masters, attempt.ttl))
        votes = (yield Exchange([request], missing, timeout, Wait.CERTAIN))[0]
        entries.begin_round(attempt)  # raises ClientClosed if the grant was released
        return votes
    finally:
        entries.remove(attempt)


def _candidate(lists: MasterLists, counters: Mapping[int, int], tried: Set[int]) -> int:
    """The smallest counter that a quorum can be raised to, and that was not tried; 0: there is none."""
    least = lists.rank(counters) or 0
    return min((number for number in counters.values() if number >= least and number not in tried), default=0)


def _masters_at(counters: Mapping[int, int], number: int) -> int:
    """The mask of the masters whose counters this grant moved to ``number``."""
    return mask_of(master for master, value in counters.items() if value == number)
