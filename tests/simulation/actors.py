"""What clients do: acquire, hold, extend, release, one lock at a time or many."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from math import inf
from typing import Any

from redlock_fast.aio.rlock import AsyncRLock, TaskOwner
from redlock_fast.algorithm.effects import Sleep
from redlock_fast.algorithm.lease import AcquireFailure, Lease
from redlock_fast.algorithm.lock_kind import LockKind
from redlock_fast.errors import LockLost, QuorumUnavailable
from redlock_fast.locks.auto_extend import AutoExtension
from redlock_fast.locks.fair import fair_kind
from redlock_fast.locks.lock_state import LockState
from redlock_fast.locks.many import AcquireMany, ReleaseMany, new_extend_many
from redlock_fast.locks.multilock import multi_lock_kind
from redlock_fast.locks.rwlock import Reader, Writer, intent, new_downgrade
from redlock_fast.locks.semaphore import semaphore_kind
from redlock_fast.threads import operations

from . import lock_calls
from .awaited_lock import AwaitedLock
from .invariants import Hold
from .performed import performed
from .process import Interrupted, Process
from .renewal import Flag
from .requests import held_by
from .virtual_threads import stepped

Script = Generator[Any, Any, None]

TTLS = 0.2, 0.1, 0.4
#: What extensions ask for, in ttls.
EXTENSIONS = 1.0, 2.0, 0.5
#: The longest lease that a user requests.
MAX_TTL = 0.8
#: Of a semaphore.
PERMITS = 2


class User:
    """A user of locks. ``name``: as in the trace. Times are drawn, in seconds."""

    def __init__(self, process: Process, name: str, rounds: int, kind: str = "plain") -> None:
        self.process = process
        self.world = process.world
        self.witness = process.witness
        self.name = name
        self.rounds = rounds
        self.kind = kind
        self.others: Sequence[bytes] = ()
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

    def fencing(self, resources: Sequence[bytes]) -> Script:
        return self._one_by_one(resources, extensions=self.world.draw(2))

    def semaphore(self, resources: Sequence[bytes]) -> Script:
        return self._one_by_one(resources, extensions=self.world.draw(3))

    def fair(self, resources: Sequence[bytes]) -> Script:
        return self._one_by_one(resources, extensions=self.world.draw(3))

    def readwrite(self, resources: Sequence[bytes]) -> Script:
        return self._one_by_one(resources, extensions=self.world.draw(4))

    def renewing(self, resources: Sequence[bytes]) -> Script:
        """Leases are extended in the background, too."""
        return self._one_by_one(resources, extensions=1 + self.world.draw(4))

    def straight(self, resources: Sequence[bytes]) -> Script:
        """Plain locks on the compiled way of the client for threads."""
        return self._one_by_one(resources, extensions=self.world.draw(3))

    def multilock(self, resources: Sequence[bytes]) -> Script:
        return self._one_by_one(resources, extensions=self.world.draw(3))

    def lock(self, resource: bytes) -> LockState:
        """Of the kind that this run is about."""
        core, ttl = self.process.core, self.ttls[self.world.draw(len(self.ttls))]
        auto_extension = None
        if self.kind == "renewing":
            auto_extension = AutoExtension(self.process.renewal, Flag, None, inf)
        return LockState(core, resource, self._lock_kind(resource), ttl, auto_extension=auto_extension)

    def _lock_kind(self, resource: bytes) -> LockKind:
        core = self.process.core
        if self.kind == "readwrite":
            return Reader(resource) if self.world.draw(3) else Writer(resource, intent(core.policy))
        if self.kind == "semaphore":
            return semaphore_kind(resource, PERMITS, core.policy)
        if self.kind == "fair":
            return fair_kind(resource, False)
        if self.kind == "multilock":
            return multi_lock_kind(
                core, sorted({resource, *self.others[: self.world.draw(len(self.others) + 1)]})
            )
        return core.lock_kind(resource, self.kind == "fencing")

    def _one_by_one(self, resources: Sequence[bytes], extensions: int) -> Script:
        world = self.world
        self.others = resources
        for _ in range(self.rounds):
            lock = self.lock(resources[world.draw(len(resources))])
            hold = None
            try:
                yield self.short_while()
                hold = yield from self.acquire(lock, self.outage_timeout())
                if hold is not None:
                    yield self.hold_time(lock)
                    for _ in range(extensions):
                        if self.kind == "extending" and lock.locked() and world.draw(4) == 3:
                            self.witness.gives_up(hold)
                            lock, hold = yield from self.hand_over(lock)
                            if hold is None:
                                break
                        else:
                            yield from self.extend(lock, hold)
                        yield self.hold_time(lock)
            except Interrupted:
                world.counts["interrupted"] += 1
            yield from self.release(lock, hold)

    def acquire(self, lock: LockState, timeout: float | None) -> Generator[Any, Any, Hold | None]:
        """As ``Lock.acquire``."""
        began = self._begin()
        if self.kind == "straight":
            outcome = yield from self._in_thread(lock)
        else:
            outcome = yield from lock_calls.acquire(lock, True, timeout)
        bounded = timeout is not None and self.kind != "straight"
        self._took("acquire", began, timeout if bounded else inf)
        if isinstance(outcome, AcquireFailure):
            self.world.counts["unavailable" if outcome.unavailable else "contended"] += 1
            return None
        return self._holds(lock, outcome)

    def _in_thread(self, lock: LockState) -> Generator[Any, Any, Lease | AcquireFailure]:
        """By the driver of the client for threads."""
        blocking = self.world.draw(4) == 3
        outcome: Lease | AcquireFailure = yield from stepped(
            self.process, lambda masters: operations.acquire(lock, blocking, None, masters)
        )
        return outcome

    def _holds(self, lock: LockState, lease: Lease) -> Hold:
        end, shared = self.process.true_time(lease.deadline), type(lease.lock_kind) is Reader
        hold = Hold(self.name, held_by(lease.release_requests()), end, shared)
        if lock._auto_extension is not None:
            self.process.renewal().holds[lease] = hold
        return self.witness.holds_now(hold, lease, lock.remaining())

    def extend(self, lock: LockState, hold: Hold) -> Generator[Any, Any, None]:
        world, lease = self.world, lock._lease
        if lease is None:
            return  # renewal found it lost
        more = lock_calls.extend(lock, EXTENSIONS[world.draw(len(EXTENSIONS))] * lock.ttl)
        if type(lease.lock_kind) is Writer and world.draw(2):
            hold.shared = True
            world.counts["downgrades"] += 1
            more = performed(new_downgrade(self.process.core, lock))
        yield from self._extend(lock, lease, hold, more)

    def hand_over(self, lock: LockState) -> Generator[Any, Any, tuple[LockState, Hold | None]]:
        """Another object takes the lock over by its token, after a while; if interrupted, it releases it."""
        kind, token = self.process.core.lock_kind(lock.key), lock.detach()
        taken = LockState(self.process.core, lock.resource, kind, lock.ttl)._with_token(token)
        try:
            yield self.short_while()
            yield from lock_calls.extend(taken, None)
        except (LockLost, QuorumUnavailable):
            self.world.counts["not taken over"] += 1
            return taken, None
        except Interrupted:
            yield from self.release(taken, None)
            raise
        assert taken._lease is not None
        self.world.counts["taken over"] += 1
        return taken, self._holds(taken, taken._lease)

    def _extend(self, lock: LockState, lease: Lease, hold: Hold, more: Script) -> Script:
        process, world = self.process, self.world
        began, asked_at = self._begin(), world.now
        try:
            yield from more
        except LockLost:
            world.counts["lost"] += 1
            self.witness.gives_up(hold)
        except QuorumUnavailable:
            world.counts["inconclusive"] += 1
        else:
            self.witness.prolongs(hold, asked_at, process.true_time(lease.deadline))
        self._took("extend", began, process.core.policy.node_timeout)

    def release(self, lock: LockState, hold: Hold | None) -> Script:
        """As ``Lock.__exit__``: what interrupts it does not keep it from happening."""
        if hold is not None:
            self.witness.gives_up(hold)
        began = self._begin()
        try:
            if self.kind == "straight":
                yield from stepped(self.process, lambda masters: operations.release(lock, masters))
            else:
                yield from lock_calls.release(lock)
        except Interrupted:
            self.world.counts["interrupted"] += 1
            yield from lock_calls.release(lock)
        self._took("release", began, self.process.core.policy.node_timeout)

    # --- a lock that is entered several times ---

    def reentrant(self, resources: Sequence[bytes]) -> Script:
        """Each further level may ask for another ttl."""
        world, core = self.world, self.process.core
        for _ in range(self.rounds):
            ttl = self.ttls[world.draw(len(self.ttls))]
            resource = resources[world.draw(len(resources))]
            settings = core, self._awaited, resource, ttl, 0.0, {"on_lost": None}, TaskOwner()
            rlock = AsyncRLock(*settings).owned_by(self.name)
            hold = None
            try:
                yield self.short_while()
                outage_timeout = self.outage_timeout()
                granted = yield from rlock.acquire(
                    timeout=-1 if outage_timeout is None else outage_timeout
                ).__await__()
                world.counts["contended"] += not granted
                if granted:
                    lock = rlock._require_owned().lock
                    hold = self._holds(lock, lock._lease)
                    for _ in range(1 + world.draw(3)):
                        yield self.hold_time(lock)
                        wanted = EXTENSIONS[world.draw(len(EXTENSIONS))] * ttl
                        more = rlock.acquire(ttl=wanted).__await__()
                        yield from self._extend(lock, lock._lease, hold, more)
            except QuorumUnavailable:
                world.counts["unavailable"] += 1
            except Interrupted:
                world.counts["interrupted"] += 1
            if hold is not None:
                self.witness.gives_up(hold)
            for _ in range(rlock.depth):
                try:
                    yield from rlock.release().__await__()
                except Interrupted:
                    world.counts["interrupted"] += 1

    def _awaited(self, resource: bytes, ttl: float, **options: Any) -> AwaitedLock:
        core = self.process.core
        return AwaitedLock(core, resource, core.lock_kind(resource), ttl)

    def take_and_release(self, lock: LockState) -> Generator[Any, Any, bool]:
        hold = yield from self.acquire(lock, 0.5 + 100 * max(self.process.distances))
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
                yield from performed(ReleaseMany(core, list(held)))
            except Interrupted:
                world.counts["interrupted"] += 1
            self._took("release_many", began, core.max_ttl)

    def _acquire_many(self, chosen: list[bytes], ttl: float) -> Generator[Any, Any, dict[LockState, Hold]]:
        process, counts, began = self.process, self.world.counts, self._begin()
        try:
            locks = yield from performed(AcquireMany(process.core, LockState, self.lock, chosen, ttl))
        except QuorumUnavailable:
            counts["unavailable"] += 1
            return {}
        finally:
            self._took("acquire_many", began, ttl + process.core.connect_timeout)
        counts["contended"] += locks.count(None)
        held = {}
        for lock in locks:
            if lock is not None:
                lease = lock._lease
                assert isinstance(lease, Lease)
                held[lock] = self._holds(lock, lease)
        return held

    def _extend_many(self, held: dict[LockState, Hold], ttl: float) -> Script:
        process, world = self.process, self.world
        old = {lock: lock._lease.deadline for lock in held if lock._lease}
        began, asked_at = self._begin(), world.now
        done = yield from performed(new_extend_many(process.core, list(held), ttl * (1 + world.draw(2))))
        self._took("extend_many", began, max(began[0], *old.values()) - began[0])
        for (lock, hold), extended in zip(held.items(), done, strict=True):
            lease = lock._lease
            assert lease is not None
            if extended:
                self.witness.prolongs(hold, asked_at, process.true_time(lease.deadline))
            elif lock.locked():
                world.counts["inconclusive"] += 1
            else:
                world.counts["lost"] += 1
                self.witness.gives_up(hold)

    # --- times ---

    def outage_timeout(self) -> float | None:
        """How long to wait for a lock: some wait until they have it."""
        return None if self.world.draw(4) == 3 else self.world.disturbance()

    def short_while(self) -> Any:
        return Sleep(self.world.draw(16) * 0.004)

    def hold_time(self, lock: LockState) -> Any:
        """Mostly within the lease, now and then beyond it."""
        return Sleep(lock.ttl * 1.2 * (self.world.draw(20) / 19) ** 2)

    def _begin(self) -> tuple[float, float]:
        return self.process.clock(), self.process.paused_for

    def _took(self, what: str, began: tuple[float, float], allowed: float) -> None:
        """A process that was paused itself makes no call late."""
        clock, paused_for = began
        if self.process.paused_for == paused_for:
            self.witness.took(self.name, what, self.process.clock() - clock, allowed)
