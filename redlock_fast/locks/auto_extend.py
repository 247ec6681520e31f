"""Auto-extension: the settings of each lock, and the renewal of each client. No waiting.

``threads/renewal.py`` and ``aio/renewal.py`` decide when to run this, and how to report a loss.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, Protocol

from ..algorithm import batch as batches
from ..algorithm.effects import Effect
from ..algorithm.lease import ExtendOutcome, Lease
from ..algorithm.operation import Operation, Procedure
from ..algorithm.policy import Policy
from ..algorithm.refill import Given, taken_back
from ..algorithm.renewal_schedule import GONE, LONG_HOLD_SHARE, UNCONFIRMED, Renewable, RenewedLease, Schedule
from ..algorithm.tokens import owner_of
from ..engine.mutex import new_mutex
from ..errors import ConfigError
from ..masters.client_state import ClientState
from ..masters.masters import Masters
from ..masters.stats import Stats
from ..wire.text import quoted, shown
from .bodies import Body
from .client_core import ClientCore
from .config import CLIENT_DEFAULT, check_flag, check_hold

#: The minimum timeout of an extension although another lease ends earlier: seconds, and round trips.
MIN_EXCHANGE_TIMEOUT, EXCHANGE_ROUND_TRIPS = 0.005, 4
#: The longest pause in seconds. During sleep the lease clock runs and timers may stop.
TICK = 1.0

OnLost = Callable[[Any, str], Any]


class AutoExtended(Renewable, Protocol):
    """A lock that may be auto-extended."""

    _auto_extension: AutoExtension | None
    _bodies: list[Body] | None


class AutoExtension:
    """The auto-extension settings of one lock, and the lease that is renewed.

    ``lost``: the event of the present lease, or of the next one. ``cancels``: a loss cancels the body of
    ``async with``.
    """

    __slots__ = ("_reason", "_renewal", "_renewal_of", "_renewed", "cancels", "lost", "max_hold", "on_lost")

    def __init__(
        self,
        renewal_of: Callable[[], Renewal],
        event: Callable[[], Any],
        on_lost: OnLost | None,
        max_hold: float,
        cancels: bool = False,
    ) -> None:
        self.on_lost: OnLost | None = on_lost
        self.max_hold: float = max_hold
        self.cancels: bool = cancels
        self.lost: Any = event()
        self._renewal_of = renewal_of
        self._renewal: Renewal | None = None
        self._renewed: RenewedLease | None = None
        self._reason = ""  # why the lease of ``_renewed`` was lost

    def begin(self, lock: AutoExtended, lease: Lease) -> None:
        """Start the renewal of ``lease``."""
        renewal = self._renewal_of()
        with renewal.mutex:  # another thread may be in ``set_lost``, with the lease before
            if self.lost.is_set() or self._renewal not in (None, renewal):  # the parent's, before a fork
                self.lost = type(self.lost)()
            self._renewal = renewal
            now = renewal.policy.clock()
            until, warn_at = now + self.max_hold, now + self.max_hold * LONG_HOLD_SHARE
            self._renewed, self._reason = RenewedLease(lock, lease, until, warn_at), ""
            renewal.add(self._renewed)

    def set_lost(self, renewed: RenewedLease, reason: str) -> None:
        """Set the event of ``renewed``, unless that is the event of a later lease by now.

        The caller holds the mutex of the renewal.
        """
        if self._renewed is renewed:
            self._reason = reason
            self.lost.set()

    def reason_of(self, lease: Lease) -> str:
        """Why ``lease`` is lost, also before renewal has found that it has ended; "" if it is another one."""
        renewed = self._renewed
        if renewed is None or renewed.lease is not lease:
            return ""
        return self._reason or renewed.reason()

    def stop(self, lease: Lease) -> None:
        """Stop the renewal of ``lease`` before its release. Outcomes of extensions under way are ignored.

        Another thread may have acquired the lock since: the renewal of its lease goes on.
        """
        renewed = self._renewed
        if self._renewal is not None and renewed is not None and renewed.lease is lease:
            self._renewal.drop(renewed)

    def on_lease_lost(self, lock: AutoExtended, lease: Lease, *, released: bool = False) -> None:
        """Report a lost lease. ``released``: a release or an acquire found it, and stopped its renewal."""
        renewed = self._renewed
        if self._renewal is not None and renewed is not None and renewed.lease is lease:
            gone = self._renewal.policy.clock() < lease.deadline
            self._renewal.mark_lost(lock, renewed, GONE if gone else renewed.reason(), released=released)


class Renewal:
    """The renewal of all auto-extended locks of one client in one process."""

    def __init__(self, core: ClientCore) -> None:
        # No reference to the client: it refers to this, and must be collected without a cycle.
        self.masters: Masters = core.masters
        self.client_state: ClientState = core.client_state
        self.policy: Policy = core.policy
        self.counts: Stats = core.client_state.counts
        self.generation: int = core.client_state.generation()
        self.schedule: Schedule = Schedule(core.policy.drift_factor)
        #: Guards the schedule. Lock order: ``ClientState.mutex`` may be taken inside, not around it.
        self.mutex: threading.RLock = new_mutex()

    # --- implemented for threads and for asyncio ---

    def wake_soon(self) -> None:
        """Make sure that the schedule is run in time for a new lease. The caller holds the mutex."""
        raise NotImplementedError

    def notify_lost(self, lock: AutoExtended, lease: Lease, reason: str) -> None:
        """Report that ``lock`` has lost ``lease``, whose event is set: call ``on_lost``."""
        raise NotImplementedError

    # --- called by locks ---

    def add(self, renewed: RenewedLease) -> None:
        with self.mutex:
            self.schedule.add(renewed)
            try:
                self.wake_soon()
            except BaseException:
                self.schedule.drop(renewed)
                raise

    def drop(self, renewed: RenewedLease) -> None:
        with self.mutex:
            self.schedule.drop(renewed)

    def mark_lost(
        self, lock: AutoExtended, renewed: RenewedLease, reason: str, *, released: bool = False
    ) -> None:
        """Count and report a loss, once. After a release only with ``released``."""
        with self.mutex:
            if renewed.notified or (renewed.over and not released):
                return
            self.schedule.drop(renewed)
            if renewed.lease.released and not released:  # before its renewal began
                return
            renewed.notified = True
            renewed.lease.mark_lost(self.policy.clock())
            if lock._auto_extension is not None:
                lock._auto_extension.set_lost(renewed, reason)
        self.counts.lost += 1
        self.warn_of("lock-lost", renewed, lock, reason)
        self.notify_lost(lock, renewed.lease, reason)

    # --- called periodically ---

    def collect_due(self) -> list[tuple[RenewedLease, float]]:
        """Report leases that have ended or are held for long. Returns the leases to ``extend`` now."""
        now = self.policy.clock()
        with self.mutex:
            ended = self.schedule.pop_ended(now)
        for renewed in ended:
            self._lost(renewed, renewed.reason())
        with self.mutex:
            due, long_held = self.schedule.pop_due(now), self.schedule.pop_long_held()
        for renewed in long_held:
            reason = (
                f"held for {LONG_HOLD_SHARE:.0%} of max_hold: "
                f"renewal and the lease end in {max(0.0, renewed.until - now):.0f} s"
            )
            self.warn_of("lock-held-long", renewed, renewed.lock(), reason)
        return due

    def warn_of(self, event: str, renewed: RenewedLease, lock: Any, reason: str) -> None:
        """Log ``event`` of one lease, whose lock may be gone by now."""
        self.client_state.events.warn_of(
            event,
            f"{_named(renewed)}: {reason}",
            resource=shown(renewed.key if lock is None else lock.resource),
            owner=owner_of(renewed.lease.token),
            reason=reason,
        )

    def extension(self, due: Sequence[tuple[RenewedLease, float]]) -> Operation:
        """The operation that extends the leases of ``due``, one exchange for each part of some thousands."""
        given: list[Given] = []
        return Procedure(self._extend(due, given), partial(taken_back, given))

    def _extend(
        self, due: Sequence[tuple[RenewedLease, float]], given: list[Given]
    ) -> Generator[Effect, Any, None]:
        done = 0
        try:
            for part in batches.parts_of([renewed.lease for renewed, _ in due]):
                leases = [renewed.lease for renewed, _ in due[part]]
                ttls = [ttl for _, ttl in due[part]]
                start = self.policy.clock()
                timeout = self._exchange_timeout()
                outcomes = yield from batches.extend(self.policy, leases, ttls, given, timeout, thorough=True)
                done = part.stop
                self._settle(due[part], outcomes)
                self.schedule.took = self.policy.clock() - start
        finally:
            self._settle(due[done:], [ExtendOutcome.INCONCLUSIVE] * (len(due) - done))

    def wait(self) -> float:
        """Seconds until ``collect_due`` is due again."""
        with self.mutex:
            return max(0.0, min(TICK, self.schedule.next() - self.policy.clock()))

    def _exchange_timeout(self) -> float:
        """The timeout of an exchange: until the next lease ends, so that its loss is reported in time.

        Never less than replies usually take: leases that end in a row must not starve other extensions.
        """
        with self.mutex:
            left = self.schedule.first_end() - self.policy.clock()
        if left >= self.policy.node_timeout:
            return left
        lists, engine = self.policy.voters.lists, self.masters.engine
        round_trips = {n: engine.connection_state(n).round_trip for n in range(lists.masters)}
        usual = lists.rank({n: seconds for n, seconds in round_trips.items() if seconds})
        return max(left, MIN_EXCHANGE_TIMEOUT, EXCHANGE_ROUND_TRIPS * (usual or 0.0))

    def _settle(self, due: Sequence[tuple[RenewedLease, float]], outcomes: Sequence[ExtendOutcome]) -> None:
        lost = []
        now = self.policy.clock()
        with self.mutex:
            for (renewed, _), outcome in zip(due, outcomes, strict=True):
                if outcome is ExtendOutcome.LOST:
                    lost.append(
                        (renewed, GONE if now < renewed.lease.deadline else renewed.stopped or UNCONFIRMED)
                    )
                else:
                    self.schedule.settle(renewed, outcome is ExtendOutcome.EXTENDED, now)
        extended, inconclusive = map(outcomes.count, (ExtendOutcome.EXTENDED, ExtendOutcome.INCONCLUSIVE))
        self.counts.extended += extended
        self.counts.renewed += extended
        self.counts.inconclusive += inconclusive
        for renewed, reason in lost:
            self._lost(renewed, reason)

    def _lost(self, renewed: RenewedLease, reason: str) -> None:
        lock: Any = renewed.lock()
        if lock is None or self.client_state.ending:
            self.drop(renewed)
        else:
            self.mark_lost(lock, renewed, reason)


def _named(renewed: RenewedLease) -> str:
    """The key of a lease and its owner, for the log."""
    owner = owner_of(renewed.lease.token)
    return quoted(renewed.key) + (f" of {owner}" if owner else "")


def longest_hold(core: ClientCore, auto_extend: Any, on_lost: Any, max_hold: Any) -> float | None:
    """Seconds for which renewal may hold a new lock, or infinity; None: no renewal. Raises ConfigError."""
    longest = core.max_hold if max_hold is CLIENT_DEFAULT else check_hold(max_hold)
    if on_lost is not None and not callable(on_lost):
        raise ConfigError(f"on_lost must be a function of (lock, reason), or None, not {on_lost!r}")
    if check_flag("auto_extend", core.auto_extend if auto_extend is CLIENT_DEFAULT else auto_extend):
        return longest
    if on_lost is not None or max_hold not in (None, CLIENT_DEFAULT):
        raise ConfigError("on_lost and max_hold are for locks with auto_extend=True")
    return None
