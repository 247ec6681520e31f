"""What auto-extended locks have beyond others, and what their client does for them, without waiting.

Procedures and decisions; when to run them and how a loss is told are the drivers' part
(``threads/renewal.py``, ``aio/renewal.py``).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol

from ..algorithm import batch as batches
from ..algorithm.effects import Effect
from ..algorithm.lease import Extension, Lease
from ..algorithm.renewal_schedule import GONE, UNCONFIRMED, Hold, Renewable, Schedule
from ..errors import ConfigError
from ..wire.text import quoted
from .client_base import Core, number

#: Seconds that an exchange is given at least, though a lease ends meanwhile; and in round trips.
MIN_PATIENCE, PATIENCE_ROUND_TRIPS = 0.005, 4
#: At least so often there is a look at the lease clock, which may have moved more than the timers' did.
TICK = 1.0

OnLost = Callable[[Any, str], Any]


class Event(Protocol):
    def is_set(self) -> bool: ...

    def set(self) -> Any: ...


class Kept(Renewable, Protocol):
    """A lock that has a keeper."""

    _keeper: Keeper | None


class Keeper:
    """What one auto-extended lock was told to do, and its present hold.

    ``lost``: the event of the present hold, or of the next. ``body``: what to cancel on a loss, where
    ``cancels``.
    """

    __slots__ = ("_hold", "_renewal", "_whose", "body", "cancels", "lost", "max_hold", "on_lost")

    def __init__(
        self,
        whose: Callable[[], Renewal],
        event: type[Event],
        on_lost: OnLost | None,
        max_hold: float,
        cancels: bool = False,
    ) -> None:
        self.on_lost = on_lost
        self.max_hold = max_hold
        self.cancels = cancels
        self.body: Any = None
        self.lost: Any = event()
        self._whose = whose
        self._renewal: Renewal | None = None
        self._hold: Hold | None = None

    def begin(self, lock: Kept, lease: Lease) -> None:
        """It is renewed from now on."""
        renewal = self._whose()
        if self.lost.is_set() or self._renewal not in (None, renewal):  # that was our parent's, before a fork
            self.lost = type(self.lost)()
        self._renewal = renewal
        self._hold = Hold(lock, lease, renewal.rules.clock() + self.max_hold)
        renewal.add(self._hold)

    def stop(self) -> None:
        """It is being released: extensions that are under way mean nothing any more."""
        if self._renewal is not None and self._hold is not None:
            self._renewal.drop(self._hold)

    def lose(self, lock: Kept, lease: Lease, *, released: bool = False) -> None:
        """An extension found it lost; or a release, or an acquire, which let go of it before."""
        hold = self._hold
        if self._renewal is not None and hold is not None and hold.lease is lease:
            gone = self._renewal.rules.clock() < lease.deadline
            self._renewal.lose(lock, hold, GONE if gone else hold.reason(), released=released)


class Renewal:
    """What one client does for its auto-extended locks in one process."""

    def __init__(self, core: Core) -> None:
        # Not the client itself: that one has us, and is forgotten as soon as nobody else has it.
        self.masters = core.masters
        self.rules = core.rules
        self.counts = core.masters.counts
        self.generation = core.masters.generation
        self.schedule = Schedule(core.rules.drift_factor)
        #: Guards the schedule. Not that of the masters, which is held more briefly; may take that one inside.
        self.mutex = threading.RLock()

    # --- the drivers' part ---

    def attend(self) -> None:
        """A lease was added: see that somebody looks in time. Under the mutex."""
        raise NotImplementedError

    def tell(self, lock: Kept, reason: str) -> None:
        """The lock is lost."""
        raise NotImplementedError

    # --- for locks ---

    def add(self, hold: Hold) -> None:
        with self.mutex:
            self.schedule.add(hold)
            try:
                self.attend()
            except BaseException:
                self.schedule.drop(hold)
                raise

    def drop(self, hold: Hold) -> None:
        with self.mutex:
            self.schedule.drop(hold)

    def lose(self, lock: Kept, hold: Hold, reason: str, *, released: bool = False) -> None:
        """Tell that it is lost: once, and not after its release unless that is what found it."""
        with self.mutex:
            if hold.told or (hold.over and not released):
                return
            hold.told = True
            self.schedule.drop(hold)
            hold.lease.lose(self.rules.clock())
        self.counts.lost += 1
        self.masters.events.warn_of("lock-lost", f"{quoted(hold.key)}: {reason}")
        self.tell(lock, reason)

    # --- what drivers do, again and again ---

    def look(self) -> list[tuple[Hold, float]]:
        """Tell what has ended. Returns what to ``extend`` now."""
        now = self.rules.clock()
        with self.mutex:
            ended = self.schedule.ended(now)
        for hold in ended:
            self._lost(hold, hold.reason())
        with self.mutex:
            return self.schedule.due(now)

    def extend(self, asks: Sequence[tuple[Hold, float]]) -> Generator[Effect, Any, None]:
        """One exchange for all of them, or for some thousands each."""
        done = 0
        try:
            for part in batches.parts_of([hold.lease for hold, _ in asks]):
                leases = [hold.lease for hold, _ in asks[part]]
                ttls = [ttl for _, ttl in asks[part]]
                start = self.rules.clock()
                patience = self._patience()
                outcomes = yield from batches.extend(self.rules, leases, ttls, patience, thorough=True)
                done = part.stop
                self._settle(asks[part], outcomes)
                self.schedule.took = self.rules.clock() - start
        finally:
            self._settle(asks[done:], [Extension.INCONCLUSIVE] * (len(asks) - done))

    def wait(self) -> float:
        """In how many seconds to look again."""
        with self.mutex:
            return max(0.0, min(TICK, self.schedule.next() - self.rules.clock()))

    def _patience(self) -> float:
        """How long an exchange may keep us from telling of the next lease that ends.

        But never less than answers usually take: no stream of ending leases may starve the others.
        """
        with self.mutex:
            left = self.schedule.first_end() - self.rules.clock()
        if left >= self.rules.node_timeout:
            return left
        links = [self.masters.engine.link(master) for master in range(self.rules.masters)]
        usual = sorted(link.round_trip for link in links if link.round_trip)[: self.rules.need]
        return max(left, MIN_PATIENCE, PATIENCE_ROUND_TRIPS * max(usual, default=0.0))

    def _settle(self, asks: Sequence[tuple[Hold, float]], outcomes: Sequence[Extension]) -> None:
        lost = []
        now = self.rules.clock()
        with self.mutex:
            for (hold, _), outcome in zip(asks, outcomes, strict=True):
                if outcome is Extension.LOST:
                    lost.append((hold, GONE if now < hold.lease.deadline else hold.stopped or UNCONFIRMED))
                else:
                    self.schedule.settle(hold, outcome is Extension.EXTENDED, now)
        extended, inconclusive = map(outcomes.count, (Extension.EXTENDED, Extension.INCONCLUSIVE))
        self.counts.extended += extended
        self.counts.renewed += extended
        self.counts.inconclusive += inconclusive
        for hold, reason in lost:
            self._lost(hold, reason)

    def _lost(self, hold: Hold, reason: str) -> None:
        lock: Any = hold.lock()
        if lock is not None and not self.masters.ending:
            self.lose(lock, hold, reason)


def check_terms(auto_extend: Any, on_lost: Any, max_hold: Any) -> float:
    """ConfigError for bad terms of renewal; otherwise ``max_hold``, with infinity for None."""
    if not isinstance(auto_extend, bool):
        raise ConfigError(f"auto_extend must be True or False, not {auto_extend!r}")
    if on_lost is not None and not callable(on_lost):
        raise ConfigError(f"on_lost must be a function of (lock, reason), or None, not {on_lost!r}")
    longest = math.inf if max_hold is None else number("max_hold", max_hold, above=0.0)
    if not auto_extend:
        raise ConfigError("on_lost and max_hold are for locks with auto_extend=True")
    return longest
