"""What the pure-Python engine keeps for one master, to be sent again: rule 7 of the contract."""

from __future__ import annotations

import contextlib
from collections import deque

from ..contract import RETRY_AFTER
from .requests import Op


class Kept:
    """``kept`` goes out as soon as there is a connection, and room. ``postponed``: when the master can.

    ``most``: how many there may be of each. ``dropped``: those that were more.
    """

    __slots__ = ("dropped", "kept", "most", "postponed", "purge_at", "retry_at")

    def __init__(self, most: int) -> None:
        self.most = most
        self.kept: deque[Op] = deque()
        self.purge_at = 0.0  # none of the kept ends before
        self.postponed: deque[Op] = deque()
        self.retry_at = 0.0  # not before then is one of these sent again
        self.dropped = 0

    def keep(self, op: Op, now: float) -> None:
        """For the next connection, while it is worth it."""
        if op.until <= now:
            return
        kept, bound = self.kept, self.most
        if len(kept) >= bound and now >= self.purge_at:
            self._purge(now)
        if len(kept) >= bound:
            self.dropped += 1
        else:
            kept.append(op)
            self.purge_at = min(self.purge_at, op.until)

    def _purge(self, now: float) -> None:
        kept, soonest = self.kept, float("inf")
        for _ in range(len(kept)):
            with contextlib.suppress(IndexError):  # others may take from it too
                op = kept.popleft()
                if op.until > now:
                    kept.append(op)
                    soonest = min(soonest, op.until)
        self.purge_at = soonest

    def postpone(self, op: Op, now: float) -> None:
        """Until the master can do it, while it is worth it."""
        self._forget_expired(now)
        if len(self.postponed) >= self.most:
            self.dropped += 1
        elif op.until > now:
            self.postponed.append(op)

    def retry(self, now: float) -> bool:
        """Whether it is time to see if the master can now: with the oldest, the others follow its answer."""
        if not self.postponed or now < self.retry_at:
            return False
        self.retry_at = now + RETRY_AFTER
        self._forget_expired(now)
        self.resume(1)
        return True

    def resume(self, most: int | None = None) -> None:
        """What is postponed goes out with the next replay, or so much of it at most."""
        with contextlib.suppress(IndexError):  # others may take from it too
            for _ in range(len(self.postponed) if most is None else most):
                self.kept.append(self.postponed.popleft())

    def _forget_expired(self, now: float) -> None:
        with contextlib.suppress(IndexError):
            while self.postponed[0].until <= now:
                self.postponed.popleft()
