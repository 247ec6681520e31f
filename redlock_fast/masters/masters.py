"""The masters of one client: waiting for them, what they said, what is held on them, and their end."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence

from ..algorithm.local_queue import LocalQueue, QueueEntry
from ..algorithm.policy import Clock, VotingMasters
from ..algorithm.server_queue import ServerQueueEntries
from ..engine.contract import FAULT, NOT_ASKED, NOT_SENT, Engine, Votes
from ..errors import ClientClosed, ConfigError
from ..telemetry import log_error
from . import at_exit as at_exit  # registers itself
from .address import Target
from .connector import Connector
from .connector import do_nothing as do_nothing
from .held_leases import clients_with_leases
from .restart_guard import Guard
from .state import MasterHealth, fault_cause, fault_text

#: How long (seconds) the first call waits for more masters than a quorum.
GRACE = 0.05
#: Seconds of a pause where there is hardly a reason to wait.
AT_ONCE = 0.001


class Masters(Connector):
    """All masters of a client and the engine that serves them, as its callers use them."""

    def __init__(
        self,
        targets: Sequence[Target],
        need: int,
        engine_class: type[Engine],
        *,
        connect_timeout: float,
        socket_timeout: float,
        key_prefix: bytes,
        guard: Guard,
        voters: VotingMasters,
        local_queue: LocalQueue,
        server_entries: ServerQueueEntries,
        wait: str,
        allow_split: bool,
        clock: Clock,
        release_at_exit: bool,
    ) -> None:
        super().__init__(
            targets,
            need,
            engine_class,
            connect_timeout=connect_timeout,
            socket_timeout=socket_timeout,
            key_prefix=key_prefix,
            guard=guard,
            voters=voters,
            wait=wait,
            allow_split=allow_split,
        )
        self.ending = False  # with the interpreter
        self.local_queue = local_queue
        self.server_entries = server_entries
        self.clock = clock
        self.release_at_exit = release_at_exit
        _all_masters.add(self)

    def wait_for_quorum(self, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds for a quorum of connections; remembers that it was waited for."""
        self.start()
        with self._change:
            for condition, seconds in self.quorum(timeout):
                self._change.wait_for(condition, seconds)
        return self.joined()

    def quorum(self, timeout: float) -> Sequence[tuple[Callable[[], bool], float]]:
        """What to wait for, one after the other, and for how many seconds; then say ``joined``."""
        return (
            (lambda: self._nothing_to_wait_for() or self.connected() >= self.need, timeout),
            # A lease on a bare quorum is lost with the first master: give the others a moment.
            (lambda: self._nothing_to_wait_for() or not self._connecting(), min(timeout, GRACE)),
        )

    def joined(self) -> bool:
        """A first quorum was waited for; whether it is there."""
        self.ready = not self.misconfigured
        return self.connected() >= self.need and not self.closed

    def _nothing_to_wait_for(self) -> bool:
        """Whether there is nothing to wait for: closed, or misconfigured."""
        return self.closed or bool(self.misconfigured)

    def check_open(self) -> None:
        if self.closed:
            raise ClientClosed("this client was closed; make a new one")
        if self.misconfigured:
            raise ConfigError(self.misconfigured)

    def pause(self, seconds: float) -> None:
        """Sleep; raises ClientClosed as soon as the client is closed."""
        with self._change:
            self._change.wait_for(lambda: self.closed, seconds)
        self.check_open()

    def reconnect(self, seconds: float, disconnected: Sequence[int]) -> None:
        """Wait for one of those that are gone; raises ClientClosed as soon as the client is closed."""
        condition, seconds = self.reconnecting(seconds, disconnected)
        with self._change:
            self._change.wait_for(condition, seconds)
        self.check_open()

    def reconnecting(self, seconds: float, disconnected: Sequence[int]) -> tuple[Callable[[], bool], float]:
        """Have masters connected without their backoff. What to wait for, and for how many seconds."""

        def back() -> bool:
            return self.closed or (self.connected() >= self.need and any(map(self._usable, disconnected)))

        if back():  # just now
            return lambda: self.closed, min(seconds, AT_ONCE)
        self.connect_urgently(seconds)
        return back, seconds

    def _usable(self, master: int) -> bool:
        """Whether it is connected, and that is not about to be given up."""
        return self.states[master].attached and not self.engine.connection_state(master).broken

    def wait_for_turn(self, entry: QueueEntry, seconds: float) -> None:
        """Wait until it is the first; raises ClientClosed as soon as the client is closed."""
        turn = threading.Event()
        entry.slot.wake = turn.set
        if not entry.is_first and not self.closed:
            turn.wait(min(seconds, threading.TIMEOUT_MAX))
        self.check_open()

    def note_faults(self, votes: Votes) -> None:
        """Count and log, rarely, what was wrong with masters in one exchange, if that is ``has_faults``."""
        for master, detail in votes.details.items():
            if detail in NOT_SENT:
                continue
            state = self.states[master]
            state.causes[fault_cause(detail)] += 1
            state.error = fault_text(detail)
            self.events.warn("master-fault", state.target.name, state.error)

    def cause(self, master: int, votes: Votes) -> str:
        """Why this master did not vote in that exchange."""
        if votes.values[master] != FAULT:
            return "no reply in time"
        text = fault_text(votes.details.get(master, "failed"))
        state = self.states[master]
        if text == NOT_ASKED and state.guard():
            return f"it may have forgotten locks: no vote for {state.guard():.1f} s more (restart_guard)"
        error = state.error
        return f"{text}: {error}" if text == "not connected" and error else text

    def health(self) -> list[MasterHealth]:
        return [
            state.health(self.engine.connection_state(master)) for master, state in enumerate(self.states)
        ]

    def close(self, timeout: float = 1.0) -> None:
        """Give back what those keep that wait, let masters do what they were sent, and close everything.

        ``timeout``: how many seconds all of that may take.
        """
        end = time.monotonic() + timeout
        with self._change:
            if self.closed:
                return
            self.closed = True
            self._changed()
            thread = self._thread
        self.local_queue.wake_all()
        self._wake.put(None)
        self._remove_queue_entries(timeout)
        if thread is not None and thread.is_alive() and thread is not threading.current_thread():
            thread.join(max(0.0, end - time.monotonic()))
        self.engine.drain(max(0.0, end - time.monotonic()))
        # all at once: what others have under way is taken back
        self.engine.close(self._lingering_sockets.add)
        for master in range(len(self.states)):
            self._retire(master, "closed")
        self.held.clear()
        clients_with_leases.discard(self)
        # A master that lags has requests before it still. Its first reply to a socket that is closed would
        # reset the connection, and it would drop the rest: the releases that are behind acquires.
        self._lingering_sockets.close(end - time.monotonic())

    def _remove_queue_entries(self, timeout: float) -> None:
        """The places of those that wait, which nobody else should have to wait for."""
        undo = self.server_entries.close()
        if undo:
            self.engine.exchange(undo, 0, 0.0)
        self.server_entries.wait_for_rounds(timeout)

    def prune(self) -> None:
        """Forget leases that have ended and that nobody let go of."""
        now = self.clock()
        for lease in list(self.held):
            if lease.deadline < now:
                self.held.discard(lease)
        if self.held:
            clients_with_leases.add(self)
            self.on_change()  # what an event loop left behind must not live as long as the leases
        else:
            clients_with_leases.discard(self)

    def after_fork_in_child(self) -> None:
        self.local_queue.after_fork_in_child()
        self.server_entries.after_fork_in_child()
        super().after_fork_in_child()


_all_masters: weakref.WeakSet[Masters] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for masters in list(_all_masters):
        try:
            masters.after_fork_in_child()
        except Exception:  # one client's trouble must not leave the others with their parent's connections
            log_error("fork-error")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
