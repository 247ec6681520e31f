"""What a client is, whichever way it waits: checked settings, rules, masters, counters.

Threads' and asyncio's clients differ only in the driver that they hand procedures to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from .._stats import Stats
from ..algorithm.attempts import BLIP
from ..algorithm.clock import Clock, lease_clock
from ..algorithm.keys import encoded, key_of
from ..algorithm.lease import AcquireFailure
from ..algorithm.lock_kind import FencedKind, LockKind, wire_ttl
from ..algorithm.policy import Policy
from ..algorithm.quorum import Retry, drift, impossible, quorum
from ..algorithm.voting_masters import VotingMasters
from ..engine import load
from ..engine.contract import FAULT, MAX_MASTERS, NO_REPLY, Votes, Wait
from ..errors import ConfigError, Contended, LockNotAcquired, MasterError, QuorumUnavailable
from ..masters.address import target
from ..masters.connector import ConnectorSettings
from ..masters.health import MasterHealth
from ..masters.masters import Masters
from ..masters.restart_guard import MODES, Guard
from ..wire.text import quoted
from .observer import Observer

L = TypeVar("L")

#: How those wait who find a lock taken.
WAITS = ("auto", "push", "poll")
#: Seconds; ten years.
MAX_RETENTION = 3.2e8


class BaseClient:
    """Settings and state that the clients share. Times in seconds; see the clients for the meaning."""

    def __init__(
        self,
        masters: Sequence[Any],
        *,
        ttl: float = 10.0,
        node_timeout: float = 0.05,
        connect_timeout: float = 1.0,
        socket_timeout: float = 5.0,
        retry: Retry | None = None,
        drift_factor: float = 0.01,
        key_prefix: str | bytes = "",
        decide: str = "quorum",
        max_ttl: float = 60.0,
        wait: str = "auto",
        restart_guard: str = "auto",
        assume_fresh: bool = False,
        allow_split: bool = False,
        refill: bool | None = None,
        fencing_retention: float = 86_400.0,
        release_at_exit: bool = True,
        engine: str = "auto",
        clock: Clock = lease_clock,
        **unknown: object,
    ) -> None:
        refuse_unknown(type(self).__name__, unknown, BaseClient.__init__)
        retry = check_retry(Retry() if retry is None else retry)
        if decide not in ("quorum", "all"):
            raise ConfigError(f"decide must be 'quorum' or 'all', not {decide!r}")
        if wait not in WAITS:
            raise ConfigError(f"wait must be one of {', '.join(WAITS)}, not {wait!r}")
        if restart_guard not in MODES:
            raise ConfigError(f"restart_guard must be one of {', '.join(MODES)}, not {restart_guard!r}")
        if assume_fresh and restart_guard != "marker":
            raise ConfigError("assume_fresh is for restart_guard='marker' only")
        if refill is not None and not isinstance(refill, bool):
            raise ConfigError(f"refill must be True, False or None, not {refill!r}")
        if refill and restart_guard == "off":
            raise ConfigError(
                "refill=True needs a restart_guard: without one a master that forgot the lock "
                "grants it to somebody else before it can be put back"
            )
        targets = check_masters(masters)
        self.drift_factor = number("drift_factor", drift_factor, low=0.0, high=0.5)
        self.max_ttl = number("max_ttl", max_ttl, above=0.0)
        ttl = self.check_ttl(ttl)
        self.key_prefix = encoded("key_prefix", key_prefix)
        self.connect_timeout = number("connect_timeout", connect_timeout, above=0.0)
        retention = number("fencing_retention", fencing_retention, low=self.max_ttl, high=MAX_RETENTION)
        self.policy = Policy(
            masters=len(targets),
            need=quorum(len(targets)),
            node_timeout=number("node_timeout", node_timeout, above=0.0),
            drift_factor=drift_factor,
            outage_timeout=connect_timeout,
            retry=retry,
            voters=VotingMasters(len(targets)),
            wait=Wait.ALL if decide == "all" else Wait.EARLY,
            clock=clock,
            retention=wire_ttl(retention),
            step=wire_ttl(self.max_ttl / 2),
            push=wait != "poll",
            refill=restart_guard != "off" if refill is None else refill,
            ttl=ttl,
        )
        settings = ConnectorSettings(
            engine_class=load(engine),
            connect_timeout=connect_timeout,
            socket_timeout=number("socket_timeout", socket_timeout, above=0.0),
            key_prefix=self.key_prefix,
            guard=Guard(restart_guard, self.max_ttl, bool(assume_fresh)),
            wait=wait,
            allow_split=bool(allow_split),
        )
        self.masters = Masters(targets, self.policy, settings, bool(release_at_exit))
        self.client_state = self.masters.client_state

    # --- arguments ---

    def check_ttl(self, ttl: float) -> float:
        ttl = number("ttl", ttl, above=0.0)
        lost = drift(ttl, self.drift_factor)
        if not lost < ttl <= self.max_ttl:
            raise ConfigError(
                f"ttl must be more than the drift it loses ({lost:.4f} s) "
                f"and at most max_ttl ({self.max_ttl:g} s), not {ttl:g} s"
            )
        return ttl

    def ttl_of(self, ttl: float | None) -> float:
        """The one that was asked for, or the client's own."""
        return self.policy.ttl if ttl is None else self.check_ttl(ttl)

    def check_key(self, resource: str | bytes) -> bytes:
        return key_of(self.key_prefix, resource)

    def lock_kind(self, resource: str | bytes, fencing: bool = False) -> LockKind:
        """What a lock on ``resource`` asks of the masters."""
        key = key_of(self.key_prefix, resource)
        return FencedKind(key, self.policy.retention, self.policy.step) if fencing else LockKind(key)

    def check_open(self) -> None:
        self.masters.check_open()

    # --- outcomes in words ---

    def acquire_error(self, key: bytes, failure: AcquireFailure) -> LockNotAcquired:
        """The exception for an acquire that ended without a lease."""
        votes, policy, names = failure.votes, self.policy, self.masters.connector.names()
        rounds = f"{failure.rounds} attempt{'s' * (failure.rounds > 1)}"
        if votes.granted >= policy.need:
            return QuorumUnavailable(
                f"{quoted(key)}: a quorum granted the lease too late: nothing of it was left; "
                "use a longer ttl, or find out what delays the masters or this process"
            )
        if failure.unavailable:
            self.masters.connector.connect_urgently(BLIP)  # who has no quorum usually tries again
            return QuorumUnavailable(
                f"{quoted(key)}: no quorum of {policy.need} of {policy.masters} masters after {rounds}: "
                "check that they can be reached",
                self.causes(votes),
            )
        holders = [name for name, vote in zip(names, votes.values, strict=True) if FAULT < vote <= 0]
        if not holders:
            return Contended(f"{quoted(key)}: others of this client wait for it, too, and were first", [])
        return Contended(
            f"{quoted(key)} is held by others on {len(holders)} of {policy.masters} masters, after {rounds}",
            holders,
        )

    def causes(self, votes: Votes) -> list[MasterError]:
        """One error per master that failed; the silent only where those were not enough to decide."""
        policy = self.policy
        enough = impossible(policy.masters, policy.need, votes.refused, votes.faulty)
        guilty = (FAULT,) if enough else (FAULT, NO_REPLY)
        return [
            MasterError(name, self.masters.cause(master, votes))
            for master, name in enumerate(self.masters.connector.names())
            if votes.values[master] in guilty
        ]

    def observe(self) -> Observer:
        """The observer of this client. The first call creates it."""
        with self.client_state.mutex:
            if self.client_state.observer is None:
                self.client_state.observer = Observer()
            return cast(Observer, self.client_state.observer)

    def _class_of(self, own: type[L]) -> type[L]:
        """The class of the locks that this client makes: that of its observer, or else ``own``."""
        observer = self.client_state.observer
        return own if observer is None else observer.lock_class or own

    def is_locked(self, key: bytes, votes: Votes) -> bool:
        """Whether somebody holds ``key``, as the masters say; QuorumUnavailable if too few do."""
        if votes.granted >= self.policy.need:
            return True
        if self.policy.refused_by_quorum(votes):
            return False
        raise QuorumUnavailable(f"{quoted(key)}: too few masters answered", self.causes(votes))

    # --- the same for every client ---

    def health(self) -> list[MasterHealth]:
        """The masters as this client sees them, in the order of the configuration. No I/O, never raises."""
        return self.masters.health()

    def stats(self) -> Stats:
        """What this client has done so far, as counts: a copy. No I/O, never raises."""
        stats = self.client_state.counts.copy()
        stats.faults = sum(state.faults for state in self.masters.connector.states)
        return stats


# --- checks, all before any I/O ------------------------------------------------------------------


def number(
    name: str, value: Any, *, low: float | None = None, above: float | None = None, high: float = math.inf
) -> float:
    """``value`` as a float within the range; ConfigError names the argument otherwise."""
    allowed = f"more than {above:g}" if above is not None else f"at least {low or 0.0:g}"
    if high < math.inf:
        allowed += f" and at most {high:g}"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ConfigError(f"{name} must be a number, {allowed}, not {value!r}")
    if isinstance(value, int) and abs(value) > 1 << 53:
        raise ConfigError(f"{name} must be {allowed}, and no integer of {value.bit_length()} bits")
    enough = value > above if above is not None else value >= (low or 0.0)
    if not (enough and value <= high and math.isfinite(value)):
        raise ConfigError(f"{name} must be {allowed}, not {value!r}")
    return float(value)


def check_timeout(timeout: float | None) -> float | None:
    """Seconds to wait, or None for no end: -1 and None say so."""
    if timeout is None or timeout in (-1, math.inf):
        return None
    return number("timeout", timeout, low=0.0)


def check_retry(retry: Any) -> Retry:
    if not isinstance(retry, Retry):
        raise ConfigError(f"retry must be a Retry, not {type(retry).__name__}")
    number("retry.min_delay", retry.min_delay, low=0.0)
    number("retry.max_delay", retry.max_delay, low=retry.min_delay)
    attempts = retry.max_attempts
    if attempts is not None and (not isinstance(attempts, int) or attempts < 1):
        raise ConfigError(f"retry.max_attempts must be None or at least 1, not {attempts!r}")
    return retry


def check_masters(masters: Any) -> list[Any]:
    if isinstance(masters, (str, bytes)) or not isinstance(masters, Sequence):
        raise ConfigError(f"masters must be a list of URLs or clients, not {type(masters).__name__}")
    if not 1 <= len(masters) <= MAX_MASTERS:
        raise ConfigError(f"masters must be 1 to {MAX_MASTERS} (an odd number, 3 or 5), not {len(masters)}")
    targets = [target(master) for master in masters]
    seen: dict[Any, str] = {}
    for one in targets:
        if one.address in seen:
            raise ConfigError(f"masters: {one.name} and {seen[one.address]} are one server, it has one vote")
        seen[one.address] = one.name
    return targets


def refuse_unknown(what: str, unknown: dict[str, object], known: Callable[..., object]) -> None:
    if unknown:
        internal = ("return", "unknown", "core")
        options = [name for name in known.__annotations__ if name not in internal]
        raise ConfigError(
            f"{what} has no option {', '.join(map(repr, unknown))}; it has: {', '.join(options)}"
        )
