"""All exceptions. Each says what is at fault and what the caller can do.

The fields of an exception survive pickle and copy, and so the way back from another process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copyreg import __newobj__  # type: ignore[attr-defined]
from typing import Any

#: The name of a lock as the caller passed it, or the names of a multilock.
ResourceNames = str | bytes | tuple[str | bytes, ...]


def reduced(error: BaseException) -> tuple[Any, ...]:
    """The ``__reduce__`` of an exception whose ``args`` are not the arguments of its ``__init__``.

    Pickle and copy then restore ``args`` and all attributes, and do not call ``__init__``.
    """
    # ``args`` are an attribute here, because OSError.__new__ leaves them empty for a subclass with __init__.
    return __newobj__, (type(error),), {**vars(error), "args": error.args}


class RedlockError(Exception):
    """Base of everything that this package raises on purpose. It can be pickled and copied.

    Attributes:
        resource: The name of the lock as the caller passed it: text stays text. A tuple of the names for a
            multilock. None if the error is not about one lock.
    """

    def __init__(self, *args: object, resource: ResourceNames | None = None) -> None:
        super().__init__(*args)
        self.resource = resource

    __reduce__ = reduced


class ConfigError(RedlockError, ValueError, TypeError):
    """Bad input, found before any I/O; or masters that cannot work with the settings, found later.

    The text names the argument and what is allowed.
    """


#: The text of ClientClosed.
CLOSED = "this client was closed; make a new one"


class ClientClosed(RedlockError):
    """The client was closed; make a new one."""


class WrongLoop(RedlockError, RuntimeError):
    """The client belongs to another event loop, which is not closed. Make a client for each loop."""


class LockAlreadyHeld(RedlockError, RuntimeError):
    """``acquire()`` on a lock object that holds a lease, or is acquiring one.

    A second token would overwrite the first, which could then never be released. Use one lock object for each
    holder.
    """


class MasterError(RedlockError):
    """The failure of one master.

    Attributes:
        master: The name of the master, as in ``health()``.
        cause: Why it cast no vote. A refusal of this user begins with WRONGPASS, NOAUTH or NOPERM.
    """

    def __init__(self, master: str, cause: str) -> None:
        super().__init__(f"{master}: {cause}")
        self.master = master
        self.cause = cause


class LockNotAcquired(RedlockError):
    """The lock was not obtained within the time or the attempts allowed.

    It is raised as [`Contended`][] or [`QuorumUnavailable`][]. Nothing of the attempt is left on the masters.
    If the ``timeout`` of the caller ended the acquire, the exception is also a ``TimeoutError``.

    Examples:
        >>> try:
        ...     with client.lock("orders:42", timeout=2.0):
        ...         ship("orders:42")
        ... except LockNotAcquired as error:
        ...     answer(503, retry_after=error.retry_after or 1.0, why=error.reason)

    Attributes:
        reason: One word for a program. "held": another holder has the lock. "queue": other callers of this
            client waited for it and were first, so no master was asked. "unavailable": too few masters
            answered. "guarded": a quorum is connected, and the restart guard keeps too many of its masters
            out of votes. "late": a quorum granted the lease, and no validity was left.
        masters: The names of the masters that refused ([`Contended`][]) or failed ([`QuorumUnavailable`][]).
        causes: One [`MasterError`][] per master that failed; with [`Contended`][] a minority.
        retry_after: Seconds after which another try may succeed; None if that is unknown. It is known for
            "guarded" only: the time until the restart guards of enough connected masters end. It is None for
            [`Contended`][], because a master that refuses does not report the rest of the other lease.
    """

    def __init__(
        self,
        message: str,
        *,
        resource: ResourceNames | None = None,
        reason: str = "",
        masters: Sequence[str] = (),
        causes: Sequence[MasterError] = (),
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, resource=resource)
        self.reason = reason
        self.masters: tuple[str, ...] = tuple(masters)
        self.causes: tuple[MasterError, ...] = tuple(causes)
        self.retry_after = retry_after


class Contended(LockNotAcquired):
    """Another holder has the lock; the masters work. Try again later, or with a longer ``timeout``.

    Examples:
        >>> except Contended as error:
        ...     answer(409, f"{error.resource} is in use by {error.owner or 'another client'}")

    Attributes:
        owner: The owner of the other lease, as its token names it for people, such as
            "web-1:4711:MainThread"; of a semaphore the owners of its first slots. "" if no token names one
            (a client with ``owner=""``, another library), if readers have the lock, if the lock is free by
            now, or if too few masters answered. Only ``with`` raises this error, and asks for the owner: one
            more round trip after the failure, at most ``node_timeout`` seconds beyond the caller's timeout.
            ``acquire()``, which returns False, does not ask. Another client can write any owner: show it,
            and decide nothing by it. A client with ``owner=""`` does not ask.
    """

    def __init__(self, message: str, *, owner: str = "", **fields: Any) -> None:
        super().__init__(message, **fields)
        self.owner = owner


class QuorumUnavailable(LockNotAcquired):
    """Too many masters are down, silent or answer with errors to form a quorum.

    ``causes`` is for an operator to look into. When ``extend()`` raises this, the lease is unchanged: the
    lock is held until its previous deadline.
    """

    def __init__(self, message: str, causes: Sequence[MasterError] = (), **fields: Any) -> None:
        masters = [cause.master for cause in causes]
        by_text: dict[str, list[str]] = {}
        for one in causes:
            by_text.setdefault(one.cause, []).append(one.master)
        shown = [f"{', '.join(names)}: {text}" for text, names in by_text.items()]
        super().__init__("; ".join([message, *shown]), masters=masters, causes=causes, **fields)


class ContendedTimeout(Contended, TimeoutError):
    """[`Contended`][] at the end of the caller's ``timeout``."""


class QuorumTimeout(QuorumUnavailable, TimeoutError):
    """[`QuorumUnavailable`][] at the end of the caller's ``timeout``."""


class LockLost(RedlockError):
    """The lease ended, or a quorum no longer has its key. Another holder may have the lock.

    Stop the work that the lock protected. A lost lock stays lost: acquire it again.

    Attributes:
        reason: A word for a program, a colon, and why, for people; "" if it is unknown. "ended": the lease
            has ended, and nothing extended it. "not held": the lock was not acquired, or was released.
            "forked": it belongs to the parent of this process. Where the lock was renewed in the background,
            the word is the one that ``on_lost`` gets. "gone": a quorum of masters no longer has the key.
            "unconfirmed": too few masters confirmed an extension in time. "late": this process stood still
            until the lease had ended. "max_extensions" and "max_hold": a bound that the caller has set.
    """

    def __init__(self, *args: object, resource: ResourceNames | None = None, reason: str = "") -> None:
        super().__init__(*args, resource=resource)
        self.reason = reason


class StaleToken(LockLost):
    """A resource refused a write: a holder with a later fencing token has written, so the lock is lost.

    The write changed nothing. Do not repeat it.
    """


class TooManyExtensions(RedlockError):
    """The lock was extended ``max_extensions`` times; it stays held until its deadline."""


@contextmanager
def needs(package: str, requirement: str) -> Iterator[None]:
    """Add the pip command to the ImportError of a block that imports from ``package``.

    ``requirement``: what pip installs.
    """
    try:
        yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] != package:
            raise
        raise type(error)(f"{error}: pip install '{requirement}'", name=error.name) from error
