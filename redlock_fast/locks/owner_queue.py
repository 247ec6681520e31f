"""The queue of the calls that acquire a first level for one named owner: one at a time does so.

They would exclude each other on the masters, and one would wait for its own owner.
"""

from __future__ import annotations

from typing import Any

from ..algorithm.local_queue import QueueEntry
from .client_core import ClientCore
from .owners import NamedOwner, Owner

#: Seconds after which a call looks for its turn again: an interrupted call before it may not wake it.
LONGEST = 1.0


class Turn:
    """A call's place in the queue of its owner. It ends with ``leave``, or when it is collected."""

    def __init__(
        self, core: ClientCore, owner: NamedOwner, lock: Any, blocking: bool, timeout: float
    ) -> None:
        seconds = lock._waiting_time(blocking, timeout)
        if not blocking:
            seconds = 0.0
        self._clock = core.policy.clock
        self._give_up_at: float | None = None if seconds is None else self._clock() + seconds
        self.entry: QueueEntry = core.masters.turns.enter(owner.queue_key)

    @property
    def has_come(self) -> bool:
        return self.entry.is_first

    def left(self) -> float | None:
        """Seconds until the call gives up; None: it does not."""
        return None if self._give_up_at is None else max(0.0, self._give_up_at - self._clock())

    def wait(self) -> float:
        """Seconds to wait before the next look. 0.0: the turn has come, or the call gives up."""
        left = self.left()
        return 0.0 if self.has_come else LONGEST if left is None else min(LONGEST, left)

    def leave(self) -> None:
        self.entry.leave()


def turn_of(core: ClientCore, owner: Owner, lock: Any, blocking: bool, timeout: float) -> Turn | None:
    """The turn of a call with these arguments; None: the owner is a thread or a task, with one call."""
    return Turn(core, owner, lock, blocking, timeout) if type(owner) is NamedOwner else None
