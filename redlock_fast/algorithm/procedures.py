"""Extend a lease, and ask about keys: generators of effects, for operations that are one generator.

Source: "Distributed Locks with Redis", redis.io, "Making the algorithm more reliable: extending the lock".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Sequence

from ..engine.contract import Request, Votes, Wait
from .effects import Effect, Exchange
from .lease import ExtendOutcome, Lease
from .lock_kind import EXISTS, OWNER, wire_ttl
from .master_lists import MasterLists
from .policy import Policy
from .quorum import deadline
from .redlock import weakest
from .refill import Given, lacking, put, refill
from .tokens import TOKEN_SIZE, owner_of

#: The length of the hash in a reply to OWNER.
TOKEN_HASH = 40


def extend(
    policy: Policy, lease: Lease, ttl: float, given: list[Given], confirm: bool = False
) -> Generator[Effect, list[Votes], tuple[ExtendOutcome, Votes | None]]:
    """Extend ``lease`` on all masters that may have its token. On success it has the new deadline.

    An extension never shortens. A lease that lasts longer than ``ttl`` from now stays unchanged, and its
    masters are asked only with ``confirm``. Masters do not shorten a key either: an extension that arrives
    after a longer one changes nothing. ``given``: gets what else is sent; if an exception ends this, send
    what ``taken_back`` returns for it.
    """
    start = policy.clock()
    known = extended_already(policy, lease, ttl, start)
    if confirm and known is ExtendOutcome.EXTENDED:
        known = None
    if known is not None:
        return known, None

    def requests(masters: int) -> list[Request]:
        return lease.lock_kind.extend_requests(lease.token, wire_ttl(ttl), masters)

    lists = policy.voters.lists  # after the clock, as of an attempt
    outcome, votes = yield from extension(policy, lists, lease, ttl, start, requests, given)
    if policy.refill and outcome is ExtendOutcome.EXTENDED and lease.refillable:
        missing = lacking(lists, lease, votes)
        if missing:
            yield from refill([(lease, missing)], given)
    return outcome, votes


def extension(
    policy: Policy,
    lists: MasterLists,
    lease: Lease,
    ttl: float,
    start: float,
    requests: Callable[[int], list[Request]],
    given: list[Given],
) -> Generator[Effect, list[Votes], tuple[ExtendOutcome, Votes]]:
    """Ask the masters to make ``lease`` last ``ttl`` seconds from ``start``. Returns the outcome and votes.

    ``requests``: makes the requests to the masters of a mask, when all of them have been sent the token.
    ``given``: see ``extend``.
    """
    fresh = yield from put(policy, lists, [(lease, ttl)], start, given)
    asked = lease.sent & lists.extending()
    timeout = min(policy.node_timeout, lease.deadline - start)
    votes = weakest(lists, (yield Exchange(requests(asked), lists.need, timeout, policy.wait)))
    granted = lists.granted(votes) and policy.voters.trust(lists, fresh, asked)
    return extended(policy, lists, lease, ttl, start, granted, votes), votes


def extended_already(policy: Policy, lease: Lease, ttl: float, start: float) -> ExtendOutcome | None:
    """The outcome of an extension that needs no exchange; None: the masters must be asked.

    LOST: the lease has ended. EXTENDED: a confirmed deadline is late enough.
    """
    if start >= lease.deadline or lease.lost:
        return ExtendOutcome.LOST
    if deadline(start, ttl, policy.drift_factor) > lease.deadline:
        return None
    lease.validity = lease.deadline - start
    return ExtendOutcome.EXTENDED


def extended(
    policy: Policy,
    lists: MasterLists,
    lease: Lease,
    ttl: float,
    start: float,
    granted: bool,
    votes: Votes | None,
) -> ExtendOutcome:
    """The outcome of an extension that began at ``start``. Without ``votes`` no master failed.

    ``granted``: whether a quorum of each list granted it.
    """
    now = policy.clock()
    lease.ttl = max(lease.ttl, ttl)
    # Until the lists are settled, a quorum of former lists may have the token that the present ones refuse.
    refused = votes is not None and start >= lists.settled_at and lists.refused(votes)
    if now >= lease.deadline or refused:
        return ExtendOutcome.LOST
    if not granted:
        return ExtendOutcome.INCONCLUSIVE
    # A concurrent extension may have set a later deadline.
    lease.deadline = max(lease.deadline, deadline(start, ttl, policy.drift_factor))
    lease.validity = lease.deadline - now
    lease.extensions += 1
    if lease.lost:  # found by another thread after the deadline was read
        lease.mark_lost(now)
        return ExtendOutcome.LOST
    return ExtendOutcome.EXTENDED


def exists(policy: Policy, key: bytes) -> Generator[Effect, list[Votes], Votes]:
    """The votes of the voting masters on whether they have ``key``, with any token.

    Of two lists one may have it: refusals of the other decide nothing.
    """
    lists = policy.voters.lists
    wait = policy.wait if len(lists.lists) == 1 else Wait.ALL
    request = Request(EXISTS, (key,), policy.voters.asked())
    return (yield Exchange([request], lists.need, policy.node_timeout, wait))[0]


def owners(policy: Policy, keys: Sequence[bytes]) -> Generator[Effect, list[Votes], list[str]]:
    """For each key the owner that most masters report; "" if its token names none, or too few answer.

    One exchange, of at most ``node_timeout`` seconds.
    """
    requests = [Request(OWNER, (key,), policy.voters.asked()) for key in keys]
    answers = yield Exchange(requests, policy.voters.lists.need, policy.node_timeout)
    return [_reported_owner(votes) for votes in answers]


def _reported_owner(votes: Votes) -> str:
    texts = [text[TOKEN_HASH:] for text in reported_tokens(votes).values()]
    found = Counter(owner_of(bytes(TOKEN_SIZE) + text) for text in texts)
    return found.most_common(1)[0][0] if found else ""


def reported_tokens(votes: Votes) -> dict[int, bytes]:
    """What masters reported of the token in a key, by master: a hash, and the owner part of the token.

    b"": that master has no token there. Masters that failed are missing.
    """
    replies = {n: detail for n, detail in votes.details.items() if type(detail) is bytes}
    return {n: reply.partition(b"\r\n")[2][:-2] for n, reply in replies.items() if reply.startswith(b"$")}
