"""The turn of a caller that waits for a lock whose kind has no queue on the masters.

Callers of a write lock, a multilock or a fenced lock have no places on the masters. If many clients want such
a lock, each release would wake one caller of every client, and all but one of them would ask in vain. So a
caller that was refused several times first acquires the *turn*: a plain lock beside the lock, whose callers
do wait in a queue (``algorithm/crowds.py``). The caller that has the turn asks for the lock and watches it,
and releases the turn as soon as it holds the lock.

A caller that releases the lock and asks again at once is never refused: it is always faster than the one that
has the turn and must hear of the release first. So some releases look whether anybody has the turn, and the
next acquires of that client wait for their turn, too.

The turn decides nothing. Masters grant the lock as they do without it, so a turn that two callers have, or
that is lost, costs some requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..engine.contract import Request, Votes, Wait
from .effects import Exchange
from .lock_kind import EXISTS, EXTEND, LockKind, wire_ttl
from .operation import Message

if TYPE_CHECKING:
    from .attempts import Steps
    from .lease import Lease
    from .operations import Acquire
    from .policy import Policy

#: Seconds for which masters keep a turn. It is prolonged after each round of its caller, so this is for how
#: long a caller that has died keeps the others waiting.
TURN_TTL = 3.0


def look_for_turn(policy: Policy, lease: Lease, requests: list[Request]) -> list[Request]:
    """``requests``, which release ``lease``. Every eighth time they also ask whether anybody has the turn."""
    key = lease.lock_kind.turn_key
    if key is None or policy.crowds.queued is None or not policy.crowds.looks():
        return requests
    return [*requests, Request(EXISTS, (key,), policy.voters.asked())]


def note_turn(policy: Policy, lease: Lease, answers: list[Votes]) -> list[Votes]:
    """The ``answers`` to the requests that release ``lease``. Takes note of what ``look_for_turn`` found."""
    kind = lease.lock_kind
    if len(answers) == kind.request_count:
        return answers
    if policy.voters.lists.granted(answers[-1]):
        policy.crowds.note(kind.key, policy.clock())
    return answers[:-1]


class Turn:
    """The turn of ``caller`` for its lock, once ``take`` has ended.

    ``waited``: whether another caller had the turn before.
    """

    __slots__ = ("_acquire", "waited")

    def __init__(self, caller: Acquire, key: bytes, seconds: float) -> None:
        self._acquire: Acquire | None = caller.other(LockKind(key), TURN_TTL, seconds)
        self.waited: bool = False

    def take(self) -> Steps[None]:
        """Acquire the turn. If its time ends, or the masters fail, the caller goes on without it."""
        turn = self._acquire
        assert turn is not None
        effect = turn.begin()
        while effect is not None:
            if effect is turn:
                effect = Exchange(turn.requests, turn.need, turn.timeout, Wait(turn.wait))
            effect = turn.advance((yield effect))
            self.waited = self.waited or turn.refused
            if turn.unavailable:
                for requests in self.abort():
                    yield Exchange(requests, 0, 0.0)
                self._acquire = None
                return
        turn.close()

    def prolong(self) -> list[Request]:
        """The requests after which the masters keep the turn for its whole time again."""
        lease = None if self._acquire is None else self._acquire.lease
        if lease is None:
            return []
        return [Request(EXTEND, (lease.key, lease.token, wire_ttl(TURN_TTL)), lease.sent)]

    def abort(self) -> list[Message]:
        """The messages that release the turn, or leave its queue. May be called again."""
        if self._acquire is None:
            return []
        messages = self._acquire.abort()
        self._acquire.close()
        return messages
