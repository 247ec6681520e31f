"""The types of settings and options, for type checkers, IDEs and callers that pass options on.

One ``TypedDict`` has the options of each kind of lock, one the settings of a client. A
program that stores options gives them these types:

    from redlock_fast import FastRedlock, Lock
    from redlock_fast.locks.options import ClientOptions, LockOptions

    settings: ClientOptions = {"ttl": 10.0, "wait": "push"}
    options: LockOptions[Lock] = {"timeout": 5.0, "auto_extend": True}
    with FastRedlock(urls, **settings).lock("orders:42", **options):
        ...

The keys of each are the keyword arguments of the method that it is named after; a test compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, Literal, ParamSpec, Protocol, SupportsIndex, TypeAlias, TypedDict, TypeVar

from ..algorithm.policy import Clock
from ..algorithm.quorum import Retry
from ..engine import EngineName
from ..masters.restart_guard import RestartGuard

T_co = TypeVar("T_co", covariant=True)
L = TypeVar("L")
P = ParamSpec("P")

Decide = Literal["quorum", "all"]
"""When an exchange returns: as soon as the outcome is certain, or after every master."""

WaitMode = Literal["auto", "push", "poll"]
"""How a caller waits for a lock that another holder has."""

CheckMasters = Literal["auto", "strict", "off"]
"""Whether masters vote only for the list that they keep."""

IfTaken = Literal["skip", "wait", "raise"]
"""What a single run does while another process runs the job."""


# --- masters and names ----------------------------------------------------------------------------


class ListOf(Protocol[T_co]):
    """A list or a tuple, but no ``str``, which is a sequence of its characters."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[T_co]: ...
    def __getitem__(self, index: SupportsIndex, /) -> T_co: ...
    def __contains__(self, value: object, /) -> bool: ...


class RedisClient(Protocol):
    """A blocking client of redis-py or valkey-py. Its settings are used, not its connections."""

    @property
    def connection_pool(self) -> Any: ...
    def __enter__(self) -> Any: ...


Master: TypeAlias = str | RedisClient
"""One master: a URL, or a client that has its settings."""

Resource: TypeAlias = str | bytes
"""The name to lock: 1 byte to 64 kB; text as UTF-8."""

#: A checker takes the types of a lambda's parameters from the first three.
ResourceOf: TypeAlias = (
    Callable[[Any], Resource]
    | Callable[[Any, Any], Resource]
    | Callable[[Any, Any, Any], Resource]
    | Callable[P, Resource]
)
"""A function that returns the resource to lock for the arguments of a call."""

Groups: TypeAlias = Mapping[str, ListOf[Master]] | ListOf[ListOf[Master]]
"""The groups of masters of a sharded client, by name or by the addresses of their masters."""


# --- options --------------------------------------------------------------------------------------


class NoOptions(TypedDict):
    """No further options: the type of keyword arguments that only exist to be refused by name."""


class CommonOptions(TypedDict, total=False):
    """The settings that all clients and drop-ins have. [`FastRedlock`][] describes them."""

    node_timeout: float
    connect_timeout: float
    socket_timeout: float
    retry: Retry | None
    drift_factor: float
    key_prefix: str | bytes
    max_ttl: float
    wait: WaitMode
    restart_guard: RestartGuard
    check_masters: CheckMasters
    replicas: int
    refill: bool | None
    fencing_retention: float
    release_at_exit: bool
    timeout: float | None
    auto_extend: bool
    max_hold: float | None
    label: str
    engine: EngineName
    # Rarely needed:
    decide: Decide
    clock: Clock
    allow_split: bool
    assume_fresh: bool


class ClientOptions(CommonOptions, total=False):
    """The settings of every client, also of a sharded one. [`FastRedlock`][] describes them."""

    ttl: float
    owner: str | None


class DropInOptions(CommonOptions, total=False):
    """The settings of a client for a drop-in with a ``ttl`` of its own. [`FastRedlock`][] describes them."""

    joint_with: ListOf[Master] | None


class FastRedlockOptions(ClientOptions, DropInOptions, total=False):
    """The settings of a client of one group of masters. [`FastRedlock`][] describes them."""


class KindOptions(TypedDict, Generic[L], total=False):
    """The options of every kind of lock: multilock, read-write lock, semaphore.

    ``L``: the class of the lock.

    [`FastRedlock.lock`][] describes them.
    """

    timeout: float | None
    """Seconds that ``with`` and ``acquire()`` try; None: no end while another holder has the lock."""
    max_extensions: int | None
    """The largest number of extensions; None: no limit."""
    auto_extend: bool
    """Extend the lease in the background while the lock is held."""
    on_lost: Callable[[L, str], Any] | None
    """With ``auto_extend``: called with the lock and the reason, once for each hold that is lost."""
    max_hold: float | None
    """With ``auto_extend``: renewal ends the lease this many seconds after the grant; None: no bound."""
    release_at_exit: bool | None
    """Whether the lock is released when the interpreter exits; None: as the client's option says."""
    label: str | None
    """The label of the lock in measurements; None: the client's."""
    owner: str | None
    """The owner that the token names, for display; "": no owner; None: as the client's option says."""


class LockOptions(KindOptions[L], total=False):
    """The options of a plain lock, and of ``synchronized``. [`FastRedlock.lock`][] describes them."""

    fencing: bool
    """Whether each grant gets a ``fencing_token``, larger than all before it."""
    fair: bool
    """Callers get the lock in the order of their arrival, across processes."""
    token: bytes | None
    """The token of a lock that another process holds or detached."""


class RLockOptions(KindOptions[L], total=False):
    """The options of a reentrant lock. [`FastRedlock.rlock`][] describes them."""

    fencing: bool
    """Whether each grant gets a ``fencing_token``, larger than all before it."""
    min_validity: float
    """Seconds of lease that must be left to enter again; if less is left, the lease is extended."""


class LeaderOptions(TypedDict, Generic[L], total=False):
    """The options of a leader. ``L``: the class of the leader. [`FastRedlock.leader`][] describes them."""

    identity: str | None
    """The name of this candidate; None: the host and the process."""
    on_elected: Callable[[L], Any] | None
    """Called with the leader after each election."""
    on_lost: Callable[[L, str], Any] | None
    """Called with the leader and the reason, once after each election, when the leadership has ended."""
    notice: float | None
    """Seconds by which the leadership ends before another candidate can be elected."""


class CancelOptions(TypedDict, total=False):
    """The option that all kinds of locks have in asyncio only."""

    cancel_on_loss: bool
    """Whether a loss cancels the body of ``async with``."""


class AsyncKindOptions(KindOptions[L], CancelOptions, total=False):
    """[`KindOptions`][] for asyncio. [`AsyncFastRedlock.lock`][] describes them."""


class AsyncLockOptions(LockOptions[L], CancelOptions, total=False):
    """[`LockOptions`][] for asyncio. [`AsyncFastRedlock.lock`][] describes them."""


class AsyncRLockOptions(RLockOptions[L], CancelOptions, total=False):
    """[`RLockOptions`][] for asyncio. [`AsyncFastRedlock.rlock`][] describes them."""


__all__ = [
    "AsyncKindOptions",
    "AsyncLockOptions",
    "AsyncRLockOptions",
    "CancelOptions",
    "CheckMasters",
    "ClientOptions",
    "CommonOptions",
    "Decide",
    "DropInOptions",
    "EngineName",
    "FastRedlockOptions",
    "Groups",
    "IfTaken",
    "KindOptions",
    "LeaderOptions",
    "ListOf",
    "LockOptions",
    "Master",
    "NoOptions",
    "RLockOptions",
    "RedisClient",
    "Resource",
    "ResourceOf",
    "RestartGuard",
    "WaitMode",
]
