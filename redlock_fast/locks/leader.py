"""Leader election: the state of a candidate, for threads and for asyncio. No waiting, no I/O.

A candidate campaigns for a fenced, auto-extended lock. A term is one hold of that lock. ``threads/leader.py``
and ``aio/leader.py`` run the campaign.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from ..algorithm.lease import Lease
from ..algorithm.quorum import deadline
from ..algorithm.renewal_schedule import LATE, UNCONFIRMED
from ..errors import ConfigError
from ..telemetry import LOG_INTERVAL, log_error
from ..wire.text import quoted
from .client_base import refuse_copy_of_hold
from .client_core import ClientCore
from .config import number
from .owner_names import check_owner, default_owner

#: The share of a ttl by which a leader ends its term ahead of the lease, if ``notice`` is not given.
NOTICE_SHARE = 1 / 5
#: The largest ``notice``: a share of the ttl, and a share of what the drift leaves of it. Renewal is due when
#: 2/3 of the one or 3/4 of the other are left, and needs a quarter of that time.
LONGEST_NOTICE_SHARE, LONGEST_NOTICE_SHARE_OF_REST = 1 / 2, 9 / 16
#: Seconds before this candidate campaigns again after ``step_down`` or an error, or after a failed acquire.
REST, RETRY_PAUSE = 1.0, 0.2
#: The longest pause of a campaign in seconds: it notices then that the client was closed.
TICK = 1.0

# Why a term ended, beside the reasons of ``algorithm/renewal_schedule.py``.
STEPPED_DOWN = "stepped_down: step_down() was called"
STOPPED = "stopped: the campaign was stopped"
FAILED = "failed: on_elected raised an exception"
CLOSED = "closed: the client was closed"


class Campaign:
    """One campaign, from ``start`` to ``stop``.

    ``error``: the exception that ended it. ``refusal``: the ConfigError of the last acquire, or None: whether
    the masters refuse the client's list or settings, which ``reconfigure`` may end. ``pause``: seconds until
    the next acquire.
    """

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self.stopping = False
        self.error: BaseException | None = None
        self.refusal: ConfigError | None = None
        self.pause: float = RETRY_PAUSE
        self._began = 0.0
        self._logged = False

    def notify(self) -> None:
        """Make all that wait for this campaign check their conditions."""
        raise NotImplementedError

    @contextlib.contextmanager
    def turn(self, *ends: type[Exception]) -> Iterator[None]:
        """For an acquire, and the term after it: log what is raised, and go on after a pause.

        Without this candidate perhaps no process would lead. Raises only what is one of ``ends``.
        """
        self.pause, self.refusal, self._began = RETRY_PAUSE, None, time.monotonic()
        try:
            yield
        except ends:
            raise
        except ConfigError as error:
            self.refusal, self.pause = error, REST
            # Once, until an acquire is not refused for a while.
            if time.monotonic() - self._began > LOG_INTERVAL or not self._logged:
                self._logged = True
                log_error("leader-error")
            self.notify()
        except Exception:
            log_error("leader-error")
            self.pause = REST

    def accepted(self) -> None:
        """The acquire was not refused."""
        self._logged = False


class Election:
    """What one call of ``wait`` waits for: that ``leader`` leads, or that ``campaign`` does not go on."""

    def __init__(self, leader: LeaderState, campaign: Campaign) -> None:
        self._leader = leader
        self._campaign = campaign
        self._led = False

    def is_over(self) -> object:
        self._led = self._leader.is_leader
        return self._led or self._campaign.stopping or self._campaign.refusal

    def result(self) -> bool:
        """Whether it was elected. Raises what ended the campaign, or what the masters refuse."""
        campaign = self._campaign
        error = campaign.error or (None if self._led or campaign.stopping else campaign.refusal)
        if error is not None:
            raise error
        return self._led


class Term:
    """One hold of ``lock``, a Lock or an AsyncLock, from the election to the release.

    ``over``: never reset, so that ``leads`` stays False once it was False. ``reason``: why the term is over.
    ``pause``: seconds until the next campaign. ``released``: the lock was released, after
    ``on_lost``. ``work``: the thread or task of ``on_elected``. ``reporter``: that of ``on_lost``.
    ``by_work``: ``on_elected`` ended the term.
    """

    __slots__ = (
        "_core", "_notice", "by_work", "lease", "lock", "over", "pause", "reason", "released", "reporter",
        "work",
    )  # fmt: skip

    def __init__(self, core: ClientCore, lock: Any, notice: float) -> None:
        self._core = core
        self._notice = notice
        self.lock: Any = lock
        self.lease: Lease | None = lock._lease
        self.over: bool = False
        self.reason: str = ""
        self.pause: float = 0.0
        self.released: bool = False
        self.work: Any = None
        self.reporter: Any = None
        self.by_work: bool = False

    def leads(self) -> bool:
        """Whether the term goes on, by the lease clock. No I/O, no other thread is needed."""
        if not self.over and not (self.left() > 0.0):
            self.over = True
        return not self.over

    def left(self) -> float:
        """Seconds until the term ends; not above 0.0 when it has ended."""
        lease = self.lease
        if lease is None or lease.released or self._core.client_state.closed:
            return 0.0
        left: float = self.lock.remaining() - self._notice
        return left

    def is_lost(self) -> bool:
        """Whether renewal found the lock lost. It then reports the reason."""
        return self.lease is not None and self.lease.lost

    def end(self, reason: str, pause: float = 0.0) -> bool:
        """End the term, unless it has ended. Returns whether this call ended it."""
        if not self.leads():
            return False
        self.over, self.reason, self.pause = True, reason, pause
        return True


class LeaderState:
    """A candidate for the leadership ``name``."""

    def __init__(
        self,
        core: ClientCore,
        make_lock: Callable[..., Any],
        name: str | bytes,
        ttl: float | None,
        notice: float | None,
        identity: str | None,
        on_elected: Callable[..., Any] | None,
        on_lost: Callable[..., Any] | None,
    ) -> None:
        for option, function in (("on_elected", on_elected), ("on_lost", on_lost)):
            if function is not None and not callable(function):
                raise ConfigError(f"{option} must be a function or None, not {function!r}")
        self.name: str | bytes = name
        self.ttl: float = core.ttl_of(ttl)
        rest = deadline(0.0, self.ttl, core.drift_factor)
        longest = min(self.ttl * LONGEST_NOTICE_SHARE, rest * LONGEST_NOTICE_SHARE_OF_REST)
        self.notice: float = (
            self.ttl * NOTICE_SHARE if notice is None else number("notice", notice, low=0.0, high=longest)
        )
        self._core = core
        self._key: bytes = core.check_key(name)
        self._identity: str | None = None if identity is None else check_owner(identity, "identity")
        self._on_elected = on_elected
        self._on_lost = on_lost
        self._make_lock = make_lock
        self._term: Term | None = None
        self._new_lock(lambda lock, reason: None)  # raises ConfigError for a bad name now

    __reduce__ = refuse_copy_of_hold

    def _new_lock(self, on_lost: Callable[[Any, str], Any]) -> Any:
        """The lock of the next term."""
        owner = self.identity if self._identity is None and self._core.names_owners else self._identity
        settings = {"fencing": True, "auto_extend": True, "max_hold": None, "timeout": None, "owner": owner}
        return self._make_lock(self.name, self.ttl, on_lost=on_lost, **settings)

    def _next_lock(self, campaign: Campaign) -> tuple[Any, list[str]]:
        """The lock of the next term, and the list that gets the reason of its loss."""
        reports: list[str] = []

        def on_lost(_: Any, reason: str) -> None:
            reports.append(reason)
            campaign.notify()

        return self._new_lock(on_lost), reports

    @property
    def identity(self) -> str:
        """The name of this candidate, by default the host and the process: the owner of its lock."""
        return default_owner("leader") if self._identity is None else self._identity

    @property
    def is_leader(self) -> bool:
        """Whether this candidate leads now, by the lease clock. No I/O, never raises: check it often.

        False from the moment at which the lease is within ``notice`` seconds of its end, also if this process
        was stopped until then: no other thread is needed. In a child of fork it is False.

        Examples:
            >>> while leader.is_leader:
            ...     work_a_little()
        """
        term = self._term
        return term is not None and term.leads()

    @property
    def fencing_token(self) -> int | None:
        """A number larger than that of every earlier leader; None before the first election.

        It stays after the end of the leadership, until the next election: the protected resource refuses a
        late write with it. None in a child of fork. See docs/fencing.md.

        Examples:
            >>> storage.write(data, fence=leader.fencing_token)
        """
        return self._fence if self._generation == self._core.client_state.generation() else None

    _fence: int | None = None
    _generation: int = 0

    def _begin_term(self, lock: Any) -> Term:
        """The term of a lock that was just acquired."""
        term = Term(self._core, lock, self.notice)
        self._fence, self._generation = lock.fencing_token, self._core.client_state.generation()
        self._term = term
        return term

    def _end_term(self, term: Term) -> bool:
        """Stop the renewal of a term that is over, set its reason. Returns whether to call ``on_lost``."""
        if term.lease is not None:
            term.lock._auto_extension.stop(term.lease)  # an on_lost that hangs must not hold the lease
        if self._core.client_state.closed:
            term.reason = term.reason or CLOSED
        elif not term.reason:
            # Without a report of renewal: ``notice`` has begun, or this process was stopped until the end.
            term.reason = UNCONFIRMED if term.lock.remaining() > 0.0 else LATE
        return self._on_lost is not None and not self._core.client_state.ending

    def __repr__(self) -> str:
        state = "leads" if self.is_leader else "does not lead"
        return f"<{type(self).__name__} {quoted(self.name)}: {self.identity} {state}>"
