"""The exceptions for attempts that came to nothing: which masters refused or failed, what to do."""

from __future__ import annotations

from typing import Any

from ..algorithm.attempts import BLIP
from ..algorithm.lease import AcquireFailure
from ..algorithm.lock_kind import LockKind
from ..algorithm.master_lists import MasterLists, mask_of
from ..engine.contract import FAULT, NO_REPLY, NOT_ASKED, Votes
from ..errors import (
    Contended,
    ContendedTimeout,
    LockNotAcquired,
    MasterError,
    QuorumTimeout,
    QuorumUnavailable,
    ResourceNames,
)
from ..wire.text import quoted
from .client_core import ClientCore

#: The end of a text about a thread that waits for itself.
ITS_OWN = "this thread holds it by another lock object: use that one, or a reentrant lock (rlock)"


def acquire_error(
    core: ClientCore, resource: ResourceNames, lock_kind: LockKind, failure: AcquireFailure, owner: str = ""
) -> LockNotAcquired:
    """The exception for an acquire without a lease. ``owner``: that of the other lease, if known."""
    votes, names = failure.votes, core.masters.connector.roster.names()
    lists = failure.lists or core.policy.voters.lists
    rounds = f"{failure.rounds} attempt{'s' * (failure.rounds > 1)}"
    too_few = QuorumTimeout if failure.timed_out else QuorumUnavailable
    if lists.granted(votes):
        return too_few(
            f"{quoted(resource)}: a quorum granted the lease too late: nothing of it was left; "
            "use a longer ttl, or find out what delays the masters or this process",
            resource=resource,
            reason="late",
        )
    if failure.unavailable:
        core.masters.connector.dialler.connect_urgently(BLIP)  # the caller usually tries again
        why = outage(core, votes)
        advice = "wait for their restart guards" if why["reason"] == "guarded" else _advice(core, lists)
        return too_few(
            f"{quoted(resource)}: no quorum of {lists.text(lists.failing(votes))} after {rounds}: {advice}",
            causes(core, votes, lists),
            resource=resource,
            **why,
        )
    contended = ContendedTimeout if failure.timed_out else Contended
    holders = [name for name, vote in zip(names, votes.values, strict=False) if FAULT < vote <= 0]
    if not holders:
        return contended(
            f"{quoted(resource)}: other callers of this client waited for it and were first",
            resource=resource,
            reason="queue",
            owner=owner,
        )
    held = quoted(resource)
    if isinstance(resource, tuple):
        taken = lock_kind.refused_key(votes).removeprefix(core.key_prefix)
        held = f"{quoted(taken or resource)}, of {len(resource)} resources,"
    own = "; " + ITS_OWN if core.waits_for_itself(lock_kind.key) else ""
    return contended(
        f"{held} is already held"
        + f" on {len(holders)} of {lists.all.bit_count()} masters" * (not lists.shards)
        + f", after {rounds}"
        + f"; its owner is {owner}" * bool(owner)
        + own,
        resource=resource,
        reason="held",
        owner=owner,
        masters=holders,
        causes=causes(core, votes, lists),
    )


def _advice(core: ClientCore, lists: MasterLists) -> str:
    """What to do about masters that did not vote."""
    links = [one.link for one in core.masters.connector.roster.own(lists).values()]
    refusing = sum(link.access_refused and not link.attached for link in links)
    if not refusing:
        return "check that they can be reached"
    many = f"all {refusing}" if refusing == len(links) else f"{refusing} of {len(links)}"
    return f"{many} masters refuse this user or password"


def outage(core: ClientCore, votes: Votes) -> dict[str, Any]:
    """``reason`` and ``retry_after`` for an error about too few masters, which had these ``votes``."""
    guarded = core.masters.guarded_for(votes)
    return {"reason": "guarded", "retry_after": guarded} if guarded else {"reason": "unavailable"}


def causes(core: ClientCore, votes: Votes, lists: MasterLists | None = None) -> list[MasterError]:
    """An error for each master that failed. Silent masters count only if the failures did not decide.

    ``lists``: the masters that had to agree; None: the present ones.
    """
    lists = lists or core.policy.voters.lists
    guilty = (FAULT,) if lists.failed(votes) or lists.refused(votes) else (FAULT, NO_REPLY)
    names = core.masters.connector.roster.names()
    guilty_masters = [n for n, value in enumerate(votes.values) if value in guilty and lists.all >> n & 1]
    errors = [MasterError(names[n], core.masters.cause(n, votes)) for n in guilty_masters]
    if not lists.shards:
        return errors
    # The other shards of a Cluster were not asked, because they do not serve the slot.
    found = [one for one in errors if one.cause != NOT_ASKED]
    down = (one for one in core.masters.connector.roster.masters if not one.link.attached and one.tally.error)
    return found or [MasterError(one.target.name, one.tally.error) for one in down]


def unavailable_error(
    core: ClientCore, resource: ResourceNames, votes: Votes, text: str
) -> QuorumUnavailable:
    """The exception for an exchange with these ``votes``, which too few masters answered."""
    return QuorumUnavailable(
        f"{quoted(resource)}: {text}", causes(core, votes), resource=resource, **outage(core, votes)
    )


def is_locked(core: ClientCore, resource: str | bytes, votes: Votes) -> bool:
    """Whether a quorum of masters has the key, of either list if there are two.

    Such a lock keeps the client from acquiring. Raises QuorumUnavailable if too few masters answered.
    """
    lists = core.policy.voters.lists
    if lists.shards and votes.refused:
        return False
    have = mask_of(n for n, value in enumerate(votes.values) if value > 0)
    silent = mask_of(n for n, value in enumerate(votes.values) if value <= FAULT)
    if len(lists.lacking(have)) < len(lists.lists):
        return True
    if len(lists.lacking(have | silent)) == len(lists.lists):
        return False
    raise unavailable_error(core, resource, votes, "too few masters answered")
