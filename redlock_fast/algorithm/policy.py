"""The policy of one client: its settings, its clock, and the masters that vote."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from ..engine.contract import Wait
from . import machine
from .crowds import Crowds
from .local_queue import LocalQueue
from .lock_kind import wire_ttl
from .master_lists import MasterLists
from .quorum import ContentionHistory, Retry
from .server_queue import ServerQueueEntries
from .tokens import new_token, new_tokens

Clock = Callable[[], float]

#: Measures leases. Compiled modules read the same clock by themselves (``src/machine.pxd``).
lease_clock: Clock = machine.boot_time


class VotingMasters:
    """The masters that must agree, and those that vote now. All that changes while a client runs.

    ``lists``: the masters that must agree. ``mask``: the masters that vote now. Other masters are not asked,
    and their grants do not count. ``all_push``: whether every connected master reports when a watched key
    changes.
    """

    __slots__ = ("all_push", "lists", "mask")

    def __init__(self, masters: int, *masks: int, shards: bool = False) -> None:
        self.lists: MasterLists = MasterLists(masters, *masks, shards=shards)
        self.mask: int = (1 << masters) - 1
        self.all_push: bool = True

    def asked(self) -> int:
        """The mask of the masters to ask now."""
        return self.mask & self.lists.all

    def trust(self, lists: MasterLists, fresh: int, masters: int) -> bool:
        """Whether an extension by ``masters`` counts. ``fresh``: those that got the token just before it.

        It does not if since then a fresh one was restarted, or a record forbids the lists.
        """
        return not (fresh & ~self.mask or masters & lists.unlisted)


def _ignore(master: int, why: str) -> None:
    """The ``report`` of a policy without a client."""


@dataclass(eq=False, repr=False)
class Policy:
    """The settings of all procedures of one client. Times in seconds. Only ``report`` is set later.

    ``outage_timeout``: how long an acquire without a deadline tries while the masters form no quorum.
    ``voters``: the masters that must agree, and those that vote. ``wait``: what decides an exchange, CERTAIN
    or ALL. ``retention``: how long masters keep a fencing counter after its last use. ``step``: how far a
    counter may be behind its master's clock. Both are command arguments.
    ``report``: takes a master and why its vote did not count, where the master itself reports no fault.
    ``refill``: extensions put the key back on masters that lost it. ``push``: masters report when a lock may
    be free. ``local_queue``: the callers of this client that wait. ``server_entries``: their places in queues
    on the masters. ``contention``: what they saw of other clients. ``crowds``: the locks that
    many clients want. ``ttl``: the default lease.
    """

    node_timeout: float
    drift_factor: float
    outage_timeout: float
    retry: Retry
    voters: VotingMasters
    wait: Wait = Wait.CERTAIN
    clock: Clock = lease_clock
    chance: Callable[[], float] = random.SystemRandom().random
    token: Callable[[], bytes] = new_token
    tokens: Callable[[int], list[bytes]] = new_tokens
    retention: bytes = b"86400000"
    step: bytes = b"30000"
    report: Callable[[int, str], None] = _ignore
    push: bool = False
    refill: bool = False
    local_queue: LocalQueue = field(default_factory=LocalQueue)
    server_entries: ServerQueueEntries = field(default_factory=ServerQueueEntries)
    contention: ContentionHistory = field(default_factory=ContentionHistory)
    crowds: Crowds = field(default_factory=Crowds)
    ttl: float = 10.0
    #: ``ttl`` as a command argument.
    wire: bytes = field(init=False)
    #: ``crowds.until``, for the hot path.
    crowded: dict[bytes, float] = field(init=False)

    def __post_init__(self) -> None:
        self.wire = wire_ttl(self.ttl)
        self.crowded = self.crowds.until

    def ttl_on_wire(self, ttl: float) -> bytes:
        """``ttl`` as a command argument."""
        return self.wire if ttl == self.ttl else wire_ttl(ttl)
