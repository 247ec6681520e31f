"""One lock in one process: what it holds and how it changes, as procedures without I/O.

The classes for threads and for asyncio run these procedures with their drivers and add nothing
to them: what may be done in which state is decided here, once.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from typing import Any, Self

from . import _procedures as procedures
from ._claim import Claim
from ._core import TURN, Core, check_timeout, number
from ._effects import Connect, Effect, Pause
from ._engine import Votes
from ._keeper import Keeper
from ._lease import Extension, Lease, Refusal
from ._procedures import First
from .errors import ConfigError, LockAlreadyHeld, LockLost, QuorumUnavailable, TooManyExtensions


class _Default(int):
    """So that one may see whether it was left as it is."""


MAX_EXTENSIONS: int = _Default(100)


class LockState:
    """A lock on ``resource``. Belongs to the object, by its token; not to a thread or a task."""

    __slots__ = (
        "__weakref__",
        "_acquiring",
        "_claim",
        "_core",
        "_generation",
        "_keeper",
        "_lease",
        "_max_extensions",
        "_timeout",
        "_ttl",
        "resource",
    )

    def __init__(
        self,
        core: Core,
        resource: str | bytes | tuple[str | bytes, ...],
        claim: Claim,
        ttl: float | None = None,
        timeout: float | None = None,
        max_extensions: int | None = MAX_EXTENSIONS,
        keeper: Keeper | None = None,
    ) -> None:
        self.resource = resource
        self._core = core
        self._claim = claim
        self._ttl = core.default_ttl if ttl is None else core.check_ttl(ttl)
        self._timeout = None if timeout is None else check_timeout(timeout)
        if max_extensions is not MAX_EXTENSIONS and max_extensions is not None:
            number("max_extensions", max_extensions, low=0)
        self._max_extensions = max_extensions
        self._keeper = keeper  # of an auto-extended lock
        if keeper is not None and keeper.max_hold < math.inf and max_extensions is MAX_EXTENSIONS:
            self._max_extensions = None  # one bound is enough
        self._lease: Lease | None = None
        self._acquiring: object = None  # what the acquire that is under way is known by
        self._generation = core.masters.generation

    # --- what it is ---

    @property
    def ttl(self) -> float:
        """The lease that is asked for, in seconds."""
        return self._ttl

    @property
    def token(self) -> bytes | None:
        """The random value (160 bits) that is ours on the masters; None when nothing is held."""
        lease = self._held()
        return lease.token if lease else None

    @property
    def fencing_token(self) -> int | None:
        """A number larger than that of every holder before; None when not held, or without ``fencing``.

        For the protected resource to compare: it must refuse a token that is lower than one it has seen.
        It stays the same when the lease is extended. See docs/fencing.md. Source: Kleppmann, "How to do
        distributed locking", 2016.
        """
        lease = self._held()
        return lease.fencing if lease else None

    @property
    def validity(self) -> float:
        """Seconds of lease that were left when it was granted or last extended; 0.0 when not held."""
        lease = self._held()
        return lease.validity if lease else 0.0

    def locked(self) -> bool:
        """Whether this object holds the lock now: by its own clock, without asking the masters."""
        return self.remaining() > 0.0

    def remaining(self) -> float:
        """Seconds for which the lock is still ours; 0.0 when it is not. Asks nobody, and never raises."""
        lease = self._held()
        return max(0.0, lease.deadline - self._core.rules.clock()) if lease else 0.0

    def check(self) -> None:
        """Raise LockLost unless the lock is held now: at once and without I/O, so it may be called often."""
        if not self.locked():
            raise LockLost(f"{self.key!r} is not held: the lease has ended, or was never granted")

    def _held(self) -> Lease | None:
        # A child of fork has a copy of this object; the lease is its parent's.
        return self._lease if self._generation == self._core.masters.generation else None

    def __repr__(self) -> str:
        state = f"held for {self.remaining():.3f} s more" if self.locked() else "not held"
        return f"<{type(self).__name__} {self.resource!r}: {state}>"

    # --- how it changes ---

    def _attempt(
        self, blocking: bool, timeout: float | None, first: First | None = None
    ) -> Generator[Effect, Any, Lease | Refusal]:
        """``first``: the caller has begun it with that, and will end it."""
        core, rules = self._core, self._core.rules
        if first is None and core.masters.closed:
            core.check_open()
        if timeout == -1:
            wait = self._timeout if blocking else None
        else:
            wait = self._waiting_time(blocking, timeout)
        if wait == 0.0:
            blocking, wait = False, None
        give_up_at = None if wait is None else rules.clock() + wait
        rounds = rules.retry.max_attempts if blocking else 1
        me = first or object()
        try:
            ended = self._begin(me) if first is None else None
            if ended is not None:
                self.note_loss(ended)
                yield from procedures.undo_lease(ended)
            if first is None and not core.masters.ready:
                patience = core.connect_timeout
                yield Connect(patience if wait is None else min(wait, patience))
                core.check_open()
            outcome = yield from procedures.acquire(
                rules, self._claim, self._ttl, give_up_at, rounds, self._keep, first
            )
            if isinstance(outcome, Lease):
                core.counts.acquired += 1
            else:
                core.count("unavailable" if outcome.unavailable else "contended")
            return outcome
        except GeneratorExit:
            raise
        except BaseException:
            if self._acquiring is me:  # or what there is may be another acquire's
                yield from self._drop()
            raise
        finally:
            if first is None and self._acquiring is me:
                self._acquiring = None

    def _first(self, blocking: bool, timeout: float | None) -> First | None:
        """What to ``_begin`` an acquire with that one exchange may decide; None: use ``_attempt``.

        Its votes are to be ``_settle``d. Who began ends it, whatever came of it: the last step is to set
        ``_acquiring`` to None.
        """
        core = self._core
        masters, rules, claim = core.masters, core.rules, self._claim
        if (
            self._lease is not None
            or type(claim) is not Claim
            or claim.key in rules.line.waiting
            or self._timeout is not None
            or (timeout != -1 and timeout is not None)
            or not masters.ready
            or masters.closed
        ):
            return None
        return rules.clock(), rules.token(), rules.electorate.mask

    def _settle(self, first: First, votes: Votes) -> Lease | None:
        """What came of it; None: it was not all, ``_attempt`` has to go on."""
        core, (start, token, asked) = self._core, first
        if asked != core.rules.electorate.mask:
            return None
        lease = procedures.granted_lease(
            core.rules, self._claim, start, token, votes.sent, self._ttl, votes.granted
        )
        if lease is not None:
            self._keep(lease)
            core.counts.acquired += 1
        return lease

    def _acquired(self, outcome: Lease | Refusal) -> bool:
        """For ``acquire``: False where others hold it; QuorumUnavailable where masters are down."""
        if isinstance(outcome, Refusal) and outcome.unavailable:
            raise self._core.refused(self.key, outcome)
        return isinstance(outcome, Lease)

    def _entered(self, outcome: Lease | Refusal) -> None:
        """For ``with``: the body never runs unlocked."""
        if isinstance(outcome, Refusal):
            raise self._core.refused(self.key, outcome)

    def _waiting_time(self, blocking: bool, timeout: float | None) -> float | None:
        """How long to try; None: no end. A single try has only each master's own time."""
        timeout = check_timeout(timeout)
        if not blocking and timeout is not None:
            raise ConfigError("timeout must be -1 (or left out) when blocking is False")
        if not blocking:
            return None
        return self._timeout if timeout is None else timeout

    def _begin(self, me: object) -> Lease | None:
        """Nobody else acquires with this object from here on. Returns a lease that has ended.

        It has begun when ``_acquiring`` is ``me``: so one can tell, whatever interrupted this.
        """
        core = self._core
        with core.masters.mutex:
            if self._generation != core.masters.generation:  # whoever acquired or held it is our parent
                self._generation = core.masters.generation
                self._acquiring, self._lease = None, None
            lease = self._lease
            if self._acquiring or (lease and core.rules.clock() < lease.deadline):
                raise LockAlreadyHeld(
                    f"{self.key!r}: this lock object holds the lock, or is acquiring it; "
                    "use one object for each holder"
                )
            self._acquiring = me
        if lease is not None:
            self.let_go(lease)
        return lease

    def _keep(self, lease: Lease) -> None:
        self._lease = lease
        self._core.masters.hold(lease)
        if self._keeper is not None:
            self._keeper.begin(self, lease)

    def _leaving(self) -> Lease | None:
        """What there is to release."""
        lease = self._held()
        if lease is None or self._core.masters.closed:
            return None
        lease.released = True
        if self._keeper is not None:
            self._keeper.stop()
        return lease

    def _release(self) -> Generator[Effect, Any, bool]:
        """False: there was no lease, or it had ended on a quorum before."""
        core = self._core
        lease = self._leaving()
        if lease is None:
            return False
        try:
            alive = yield from procedures.release(core.rules, lease)
        except GeneratorExit:
            raise
        except BaseException:
            yield from procedures.undo_lease(lease)
            raise
        finally:
            self.let_go(lease)
        return self.note_release(lease, alive)

    def _drop(self) -> Generator[Effect, Any, None]:
        """Release without waiting for an answer."""
        lease = self._held()
        if lease is not None:
            if self._keeper is not None:
                self._keeper.stop()
            self.let_go(lease)
            yield from procedures.undo_lease(lease)

    def _left(self, alive: bool, failing: bool) -> None:
        """For ``with``: a lease that ended before the body did must not pass unnoticed."""
        if not alive and not failing:
            raise LockLost(
                f"{self.key!r}: the lease ended before the body did; others may have held the lock meanwhile"
            )

    def _extend(self, ttl: float | None) -> Generator[Effect, Any, float]:
        """The new validity in seconds."""
        core = self._core
        core.check_open()
        ttl = self._ttl if ttl is None else core.check_ttl(ttl)
        lease = self._held()
        if lease is None:
            raise LockLost(f"{self.key!r}: nothing to extend: the lock is not held")
        if not self.may_be_extended(lease):
            raise TooManyExtensions(
                f"{self.key!r} was extended {lease.extensions} times, max_extensions allows no more; "
                f"held for {self.remaining():.3f} s more"
            )
        while not core.ask([lease], ttl):
            yield Pause(TURN)
        try:
            outcome, votes = yield from procedures.extend(core.rules, lease, ttl)
        finally:
            core.answered([lease])
        return self.told(lease, outcome, votes)

    def told(self, lease: Lease, outcome: Extension, votes: Votes | None) -> float:
        """For the caller: the new validity in seconds, or why there is none."""
        if self.note_extension(lease, outcome):
            return lease.validity
        if outcome is Extension.LOST:
            raise LockLost(f"{self.key!r}: lost before it was extended; others may hold the lock")
        raise QuorumUnavailable(
            f"{self.key!r}: too few masters answered to extend; held for {self.remaining():.3f} s more",
            self._core.causes(votes) if votes else (),
        )

    # --- one of many: for batches ---

    @classmethod
    def of_leases(
        cls,
        core: Core,
        resources: Sequence[str | bytes],
        leases: Sequence[Lease | None],
    ) -> list[Self | None]:
        """A lock for each lease, and None where there is none."""
        new, generation = cls.__new__, core.masters.generation
        locks: list[Self | None] = []
        for resource, lease in zip(resources, leases, strict=True):
            if lease is None:
                locks.append(None)
                continue
            lock = new(cls)
            lock.resource = resource
            lock._core = core
            lock._claim = lease.claim
            lock._ttl = lease.ttl
            lock._timeout = None
            lock._max_extensions = MAX_EXTENSIONS
            lock._keeper = None
            lock._lease = lease
            lock._acquiring = None
            lock._generation = generation
            locks.append(lock)
        core.masters.hold(*filter(None, leases))
        return locks

    @property
    def key(self) -> bytes:
        """The resource as it stands on the masters."""
        return self._claim.key

    @property
    def lease(self) -> Lease | None:
        return self._held()

    def becomes(self, claim: Claim) -> Self:
        """Of another kind than it was made."""
        self._claim = claim
        return self

    def let_go(self, lease: Lease) -> None:
        """It is released, or over."""
        self._core.masters.let_go(lease)
        if self._lease is lease:  # to the end: who is interrupted above finds it, and does this again
            self._lease = None

    @staticmethod
    def let_go_all(core: Core, held: Mapping[LockState, Lease]) -> None:
        """The same of many."""
        core.masters.let_go(*held.values())
        for lock, lease in held.items():
            if lock._lease is lease:
                lock._lease = None

    def may_be_extended(self, lease: Lease) -> bool:
        return self._max_extensions is None or lease.extensions < self._max_extensions

    def note_release(self, lease: Lease, alive: bool) -> bool:
        self.let_go(lease)
        if alive:
            self._core.counts.released += 1
        else:
            self._core.counts.expired += 1
            self.note_loss(lease)
        return alive

    def note_loss(self, lease: Lease) -> None:
        """A release or an acquire found that the lease had ended."""
        if self._keeper is not None:
            self._keeper.lose(self, lease, released=True)

    def note_extension(self, lease: Lease, outcome: Extension) -> bool:
        """Whether the lease was extended."""
        core = self._core
        if outcome is Extension.LOST and self._keeper is not None:
            self._keeper.lose(self, lease)  # which counts it
        elif outcome is Extension.LOST:
            with core.masters.mutex:
                lease.lose(core.rules.clock())
                core.count(outcome.value)
        else:
            core.count(outcome.value)
        return outcome is Extension.EXTENDED
