"""Refill (key repair): put the key of a lease back on masters that lost it or never had it.

Without refill a long lease loses votes: each master that restarts empty, or was down at the acquire, is a
vote less. The rules: a refill follows only an extension that a quorum confirmed in time. It writes only a
missing key (SET NX). No caller waits for it. It counts only when a later extension finds the key. Other
clients are safe: their restart guards exclude a master that forgot locks, and a refill adds only the key of
the present holder.

Put is different: after a change of the masters, those that a lease never asked get its token in front of its
extension, by the request of an acquire. So they vote for the lease as for a new one.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from ..engine.contract import NO_REPLY, Batch, Request, Votes
from ..wire.commands import Verb
from .effects import Effect, Exchange
from .lease import Lease, columns
from .lock_kind import wire_ttl
from .master_lists import MasterLists
from .operation import Message
from .policy import Policy

REFILL = int(Verb.REFILL)
#: A lease whose token was given to the masters of a mask, and the ttl of the key there.
Given = tuple[Lease, float, int]

#: A majority decides an extension, and later replies are not counted. So after this number of extensions the
#: key also goes to the masters without a counted reply. Masters that have the key refuse it.
RECHECK_EVERY = 8


def lacking(lists: MasterLists, lease: Lease, votes: Votes) -> int:
    """The mask of masters to refill, after a confirmed extension with ``votes``."""
    mask = lists.all & ~lease.sent
    recheck = lease.extensions % RECHECK_EVERY == 0
    if votes.refused or recheck:
        for master, value in enumerate(votes.values):
            if value == 0 or (recheck and value == NO_REPLY and votes.sent >> master & 1):
                mask |= 1 << master
    return mask & lists.all


def lacking_of_many(lists: MasterLists, lease: Lease, all_granted: bool, all_replied: bool) -> int:
    """As ``lacking``, for a lease of a batch, whose votes do not name single masters.

    ``all_granted``: each asked master granted. ``all_replied``: every master had time to reply.
    """
    if not all_granted and (all_replied or lease.extensions % RECHECK_EVERY == 0):
        return lists.all
    return lists.all & ~lease.sent


def refill(found: Sequence[tuple[Lease, int]], given: list[Given]) -> Generator[Effect, Any, None]:
    """Send the key of each lease to the masters of its mask, without waiting for replies."""
    for lease, mask in found:
        lease.sent |= mask  # first: every later release then reaches these masters, too
    keys, tokens, _, ttls = columns([lease for lease, _ in found])
    args = keys, tokens, [wire_ttl(ttl) for ttl in ttls]
    batch = Batch(REFILL, args, len(found), [mask for _, mask in found])
    given += [(lease, lease.ttl, mask) for lease, mask in found]
    yield Exchange(batch, 0, 0.0)
    yield from _take_back(given)


def put(
    policy: Policy,
    lists: MasterLists,
    leases: Sequence[tuple[Lease, float]],
    now: float,
    given: list[Given],
) -> Generator[Effect, Any, int]:
    """Give the tokens of ``leases``, each with its ttl, to masters that they did not ask; see ``to_put``.

    No caller waits for it: masters execute it before an extension that is sent next. Returns the mask of the
    masters. Unless all of them vote when the extension is decided, its grants must not count.
    """
    voting = policy.voters.mask
    found = [(lease, ttl, lists.to_put(lease.sent, now) & voting) for lease, ttl in leases]
    found = [one for one in found if one[2]]
    every = 0
    requests: list[Request] = []
    for lease, ttl, mask in found:
        every |= mask
        lease.sent |= mask  # before the requests leave, as in ``refill``
        requests += lease.lock_kind.put_requests(lease.token, wire_ttl(ttl), mask, lease.fencing)
    if not requests:
        return 0
    given += found
    yield Exchange(requests, 0, 0.0)
    yield from _take_back(given)
    return every


def _take_back(given: list[Given]) -> Generator[Effect, Any, None]:
    for requests in taken_back(given):
        yield Exchange(requests, 0, 0.0)


def taken_back(given: list[Given]) -> list[Message]:
    """The releases to send after a refill, for the leases that another thread has released in the meantime.

    That thread's releases may have reached a master before the refill, which then put the key back: without
    a second release the key would stay until the end of its ttl. ``given``: what the refill sent.
    """
    releases: list[Request] = []
    for lease, ttl, mask in given:
        if lease.released:
            releases += lease.lock_kind.release_requests(lease.token, mask, ttl)
    return [releases] if releases else []
