"""What all procedures of one client go by."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from ..engine.contract import Votes, Wait
from .clock import Clock, lease_clock
from .local_queue import Line
from .lock_kind import wire_ttl
from .quorum import Retry, impossible
from .server_queue import Places
from .tokens import new_token, new_tokens
from .voting_masters import Electorate


@dataclass(eq=False, repr=False)
class Rules:
    """What all procedures of one client go by. Times in seconds. Made once, and never changed.

    ``patience``: how long an acquire without a deadline bears with masters that form no quorum.
    ``electorate``: whose yes counts. ``wait``: what decides an acquire; all else waits for certainty at
    least. ``retention``: how long a counter of fencing tokens outlives its last use; ``step``: how far it may
    be behind its master's clock; both for the wire.
    ``refill``: extensions put the key back on masters that lost it. ``push``: who waits has masters tell
    when the lock may be free. ``line``: who else of this client waits. ``places``: what those keep meanwhile.
    ``ttl``: of a lease, where nothing else was asked for.
    """

    masters: int
    need: int
    node_timeout: float
    drift_factor: float
    patience: float
    retry: Retry
    electorate: Electorate
    wait: Wait = Wait.EARLY
    clock: Clock = lease_clock
    chance: Callable[[], float] = random.SystemRandom().random
    token: Callable[[], bytes] = new_token
    tokens: Callable[[int], list[bytes]] = new_tokens
    retention: bytes = b"86400000"
    step: bytes = b"30000"
    push: bool = False
    refill: bool = False
    line: Line = field(default_factory=Line)
    places: Places = field(default_factory=Places)
    ttl: float = 10.0
    #: The mask of all masters.
    everyone: int = field(init=False)
    #: Where a failing master must not pass for one that refused.
    certain: Wait = field(init=False)
    #: ``ttl`` for the wire.
    wire: bytes = field(init=False)

    def __post_init__(self) -> None:
        self.everyone = (1 << self.masters) - 1
        self.certain = max(self.wait, Wait.CERTAIN)
        self.wire = wire_ttl(self.ttl)

    def wire_of(self, ttl: float) -> bytes:
        """``ttl`` as it goes into a command."""
        return self.wire if ttl == self.ttl else wire_ttl(ttl)

    def hopeless(self, votes: Votes) -> bool:
        """Whether so many masters refused that others hold, or ours is lost, for certain."""
        return impossible(self.masters, self.need, votes.refused, 0)
