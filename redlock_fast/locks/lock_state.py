"""The state of a lock object, and the steps from one state to the next.

No I/O and no waiting: ``locks/procedures.py`` has those. Every lock uses this class. So it is compiled where
a compiler is available, with the types of ``locks/lock_state.pxd``.
"""

from __future__ import annotations

from typing import NoReturn, Self, TypeVar

from ..algorithm.keys import key_of
from ..algorithm.lease import (
    AS_CLIENT,
    KEEP_AT_EXIT,
    RELEASE_AT_EXIT,
    AcquireFailure,
    ExtendOutcome,
    Lease,
)
from ..algorithm.lock_kind import LockKind
from ..algorithm.policy import Policy
from ..algorithm.renewal_schedule import ENDED, FORKED, GONE, NOT_HELD
from ..algorithm.tokens import owner_of
from ..engine.messages import Votes
from ..errors import ClientClosed, ConfigError, LockAlreadyHeld, LockLost, QuorumUnavailable, ResourceNames
from ..masters.client_state import CONTINUED_BY_PARENT, ClientState
from ..wire.text import quoted
from .auto_extend import AutoExtension
from .bodies import Body, has_lease, remove_ended
from .client_core import ClientCore
from .config import CLIENT_DEFAULT, ClientDefault, check_flag, check_limit, check_timeout
from .failures import acquire_error, causes
from .handover import Handover, check_detachable, handed_over

H = TypeVar("H", bound="LockState")


class LockState:
    """A lock on ``resource``. This object owns it by its token, not a thread or a task."""

    __slots__ = (
        "__weakref__",
        "_acquiring",
        "_at_exit",
        "_auto_extension",
        "_bodies",
        "_client_state",
        "_core",
        "_generation",
        "_granted_at",
        "_handover",
        "_label",
        "_lease",
        "_lock_kind",
        "_max_extensions",
        "_policy",
        "_timeout",
        "_ttl",
        "resource",
    )

    def __init__(
        self,
        core: ClientCore,
        resource: ResourceNames,
        lock_kind: LockKind,
        ttl: float | None = None,
        timeout: float | ClientDefault | None = CLIENT_DEFAULT,
        max_extensions: int | None = None,
        auto_extension: AutoExtension | None = None,
        release_at_exit: bool | None = None,
        owner: str | None = None,
        label: str | None = None,
    ) -> None:
        self.resource: ResourceNames = resource
        self._core = core
        # What the caller left to the client is not checked again: each check is a call of Python.
        policy = core.policy if owner is None else core.policy_of(owner)
        self._policy = policy  # a field of C; an attribute of a core is a dictionary lookup
        self._client_state: ClientState = core.client_state
        self._lock_kind = lock_kind
        self._ttl = policy.ttl if ttl is None else core.check_ttl(ttl)
        if timeout is CLIENT_DEFAULT:
            self._timeout = core.timeout
        else:
            self._timeout = core.note_timeout(check_timeout(timeout))
        if max_extensions is not None:
            check_limit("max_extensions", max_extensions, low=0)
        self._max_extensions = max_extensions
        self._auto_extension = auto_extension  # None: not auto-extended
        self._lease: Lease | None = None
        self._acquiring: object = None  # identifies the acquire that is under way
        self._bodies: list[Body] | None = None  # of `with`; None: there was none yet
        self._handover: Handover | None = None  # to or from another process
        self._granted_at: float = 0.0  # by the lease clock, for measurements; 0.0: not measured
        self._generation = self._client_state.generation()
        self._at_exit = AS_CLIENT if release_at_exit is None else self._checked_at_exit(release_at_exit)
        if label is not None:  # a lock without a label of its own pays nothing
            self._label: str = core.bounded_label(label)

    def _checked_at_exit(self, release_at_exit: bool) -> int:
        return RELEASE_AT_EXIT if check_flag("release_at_exit", release_at_exit) else KEEP_AT_EXIT

    # --- properties ---

    @property
    def ttl(self) -> float:
        """The length of the lease that an acquire requests, in seconds."""
        return self._ttl

    @property
    def label(self) -> str:
        """The label of this lock in measurements: its own, or the client's; empty if there is none."""
        own: str | None = getattr(self, "_label", None)
        return self._core.label if own is None else own

    @property
    def token(self) -> bytes | None:
        """The value of the key on the masters: 160 random bits and the owner. None when not held."""
        lease = self._own_lease()
        return lease.token if lease else None

    @property
    def owner(self) -> str:
        """The owner that the token names, such as "web-1:4711:MainThread"; "" when not held, or without one.

        Examples:
            >>> log.info("working on %s as %s", lock.resource, lock.owner)
        """
        lease = self._own_lease()
        return owner_of(lease.token) if lease else ""

    @property
    def fencing_token(self) -> int | None:
        """A number larger than that of every earlier holder; None when not held, or without ``fencing``.

        The protected resource must refuse a number that is lower than one it has seen. An extension does not
        change the number. Example: ``storage.write(data, fence=lock.fencing_token)``. See docs/fencing.md.

        Source: Kleppmann, "How to do distributed locking", 2016.
        """
        lease = self._own_lease()
        return lease.fencing if lease else None

    @property
    def validity(self) -> float:
        """Seconds that were left of the lease when it was granted or last extended; 0.0 when not held."""
        lease = self._own_lease()
        return lease.validity if lease else 0.0

    def locked(self) -> bool:
        """Whether this object holds the lock now, by the lease clock. No I/O, never raises.

        Examples:
            >>> if lock.locked():
            ...     work_a_little()
        """
        return self.remaining() > 0.0

    def remaining(self) -> float:
        """Seconds until the lease ends; 0.0 when the lock is not held. No I/O, never raises.

        Examples:
            >>> request(timeout=lock.remaining())
        """
        lease = self._own_lease()
        return max(0.0, lease.deadline - self._policy.clock()) if lease else 0.0

    def check(self) -> None:
        """Raise LockLost unless the lock is held now, by the lease clock. No I/O: call it often.

        Examples:
            >>> for part in parts:
            ...     lock.check()
            ...     write(part)

        Raises:
            LockLost: The lease has ended, or was never granted; ``reason`` says why.
        """
        if not self.locked():
            reason = self._why_not_held(self._own_lease())
            raise LockLost(
                f"{quoted(self.resource)} is not held: {reason}", resource=self.resource, reason=reason
            )

    def _why_not_held(self, lease: Lease | None) -> str:
        """The ``reason`` of LockLost, for a lease that has ended or was lost, or for None."""
        if self._generation != self._client_state.generation():
            return FORKED
        if lease is None:
            return NOT_HELD
        renewed = self._auto_extension.reason_of(lease) if self._auto_extension is not None else ""
        # A lease whose time is not over was lost because masters said so.
        return renewed or (GONE if lease.lost or self._policy.clock() < lease.deadline else ENDED)

    def _own_lease(self) -> Lease | None:
        # In a child of fork this object is a copy: the parent has the lease.
        return self._lease if self._generation == self._client_state.generation() else None

    def __repr__(self) -> str:
        state = f"held for {self.remaining():.3f} s more" if self.locked() else "not held"
        return f"<{type(self).__name__} {quoted(self.resource)}: {state}>"

    def __reduce__(self) -> NoReturn:
        # A copy would be a second holder with the same token.
        raise TypeError(
            f"{quoted(self.resource)}: a lock cannot be copied or pickled: make another one from the client, "
            "or hand it over with detach() and token="
        )

    @property
    def key(self) -> bytes:
        """The key on the masters: the client's prefix and the resource."""
        return self._lock_kind.key

    def _with_kind(self, lock_kind: LockKind) -> Self:
        """Change the kind of this lock. Returns the lock."""
        self._lock_kind = lock_kind
        return self

    def _with_token(self, token: bytes) -> Self:
        """Give this lock the token of another process, to take the lock over. Raises ConfigError."""
        self._handover = handed_over(self._lock_kind, token)
        return self

    # --- acquire ---

    def _mark_acquiring(self, me: object) -> Lease | None:
        """Begin an acquire, or raise LockAlreadyHeld. Returns a former lease that has ended, or None.

        The acquire has begun when ``_acquiring`` is ``me``. After an exception the caller checks that. A
        caller in a thread has the client's mutex.
        """
        generation = self._client_state.generation()
        if self._generation != generation:  # after a fork: the parent has the lease
            self._generation = generation
            self._acquiring, self._lease = None, None
        lease = self._lease
        if self._acquiring is not None or (lease is not None and self._policy.clock() < lease.deadline):
            raise LockAlreadyHeld(
                f"{quoted(self.resource)}: this lock object holds the lock, or is acquiring it; "
                "use one object for each holder, and in `with` client.lock(), not client.acquire()",
                resource=self.resource,
            )
        self._acquiring = me
        return lease

    def _on_granted(self, lease: Lease, body: Body | None = None) -> None:
        """Record a lease, start its renewal, and count it. ``body``: of the call that it was granted to.

        Raises ClientClosed in a child of fork that has a copy of the call.
        """
        if self._generation != self._client_state.generation():
            raise ClientClosed(CONTINUED_BY_PARENT)
        if body is not None:
            self._give_lease(body, lease)
        lease.at_exit = self._at_exit
        self._lease = lease
        self._client_state.add_lease(lease)
        if self._auto_extension is not None:
            self._auto_extension.begin(self, lease)
        self._client_state.counts.acquired += 1

    def _acquired(self, outcome: Lease | AcquireFailure) -> bool:
        """The result of ``acquire``: whether there is a lease. Raises QuorumUnavailable if masters failed."""
        if isinstance(outcome, Lease):
            return True
        if outcome.unavailable:
            raise acquire_error(self._core, self.resource, self._lock_kind, outcome)
        return False

    def _waiting_time(self, blocking: bool, timeout: float | None) -> float | None:
        """Seconds to try, from the arguments of ``acquire``. None: no end, or a single attempt."""
        if not isinstance(blocking, int) or blocking not in (0, 1):  # as acquire(0.5), which would not end
            raise ConfigError(
                f"blocking must be True or False, not {blocking!r}; the seconds to wait are timeout="
            )
        if timeout is None or timeout == -1:
            return self._timeout if blocking else None
        seconds = check_timeout(timeout)
        if not blocking and seconds is not None:
            raise ConfigError("timeout must be -1 (or left out) when blocking is False")
        return self._core.note_timeout(seconds)

    # --- release ---

    def _start_release(self, only: Lease | None = None) -> Lease | None:
        """The lease to release, with its renewal stopped; None: nothing to release.

        ``only``: no other lease. Another thread may have acquired the lock since.
        """
        lease = self._own_lease()
        if lease is None or (only is not None and lease is not only):
            return None
        if self._client_state.closed:
            lease.give_up()
            return None
        if self._auto_extension is not None:
            self._auto_extension.stop(lease)
        return lease

    def detach(self) -> bytes:
        """Give up a plain lock in this process without releasing it. Returns its token. No I/O.

        Another process takes the lock over with ``client.lock(name, token=token)``. Here the object holds
        nothing afterwards: renewal has ended, and neither ``with`` nor the end of the process releases the
        lock. A lock that is not taken over is free when its lease ends. Do not release or extend the lock in
        another thread at the same time. A fencing token is not part of the token: read
        [`Lock.fencing_token`][] before, and pass it along.

        See docs/kinds.md.

        Examples:
            >>> subprocess.run(["worker", lock.detach().hex()])
            >>> client.lock("job", token=bytes.fromhex(sys.argv[1])).extend()    # in the worker

        Raises:
            LockLost: The lock is not held.
            ConfigError: A fair lock, a read-write lock, a semaphore or a multilock, because these keep more
                than a token on the masters.
        """
        lease = self._own_lease()
        if lease is None or lease.released or not self.locked():
            raise LockLost(
                f"{quoted(self.resource)}: nothing to detach: the lock is not held",
                resource=self.resource,
                reason=self._why_not_held(lease),
            )
        check_detachable(self._lock_kind)
        handover = Handover()
        if self._auto_extension is not None:
            self._auto_extension.stop(lease)
        self._handover = handover
        self._forget_lease(lease)
        lease.mark_lost(self._policy.clock())  # an extension under way must not put the key back later
        return lease.token

    def _end_take_over(self, handover: Handover, lease: Lease, body: Body | None) -> bool:
        """Take ``lease`` over, before ``_on_granted``. False: a release of the token has begun before."""
        with self._client_state.mutex:
            if not handover.released:
                if body is not None:
                    self._give_lease(body, lease)
                self._handover, self._lease = None, lease
            return not handover.released

    def _undo_take_over(self, handover: Handover, lease: Lease) -> None:
        """Forget ``lease`` without a release: the next call takes it over again."""
        if self._lease is lease:
            self._handover = handover
        self._drop_lease(lease)

    def _drop_lease(self, lease: Lease) -> None:
        """Stop the renewal of a lease, and forget it."""
        if self._auto_extension is not None:
            self._auto_extension.stop(lease)
        self._forget_lease(lease)

    def _begin_token_release(self, handover: Handover) -> bool:
        """Begin to release a token. False: a take-over has ended before, and there is a lease to release."""
        with self._client_state.mutex:
            handover.released = self._own_lease() is None
            return handover.released

    def _forget_lease(self, lease: Lease) -> None:
        """Forget a lease that is released or has ended."""
        self._client_state.remove_lease(lease)
        if self._lease is lease:  # last: after an exception above a later release repeats this
            self._lease = None

    def _note_release(self, lease: Lease, alive: bool) -> bool:
        """Record a release. Returns ``alive``: whether the lease had not ended before."""
        if alive:
            self._client_state.counts.released += 1
        elif lease.refuse():
            self._client_state.counts.expired += 1
            self._note_loss(lease)
        self._forget_lease(lease)  # last: a lease that is acquired from now on has another event
        return alive

    def _give_lease(self, body: Body, lease: Lease) -> None:
        """Note what a call was granted, before other threads see the lease. A body of ``with`` begins."""
        body.lease = lease
        if body.owner is not None:
            self._begin_body(body)

    def _begin_body(self, body: Body) -> None:
        """Note that a body of ``with`` begins."""
        if self._bodies is None:
            self._bodies = [body]
        else:
            self._bodies.append(body)

    def _end_body(self, owner: object, destroyed: bool = False) -> Body | None:
        """Note that a body of ``with`` ends. Returns it, or None if it had not begun."""
        bodies = self._bodies
        if not bodies:
            return None
        # Not pop(): another thread may append its own now.
        return bodies.pop(0) if len(bodies) == 1 else remove_ended(bodies, owner, destroyed)

    def _in_another_body(self, lease: Lease | None, owner: object = None) -> bool:
        """Whether ``lease`` is that of a body of another owner, which has not ended."""
        bodies = self._bodies
        return bodies is not None and lease is not None and has_lease(bodies, lease, owner)

    def _note_loss(self, lease: Lease) -> None:
        """Report that a release or an acquire found the lease ended."""
        if self._auto_extension is not None:
            self._auto_extension.on_lease_lost(self, lease, released=True)

    def _left(self, body: Body | None, alive: bool, failing: bool) -> None:
        """Check the end of ``with``: raise LockLost if the lease ended before, unless ``failing``.

        Also if the lease of the body was lost, and ``on_lost`` has acquired the lock again.
        """
        if body is not None and body.lease is not None and body.lease.lost:
            alive = False
        if not alive and not failing and self._handover is None:
            reason = self._why_not_held(body.lease if body is not None else None)
            raise LockLost(
                f"{quoted(self.resource)}: the lease ended before the body did; "
                f"another client may have held the lock ({reason})",
                resource=self.resource,
                reason=reason,
            )

    # --- extend ---

    def _may_be_extended(self, lease: Lease) -> bool:
        """Whether ``max_extensions`` allows another extension."""
        return self._max_extensions is None or lease.extensions < self._max_extensions

    def _note_extension(self, lease: Lease, outcome: ExtendOutcome) -> bool:
        """Record the outcome of an extension. Returns whether the lease was extended."""
        counts = self._client_state.counts
        if outcome is ExtendOutcome.EXTENDED:
            counts.extended += 1
        elif outcome is ExtendOutcome.INCONCLUSIVE:
            counts.inconclusive += 1
        elif self._auto_extension is not None:
            self._auto_extension.on_lease_lost(self, lease)  # counts the loss
        else:
            lease.mark_lost(self._policy.clock())
            counts.lost += 1
        return outcome is ExtendOutcome.EXTENDED

    def _validity_or_raise(self, lease: Lease, outcome: ExtendOutcome, votes: Votes | None) -> float:
        """The new validity in seconds after an extension. Raises LockLost or QuorumUnavailable."""
        if self._note_extension(lease, outcome):
            return lease.validity
        if outcome is ExtendOutcome.LOST:
            reason = self._why_not_held(lease)
            raise LockLost(
                f"{quoted(self.resource)}: lost before it was extended; another client may hold it "
                f"({reason})",
                resource=self.resource,
                reason=reason,
            )
        raise QuorumUnavailable(
            f"{quoted(self.resource)}: too few masters answered to extend; "
            f"held for {self.remaining():.3f} s more",
            causes(self._core, votes) if votes else (),
            resource=self.resource,
            reason="unavailable",
        )


def lock_of(
    kind: type[H],
    core: ClientCore,
    policy: Policy,
    client_state: ClientState,
    resource: str | bytes,
    lock_kind: LockKind,
    ttl: float,
    lease: Lease | None = None,
) -> H:
    """A lock of class ``kind`` without options but ``ttl``, which the caller has checked.

    Beside ``__init__`` because of speed. With ``kind()`` instead, ``client.acquire()`` and a release
    take 5 % more instructions, and each lock of a batch takes 65 % more.
    """
    one = kind.__new__(kind)
    one.resource = resource
    one._core = core
    one._policy = policy
    one._client_state = client_state
    one._lock_kind = lock_kind
    one._ttl = ttl
    one._timeout = None
    one._max_extensions = None
    one._auto_extension = None
    one._lease = lease
    one._acquiring = None
    one._bodies = None
    one._handover = None
    one._granted_at = 0.0
    one._generation = client_state.generation()
    one._at_exit = 0  # AS_CLIENT
    return one


def plain_lock(kind: type[H], core: ClientCore, resource: str | bytes, ttl: float | None) -> H:
    """A lock of class ``kind``, as ``lock(resource, ttl)`` makes it. Raises ConfigError.

    It does not call ``core.lock_kind`` and ``core.ttl_of``: two calls of Python take longer than all of this.
    """
    policy = core.policy
    lock_kind = LockKind(key_of(core.key_prefix, resource))
    seconds = policy.ttl if ttl is None else core.check_ttl(ttl)
    return lock_of(kind, core, policy, core.client_state, resource, lock_kind, seconds)
