"""Renewal for threads: one thread for all auto-extended locks of a client; others call ``on_lost``."""

from __future__ import annotations

import collections
import math
import queue
import threading
import time
import weakref
from typing import Any

from ..algorithm.lease import Lease
from ..algorithm.renewal_schedule import FIRST_PAUSE
from ..engine.signals import restore_signals, signals_blocked
from ..engine.threads import start_thread, wait_for_wake
from ..locks.auto_extend import AutoExtended, AutoExtension, OnLost, Renewal, longest_hold
from ..locks.client_core import ClientCore
from ..locks.config import CLIENT_DEFAULT
from ..locks.decorated import check_callback
from ..locks.loss import TrueWhenSet
from ..telemetry import CallOfTheProgram, log_error
from .operations import run

#: Seconds that the thread stays alive while there is no lock to renew.
IDLE_TIMEOUT = 5.0
#: Seconds that ``close`` waits for the thread.
JOIN_TIMEOUT = 1.0
#: Seconds for which a call of ``on_lost`` keeps the next one waiting, and the number of calls at one time.
LATE, MAX_CALLERS = 0.1, 32


class LossEvent(TrueWhenSet, threading.Event):
    """What ``lock.lost`` is: true, and set, once the lock is lost. ``wait`` waits for that."""


class ThreadRenewal(Renewal):
    """Renewal in a thread. The first lease starts it; it ends with the client, or after IDLE_TIMEOUT."""

    def __init__(self, core: ClientCore) -> None:
        super().__init__(core)
        self._thread: threading.Thread | None = None
        self._signal_mask: Any = None  # the signals that the thread blocked before it blocked all
        self._until = math.inf  # when the thread wakes up by itself
        self._used = core.policy.clock()  # when the schedule last had an entry
        self._losses: collections.deque[tuple[OnLost, AutoExtended, str]] = collections.deque()
        self._callers = 0  # threads that call ``on_lost``
        self._begun = 0  # how many calls of it have begun
        self._standing_by = False  # a thread waits until those are late
        # SimpleQueue.put may be called anywhere: in signal handlers, finalizers and callbacks.
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()

    def wake_soon(self) -> None:
        # A signal handler that raises may interrupt start() before or after the thread has begun. So this
        # checks whether the thread is alive, and each thread checks whether another thread has replaced it.
        if self._thread is None or not self._thread.is_alive():
            wake = self._wake
            # The callback ends the thread of a collected client. Python 3.15 clears a reference without a
            # callback only after the engine has closed its sockets.
            renewal = weakref.ref(self, lambda _: wake.put(None))
            self._used, self._until = self.policy.clock(), math.inf
            with signals_blocked() as mask:
                self._thread = threading.Thread(
                    target=_renew, args=(renewal, wake, mask), name="redlock-fast-renewal", daemon=True
                )
                self._thread.start()
        elif self.schedule.next() < self._until:
            self._wake.put(None)

    def run_once(self) -> float | None:
        """Extend what is due. Returns the seconds until the next call; None: the thread must end."""
        state = self.client_state
        ended = state.closed or state.ending or self.generation != state.generation()
        if ended or self._thread is not threading.current_thread():
            return None
        try:
            due = self.collect_due()
            if due:
                run(self.extension(due), self.masters)
        except Exception:  # renewal must go on: without it all locks would be lost
            log_error("renewal-error")
            return FIRST_PAUSE
        with self.mutex:
            now = self.policy.clock()
            if self.schedule:
                self._used = now
            elif now - self._used > IDLE_TIMEOUT:
                self._thread = None
                return None
            pause = self.wait()
            self._until = now + pause
            return pause

    def end(self) -> None:
        """Stop renewal because the client is closed. Losses are not reported any more."""
        thread = self._thread
        self._wake.put(None)
        if thread is not None and thread.is_alive() and thread is not threading.current_thread():
            thread.join(JOIN_TIMEOUT)

    # --- losses ---

    def notify_lost(self, lock: AutoExtended, lease: Lease, reason: str) -> None:
        """Report a lost lock: call ``on_lost`` in another thread, which may take its time.

        One thread makes the calls one after the other. Where one takes long, another thread makes the next.
        """
        auto_extension = lock._auto_extension
        if auto_extension is None or auto_extension.on_lost is None:
            return
        with self.mutex:
            self._losses.append((auto_extension.on_lost, lock, reason))
            self._start_caller()

    def _start_caller(self) -> None:
        """Start the first thread that calls ``on_lost``, or one that does when the others are late."""
        try:
            if not self._callers:
                start_thread("on-lost", self._call_each)
                self._callers = 1
            elif not self._standing_by and self._callers < MAX_CALLERS:
                start_thread("on-lost", self._stand_by)
                self._standing_by = True
        except RuntimeError:  # the system has no more threads; the next loss tries again
            log_error("on-lost-error")

    def _stand_by(self) -> None:
        """Wait for as long as the other threads begin a call of ``on_lost`` every LATE seconds.

        If they do not, because a callback takes long, make the next calls in this thread.
        """
        while True:
            with self.mutex:
                begun = self._begun
            time.sleep(LATE)
            with self.mutex:
                late = bool(self._losses) and self._begun == begun
                self._standing_by = bool(self._losses) and not late
                self._callers += late
            if late:
                return self._call_each()
            if not self._standing_by:
                return None

    def _call_each(self) -> None:
        restore_signals(self._signal_mask)  # on_lost may start a process
        while (loss := self._next_loss()) is not None:
            on_lost, lock, reason = loss
            with CallOfTheProgram("on-lost-error"):
                on_lost(lock, reason)

    def _next_loss(self) -> tuple[OnLost, AutoExtended, str] | None:
        """The next loss to report; None: the thread ends, as in a child that a call forked."""
        with self.mutex:
            if self.generation != self.client_state.generation():
                return None
            if not self._losses:
                self._callers -= 1
                return None
            loss = self._losses.popleft()
            self._begun += 1
            if self._losses:
                self._start_caller()
            return loss


def _renew(renewal: weakref.ref[ThreadRenewal], wake: queue.SimpleQueue[None], mask: Any) -> None:
    """``mask``: the signals that the program's thread blocked; here all are blocked."""
    while (alive := renewal()) is not None:
        alive._signal_mask = mask
        pause = alive.run_once()
        del alive
        if pause is None:
            return
        wait_for_wake(wake, pause)


def thread_auto_extension(core: Any, auto_extend: Any, on_lost: Any, max_hold: Any) -> AutoExtension | None:
    """The auto-extension of a new lock; None without ``auto_extend``. Raises ConfigError."""
    if auto_extend is CLIENT_DEFAULT is max_hold and on_lost is None and not core.auto_extend:
        return None  # as below; most locks are made so
    longest = longest_hold(core, auto_extend, on_lost, max_hold)
    if longest is None:
        return None
    check_callback(on_lost, "on_lost")
    return AutoExtension(core.renewal, LossEvent, on_lost, longest)
