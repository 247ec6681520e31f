"""The connector: connects the masters of one client, notices broken connections, and connects again.

Callers never connect. Each client has one connector thread. While a master is being connected it also has a
short-lived thread of its own, so that a master that hangs does not delay the others.

What the connector thread does for each master is in the parts that it is made of: the ``roster`` knows the
masters, ``connections`` finds connections that are broken, the ``dialler`` connects, and the ``electorate``
says which masters vote. They share one ``monitor``.
"""

from __future__ import annotations

import functools
import math
import queue
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Any, cast

from ..algorithm.policy import Policy
from ..engine.contract import Engine
from ..engine.fork import will_fork_unseen
from ..engine.greenlets import check_at_patch, patched_by
from ..engine.signals import signals_blocked
from ..engine.threads import wait_for_wake
from ..errors import ConfigError
from ..telemetry import log_error
from .address import Target
from .client_state import ClientState
from .connections import Connections
from .dialler import Dialler
from .electorate import Electorate
from .link import READ_WITHIN
from .marks import REFUSED, Marks
from .master import Master
from .monitor import Monitor
from .roster import Roster
from .settings import ConnectorSettings
from .slot_engine import SlotEngine
from .topology_watch import TopologyWatch

#: Seconds between two checks of all connections: while replies are owed, and otherwise.
BUSY_TICK, IDLE_TICK = 0.1, 1.0
#: Seconds for which a master stays connected after it left all lists: queue entries of waiting callers end.
LEAVE_AFTER = 3.0


class Connector:
    """The thread of one client in one process that keeps the masters of ``roster`` connected.

    A child of fork replaces it by ``copy_after_fork``.
    """

    def __init__(
        self, policy: Policy, settings: ConnectorSettings, roster: Roster, client_state: ClientState
    ) -> None:
        self.policy = policy
        self.settings = settings
        self.roster = roster
        self.monitor: Monitor = Monitor(client_state)
        # The engine must not keep the connector alive: its callback has only the queue.
        wake = functools.partial(self.monitor.wakes.put, None)
        self.engine: Engine = settings.engine_class(len(roster.masters), wake)
        target = roster.masters[0].target
        topology = target.topology
        if topology is not None:
            self.engine = cast(Engine, SlotEngine(self.engine, topology))
        self.connections: Connections = Connections(self.engine, roster, self.monitor)
        self.electorate: Electorate = Electorate(settings, roster, self.monitor, self.engine)
        #: None: the masters are servers of their own, or services of Sentinels.
        self.topology: TopologyWatch | None = None
        if topology is not None:
            self.topology = TopologyWatch(target, topology, settings, self.connections, self.electorate)
        self.dialler: Dialler = Dialler(settings, self.connections, self.electorate, self.topology)
        self._marks = Marks(settings.key_prefix)
        self._patched_by = patched_by()
        check_at_patch(self)
        self._thread: threading.Thread | None = None
        self._idle = False  # the thread sleeps for IDLE_TICK
        self._run_by = math.inf  # when the thread wants to run next
        self._next_removal = 0.0  # when ended leases are removed again

    def copy_after_fork(self) -> Connector:
        """The connector of a child of fork. Closes the child's copies of this connector's sockets.

        The child has none of the parent's threads and connections, but what is known of each master.
        """
        copy = Connector(self.policy, self.settings, self.roster.copy_after_fork(), self.monitor.client_state)
        copy.electorate.misconfigured = self.electorate.misconfigured
        self.monitor.listen()  # perhaps a thread of this connector forked
        with self.monitor.mutex:
            # Perhaps its signal handler forked in a wait, which goes on here.
            self.monitor.changed.notify_all()
        self.connections.after_fork_in_child()
        return copy

    def check_patch(self) -> None:
        """Raise ConfigError if a library has patched threads since this client was made."""
        if self._patched_by != patched_by() and not self.monitor.ended():
            raise ConfigError(
                f"{patched_by()} patched threads after this client was made: patch before the first client"
            )

    @property
    def started(self) -> bool:
        """Whether its thread was started, by ``start``."""
        return self._thread is not None

    def start(self) -> None:
        """Begin to connect in the background; does nothing the second time. Raises ConfigError."""
        self.check_patch()
        with self.monitor.mutex:
            # is_alive: a signal handler that raised may have interrupted start() before the thread began.
            if (self._thread is None or not self._thread.is_alive()) and not self.monitor.ended():
                wakes = self.monitor.wakes
                # The callback wakes the thread when the client was dropped without close(). Python 3.15
                # clears a reference without a callback only after the engine has closed its sockets.
                connector = weakref.ref(self, lambda _: wakes.put(None))
                with signals_blocked() as mask:
                    self._thread = threading.Thread(
                        target=_connector,
                        args=(connector, wakes, mask),
                        name="redlock-fast-connector",
                        daemon=True,
                    )
                    self._thread.start()
                if will_fork_unseen():
                    self.monitor.client_state.expect_fork()

    def wake_soon(self) -> None:
        """Check the connections within BUSY_TICK, because replies may come that no caller waits for."""
        if self._idle:
            self._idle = False
            self.monitor.wake()

    def number(self, lists: Sequence[Sequence[Target]]) -> list[int]:
        """The bit mask of each of ``lists``. Masters that are new get a number, and are connected."""
        masks = self.roster.number(lists, self.connections.grow)
        self.monitor.wake()
        return masks

    # --- closing ---

    def stop(self) -> bool:
        """Close the client for new calls, and let the thread end. False if that was done before."""
        with self.monitor.mutex:
            if self.monitor.client_state.closed:
                return False
            self.monitor.client_state.closed = True
            self.monitor.notify()
        self.monitor.wake()
        return True

    def close(self, timeout: float) -> None:
        """Close all connections after the masters have read what was sent, or after ``timeout`` seconds."""
        end = time.monotonic() + timeout
        thread = self._thread
        if thread is not None and thread.is_alive() and thread is not threading.current_thread():
            thread.join(timeout)
        self.monitor.client_state.events.report_left_out(at_end=True)
        self._marks.remove(self.engine)
        self.connections.close(end)

    # --- all masters, periodically ---

    def maintain_all(self) -> float:
        """Check all masters, and start to connect those whose time has come. Returns seconds to sleep."""
        self.engine.maintain()
        now = time.monotonic()
        paused = now > self._run_by + READ_WITHIN
        busy = False
        due = now + IDLE_TICK
        if self.topology is not None:
            due = min(due, self.topology.look(now))
        for number, master in enumerate(self.roster.masters):
            if master.left_at and self._let_leave(number, master, now):
                continue
            if master.link.attached:
                busy |= self.connections.check(number, now, paused, self.settings.socket_timeout)
                self.dialler.sentinels.look(number, now)
            if master.guard.until:
                due = min(due, self.electorate.end_guard(master, now))
            if not master.link.attached and not master.link.connecting:
                due = min(due, self.dialler.dial_if_due(number, now))
        due = min(due, self.dialler.dial_silent(now))
        self._mark(now)
        self.electorate.keep_records(now)
        self.connections.lingering.reap(now)
        if now >= self._next_removal:
            self._next_removal = now + IDLE_TICK
            self.monitor.client_state.remove_ended_leases(self.policy.clock())
            self.monitor.client_state.events.report_left_out()
            self.monitor.on_tick()
        self._idle = not (busy or self.connections.lingering)
        self._run_by = max(now, min(due, now + (IDLE_TICK if self._idle else BUSY_TICK)))
        return self._run_by - now

    def _let_leave(self, number: int, master: Master, now: float) -> bool:
        """Disconnect a master that is in no list, once nothing is left to send to it. True: it is gone.

        Until then it is connected as any other: releases of the leases that asked it must arrive.
        """
        if master.gone:
            return True
        needed = any(lease.sent >> number & 1 for lease in list(self.monitor.client_state.held))
        pending = master.link.attached and self.engine.connection_state(number).pending
        if needed or pending or now < master.left_at + LEAVE_AFTER + 2 * self.policy.node_timeout:
            return False
        why = "it is in no list of masters any more"
        with self.monitor.mutex:
            if master.link.connecting or not master.left_at:  # ``reconfigure`` may have taken it back
                return False
            master.gone = True
            if master.link.attached:  # with the mutex: from now on another master may get the number
                self.connections.retire(number, why)
        self.monitor.client_state.events.info("master-left", master.target.name, why)
        return True

    def _mark(self, now: float) -> None:
        """Say on the masters at which step this client is, once it has compared its lists with records."""
        verdict = self.electorate.records.verdict
        step = REFUSED if verdict.wrong else verdict.step
        if step:
            self._marks.refresh(self.engine, self.roster.masters, verdict.epoch, step, now)


def _connector(connector: weakref.ref[Connector], wakes: queue.SimpleQueue[None], mask: Any) -> None:
    """The connector thread: ends when its client is closed or dropped.

    ``mask``: the signals that the program's thread blocked; here all are blocked.
    """
    while True:
        alive = connector()
        if alive is None or alive.monitor.ended() or alive._thread is not threading.current_thread():
            return
        alive.dialler.signal_mask = mask
        try:
            pause = alive.maintain_all()
        except Exception:  # a client without its connector would never recover
            log_error("connector-error")
            pause = IDLE_TICK
        del alive
        wait_for_wake(wakes, pause)
