"""The hub of the pure-Python engine: the connections, and the thread that serves them.

The twin of src/hub.c; docs/internals/hub.md compares the two. One thread, the I/O thread, sends, polls,
receives, matches replies to requests, and decides. Other threads give it jobs and wait. So a signal handler,
which Python runs in the main thread between any two calls, never interrupts a change of the hub, and its
thread never holds what another thread waits for.

Only the I/O thread changes the hub, except for ``jobs`` and the fields after it.
"""

from __future__ import annotations

import contextlib
import select
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from math import ceil, inf
from typing import Any

from ...telemetry import log_error
from ..clock import monotonic
from ..contract import FAULT, NOT_ASKED
from ..descriptors import NOT_OURS, FileId, close_own, is_file
from ..signals import block_signals, signals_blocked
from .channel import MasterChannel
from .connection import Connection
from .loop_side import LoopSide
from .pipe import Pipe
from .request import PendingRequest
from .subscriptions import Subscriptions
from .template import Template
from .waiter import Waiter, new_signal

#: After so many seconds in a poll, descriptors may be those of other files.
IDLE = 0.001
#: The longest poll (seconds): the program may have closed the pipe that ends it.
LONGEST_POLL = 0.5
#: The longest sleep (seconds) of a thread that waits: a signal may arrive just before a thread sleeps.
LONGEST_SLEEP = 0.05

CLOSED = "connection closed by the client"
#: Why a connection ends where Python could not go on, for example because memory ran out.
FAILED = "the engine failed"


class Job:
    """A step that the I/O thread takes for another thread, which waits for the end of that round."""

    __slots__ = ("done", "error", "result", "step")

    def __init__(self, step: Callable[[], object]) -> None:
        self.step: Callable[[], object] = step
        self.done: threading.Lock = new_signal()
        self.result: Any = None
        self.error: BaseException | None = None

    def take(self, taken: list[Job]) -> None:
        try:
            self.result = self.step()
        except BaseException as error:
            self.error = error
        taken.append(self)


class Drain:
    """A wait until all connections are idle, but those of lagging masters, or until the ``deadline``."""

    __slots__ = ("deadline", "done", "drained", "idle")

    def __init__(self, idle: Callable[[], bool], deadline: float) -> None:
        self.idle: Callable[[], bool] = idle
        self.deadline: float = deadline
        self.done: threading.Lock = new_signal()
        self.drained: bool = False

    def end(self, now: float) -> bool:
        """Whether it is over. Then its thread wakes up."""
        self.drained = self.idle()
        over = self.drained or now >= self.deadline
        if over:
            self.done.release()
        return over


class Hub:
    """``waiting``: what has undecided requests. ``deadline``: none of them ends before.

    ``taken``: the jobs of this round that a thread waits for. ``jobs``: what other threads want; any thread
    appends. ``due``: the I/O thread takes jobs now. ``polling``: it is, or is about to be, in a poll that
    only the pipe ends. ``generation``: number of forks.
    """

    def __init__(
        self, masters: int, bounds: tuple[int, int, int], lag_after: float, on_break: Callable[[], None]
    ) -> None:
        self._bounds, self._lag_after, self._on_break = bounds, lag_after, on_break
        #: The sockets of the engine, and their files.
        self.sockets: dict[socket.socket, FileId] = {}
        self.generation: int = -1
        self.reset(masters)

    def reset(self, masters: int) -> None:
        """Begins again without connections: a child of fork does, where only the thread that forked runs."""
        self.subscriptions: Subscriptions = Subscriptions()
        self.channels: tuple[MasterChannel, ...] = ()
        self.grow(masters)
        self.by_fd: dict[int, Connection] = {}
        self.waiting: dict[Waiter, None] = {}
        self.deadline: float = inf
        self.drains: list[Drain] = []
        self.taken: list[Job] = []
        self.last_poll: float = 0.0
        self.pipe: Pipe | None = None
        self.poller: select.poll = select.poll()
        self.loop: LoopSide = LoopSide()
        self.jobs: deque[Callable[[], object]] = deque()
        self.due: bool = False
        self.polling: bool = False
        self.freed: bool = False  # the engine is gone: nobody gives jobs any more
        self._serving: threading.Lock = threading.Lock()  # the I/O thread has it
        self._thread: int = 0
        self.generation += 1

    def grow(self, masters: int) -> None:
        """Adds channels without a connection until there are so many."""
        self.channels += tuple(
            MasterChannel(index, self._bounds, self._lag_after, self.subscriptions)
            for index in range(len(self.channels), masters)
        )

    # --- jobs: for other threads -----------------------------------------------------------------

    def put(self, job: Callable[[], object]) -> None:
        """Gives the I/O thread a job."""
        self.jobs.append(job)
        self.begin_jobs()

    def begin_jobs(self) -> None:
        """Has the I/O thread do all jobs that there are."""
        self.due = True
        if not self._serving.locked():
            self._start()
        elif self.polling and (pipe := self.pipe) is not None:
            pipe.signal()

    def _start(self) -> None:
        """Starts the I/O thread. If two threads do so at once, the second I/O thread ends at once."""
        with signals_blocked():
            threading.Thread(target=self._serve, name="redlock-fast-io", daemon=True).start()

    def call(self, step: Callable[..., object], *args: object) -> Any:
        """Has the I/O thread call ``step``, and waits until it has also sent and received what it can.

        Returns what ``step`` returns, or raises what it raises. Returns None in a child of fork that returns
        to a wait of its parent.
        """
        job, generation = Job(partial(step, *args)), self.generation
        self.put(partial(job.take, self.taken))
        self.wait(job.done, generation)
        if job.error is not None:
            raise job.error
        return job.result

    def wait(self, signal: threading.Lock, generation: int) -> bool:
        """Sleeps until the I/O thread releases ``signal``. Raises what a signal handler raises.

        Returns False if no I/O thread will: in a child of fork, and where the interpreter ends.
        """
        while not signal.acquire(True, LONGEST_SLEEP):
            if self.generation != generation or sys.is_finalizing():
                return False
        return True

    def is_own_thread(self) -> bool:
        """Whether the caller is the I/O thread: a finalizer that the garbage collector runs there."""
        return self._serving.locked() and self._thread == threading.get_ident()

    def rests(self) -> bool:
        """Whether there is no I/O thread, because there is no connection and nothing to do."""
        return not (self._serving.locked() or self.jobs)

    def exchange(self, me: Waiter) -> None:
        """Submits the requests of a thread, and waits until they are decided."""
        generation = self.generation
        try:
            self.put(partial(self.submit, me))
            decided = self.wait(me.woken, generation)
        except BaseException:
            self.put(partial(self._abandon, me))
            raise
        if not decided:
            for request in me.requests:
                request.forget()

    def flush(self) -> None:
        """Waits until the I/O thread has done all jobs, sent what it can, and received what is there."""
        if not (self.is_own_thread() or self.rests()):
            self.call(do_nothing)

    def maintain(self) -> None:
        """As ``flush``. Also resends one request to each master that answered with a transient error."""
        if not self.rests():
            self.jobs.append(self._retry)
            self.flush()

    def drain(self, deadline: float) -> bool:
        """Waits until no master but the lagging ones owes a reply. Returns whether that is so."""
        if self.rests():
            return True
        drain, generation = Drain(self._is_idle, deadline), self.generation
        self.put(partial(self.drains.append, drain))
        self.wait(drain.done, generation)
        return drain.drained

    # --- the I/O thread --------------------------------------------------------------------------

    def _serve(self) -> None:
        block_signals()
        serving = self._serving  # a child of fork makes another one
        while serving.acquire(False):
            self._thread = threading.get_ident()
            try:
                while self.pipe is not None or self.jobs:
                    if self.freed:
                        self._close_all()
                    self._round_safely()
            finally:
                serving.release()
            if not self.jobs:  # a job that was appended before the release has no other thread
                return

    def _round_safely(self) -> None:
        try:
            self._round()
        except BaseException:  # memory ran out, or the interpreter ends: no connection can be trusted
            log_error("engine-error")
            for connection in list(self.by_fd.values()):
                self._break(connection, FAILED)

    def _round(self) -> None:
        """Does the jobs, sends, polls, receives, and counts what came."""
        if self.due or self.pipe is None:
            self.due = False
            self._do_jobs()
        timeout = self._send()
        if self.pipe is not None:
            self._poll(timeout)
        now = monotonic()
        for connection in list(self.by_fd.values()):
            self._end_round_of(connection, now)
        self.last_poll = now
        if now >= self.deadline:
            self.deadline = inf  # a subscription that changes meanwhile may move it
            soonest = min([waiter.expire(now) for waiter in list(self.waiting)], default=inf)
            self.deadline = min(self.deadline, soonest)
        if self.drains:
            self.drains[:] = [drain for drain in self.drains if not drain.end(now)]
        if self.loop.is_due():
            self.loop.notify()
        while self.taken:
            self.taken.pop().done.release()

    def _do_jobs(self) -> None:
        jobs = self.jobs
        for _ in range(len(jobs)):  # those that come meanwhile may wait for replies to these
            jobs.popleft()()

    def _send(self) -> float:
        """Sends the output of all threads. Returns how long (seconds) the poll may take."""
        now = monotonic()
        longest = 0.0 if self.taken or self.loop.is_due() else min(LONGEST_POLL, self.deadline - now)
        for drain in self.drains:
            longest = min(longest, drain.deadline - now)
        for connection in self.by_fd.values():
            if connection.has_output() and not connection.blocked:
                connection.send()
                if connection.blocked:
                    self.poller.modify(connection.fd, select.POLLIN | select.POLLOUT)
            if connection.failure:
                longest = 0.0
            elif connection.flushed and not connection.lagging_since:
                longest = min(longest, self._lag_after)
        return max(0.0, longest)

    def _poll(self, timeout: float) -> None:
        """Waits for events, for ``timeout`` seconds at most, and receives."""
        began = monotonic()
        self.polling = True  # first: a thread that does not see it has set ``due`` before
        events = self.poller.poll(0 if self.due else ceil(timeout * 1000))
        self.polling = False
        late = monotonic() - began > IDLE
        for fd, event in events:
            connection = self.by_fd.get(fd)
            if connection is None:
                self._end_kick()
            elif late and not self.is_ours(connection.sock):
                connection.failure = NOT_OURS
            else:
                if event & select.POLLOUT:
                    connection.blocked = False
                    self.poller.modify(fd, select.POLLIN)
                if event != select.POLLOUT:
                    connection.receive()
        if late and not events:
            self._check_descriptors()

    def _end_kick(self) -> None:
        if self.pipe is not None and self.pipe.is_ours():
            self.pipe.drain()
        else:
            self._check_descriptors()

    def _end_round_of(self, connection: Connection, now: float) -> None:
        """Counts its replies, and notices whether it broke or lags."""
        replied = connection.received and connection.process_input(now, self.last_poll)
        if connection.flushed and not connection.lagging_since and not replied:
            connection.flag_lagging(now)
        if connection.failure:
            self._break(connection, connection.failure)

    def _is_idle(self) -> bool:
        return all(channel.is_idle() for channel in self.channels)

    # --- jobs: in the I/O thread -----------------------------------------------------------------

    def submit(self, waiter: Waiter) -> None:
        """Appends the requests of a waiter to the output of their masters."""
        now = monotonic()
        waiter.hub = self
        waiter.undecided = len(waiter.requests)
        self.waiting[waiter] = None
        try:
            for request in waiter.requests:
                self._submit(request, now)
        except BaseException:
            self._abandon(waiter)
            raise
        if waiter.undecided:
            self.deadline = min(self.deadline, waiter.deadline())
        else:
            waiter.notify()

    def _submit(self, request: PendingRequest, now: float) -> None:
        encoded: dict[Template, bytes] = {}
        masters, resend_for = request.request.masters, request.request.resend_for
        channels = self.channels[: len(request.values)]  # the hub may have grown since the request was made
        avoid_lagging = not resend_for and request.is_quorum(masters & self._healthy(channels))
        for channel in channels:
            connection = channel.connection
            if not masters >> channel.index & 1:
                request.count(channel.index, FAULT, NOT_ASKED)
                continue
            if connection is None:
                why = channel.broken or "not connected"
            elif avoid_lagging and connection.lagging_since:
                why = "lagging"
            elif not (why := connection.append(request, encoded, now)):
                request.sent |= 1 << channel.index
                continue
            request.count(channel.index, FAULT, why)
            if resend_for:
                channel.resend.add(request, now)
        if request.need:
            request.settle()
        else:
            request.decide()

    def _healthy(self, channels: Sequence[MasterChannel]) -> int:
        """The mask of those of these masters that are connected and do not lag."""
        return sum(
            [1 << c.index for c in channels if (up := c.connection) is not None and not up.lagging_since]
        )

    def _abandon(self, waiter: Waiter) -> None:
        """Ends the requests of a waiter with the votes that they have; they stay sent."""
        self.waiting.pop(waiter, None)
        for request in waiter.requests:
            request.waiter = None
            request.decide()

    abandon = _abandon

    def _retry(self) -> None:
        now = monotonic()
        for channel in self.channels:
            if channel.connection is not None and channel.resend.must_retry(now):
                channel.resend_all(now, 1)

    # --- connections, in the I/O thread ----------------------------------------------------------

    def attach(self, connection: Connection) -> None:
        channel = connection.channel
        if channel.connection is not None or channel.remains is not None:
            raise ValueError(f"master {channel.index} has a connection: detach it first")
        if self.pipe is None:
            self._open_pipe()
        channel.connection = connection
        self.by_fd[connection.fd] = connection
        self.poller.register(connection.fd, select.POLLIN)
        channel.resend_all(monotonic())
        self.subscriptions.end()

    def detach(self, channel: MasterChannel, closing: bool = False) -> socket.socket | None:
        """Ends the connection of a master.

        Returns its socket, also that of a connection that broke before.
        """
        self._check_descriptors()
        connection = channel.connection
        if connection is not None:
            connection.append_rollbacks(closing)
            self._end(connection, CLOSED)
            connection.send_remaining()
        remains, channel.remains, channel.broken = channel.remains, None, ""
        return None if remains is None else remains.sock

    def close(self) -> list[socket.socket]:
        """Ends all connections, and the I/O thread. Returns the sockets."""
        self._roll_back_undecided()
        sockets = [self.detach(channel, True) for channel in self.channels]
        self._close_pipe()
        return [sock for sock in sockets if sock is not None]

    def _roll_back_undecided(self) -> None:
        """Appends the rollback of undecided requests on the masters that granted them: the engine closes."""
        for waiter in self.waiting:
            for request in waiter.requests:
                if request.decided or request.has_quorum():
                    continue
                for channel, value in zip(self.channels, request.values, strict=False):
                    if value > 0 and channel.connection is not None:
                        channel.connection.roll_back(request)

    def _break(self, connection: Connection, why: str) -> None:
        connection.channel.broken = why
        self._end(connection, why)
        self._on_break()

    def _end(self, connection: Connection, why: str) -> None:
        self.by_fd.pop(connection.fd, None)
        with contextlib.suppress(KeyError):
            self.poller.unregister(connection.fd)
        connection.channel.fail(why)

    def is_ours(self, sock: socket.socket) -> bool:
        """Whether the descriptor of ``sock`` is no stranger's."""
        file = self.sockets.get(sock)
        return file is not None and is_file(sock.fileno(), file)

    def _check_descriptors(self) -> None:
        """Drops the descriptors that are a stranger's by now, see ``engine/descriptors.py``."""
        for connection in list(self.by_fd.values()):
            if not self.is_ours(connection.sock):
                self._break(connection, NOT_OURS)
        if self.pipe is not None and not self.pipe.is_ours():
            self._close_pipe()
            self._open_pipe()

    def _open_pipe(self) -> None:
        self.pipe = Pipe()
        self.poller.register(self.pipe.fd, select.POLLIN)

    def _close_pipe(self) -> None:
        pipe, self.pipe = self.pipe, None
        if pipe is not None:
            with contextlib.suppress(KeyError):
                self.poller.unregister(pipe.fd)
            pipe.close()

    def free(self) -> None:
        """The engine is gone: its sockets are closed without a warning. Any thread may call it."""
        self.freed = True
        if self._serving.locked():
            self.put(do_nothing)
        else:
            self._close_all()

    def _close_all(self) -> None:
        for connection in list(self.by_fd.values()):
            self._end(connection, CLOSED)
        self._close_pipe()
        self.loop.close()
        while self.sockets:
            close_own(*self.sockets.popitem())


def do_nothing() -> None:
    pass
