"""Refill: a lease's key is put back on masters that have lost it, or never had it.

Without it a lease that is extended for hours dies by attrition: each master that restarts empty, or was
away at the acquire, is one vote less. The rules: only after an extension that a
quorum confirmed in time; only where the key is missing (SET NX); nobody waits for it, and it does not
count before a later extension finds it there. Others are not misled: a master that forgot locks is
guarded against by them, and all that a refill adds is a key of who holds the lock anyway.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from ..engine.contract import NO_REPLY, Batch, Votes
from ..wire.commands import Verb
from .effects import Effect, send, send_no_reply, undo_after
from .lease import Lease
from .lock_kind import RELEASE, wire_ttl
from .policy import Policy

REFILL = int(Verb.REFILL)

#: A majority decides, and who answers behind it is not heard: so at every so many extensions of a lease
#: the key goes to the unheard, too. Those that have it refuse it.
RECHECK_EVERY = 8


def lacking(policy: Policy, lease: Lease, votes: Votes) -> int:
    """Which masters to send the key, after a confirmed extension with these votes."""
    mask = policy.all_masters & ~lease.sent
    recheck = lease.extensions % RECHECK_EVERY == 0
    if votes.refused or recheck:
        for master, value in enumerate(votes.values):
            if value == 0 or (recheck and value == NO_REPLY and votes.sent >> master & 1):
                mask |= 1 << master
    return mask


def lacking_of_many(policy: Policy, lease: Lease, all_granted: bool, all_replied: bool) -> int:
    """The same where only grants were counted: whether ``all_granted`` granted, of those that were asked.

    ``all_replied``: all answers were waited for. Who did not grant is not known.
    """
    if not all_granted and (all_replied or lease.extensions % RECHECK_EVERY == 0):
        return policy.all_masters
    return policy.all_masters & ~lease.sent


def refill(found: Sequence[tuple[Lease, int]]) -> Generator[Effect, Any, None]:
    """Send each lease to the masters of its mask, without waiting."""
    for lease, mask in found:
        lease.sent |= mask  # first: whoever releases it from here on reaches them, too
    keys, tokens, masks, ttls = _columns(found)
    batch = Batch(REFILL, (keys, tokens, [wire_ttl(ttl) for ttl in ttls]), len(keys), masks)
    try:
        yield from send(batch)
    except BaseException as error:
        yield from undo_after(error, _take_back(found))
        raise
    yield from _take_back(found)


def _take_back(found: Sequence[tuple[Lease, int]]) -> Generator[Effect, Any, None]:
    """Of those that another thread released meanwhile: its release may have gone out before."""
    gone = [(lease, mask) for lease, mask in found if lease.released]
    if gone:
        keys, tokens, masks, ttls = _columns(gone)
        yield from send_no_reply(Batch(RELEASE, (keys, tokens), len(gone), masks, ttls))


def _columns(
    found: Sequence[tuple[Lease, int]],
) -> tuple[list[bytes], list[bytes], list[int], list[float]]:
    keys, tokens = [lease.key for lease, _ in found], [lease.token for lease, _ in found]
    return keys, tokens, [mask for _, mask in found], [lease.ttl for lease, _ in found]
