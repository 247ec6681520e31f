"""What clients do: acquire, hold, extend, release, one lock at a time or many."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from math import inf
from typing import Any

from redlock_fast._effects import Pause
from redlock_fast._lease import Lease, Refusal
from redlock_fast._lock import LockState
from redlock_fast._many import acquire_many, extend_many, release_many
from redlock_fast.errors import LockLost, QuorumUnavailable

from .invariants import Hold
from .process import Interrupted, Process

Script = Generator[Any, Any, None]

TTLS = 0.2, 0.1, 0.4
#: The longest lease that anybody asks for.
MAX_TTL = 0.8


class User:
    """One who uses locks. ``name``: as in the trace. Times are drawn, in seconds."""

    def __init__(self, process: Process, name: str, rounds: int) -> None:
        self.process = process
        self.world = process.world
        self.witness = process.witness
        self.name = name
        self.rounds = rounds
        self.counting = False  # fencing tokens
        self.ttls: Sequence[float] = TTLS

    # --- one lock at a time ---

    def plain(self, resources: Sequence[bytes]) -> Script:
        return self._one_by_one(resources, extensions=0)

    def waiting(self, resources: Sequence[bytes]) -> Script:
        """All for the same, and with long leases: whose end comes much later than a release."""
        self.ttls = (MAX_TTL,)
        return self._one_by_one(resources[:1], extensions=0)

    def extending(self, resources: Sequence[bytes]) -> Script:
        return self._one_by_one(resources, extensions=1 + self.world.draw(6))

    def _one_by_one(self, resources: Sequence[bytes], extensions: int) -> Script:
        world = self.world
        for _ in range(self.rounds):
            resource = resources[world.draw(len(resources))]
            claim = self.process.core.claim(resource, self.counting)
            lock = LockState(self.process.core, resource, claim, self.ttls[world.draw(len(self.ttls))])
            hold = None
            try:
                yield self.short_while()
                hold = yield from self.acquire(lock, self.patience())
                if hold is not None:
                    yield self.hold_time(lock)
                    for _ in range(extensions):
                        yield from self.extend(lock, hold)
                        yield self.hold_time(lock)
            except Interrupted:
                world.counts["interrupted"] += 1
            yield from self.release(lock, hold)

    def acquire(self, lock: LockState, timeout: float | None) -> Generator[Any, Any, Hold | None]:
        """As ``Lock.acquire``."""
        process, began = self.process, self._begin()
        outcome = yield from lock._attempt(True, timeout)
        self._took("acquire", began, inf if timeout is None else timeout)
        if isinstance(outcome, Refusal):
            self.world.counts["unavailable" if outcome.unavailable else "contended"] += 1
            return None
        end = process.true_time(outcome.deadline)
        return self.witness.holds_now(self.name, lock.key, outcome, end, lock.remaining())

    def extend(self, lock: LockState, hold: Hold) -> Generator[Any, Any, None]:
        process, world = self.process, self.world
        lease = lock.lease
        assert lease is not None
        old, began, asked_at = lease.deadline, self._begin(), world.now
        try:
            yield from lock._extend((1 + world.draw(2)) * lock.ttl)
        except LockLost:
            world.counts["lost"] += 1
            self.witness.gives_up(hold)
        except QuorumUnavailable:
            world.counts["inconclusive"] += 1
        else:
            end = process.true_time(lease.deadline)
            self.witness.prolongs(hold, asked_at, process.true_time(old), end, lease.deadline > old)
        self._took("extend", began, process.core.rules.node_timeout)

    def release(self, lock: LockState, hold: Hold | None) -> Script:
        """As ``Lock.__exit__``: what interrupts it does not keep it from happening."""
        if hold is not None:
            self.witness.gives_up(hold)
        began = self._begin()
        try:
            yield from lock._release()
        except Interrupted:
            self.world.counts["interrupted"] += 1
            yield from lock._release()
        self._took("release", began, self.process.core.rules.node_timeout)

    def fencing(self, resources: Sequence[bytes]) -> Script:
        self.counting = True
        return self._one_by_one(resources, extensions=self.world.draw(2))

    def take_and_release(self, lock: LockState) -> Generator[Any, Any, bool]:
        hold = yield from self.acquire(lock, 0.5)
        yield from self.release(lock, hold)
        return hold is not None

    # --- many at once ---

    def batches(self, resources: Sequence[bytes]) -> Script:
        world, core = self.world, self.process.core
        for _ in range(self.rounds):
            chosen = sorted({resources[world.draw(len(resources))] for _ in range(len(resources))})
            ttl = TTLS[world.draw(3)]
            held: dict[LockState, Hold] = {}
            try:
                yield self.short_while()
                held = yield from self._acquire_many(chosen, ttl)
                if held:
                    yield self.hold_time(next(iter(held)))
                    yield from self._extend_many(held, ttl)
                    yield self.hold_time(next(iter(held)))
            except Interrupted:
                world.counts["interrupted"] += 1
            for hold in held.values():
                self.witness.gives_up(hold)
            began = self._begin()
            try:
                yield from release_many(core, list(held))
            except Interrupted:
                world.counts["interrupted"] += 1
            self._took("release_many", began, core.max_ttl)

    def _acquire_many(self, chosen: list[bytes], ttl: float) -> Generator[Any, Any, dict[LockState, Hold]]:
        process, counts, began = self.process, self.world.counts, self._begin()
        try:
            locks = yield from acquire_many(process.core, LockState, chosen, ttl)
        except QuorumUnavailable:
            counts["unavailable"] += 1
            return {}
        finally:
            self._took("acquire_many", began, ttl + process.core.connect_timeout)
        counts["contended"] += locks.count(None)
        held = {}
        for lock in locks:
            if lock is not None:
                lease = lock.lease
                assert isinstance(lease, Lease)
                end = process.true_time(lease.deadline)
                held[lock] = self.witness.holds_now(self.name, lock.key, lease, end, lock.remaining())
        return held

    def _extend_many(self, held: dict[LockState, Hold], ttl: float) -> Script:
        process, world = self.process, self.world
        old = {lock: lock.lease.deadline for lock in held if lock.lease}
        began, asked_at = self._begin(), world.now
        done = yield from extend_many(process.core, list(held), ttl * (1 + world.draw(2)))
        self._took("extend_many", began, max(began[0], *old.values()) - began[0])
        for (lock, hold), extended in zip(held.items(), done, strict=True):
            lease = lock.lease
            assert lease is not None
            end, before = process.true_time(lease.deadline), process.true_time(old[lock])
            if extended:
                self.witness.prolongs(hold, asked_at, before, end, end > before)
            elif lock.locked():
                world.counts["inconclusive"] += 1
            else:
                world.counts["lost"] += 1
                self.witness.gives_up(hold)

    # --- times ---

    def patience(self) -> float | None:
        """How long to wait for a lock: some wait until they have it."""
        return None if self.world.draw(4) == 3 else self.world.disturbance()

    def short_while(self) -> Any:
        return Pause(self.world.draw(16) * 0.004)

    def hold_time(self, lock: LockState) -> Any:
        """Mostly within the lease, now and then beyond it."""
        return Pause(lock.ttl * 1.2 * (self.world.draw(20) / 19) ** 2)

    def _begin(self) -> tuple[float, float]:
        return self.process.clock(), self.process.paused_for

    def _took(self, what: str, began: tuple[float, float], allowed: float) -> None:
        """Nobody is late because of a process that was paused itself."""
        clock, paused_for = began
        if self.process.paused_for == paused_for:
            self.witness.took(self.name, what, self.process.clock() - clock, allowed)
