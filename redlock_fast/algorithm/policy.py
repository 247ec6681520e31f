"""What all procedures of one client go by."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from ..engine.contract import FAULT, Votes, Wait
from .local_queue import LocalQueue
from .lock_kind import wire_ttl
from .quorum import Retry, impossible
from .server_queue import ServerQueueEntries
from .tokens import new_token, new_tokens

Clock = Callable[[], float]

#: The lease clock. Leases run on the masters while this machine sleeps, so the clock that measures them must
#: include sleep: CLOCK_BOOTTIME on Linux; the monotonic clock of macOS includes it. Never a wall clock, which
#: can be set back.
lease_clock: Clock = time.monotonic
if hasattr(time, "CLOCK_BOOTTIME"):
    lease_clock = partial(time.clock_gettime, time.CLOCK_BOOTTIME)


class VotingMasters:
    """Which masters' yes counts now, as a mask: a guarded master is not asked, and not counted.

    ``all_push``: whether every connected master tells when a key changes.
    """

    __slots__ = ("all_push", "mask")

    def __init__(self, masters: int) -> None:
        self.mask = (1 << masters) - 1
        self.all_push = True

    def filter(self, values: Sequence[int]) -> tuple[int, ...]:
        """Votes that were asked for before the mask changed: none of those that may not vote any more."""
        return tuple(value if self.mask >> master & 1 else FAULT for master, value in enumerate(values))


@dataclass(eq=False, repr=False)
class Policy:
    """What all procedures of one client go by. Times in seconds. Made once, and never changed.

    ``outage_timeout``: how long an acquire without a deadline bears with masters that form no quorum.
    ``voters``: whose yes counts. ``wait``: what decides an acquire; all else waits for certainty at
    least. ``retention``: how long a counter of fencing tokens outlives its last use; ``step``: how far it may
    be behind its master's clock; both for the wire.
    ``refill``: extensions put the key back on masters that lost it. ``push``: who waits has masters tell
    when the lock may be free. ``local_queue``: who else of this client waits. ``server_entries``: what those
    keep meanwhile. ``ttl``: of a lease, where nothing else was asked for.
    """

    masters: int
    need: int
    node_timeout: float
    drift_factor: float
    outage_timeout: float
    retry: Retry
    voters: VotingMasters
    wait: Wait = Wait.EARLY
    clock: Clock = lease_clock
    chance: Callable[[], float] = random.SystemRandom().random
    token: Callable[[], bytes] = new_token
    tokens: Callable[[int], list[bytes]] = new_tokens
    retention: bytes = b"86400000"
    step: bytes = b"30000"
    push: bool = False
    refill: bool = False
    local_queue: LocalQueue = field(default_factory=LocalQueue)
    server_entries: ServerQueueEntries = field(default_factory=ServerQueueEntries)
    ttl: float = 10.0
    #: The mask of all masters.
    all_masters: int = field(init=False)
    #: Where a failing master must not pass for one that refused.
    certain: Wait = field(init=False)
    #: ``ttl`` for the wire.
    wire: bytes = field(init=False)

    def __post_init__(self) -> None:
        self.all_masters = (1 << self.masters) - 1
        self.certain = max(self.wait, Wait.CERTAIN)
        self.wire = wire_ttl(self.ttl)

    def ttl_on_wire(self, ttl: float) -> bytes:
        """``ttl`` as it goes into a command."""
        return self.wire if ttl == self.ttl else wire_ttl(ttl)

    def refused_by_quorum(self, votes: Votes) -> bool:
        """Whether so many masters refused that others hold, or ours is lost, for certain."""
        return impossible(self.masters, self.need, votes.refused, 0)
