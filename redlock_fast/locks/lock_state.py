"""What a lock does, as procedures without I/O: acquire, release, extend.

The classes for threads and for asyncio run these procedures with their drivers and add nothing
to them: what may be done in which state is decided here, once.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from ..algorithm import procedures
from ..algorithm.effects import Connect, Effect, undo_after
from ..algorithm.lease import Extension, Lease, Refusal
from ..algorithm.redlock import Attempt
from ..engine.contract import Votes
from ..errors import ConfigError, LockLost, QuorumUnavailable, TooManyExtensions
from ..wire.text import quoted
from .client_base import check_timeout
from .holder import Holder


class LockState(Holder):
    """What a lock does, whichever way it waits."""

    __slots__ = ()

    def _attempt(
        self, blocking: bool, timeout: float | None, first: Attempt | None = None
    ) -> Generator[Effect, Any, Lease | Refusal]:
        """``first``: the caller has begun it with that, makes its exchange, and will end it."""
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
            if first is None:
                yield from self._prepare(me, wait)
            outcome = yield from procedures.acquire(
                rules, self._claim, self._ttl, give_up_at, rounds, self._keep, first
            )
            if isinstance(outcome, Refusal):
                core.masters.counts.unavailable += outcome.unavailable
                core.masters.counts.contended += not outcome.unavailable
            return outcome
        except BaseException as error:
            if self._acquiring is me:  # or what there is may be another acquire's
                yield from undo_after(error, self._drop())
            raise
        finally:
            if first is None and self._acquiring is me:
                self._acquiring = None

    def _prepare(self, me: object, wait: float | None) -> Generator[Effect, Any, None]:
        """Begin an acquire: take back a lease that has ended, wait for a first quorum of connections."""
        core = self._core
        ended = self._begin(me)
        if ended is not None:
            self.note_loss(ended)
            yield from procedures.undo_lease(ended)
        if not core.masters.ready:
            patience = core.connect_timeout
            yield Connect(patience if wait is None else min(wait, patience))
            core.check_open()

    def _waiting_time(self, blocking: bool, timeout: float | None) -> float | None:
        """How long to try; None: no end. A single try has only each master's own time."""
        timeout = check_timeout(timeout)
        if not blocking and timeout is not None:
            raise ConfigError("timeout must be -1 (or left out) when blocking is False")
        if not blocking:
            return None
        return self._timeout if timeout is None else timeout

    def _release(self) -> Generator[Effect, Any, bool]:
        """False: there was no lease, or it had ended on a quorum before."""
        core = self._core
        lease = self._leaving()
        if lease is None:
            return False
        try:
            alive = yield from procedures.release(core.rules, lease)
        except BaseException as error:
            yield from undo_after(error, procedures.undo_lease(lease))
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
                f"{quoted(self.key)}: the lease ended before the body did; "
                "others may have held the lock meanwhile"
            )

    def _extend(self, ttl: float | None, confirm: bool = False) -> Generator[Effect, Any, float]:
        """The new validity in seconds."""
        core = self._core
        core.check_open()
        ttl = self._ttl if ttl is None else core.check_ttl(ttl)
        lease = self._held()
        if lease is None:
            raise LockLost(f"{quoted(self.key)}: nothing to extend: the lock is not held")
        if not self.may_be_extended(lease):
            raise TooManyExtensions(
                f"{quoted(self.key)} was extended {lease.extensions} times, max_extensions allows no more; "
                f"held for {self.remaining():.3f} s more"
            )
        outcome, votes = yield from procedures.extend(core.rules, lease, ttl, confirm)
        return self.told(lease, outcome, votes)

    def told(self, lease: Lease, outcome: Extension, votes: Votes | None) -> float:
        """For the caller: the new validity in seconds, or why there is none."""
        if self.note_extension(lease, outcome):
            return lease.validity
        if outcome is Extension.LOST:
            raise LockLost(f"{quoted(self.key)}: lost before it was extended; others may hold the lock")
        raise QuorumUnavailable(
            f"{quoted(self.key)}: too few masters answered to extend; held for {self.remaining():.3f} s more",
            self._core.causes(votes) if votes else (),
        )
