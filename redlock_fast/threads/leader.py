"""Leader election for threads: one thread of a candidate campaigns, leads and reports the loss."""

from __future__ import annotations

import atexit
import threading
import weakref
from collections.abc import Callable
from typing import Any, Self

from ..algorithm.lease import Lease
from ..engine.condition import Condition
from ..engine.signals import block_signals, restore_signals
from ..errors import ClientClosed
from ..locks.bodies import Body
from ..locks.config import check_timeout, number
from ..locks.decorated import check_callback
from ..locks.leader import FAILED, REST, STEPPED_DOWN, STOPPED, TICK, Campaign, Election, LeaderState, Term
from ..locks.operations import new_acquire
from ..locks.procedures import new_owner
from ..telemetry import CallOfTheProgram
from .operations import run
from .stoppable import Stopped, stoppable

#: Seconds that ``stop`` waits for the thread, and so for ``on_elected``.
JOIN_TIMEOUT = 1.0


class _Campaign(Campaign):
    """A campaign in one thread.

    ``before``: the campaign before, or None. ``after``: the thread that ends first, or None. ``mask``: the
    signals that a thread blocks when it calls the program.
    """

    def __init__(self, generation: int, run: Callable[[_Campaign], None], before: _Campaign | None) -> None:
        super().__init__(generation)
        self.after: threading.Thread | None = None
        if before is not None:  # perhaps its thread was not started
            self.after = before.after if before.thread.ident is None else before.thread
        self.ended = False
        self.mask: Any = None
        #: That of all campaigns: ``stop`` may wait for a term of the campaign before.
        self._changed: Condition = Condition() if before is None else before._changed
        #: Guards the begin and the end of terms.
        self.mutex: threading.RLock = self._changed.mutex
        self.thread: threading.Thread = threading.Thread(
            target=run, args=(self,), name="redlock-fast-leader", daemon=True
        )
        _campaigns.add(self)

    def active(self) -> bool:
        return self.thread.is_alive() and not (self.stopping or self.ended)

    def notify(self) -> None:
        """Make all waiting threads check their conditions."""
        with self.mutex:
            self._changed.notify_all()

    def wait_for(self, condition: Callable[[], object], timeout: float | None = None) -> None:
        """Wait until ``condition()`` is true, at most ``timeout`` seconds. Ends with the campaign."""
        self._changed.wait_for(lambda: self.ended or bool(condition()), timeout)


class Leader(LeaderState):
    """A candidate for a leadership, made by [`FastRedlock.leader`][]. At any time at most one leads.

    ``with leader:`` campaigns while its body runs. At the end it stops the campaign, and the leadership if
    this candidate leads. A thread of this object waits for the leadership, and calls ``on_elected`` and
    ``on_lost``. All times are in seconds.

    Examples:
        >>> with client.leader("scheduler") as leader:
        ...     while leader.wait():
        ...         while leader.is_leader:
        ...             run_next_job(fence=leader.fencing_token)
    """

    _campaign: _Campaign | None = None

    def __init__(self, *settings: Any) -> None:
        super().__init__(*settings)
        for option, function in (("on_elected", self._on_elected), ("on_lost", self._on_lost)):
            check_callback(function, option)

    def start(self) -> None:
        """Begin to campaign: a background thread waits for the leadership, and keeps it once it is elected.

        Returns at once, before anybody is elected: ``wait()`` waits for that. Does nothing if this object
        campaigns already. ``with leader:`` calls it at its begin, and ``stop()`` at its end.

        After ``stop()`` a new campaign waits until ``on_elected`` and ``on_lost`` of the previous one have
        returned. A child of fork does not campaign, until it calls this.

        Examples:
            >>> leader.start()

        Raises:
            ClientClosed: The client is closed.
            ConfigError: The masters refuse the client's list or settings.
        """
        core = self._core
        core.check_open()
        with core.client_state.mutex:
            campaign = self._current()
            if campaign is None or not campaign.active():
                campaign = self._campaign = _Campaign(core.client_state.generation(), self._run, campaign)
                try:
                    campaign.thread.start()
                except RuntimeError:  # the system has no more threads
                    campaign.stopping = True
                    raise

    def stop(self) -> None:
        """End the campaign. A leader gets ``on_lost`` first, then its lock is released.

        Waits for ``on_lost``, and a second at most for the end of ``on_elected``. Never raises because of
        masters.

        Examples:
            >>> leader.stop()
        """
        campaign = self._campaign
        if campaign is not None:
            # Before any call: the thread then ends by itself if a signal handler raises in here.
            campaign.stopping = True
        campaign = self._current()
        if campaign is None:
            return
        with campaign.mutex:
            term = self._term
            if term is not None:
                term.end(STOPPED)
        campaign.notify()
        if campaign.thread.is_alive() and not self._is_inside(campaign, term):
            campaign.wait_for(lambda: term is None or term.released)
            campaign.thread.join(JOIN_TIMEOUT)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until this candidate leads. Returns whether it was elected; see [`Leader.is_leader`][].

        ``timeout``: seconds to wait; None: no end. False: the timeout passed, or the campaign was stopped.

        Examples:
            >>> if leader.wait(timeout=5.0):
            ...     work()

        Raises:
            RuntimeError: It does not campaign: use ``with`` or ``start()``.
            ClientClosed: The client was closed.
            ConfigError: An invalid timeout; or the masters refuse the client's list or settings now. The
                campaign goes on: after ``reconfigure`` it may be elected.
        """
        timeout = check_timeout(timeout)
        campaign = self._current()
        if campaign is None:
            raise RuntimeError(f"{self!r} does not campaign: use `with` or start()")
        election = Election(self, campaign)
        campaign.wait_for(election.is_over, timeout)
        return election.result()

    def step_down(self, pause: float = REST) -> bool:
        """Give the leadership up: ``on_lost`` is called, then the lock is released. Another may be elected.

        This candidate campaigns again ``pause`` seconds later. Returns after the release. False: this
        candidate did not lead.

        Examples:
            >>> leader.step_down()

        Raises:
            ConfigError: An invalid pause.
        """
        pause = number("pause", pause, low=0.0)
        campaign, term = self._current(), self._term
        if campaign is None or term is None:
            return False
        with campaign.mutex:
            if not term.end(STEPPED_DOWN, pause):
                return False
        campaign.notify()
        if threading.current_thread() is not campaign.thread:
            campaign.wait_for(lambda: term.released)
        return True

    def current(self) -> str:
        """Ask the masters for the identity of the present leader, in one round trip; "" if none is known.

        The answer may be outdated when it arrives: use it for display, not for decisions.

        Examples:
            >>> print("the leader is", leader.current() or "not elected yet")

        Raises:
            ClientClosed: The client is closed.
            ConfigError: The masters refuse the client's list or settings.
        """
        identity: str = run(new_owner(self._core, self._key), self._core.masters)
        return identity

    def __enter__(self) -> Self:
        try:
            self.start()
            return self
        except BaseException:  # a signal handler may raise after the thread has begun
            self.stop()
            raise

    def __exit__(self, *_: object) -> None:
        campaign = self._campaign
        if campaign is not None:
            campaign.stopping = True  # a signal handler may raise where ``stop`` begins
        self.stop()

    def _current(self) -> _Campaign | None:
        """The campaign of this process."""
        campaign = self._campaign
        ours = campaign is not None and campaign.generation == self._core.client_state.generation()
        return campaign if ours else None

    def _is_inside(self, campaign: _Campaign, term: Term | None) -> bool:
        """Whether the caller is ``on_elected`` or ``on_lost``, which the campaign waits for."""
        callbacks = (term.work, term.reporter) if term else ()
        return threading.current_thread() in (campaign.thread, *callbacks)

    # --- the threads of the campaign ---

    def _run(self, campaign: _Campaign) -> None:
        campaign.mask = block_signals()
        try:
            if campaign.after is not None:
                campaign.after.join()  # its on_elected may go on after ``stop``
            while not campaign.stopping:
                self._campaign_once(campaign)
        except Stopped:
            pass
        except ClientClosed as error:
            campaign.error = error
        finally:
            campaign.ended = True
            campaign.notify()

    def _campaign_once(self, campaign: _Campaign) -> None:
        """Wait for the leadership, lead until it ends, and pause."""
        with campaign.turn(Stopped, ClientClosed):
            lock, reports = self._next_lock(campaign)
            wait = stoppable(lambda: campaign.stopping)
            lease = run(new_acquire(lock, True, None, Body()), self._core.masters, wait)
            campaign.accepted()
            if isinstance(lease, Lease):
                campaign.pause = self._lead(campaign, lock, reports)
        campaign.wait_for(lambda: campaign.stopping, campaign.pause)

    def _lead(self, campaign: _Campaign, lock: Any, reports: list[str]) -> float:
        """Lead until the term ends. Returns the seconds until the next campaign."""
        with campaign.mutex:
            if campaign.stopping:  # ``stop`` found no term to end
                lock.release()
                return 0.0
            term = self._begin_term(lock)
            term.reporter = campaign.thread
        try:
            if self._on_elected is not None:
                term.work = threading.Thread(
                    target=self._work, args=(campaign, term), name="redlock-fast-elected", daemon=True
                )
                term.work.start()
            campaign.notify()
            while not campaign.stopping and term.leads():
                campaign.wait_for(lambda: campaign.stopping or not term.leads(), min(TICK, term.left()))
            term.end(STOPPED)
            if term.is_lost():  # the reason follows
                campaign.wait_for(lambda: reports, TICK)
            term.reason = term.reason or "".join(reports)
            if self._end_term(term):
                self._call(campaign, self._on_lost, term.reason)
        finally:
            term.over = True
            lock.release()
            term.released = True
            campaign.notify()
        if term.work is not None:
            term.work.join()  # the next term begins after it
        return term.pause

    def _work(self, campaign: _Campaign, term: Term) -> None:
        if not self._call(campaign, self._on_elected):
            with campaign.mutex:
                term.end(FAILED, REST)
            campaign.notify()

    def _call(self, campaign: _Campaign, function: Any, *reason: str) -> bool:
        """Call a function of the program. Returns whether it raised no exception."""
        mask = block_signals()
        restore_signals(campaign.mask)  # it may start a process
        with CallOfTheProgram("leader-error") as call:
            function(self, *reason)
        restore_signals(mask)
        return not call.failed


_campaigns: weakref.WeakSet[_Campaign] = weakref.WeakSet()


def stop_campaigns() -> None:
    """Stop all campaigns at the end of the interpreter: a candidate must not acquire the lock of a leader
    that is released then.
    """
    campaigns = [one for one in _campaigns if one.thread.is_alive()]  # no mutex of a parent, before a fork
    for campaign in campaigns:
        campaign.stopping = True
        campaign.notify()
    for campaign in campaigns:
        campaign.thread.join(JOIN_TIMEOUT)


# Registered after ``masters.release_held``, and so called before it.
atexit.register(stop_campaigns)
