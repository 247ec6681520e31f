"""The base of all clients: the constructor, which checks the settings, and what needs no thread or loop.

The clients for threads and for asyncio add the driver that runs operations.
"""

from __future__ import annotations

from typing import NoReturn, Self, TypeVar, Unpack, get_args

from ..algorithm.crowds import Crowds
from ..algorithm.keys import prefix_of
from ..algorithm.lock_kind import wire_ttl
from ..algorithm.policy import Clock, Policy, VotingMasters, lease_clock
from ..algorithm.quorum import Retry
from ..algorithm.tokens import tokens_of
from ..engine import load
from ..engine.contract import Wait
from ..errors import ConfigError
from ..masters.address import MAX_REPLICAS, numbered
from ..masters.faults import fault_reporter
from ..masters.health import MasterHealth
from ..masters.masters import Masters
from ..masters.restart_guard import MODES, Guard
from ..masters.settings import ConnectorSettings
from ..masters.stats import Stats
from .client_core import ClientCore, constant_owner
from .config import (
    check_choice,
    check_flag,
    check_for_cluster,
    check_hold,
    check_integer,
    check_label,
    check_lists,
    check_retry,
    check_timeout,
    number,
    refuse_unknown,
    takes_only,
)
from .fair import QueuedKind
from .options import (
    CheckMasters,
    Decide,
    EngineName,
    FastRedlockOptions,
    ListOf,
    Master,
    NoOptions,
    RestartGuard,
    WaitMode,
)
from .owner_names import check_owner

L = TypeVar("L")
H = TypeVar("H")

#: Seconds; ten years.
MAX_RETENTION = 3.2e8

#: Seconds, some eleven days: a socket waits for a number of milliseconds that has 31 bits.
MAX_CONNECT_TIMEOUT = 1e6


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
    """A client: the settings of its constructor, and what threads and asyncio do alike.

    ``_core`` is what its locks use. Times are in seconds; [`FastRedlock`][] describes the settings.
    """

    _core: ClientCore
    #: With what depends on threads or on an event loop.
    _core_class: type[ClientCore] = ClientCore

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
        max_ttl: float = 60.0,
        wait: WaitMode = "auto",
        restart_guard: RestartGuard = "auto",
        check_masters: CheckMasters = "auto",
        replicas: int = 0,
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
        # Rarely needed:
        decide: Decide = "quorum",
        clock: Clock = lease_clock,
        allow_split: bool = False,
        assume_fresh: bool = False,
        **unknown: Unpack[NoOptions],
    ) -> None:
        refuse_unknown(type(self).__name__, unknown, BaseClient.__init__)
        core = self._core_class(check_label(label))
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
        lists = check_lists(masters, joint_with)
        cluster = check_for_cluster(lists[0], restart_guard=restart_guard, check_masters=check_masters)
        targets, masks = numbered((), lists)
        core.timeout = check_timeout(timeout)
        core.auto_extend = check_flag("auto_extend", auto_extend)
        core.max_hold = check_hold(max_hold)
        core.plain_locks = core.timeout is None and not core.auto_extend
        core.drift_factor = number("drift_factor", drift_factor, low=0.0, high=0.5)
        retention = number("fencing_retention", fencing_retention, above=0.0, high=MAX_RETENTION)
        core.max_ttl = number("max_ttl", max_ttl, above=0.0, high=MAX_RETENTION)
        if core.max_ttl > retention:
            raise ConfigError(
                f"max_ttl must be more than 0 and at most fencing_retention ({retention:g} s), "
                f"not {core.max_ttl:g} s: a fencing counter must outlive every lease"
            )
        ttl = core.check_ttl(ttl)
        core.key_prefix = prefix_of(key_prefix)
        core.connect_timeout = number(
            "connect_timeout", connect_timeout, above=0.0, high=MAX_CONNECT_TIMEOUT
        )
        core.names_owners = owner is None or check_owner(owner) != ""
        token, tokens = tokens_of(core.default_owner if owner is None else constant_owner(owner))
        core.policy = Policy(
            node_timeout=number("node_timeout", node_timeout, above=0.0),
            drift_factor=drift_factor,
            outage_timeout=connect_timeout,
            retry=retry,
            voters=VotingMasters(len(targets), *masks, shards=cluster),
            # Not EARLY: a master that fails has not refused, and without it a quorum may still answer.
            wait=Wait.ALL if decide == "all" else Wait.CERTAIN,
            clock=clock,
            retention=wire_ttl(retention),
            step=wire_ttl(core.max_ttl / 2),
            push=wait != "poll",
            refill=restart_guard != "off" if refill is None else refill,
            crowds=Crowds(QueuedKind),
            ttl=ttl,
            token=token,
            tokens=tokens,
        )
        settings = ConnectorSettings(
            engine_class=load(engine),
            node_timeout=core.policy.node_timeout,
            connect_timeout=connect_timeout,
            socket_timeout=number("socket_timeout", socket_timeout, above=0.0),
            key_prefix=core.key_prefix,
            guard=Guard(restart_guard, core.max_ttl, assume_fresh),
            wait=wait,
            allow_split=check_flag("allow_split", allow_split),
            check_masters="off" if cluster else check_masters,
            replicas=check_integer("replicas", replicas, 0, MAX_REPLICAS),
        )
        check_flag("release_at_exit", release_at_exit)
        if not callable(clock):
            raise ConfigError(f"clock must be a function that returns seconds, not {clock!r}")
        core.masters = Masters(targets, core.policy, settings, release_at_exit)
        core.policy.report = fault_reporter(core.masters)
        core.client_state = core.masters.client_state
        self._core = core

    @classmethod
    def from_env(cls, **options: Unpack[FastRedlockOptions]) -> Self:
        """A client with the masters and options that the environment of this process names.

        ``REDLOCK_FAST_MASTERS`` has the URLs, with spaces or commas between them. ``REDLOCK_FAST_CONFIG``
        is the path of a TOML file whose section ``[redlock-fast]`` has ``masters`` and client options. The
        variable goes before the file, and ``options`` go before both: the rules of the command line, so
        ``redlock-fast status`` shows what this client will use. See docs/cli.md. No I/O but that file.

        Examples:
            >>> client = FastRedlock.from_env(key_prefix="shop:")

        Raises:
            ConfigError: No masters, or invalid settings; its text has no password.
        """
        from .environment import from_environment  # late: it reads the options of this class

        masters, given = from_environment()
        return cls(masters, **{**given, **options})

    def health(self) -> list[MasterHealth]:
        """The state of each master, in the order of the configuration. No I/O, never raises.

        Examples:
            >>> [master.name for master in client.health() if master.state == "down"]
        """
        return self._core.masters.health()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._states()}>"

    def _states(self) -> str:
        """The masters with their states, or "closed", as text; see ``ClientCore.states``."""
        core = vars(self).get("_core")  # missing after a ConfigError of the constructor
        return "no masters" if core is None else core.states()

    __reduce__ = refuse_copy

    def stats(self) -> Stats:
        """A copy of the counters of this client. No I/O, never raises.

        Examples:
            >>> client.stats().contended
        """
        stats = self._core.client_state.counts.copy()
        stats.faults = sum(one.tally.faults for one in self._core.masters.connector.roster.masters)
        return stats
