"""Acquires and releases without a lock object: the algorithm alone, as procedures."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from simulation.performed import performed

from redlock_fast.algorithm.lease import Lease
from redlock_fast.algorithm.lock_kind import LockKind
from redlock_fast.algorithm.operations import Acquire, Release
from redlock_fast.algorithm.policy import Policy


class BareAcquire(Acquire):
    """``until``: the end by the lease clock. ``on_granted``: gets a lease at once."""

    def __init__(
        self,
        policy: Policy,
        lock_kind: LockKind,
        ttl: float = 10.0,
        until: float | None = None,
        rounds: int | None = None,
        on_granted: Callable[[Lease], object] = lambda lease: None,
    ) -> None:
        self.most = rounds
        seconds = None if until is None else until - policy.clock()
        super().__init__(policy, lock_kind, ttl, seconds, blocking=True)
        if until is not None:
            self.give_up_at = until
        self.report = on_granted

    @property
    def rounds(self) -> int | None:
        return self.most

    def on_granted(self, lease: Lease) -> None:
        self.report(lease)


def acquire(*arguments: Any) -> Generator[Any, Any, Any]:
    """The effects of a ``BareAcquire``."""
    return performed(BareAcquire(*arguments))


def release(policy: Policy, lease: Lease) -> Generator[Any, Any, Any]:
    return performed(Release(policy, lease))
