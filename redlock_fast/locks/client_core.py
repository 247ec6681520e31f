"""The core of a client: what its locks, batches and operations use of it.

A client itself has only what a program calls. Its locks keep the core alive, and not the client.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

from ..algorithm.keys import derived, key_of
from ..algorithm.lease import Lease
from ..algorithm.lock_kind import FencedKind, LockKind
from ..algorithm.policy import Policy
from ..algorithm.quorum import drift
from ..algorithm.tokens import owner_part, tokens_of
from ..errors import ConfigError
from ..masters.change import MastersChange
from ..masters.client_state import ClientState
from ..masters.masters import Masters
from ..wire.slots import share_slot
from ..wire.text import quoted
from .config import check_flag, check_label, check_lists, number
from .fair import fair_kind
from .owner_names import check_owner, thread_owner

#: Seconds; a timeout that is longer is one in milliseconds, perhaps.
LONG_TIMEOUT = 1000.0
#: The number of labels of one client, because each makes a time series of every histogram; and the label for
#: all further ones.
MAX_LABELS, OTHER_LABEL = 100, "other"


class Grants(Protocol):
    """Receives each lease that the client was granted."""

    def add(self, lease: Lease) -> None: ...


@dataclass(slots=True)
class Observer:
    """Observes one client. Each field may be set without the other.

    ``grants``: each receives each granted lease. ``reports``: receives the end of each acquire, release and
    explicit extension; see exporters/instrument.py.
    """

    grants: tuple[Grants, ...] = ()
    reports: Any = None

    def granted(self, lease: Lease) -> None:
        for grants in self.grants:
            grants.add(lease)


class ClientCore:
    """What the locks of one client share: its checked settings, its policy, its masters and its state.

    A client for threads and a client for asyncio each have a subclass of it, which adds what depends on
    threads or on an event loop. Times are in seconds; [`FastRedlock`][] describes the settings.
    """

    timeout: float | None
    auto_extend: bool
    max_hold: float
    #: Whether a lock without options has no timeout and no renewal.
    plain_locks: bool
    drift_factor: float
    max_ttl: float
    key_prefix: bytes
    connect_timeout: float
    #: Whether tokens name their owners by default, and errors name the holder.
    names_owners: bool
    policy: Policy
    masters: Masters
    client_state: ClientState

    def __init__(self, label: str) -> None:
        #: The label of locks without one of their own.
        self.label: str = label
        self._labels: set[str] = {label, ""}
        self._labels_full = False
        self._long_timeout = False  # the log has a hint about one

    @functools.cached_property
    def default_owner(self) -> Callable[[], bytes]:
        """Returns the default owner of a lock as a part of its token."""
        return thread_owner

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
                + f"; it is in seconds: did you mean {meant:g}?"
                * milliseconds
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

    def waits_for_itself(self, key: bytes) -> bool:
        """Whether the caller holds ``key`` itself, by another object. Tasks of one thread take turns."""
        return False

    def check_key(self, resource: str | bytes) -> bytes:
        """The key of ``resource`` on the masters, after a check. Raises ConfigError."""
        return key_of(self.key_prefix, resource)

    def lock_kind(self, resource: str | bytes, fencing: bool = False, fair: bool = False) -> LockKind:
        """The kind of a lock on ``resource`` with these options of ``lock``. Raises ConfigError."""
        lock_kind = LockKind(key_of(self.key_prefix, resource))
        if fencing is not False:
            check_flag("fencing", fencing)
        if fair is not False and check_flag("fair", fair):
            lock_kind = fair_kind(lock_kind.key, fencing)
        elif fencing:
            lock_kind = FencedKind(lock_kind.key, self.policy.retention, self.policy.step)
        if (fencing or fair) and not self.in_one_slot((lock_kind.key, derived(lock_kind.key))):
            raise ConfigError(
                f"resource: {quoted(lock_kind.key)} has braces, so a Cluster would keep its key and the keys "
                "beside it in different slots: on a Cluster a fenced or fair lock needs a name without braces"
            )
        return lock_kind

    def in_one_slot(self, keys: Sequence[bytes]) -> bool:
        """Whether one command may use all ``keys``: on masters that are no Cluster it always may."""
        return not self.policy.voters.lists.shards or share_slot(keys)

    def policy_of(self, owner: str) -> Policy:
        """The policy of a lock whose tokens name ``owner``. Raises ConfigError."""
        token, tokens = tokens_of(constant_owner(owner))
        return replace(self.policy, token=token, tokens=tokens)

    def check_open(self) -> None:
        """Raise ClientClosed after close(), or ConfigError if the configuration cannot work."""
        self.masters.check_open()

    def change_of(self, masters: Any, joint_with: Any) -> MastersChange:
        """The change of ``reconfigure``. Raises ConfigError and ClientClosed.

        A client whose list is refused by the records of masters may be changed: that is the cure.
        """
        self.masters.check_not_closed()
        if self.policy.voters.lists.shards:
            raise ConfigError(
                "reconfigure: a Cluster stays the only master of a client; its shards may change"
            )
        return MastersChange(self.masters, check_lists(masters, joint_with))

    def observe(self) -> Observer:
        """The observer of this client. The first call creates it."""
        with self.client_state.mutex:
            if self.client_state.observer is None:
                self.client_state.observer = Observer()
            return cast(Observer, self.client_state.observer)

    def states(self) -> str:
        """The masters with their states, or "closed", as text. Never raises, never shows a password."""
        if self.client_state.closed:
            return "closed"
        return ", ".join(f"{master.name} {master.state}" for master in self.masters.health())


def constant_owner(owner: str) -> Callable[[], bytes]:
    """Returns the same owner for each lock, as a part of its token. Raises ConfigError."""
    part = owner_part(check_owner(owner))
    return lambda: part
