"""All exceptions. Each says what is at fault and what the caller can do."""

from __future__ import annotations

from collections.abc import Sequence
from copyreg import __newobj__  # type: ignore[attr-defined]
from typing import Any


def reduced(error: BaseException) -> tuple[Any, ...]:
    """The ``__reduce__`` of an exception whose ``args`` are not the arguments of its ``__init__``.

    Pickle and copy then restore ``args`` and all attributes, and do not call ``__init__``.
    """
    return __newobj__, (type(error), *error.args), vars(error)


class RedlockError(Exception):
    """Base of everything that this package raises on purpose. It can be pickled and copied."""

    __reduce__ = reduced


class ConfigError(RedlockError, ValueError, TypeError):
    """Bad input, found before any I/O: names the argument and what is allowed."""


class ClientClosed(RedlockError):
    """The client was closed; make a new one."""


class WrongLoop(RedlockError, RuntimeError):
    """The client belongs to another event loop, which is not closed. Make a client for each loop."""


class LockAlreadyHeld(RedlockError, RuntimeError):
    """``acquire()`` on a lock object that holds a lease, or is acquiring one.

    A second token would overwrite the first, which could then never be released. Use one lock object for each
    holder.
    """


class LockNotAcquired(RedlockError):
    """The lock was not obtained within the time or the attempts allowed.

    It is raised as [`Contended`][] or [`QuorumUnavailable`][]. Nothing of the attempt is left on the masters.
    """


class Contended(LockNotAcquired):
    """Another holder has the lock; the masters work. Try again later, or with a longer ``timeout``.

    ``masters`` has the names of the masters that refused.
    """

    def __init__(self, message: str, masters: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.masters = tuple(masters)


class MasterError(RedlockError):
    """The failure of one master. ``master`` is its name, ``cause`` the reason."""

    def __init__(self, master: str, cause: str) -> None:
        super().__init__(f"{master}: {cause}")
        self.master = master
        self.cause = cause


class QuorumUnavailable(LockNotAcquired):
    """Too many masters are down, silent or answer with errors to form a quorum.

    ``causes`` has one [`MasterError`][] per failing master, for an operator to look into. When ``extend()``
    raises it, the lease is unchanged: the lock is held until its previous deadline.
    """

    def __init__(self, message: str, causes: Sequence[MasterError] = ()) -> None:
        super().__init__("; ".join([message, *map(str, causes)]))
        self.causes = tuple(causes)


class LockLost(RedlockError):
    """The lease ended, or a quorum no longer has its key. Another holder may have the lock.

    Stop the work that the lock protected. A lost lock stays lost: acquire it again.
    """


class TooManyExtensions(RedlockError):
    """The lock was extended ``max_extensions`` times; it stays held until its deadline."""
