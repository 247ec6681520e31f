"""The base of all clients: checked settings, policy, masters, counters.

The clients for threads and for asyncio add the driver that runs procedures.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NoReturn, Protocol, TypeVar, Unpack, cast, get_args

from ..algorithm.crowds import Crowds
from ..algorithm.keys import key_of, prefix_of
from ..algorithm.lease import Lease
from ..algorithm.lock_kind import FencedKind, LockKind, wire_ttl
from ..algorithm.policy import Clock, Policy, VotingMasters, lease_clock
from ..algorithm.quorum import Retry, drift
from ..algorithm.tokens import owner_part, tokens_of
from ..engine import load
from ..engine.contract import Wait
from ..errors import ConfigError
from ..masters.address import numbered
from ..masters.change import MastersChange
from ..masters.client_state import ClientState
from ..masters.connector import ConnectorSettings
from ..masters.faults import fault_reporter
from ..masters.health import MasterHealth
from ..masters.masters import Masters
from ..masters.restart_guard import MODES, Guard
from ..masters.stats import Stats
from ..wire.text import quoted
from .config import (
    check_choice,
    check_flag,
    check_hold,
    check_label,
    check_lists,
    check_retry,
    check_timeout,
    number,
    refuse_unknown,
    takes_only,
)
from .fair import QueuedKind, fair_kind
from .handover import handed_over
from .options import CheckMasters, Decide, EngineName, ListOf, Master, NoOptions, RestartGuard, WaitMode
from .owner_names import check_owner, thread_owner

L = TypeVar("L")
H = TypeVar("H")

#: Seconds; a timeout that is longer is one in milliseconds, perhaps.
LONG_TIMEOUT = 1000.0
#: Seconds; ten years.
MAX_RETENTION = 3.2e8

#: Seconds, some eleven days: a socket waits for a number of milliseconds that has 31 bits.
MAX_CONNECT_TIMEOUT = 1e6

#: The number of labels of one client, because each makes a time series of every histogram; and the label for
#: all further ones.
MAX_LABELS, OTHER_LABEL = 100, "other"


class Grants(Protocol):
    """Receives each lease that the client was granted."""

    def add(self, lease: Lease) -> None: ...


@dataclass(slots=True)
class Observer:
    """Observes one client. Each field may be set without the others.

    ``grants``: each receives each granted lease. ``lock_class``: the client makes locks of this class instead
    of its own. ``reports``: what these locks call; see exporters/instrument.py.
    """

    grants: tuple[Grants, ...] = ()
    lock_class: type[Any] | None = None
    reports: Any = None

    def granted(self, lease: Lease) -> None:
        for grants in self.grants:
            grants.add(lease)


def refuse_copy(client: object) -> NoReturn:
    """The ``__reduce__`` of a client, for copy and pickle: connections and leases belong to one process."""
    raise TypeError(
        f"{type(client).__name__} cannot be copied or pickled: make a client in each process, "
        "with the same settings"
    )


def refuse_copy_of_hold(holder: object) -> NoReturn:
    """The ``__reduce__`` of what holds a lock, for copy and pickle: two objects would hold one lease."""
    raise TypeError(
        f"{type(holder).__name__} cannot be copied or pickled: two objects would hold one lock; "
        "make another one from the client"
    )


def view_of(holder: H) -> H:
    """Another object of the class of ``holder``, with the same fields. The caller changes what differs."""
    view = object.__new__(type(holder))
    view.__dict__.update(holder.__dict__)
    return view


class BaseClient:
    """Settings and state of a client. Times in seconds. FastRedlock describes the settings."""

    @functools.cached_property
    def _default_owner(self) -> Callable[[], bytes]:
        """Returns the default owner of a lock as a part of its token."""
        return thread_owner

    @takes_only("masters", "a list of URLs or clients")
    def __init__(
        self,
        masters: ListOf[Master],
        *,
        ttl: float = 10.0,
        node_timeout: float = 0.05,
        connect_timeout: float = 1.0,
        socket_timeout: float = 5.0,
        retry: Retry | None = None,
        drift_factor: float = 0.01,
        key_prefix: str | bytes = "",
        decide: Decide = "quorum",
        max_ttl: float = 60.0,
        wait: WaitMode = "auto",
        restart_guard: RestartGuard = "auto",
        assume_fresh: bool = False,
        allow_split: bool = False,
        check_masters: CheckMasters = "auto",
        refill: bool | None = None,
        fencing_retention: float = 86_400.0,
        release_at_exit: bool = True,
        timeout: float | None = None,
        auto_extend: bool = False,
        max_hold: float | None = 3600.0,
        label: str = "",
        owner: str | None = None,
        joint_with: ListOf[Master] | None = None,
        engine: EngineName = "auto",
        clock: Clock = lease_clock,
        **unknown: Unpack[NoOptions],
    ) -> None:
        refuse_unknown(type(self).__name__, unknown, BaseClient.__init__)
        retry = check_retry(Retry() if retry is None else retry)
        check_choice("decide", decide, get_args(Decide))
        check_choice("engine", engine, get_args(EngineName))
        check_choice("wait", wait, get_args(WaitMode))
        check_choice("restart_guard", restart_guard, MODES)
        check_choice("check_masters", check_masters, get_args(CheckMasters))
        if check_flag("assume_fresh", assume_fresh) and restart_guard == "off":
            raise ConfigError("assume_fresh needs a restart_guard: with \"off\" every master is believed")
        if refill is not None and not isinstance(refill, bool):
            raise ConfigError(f"refill must be True, False or None, not {refill!r}")
        if refill and restart_guard == "off":
            raise ConfigError(
                "refill=True needs a restart_guard: without one a master that forgot the lock "
                "grants it to another client before the key can be put back"
            )
        targets, masks = numbered((), check_lists(masters, joint_with))
        self.timeout: float | None = check_timeout(timeout)
        self.auto_extend: bool = check_flag("auto_extend", auto_extend)
        self.max_hold: float = check_hold(max_hold)
        #: The label of locks without one of their own.
        self.label: str = check_label(label)
        self._labels: set[str] = {self.label, ""}
        self._labels_full = False
        self._long_timeout = False  # the log has a hint about one
        #: Whether a lock without options has no timeout and no renewal.
        self.plain_locks: bool = self.timeout is None and not self.auto_extend
        self.drift_factor: float = number("drift_factor", drift_factor, low=0.0, high=0.5)
        retention = number("fencing_retention", fencing_retention, above=0.0, high=MAX_RETENTION)
        self.max_ttl: float = number("max_ttl", max_ttl, above=0.0, high=MAX_RETENTION)
        if self.max_ttl > retention:
            raise ConfigError(
                f"max_ttl must be more than 0 and at most fencing_retention ({retention:g} s), "
                f"not {self.max_ttl:g} s: a fencing counter must outlive every lease"
            )
        ttl = self.check_ttl(ttl)
        self.key_prefix: bytes = prefix_of(key_prefix)
        self.connect_timeout: float = number(
            "connect_timeout", connect_timeout, above=0.0, high=MAX_CONNECT_TIMEOUT
        )
        #: Whether tokens name their owners by default, and errors name the holder.
        self.names_owners: bool = owner is None or check_owner(owner) != ""
        token, tokens = tokens_of(self._default_owner if owner is None else _constant(owner))
        self.policy: Policy = Policy(
            node_timeout=number("node_timeout", node_timeout, above=0.0),
            drift_factor=drift_factor,
            outage_timeout=connect_timeout,
            retry=retry,
            voters=VotingMasters(len(targets), *masks),
            # Not EARLY: a master that fails has not refused, and without it a quorum may still answer.
            wait=Wait.ALL if decide == "all" else Wait.CERTAIN,
            clock=clock,
            retention=wire_ttl(retention),
            step=wire_ttl(self.max_ttl / 2),
            push=wait != "poll",
            refill=restart_guard != "off" if refill is None else refill,
            crowds=Crowds(QueuedKind),
            ttl=ttl,
            token=token,
            tokens=tokens,
        )
        settings = ConnectorSettings(
            engine_class=load(engine),
            connect_timeout=connect_timeout,
            socket_timeout=number("socket_timeout", socket_timeout, above=0.0),
            key_prefix=self.key_prefix,
            guard=Guard(restart_guard, self.max_ttl, assume_fresh),
            wait=wait,
            allow_split=check_flag("allow_split", allow_split),
            check_masters=check_masters,
        )
        check_flag("release_at_exit", release_at_exit)
        if not callable(clock):
            raise ConfigError(f"clock must be a function that returns seconds, not {clock!r}")
        self.masters: Masters = Masters(targets, self.policy, settings, release_at_exit)
        self.policy.report = fault_reporter(self.masters)
        self.client_state: ClientState = self.masters.client_state

    # --- arguments ---

    def check_ttl(self, ttl: float) -> float:
        """``ttl`` after a check, in seconds. Raises ConfigError."""
        ttl = number("ttl", ttl, above=0.0)
        lost = drift(ttl, self.drift_factor)
        if not lost < ttl <= self.max_ttl:
            meant = ttl / 1000
            milliseconds = meant >= 1 and drift(meant, self.drift_factor) < meant <= self.max_ttl
            raise ConfigError(
                f"ttl must be more than the drift it loses ({lost:g} s) "
                f"and at most max_ttl ({self.max_ttl:g} s), not {ttl:g} s"
                + f"; it is in seconds: did you mean {meant:g}?" * milliseconds
            )
        return ttl

    def connect_seconds(self, timeout: float | None) -> float:
        """``timeout`` after a check; None: ``connect_timeout``. Raises ConfigError."""
        return self.connect_timeout if timeout is None else number("timeout", timeout, low=0.0)

    def bounded_label(self, label: str) -> str:
        """``label`` after a check; OTHER_LABEL once this client has MAX_LABELS others. Raises ConfigError."""
        if check_label(label) in self._labels:
            return label
        with self.client_state.mutex:
            if len(self._labels) <= MAX_LABELS:
                self._labels.add(label)
                return label
            first, self._labels_full = not self._labels_full, True
        if first:
            self.client_state.events.warn_of(
                "too-many-labels",
                f"locks of this client have {MAX_LABELS} labels; measurements count further labels, "
                f"such as {quoted(label)}, as {OTHER_LABEL!r}",
            )
        return OTHER_LABEL

    def ttl_of(self, ttl: float | None) -> float:
        """``ttl`` after a check; the client's own for None."""
        return self.policy.ttl if ttl is None else self.check_ttl(ttl)

    def note_timeout(self, timeout: float | None) -> float | None:
        """``timeout``, checked before. The log has a hint, once, if it looks like milliseconds."""
        if timeout is not None and timeout >= LONG_TIMEOUT and not self._long_timeout:
            self._long_timeout = True
            self.client_state.events.warn_of(
                "long-timeout", f"timeout={timeout:g} is in seconds: did you mean {timeout / 1000:g}?"
            )
        return timeout

    def _waits_for_itself(self, key: bytes) -> bool:
        """Whether the caller holds ``key`` itself, by another object. Tasks of one thread take turns."""
        return False

    def check_key(self, resource: str | bytes) -> bytes:
        """The key of ``resource`` on the masters, after a check. Raises ConfigError."""
        return key_of(self.key_prefix, resource)

    def lock_kind(
        self, resource: str | bytes, fencing: bool = False, fair: bool = False, token: bytes | None = None
    ) -> LockKind:
        """The kind of a lock on ``resource`` with these options of ``lock``. Raises ConfigError."""
        lock_kind = LockKind(key_of(self.key_prefix, resource))
        if fencing is not False:
            check_flag("fencing", fencing)
        if fair is not False and check_flag("fair", fair):
            lock_kind = fair_kind(lock_kind.key, fencing)
        elif fencing:
            lock_kind = FencedKind(lock_kind.key, self.policy.retention, self.policy.step)
        return lock_kind if token is None else handed_over(lock_kind, token)

    def policy_of(self, owner: str) -> Policy:
        """The policy of a lock whose tokens name ``owner``. Raises ConfigError."""
        token, tokens = tokens_of(_constant(owner))
        return replace(self.policy, token=token, tokens=tokens)

    def check_open(self) -> None:
        """Raise ClientClosed after close(), or ConfigError if the configuration cannot work."""
        self.masters.check_open()

    def change_of(self, masters: Any, joint_with: Any) -> MastersChange:
        """The change of ``reconfigure``. Raises ConfigError and ClientClosed.

        A client whose list is refused by the records of masters may be changed: that is the cure.
        """
        self.masters.check_not_closed()
        return MastersChange(self.masters, check_lists(masters, joint_with))

    # --- measurements ---

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

    # --- public ---

    def health(self) -> list[MasterHealth]:
        """The state of each master, in the order of the configuration. No I/O, never raises.

        Examples:
            >>> [master.name for master in client.health() if master.state == "down"]
        """
        return self.masters.health()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.states()}>"

    __reduce__ = refuse_copy

    def states(self) -> str:
        """The masters with their states, or "closed", as text. Never raises, never shows a password."""
        masters = vars(self).get("masters")  # missing after a ConfigError of the constructor
        if masters is None or masters.client_state.closed:
            return "no masters" if masters is None else "closed"
        return ", ".join(f"{master.name} {master.state}" for master in masters.health())

    def stats(self) -> Stats:
        """A copy of the counters of this client. No I/O, never raises.

        Examples:
            >>> client.stats().contended
        """
        stats = self.client_state.counts.copy()
        stats.faults = sum(state.faults for state in self.masters.connector.states)
        return stats


def _constant(owner: str) -> Callable[[], bytes]:
    part = owner_part(check_owner(owner))
    return lambda: part
