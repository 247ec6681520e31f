"""Renewal in virtual time: an actor of its own in each process, as the renewal thread is."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

from redlock_fast.algorithm.effects import Sleep
from redlock_fast.algorithm.lease import ExtendOutcome, Lease
from redlock_fast.algorithm.renewal_schedule import RenewedLease as Renewed
from redlock_fast.locks.auto_extend import AutoExtended, Renewal

from .invariants import Hold
from .performed import performed

if TYPE_CHECKING:
    from .process import Process

#: Seconds between two looks, at most: nothing wakes the actor before.
LOOK = 0.02
#: Seconds that an extension is given at least.
SHORTEST = 0.02


class Flag:
    """An event that no thread waits for."""

    def __init__(self) -> None:
        self.known = False

    def is_set(self) -> bool:
        return self.known

    def set(self) -> None:
        self.known = True


class SimulatedRenewal(Renewal):
    """``holds``: the holds of the witness, by lease."""

    def __init__(self, process: Process) -> None:
        super().__init__(process.core)
        self.process = process
        self.holds: dict[Lease, Hold] = {}
        self._running = False
        self._asked_at = 0.0

    def wake_soon(self) -> None:
        if not self._running:
            self._running = True
            self.process.begin(f"renewal of {self.process}", self._work())

    def _work(self) -> Generator[Any, Any, None]:
        while self.schedule:
            due = self.collect_due()
            if due:
                self.process.world.counts["renewals"] += 1
                self._asked_at = self.process.world.now
                yield from performed(self.extension(due))
            yield Sleep(min(LOOK, self.wait()))
        self._running = False

    def _settle(self, due: Sequence[tuple[Renewed, float]], outcomes: Sequence[ExtendOutcome]) -> None:
        process = self.process
        for (renewed, _), outcome in zip(due, outcomes, strict=True):
            hold = self.holds.get(renewed.lease)
            if hold is not None and outcome is ExtendOutcome.EXTENDED and not renewed.over:
                end = process.true_time(renewed.lease.deadline)
                process.witness.prolongs(hold, self._asked_at, end)
        super()._settle(due, list(outcomes))

    def _exchange_timeout(self) -> float:
        """Round trips are not measured here."""
        with self.mutex:
            left = self.schedule.first_end() - self.policy.clock()
        return max(left, SHORTEST)

    def notify_lost(self, lock: AutoExtended, lease: Lease, reason: str) -> None:
        if lease in self.holds:
            self.process.world.counts["lost"] += 1
            self.process.witness.gives_up(self.holds[lease])
