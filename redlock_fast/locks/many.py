"""acquire_many, release_many and extend_many as operations, for threads and asyncio."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Generator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Generic, TypeVar

from ..algorithm import batch as batches
from ..algorithm.batch import Completion, UnfinishedBatch
from ..algorithm.effects import Effect, WaitForQuorum
from ..algorithm.keys import many_keys
from ..algorithm.lease import AcquireFailure, ExtendOutcome, Lease
from ..algorithm.lock_kind import LockKind
from ..algorithm.operation import Message, Operation, Procedure
from ..algorithm.policy import Policy
from ..algorithm.refill import Given, taken_back
from ..errors import ConfigError, QuorumUnavailable
from ..wire.text import quoted
from .batch_state import foreign_locks, held_by, locks_of, remove_leases, stop_auto_extension
from .client_core import ClientCore
from .failures import acquire_error
from .lock_state import LockState
from .options import ListOf

L = TypeVar("L", bound=LockState)
Outcome = TypeVar("Outcome")


class AcquireMany(Procedure, Generic[L]):
    """One attempt for each resource. The outcome: locks, with None for each that is held elsewhere.

    ``kind``: the class of the locks. ``new_lock``: makes one with the client's default options, where there
    are any. ``part``: this call is a part of another call, which completes it. Raises QuorumUnavailable if a
    resource could not be decided: then the call holds no lock.
    """

    def __init__(
        self,
        core: ClientCore,
        kind: type[L],
        new_lock: Callable[[Any, float], L],
        resources: ListOf[str | bytes],
        ttl: float | None,
        part: UnfinishedBatch | None = None,
    ) -> None:
        self.core: ClientCore = core
        self.new_lock = new_lock
        self.batch: UnfinishedBatch = part or UnfinishedBatch(Completion())
        self.held: list[Lease | None] = []
        super().__init__(self._acquire(kind, resources, ttl, part is None))

    def _acquire(
        self, kind: type[L], resources: ListOf[str | bytes], ttl: float | None, complete: bool
    ) -> Generator[Effect, Any, list[L | None]]:
        core, batch, held = self.core, self.batch, self.held
        core.check_open()
        ttl = core.ttl_of(ttl)
        keys = check_resources(core, resources)
        if keys and not core.client_state.ready:
            yield WaitForQuorum(core.connect_timeout)
            core.check_open()
        core.client_state.add_batch(batch)
        core.check_open()  # after that: close() cancels the batches that it finds
        yield from _acquire_parts(core, resources, keys, ttl, held, batch)
        _check_time(core, held)
        refused = held.count(None)
        if core.plain_locks:
            locks = locks_of(kind, core, resources, held)
            core.client_state.counts.acquired += len(held) - refused
        else:
            locks = _locks_with_options(self.new_lock, resources, ttl, held)
        core.client_state.counts.contended += refused
        if complete:
            batch.completion.complete()
        return locks

    def abort(self) -> list[Message]:
        super().abort()
        leases = [lease for lease in self.held if lease is not None]
        self.core.client_state.remove_leases(leases)
        messages = batches.undo_leases(leases) + self.batch.undo(self.batch.decided)
        end_batch(self.core, self.batch)
        return messages


def end_batch(core: ClientCore, batch: UnfinishedBatch) -> None:
    """Forget a batch that is undone: from now on ``close`` does not cancel it."""
    core.client_state.batches.discard(weakref.ref(batch))


def _acquire_parts(
    core: ClientCore,
    resources: ListOf[str | bytes],
    keys: list[bytes],
    ttl: float,
    held: list[Lease | None],
    batch: UnfinishedBatch,
) -> Generator[Effect, Any, None]:
    """Make the attempts, and append the leases to ``held``. Raises QuorumUnavailable and ClientClosed."""
    for part in batches.parts(keys):
        undecided = yield from batches.acquire(core.policy, keys[part], ttl, held, batch)
        if undecided is not None:
            batch.completion.check()  # close() ends the exchange: then no master failed
            core.client_state.counts.unavailable += 1
            number, votes = undecided
            resource = resources[part.start + number]
            raise acquire_error(core, resource, LockKind(keys[0]), AcquireFailure(votes, True, 1))


def _locks_with_options(
    new_lock: Callable[[Any, float], L],
    resources: ListOf[str | bytes],
    ttl: float,
    leases: Sequence[Lease | None],
) -> list[L | None]:
    """As ``locks_of``, with the client's defaults: a timeout, auto-extension. Counts the locks."""
    locks: list[L | None] = []
    for resource, lease in zip(resources, leases, strict=True):
        lock = None if lease is None else new_lock(resource, ttl)
        locks.append(lock)
        if lock is not None and lease is not None:
            lock._on_granted(lease)
    return locks


def _check_time(core: ClientCore, held: list[Lease | None]) -> None:
    """Raise QuorumUnavailable if the first lease ended while later parts were acquired."""
    first = next((lease for lease in held if lease is not None), None)
    if first is not None and core.policy.clock() >= first.deadline:
        core.client_state.counts.unavailable += 1
        raise QuorumUnavailable(
            f"the first of {len(held)} leases ended before the last was granted: "
            "use a longer ttl, or fewer locks at once",
            reason="late",
        )


class ReleaseMany(Procedure):
    """Release each lock. The outcome: False for each that was not held, or whose lease had ended.

    ``held``: the leases to release; None: those that ``locks`` have now.
    """

    def __init__(
        self, core: ClientCore, locks: Sequence[LockState], held: dict[LockState, Lease] | None = None
    ) -> None:
        self.core: ClientCore = core
        self.held: dict[LockState, Lease] = leases_of(core, locks) if held is None else held
        super().__init__(self._release(locks))

    def _release(self, locks: Sequence[LockState]) -> Generator[Effect, Any, list[bool]]:
        core = self.core
        if core.client_state.closed:
            for lease in self.held.values():
                lease.give_up()
            self.held = {}
        held = self.held
        stop_auto_extension(held)
        alive = yield from _by_parts(core, held, batches.release)
        remove_leases(core, held)
        core.client_state.counts.released += alive.count(True)
        if False in alive:
            for (lock, lease), found in zip(held.items(), alive, strict=True):
                if not found and lease.refuse():
                    core.client_state.counts.expired += 1
                    lock._note_loss(lease)
        return _for_each(locks, held, alive)

    def abort(self) -> list[Message]:
        super().abort()
        left = not_released(self.held)
        stop_auto_extension(left)
        messages = batches.undo_leases(list(left.values()))
        remove_leases(self.core, left)
        return messages


def not_released(held: dict[LockState, Lease]) -> dict[LockState, Lease]:
    """What locks still have of the leases in ``held``."""
    return {lock: lease for lock, lease in held.items() if lock._lease is lease}


def new_extend_many(core: ClientCore, locks: Sequence[LockState], ttl: float | None) -> Operation:
    """The operation that extends each lock. The outcome: True for each that was extended."""
    core.check_open()
    ttl = core.ttl_of(ttl)
    held = {lock: lease for lock, lease in leases_of(core, locks).items() if lock._may_be_extended(lease)}
    given: list[Given] = []
    return Procedure(_extend_many(core, locks, held, ttl, given), partial(taken_back, given))


def _extend_many(
    core: ClientCore,
    locks: Sequence[LockState],
    held: dict[LockState, Lease],
    ttl: float,
    given: list[Given],
) -> Generator[Effect, Any, list[bool]]:
    outcomes = yield from _by_parts(core, held, partial(_extend, ttl=ttl, given=given))
    done = [
        lock._note_extension(lease, outcome)
        for (lock, lease), outcome in zip(held.items(), outcomes, strict=True)
    ]
    return _for_each(locks, held, done)


def _extend(
    policy: Policy, leases: Sequence[Lease], ttl: float, given: list[Given]
) -> Generator[Effect, Any, list[ExtendOutcome]]:
    return batches.extend(policy, leases, [ttl] * len(leases), given)


def _by_parts(
    core: ClientCore,
    held: dict[LockState, Lease],
    procedure: Callable[..., Generator[Effect, Any, list[Outcome]]],
) -> Generator[Effect, Any, list[Outcome]]:
    """Run ``procedure`` for each part of the leases. Returns all outcomes."""
    leases = list(held.values())
    outcomes: list[Outcome] = []
    for part in batches.parts_of(leases):
        outcomes += yield from procedure(core.policy, leases[part])
    return outcomes


def _for_each(locks: Sequence[LockState], held: dict[LockState, Lease], done: list[bool]) -> list[bool]:
    """``done`` in the order of ``locks``, with False for each lock that was not held."""
    if len(done) == len(locks):
        return done
    found = dict(zip(held, done, strict=True))
    return [found.get(lock, False) for lock in locks]


# --- checks, all before any I/O ------------------------------------------------------------------


def check_resources(core: ClientCore, resources: ListOf[str | bytes]) -> list[bytes]:
    """The keys of ``resources``. Raises ConfigError for a wrong type and for duplicates."""
    if isinstance(resources, (str, bytes)) or not isinstance(resources, Sequence):
        raise ConfigError(f"resources must be a list of str or bytes, not {type(resources).__name__}")
    keys = many_keys(core.key_prefix, resources)
    if len(set(keys)) < len(keys):
        twice = next(one for one, other in pairwise(sorted(keys)) if one == other)
        raise ConfigError(f"resources: {quoted(twice)} is there twice")
    return keys


def leases_of(core: ClientCore, locks: Sequence[LockState]) -> dict[LockState, Lease]:
    """The locks that have a lease, with it. Raises ConfigError for foreign locks and duplicates."""
    if isinstance(locks, (str, bytes)) or not isinstance(locks, Sequence):
        raise ConfigError(f"locks must be a list of locks, not {type(locks).__name__}")
    for lock in foreign_locks(core, locks):
        raise ConfigError(f"locks: {lock!r} is no lock of this client")
    held = held_by(core, locks)
    if len(held) < len(locks) and len(set(locks)) < len(locks):
        raise ConfigError("locks: one of them is there twice")
    return held
