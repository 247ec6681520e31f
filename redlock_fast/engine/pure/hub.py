"""The hub of the pure-Python engine: the connections, and the threads that share them. The twin of src/hub.c.

docs/internals/hub.md has the states, the wake-ups and the guards. Threads append requests to the output of
the masters and wait. One of them is the leader: it sends the output of all threads, polls, receives,
matches replies to requests, and wakes the threads whose requests are decided.

``mutex`` guards all shared state; ``locked`` takes it for one step. The leader moves bytes and polls without
it. Invariant: if no thread leads, a thread that can lead has been woken, or is about to look.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import TypeVar

from ..clock import monotonic
from ..contract import FAULT, NOT_ASKED
from ..descriptors import NOT_OURS, FileId, close_own, file_of, is_file
from ..mutex import new_mutex
from .channel import MasterChannel
from .connection import Connection
from .loop_fd import LoopFd
from .loop_side import LoopSide
from .request import INTERRUPTED, PendingRequest
from .safe_points import SafePoints
from .subscriptions import Subscriptions
from .template import Template
from .waiter import Ticket, Waiter

T = TypeVar("T")

#: What a leader moved: the connections of the round, whether there were events, whether it was kicked.
Moved = tuple[list[Connection], bool, bool]
#: What a thread does without the mutex.
Step = Callable[[], Moved | None]

#: While replies are expected within this time (seconds), new requests need not wake the leader.
EXPECT_WITHIN = 0.001
#: After so many seconds without a round, descriptors may be those of other files.
IDLE = 0.001
#: No wait is longer (seconds): a signal may arrive just before a thread sleeps.
LONGEST_WAIT = 0.05
#: While other threads lead, the watch poller only checks at this interval (seconds) whether they still do.
WATCH_POLL_INTERVAL = 0.001


class Hub:
    """``generation``: number of forks. ``epoch``: number of times that leadership was taken.

    ``waiting``, ``subscribed``: waiting threads; those of the second have subscriptions only. ``exclusive``:
    threads that wait for leadership to change connections, or have it. ``watch_poller``: the subscribed
    thread that polls without leadership. ``output_pending``: a connection has output that no flush has taken.
    ``torn``: an exception may have cut a step short.
    """

    def __init__(self, masters: int, bounds: tuple[int, int, int], lag_after: float) -> None:
        self._bounds, self._lag_after = bounds, lag_after
        #: The sockets of the engine, and their files.
        self.sockets: dict[socket.socket, FileId] = {}
        self.generation: int = -1
        self.reset(masters)

    def reset(self, masters: int) -> None:
        """Begins again without connections: a child of fork does."""
        self.generation += 1
        self.mutex: threading.RLock = new_mutex()
        self.safe_points: SafePoints = SafePoints()
        self.torn: bool = False
        self.subscriptions: Subscriptions = Subscriptions()
        self.channels: tuple[MasterChannel, ...] = ()
        self.grow(masters)
        self.by_fd: dict[int, Connection] = {}
        self.leader: Waiter | None = None
        self.epoch: int = 0
        self.expects_replies: bool = False
        self.waiting: dict[Waiter, None] = {}
        self.subscribed: dict[Waiter, None] = {}
        self.exclusive: dict[Waiter, None] = {}
        self.watch_poller: Waiter | None = None
        self.tickets: dict[Ticket, None] = {}
        self.loop: LoopSide = LoopSide()
        self.kick_pair: tuple[socket.socket, socket.socket] | None = None
        self.kicked: bool = False
        self.poller: select.poll = select.poll()
        self.output_pending: bool = False
        self.breaks: int = 0
        self.last_poll: float = 0.0

    def grow(self, masters: int) -> None:
        """Adds channels without a connection until there are so many."""
        self.channels += tuple(
            MasterChannel(index, self._bounds, self._lag_after, self.subscriptions)
            for index in range(len(self.channels), masters)
        )

    def locked(self, step: Callable[..., T], *args: object) -> T:
        """Calls ``step`` with the mutex, which the thread does not have yet."""
        try:
            with self.mutex:
                if self.torn:
                    self._recover()
                try:
                    return step(*args)
                except BaseException:
                    self.torn = True
                    raise
        except BaseException:
            # CPython 3.14 may run a signal handler after `with` has taken the mutex, before its block begins.
            if self.mutex._is_owned():  # type: ignore[attr-defined]
                self.mutex.release()
            raise

    def interrupted(self) -> bool:
        """Whether the caller interrupted its own thread inside the hub: a signal handler, or a finalizer."""
        return self.safe_points.interrupted() or self.mutex._is_owned()  # type: ignore[attr-defined]

    def _recover(self) -> None:
        """A signal handler raised inside a step, or memory ran out: what the step cut short is made good."""
        self.poller = self._new_poller()
        self.output_pending = True
        for connection in [channel.connection for channel in self.channels]:
            if connection is None:
                continue
            if connection.in_change or connection.moving or connection.fd not in self.by_fd:
                self.break_connection(connection, INTERRUPTED)
            elif connection.incoming:  # perhaps it raised right after the receive: poll does not show this
                connection.received = self.expects_replies = True
        self.subscriptions.remove_decided()
        connections = [channel.connection for channel in self.channels]
        owing = [one.owing() if one is not None else set() for one in connections]
        for waiter in [*self.waiting, *self.subscribed, *self.tickets]:
            for request in waiter.requests:
                request.settle_again([request in of_master for of_master in owing])
            undecided = [request for request in waiter.requests if not request.decided]
            waiter.undecided = len(undecided)
            waiter.subscribed = sum(request.subscription is not None for request in undecided)
            if not undecided:
                waiter.notify()
        self._wake_successor()
        self.kick()  # a thread that leads by now may poll
        self.torn = False

    # --- submitting, with the mutex --------------------------------------------------------------

    def submit(self, waiter: Waiter, now: float) -> None:
        """Appends the requests of a waiter to the output of their masters."""
        waiter.generation = self.generation
        waiter.undecided = len(waiter.requests)
        for request in waiter.requests:
            self._submit(request, now)
        if self.leader is not None and not self.expects_replies:
            self.kick()

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
                self.output_pending = True
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

    def roll_back_undecided(self) -> None:
        """Appends the rollback of undecided requests on the masters that granted them: the engine closes."""
        for waiter in [*self.waiting, *self.subscribed, *self.tickets]:
            for request in waiter.requests:
                if request.decided or request.has_quorum():
                    continue
                for channel, value in zip(self.channels, request.values, strict=False):
                    if value > 0 and channel.connection is not None:
                        channel.connection.roll_back(request)

    # --- waiting ---------------------------------------------------------------------------------

    def wait(self, me: Waiter) -> None:
        """Waits until the requests of ``me`` are decided. Then leaves the hub.

        The thread leads, polls without leadership, or sleeps. A leader sends what is left before it leaves: a
        reply may have called for a fallback, or a thread that could not lead may have submitted.
        Raises what a signal handler raises.
        """
        step = self.locked(self._next_step, me)
        while step is not None:
            step = self.locked(self._next_step, me, step())

    def _next_step(self, me: Waiter, moved: Moved | None = None) -> Step | None:
        """What the thread does next, without the mutex; None if it is done.

        ``moved``: the result of its last step, if that was a round. The round ends here.
        """
        if moved is not None:
            self._end_round(*moved)
        now = monotonic()
        if me.generation != self.generation:
            self._fail_inherited(me)
        deadline = me.expire(now)
        leads = self.leader is me
        if not me.undecided:
            return self._leave_or_flush(me)
        subscribes = me.subscribed == me.undecided
        if subscribes or not leads:
            self._enqueue(me, subscribes)
        if not subscribes:
            if (leads and (not self.exclusive or me.outer is not None)) or (
                not leads and self._take_leadership(me)
            ):
                return self._round_step(me, min(deadline - now, LONGEST_WAIT))
        elif not leads and self.output_pending and self._take_leadership(me):
            return self._round_step(me, 0.0)
        if self.leader is me:
            self._release_leadership(me)
        if subscribes and self.watch_poller in (None, me):
            self.watch_poller = me
            return self._watch_step(me, min(deadline - now, LONGEST_WAIT))
        return partial(self._sleep, me.prepare_sleep(), min(deadline - now, LONGEST_WAIT))

    def _sleep(self, wake: threading.Lock, longest: float) -> None:
        self.safe_points.wait(wake.acquire, True, longest)

    def _enqueue(self, me: Waiter, subscribes: bool) -> None:
        """Lists a thread with those that wait, or with those that have subscriptions only."""
        queue, other = (self.subscribed, self.waiting) if subscribes else (self.waiting, self.subscribed)
        if me not in queue:
            other.pop(me, None)
            queue[me] = None

    def _leave_or_flush(self, me: Waiter) -> Step | None:
        """Ends the wait of a thread.

        If it leaves output that no waiting thread will send, it first sends it.
        """
        must_flush = self.output_pending and not self._others_flush(me)
        if must_flush and (self.leader is me or self._take_leadership(me)):
            return self._round_step(me, 0.0)
        self.leave(me)
        return None

    def _others_flush(self, me: Waiter) -> bool:
        """Whether another thread waits that will flush. The main one may run a signal handler for long."""
        main = threading.main_thread().ident
        # Not a generator: what a signal handler raises while Python closes one is lost.
        for waiter in self.waiting:  # noqa: SIM110
            if waiter is not me and waiter.thread != main:
                return True
        return False

    def leave(self, me: Waiter) -> None:
        """Removes a thread from the hub, and wakes its successor."""
        for queue in (self.waiting, self.subscribed, self.exclusive):
            queue.pop(me, None)
        if self.watch_poller is me:
            self.watch_poller = None
        if self.leader is me:
            self._release_leadership(me)
        else:
            self._wake_successor()

    def abandon_waiter(self, waiter: Waiter) -> None:
        """Ends the requests of a waiter with the votes that they have; they stay sent."""
        for request in waiter.requests:
            request.waiter = None
            request.decide()
        waiter.requests, waiter.undecided, waiter.subscribed = [], 0, 0

    def _fail_inherited(self, me: Waiter) -> None:
        """A child of fork returns to a wait of its parent: no vote counts, and this process sent nothing."""
        for request in me.requests:
            request.forget()
        me.generation, me.outer = self.generation, None
        me.undecided = me.subscribed = 0

    # --- the watch poller --------------------------------------------------------------------------

    def _watch_step(self, me: Waiter, longest: float) -> Step:
        """Polls all connections without leadership, so that any thread can take it without waking this one.

        While other threads lead, they receive every event: the watch poller only checks whether they still
        do.
        """
        busy = self.leader is not None or bool(self.exclusive) or me.seen_epoch != self.epoch
        me.seen_epoch = self.epoch
        if busy:
            return partial(self._sleep, me.prepare_sleep(), min(longest, WATCH_POLL_INTERVAL))
        if self.kick_pair is not None:
            me.kick = partial(self._signal, self.kick_pair[1])
        return partial(self._poll_for_subscribers, me, self._new_poller(), longest)

    def _poll_for_subscribers(self, me: Waiter, poller: select.poll, longest: float) -> None:
        try:
            came = bool(self.safe_points.wait(poller.poll, longest * 1000))
        finally:
            me.kick = None
        if came and self.locked(self._take_leadership, me):
            self.round(me, 0.0)
            self.locked(self._end_watch_round, me)

    def _end_watch_round(self, me: Waiter) -> None:
        self._release_leadership(me)
        me.seen_epoch = self.epoch

    # --- leadership, with the mutex ----------------------------------------------------------------

    def _take_leadership(self, me: Waiter) -> bool:
        """Takes leadership if no thread leads and no other thread wants it exclusively.

        A signal handler takes it from the wait that it interrupted, and gives it back when it ends.
        """
        if self.leader is None:
            if self.exclusive and me not in self.exclusive:
                return False
        elif self.leader.thread != me.thread:
            return False
        else:
            me.outer = self.leader
            self.poller = self._new_poller()  # the thread is inside the poll of the other one
        self.leader = me
        self.epoch += 1
        return True

    def _release_leadership(self, me: Waiter) -> None:
        self.leader, me.outer = me.outer, None
        self._wake_successor()

    def _wake_successor(self) -> None:
        """If no thread leads, wakes a thread that can, or one that becomes the watch poller."""
        if self.leader is not None:
            return
        for waiter in (*self.exclusive, *self.waiting):
            waiter.notify()
            return
        if self.watch_poller is None:
            for waiter in self.subscribed:
                waiter.notify()
                return

    def kick(self) -> None:
        """Ends the poll of the leader, or of the watch poller."""
        if not self.kicked and self.kick_pair is not None:
            self.kicked = True
            self._signal(self.kick_pair[1])

    def _signal(self, end: socket.socket) -> None:
        """Makes the other end of a kick readable."""
        if self.is_ours(end):
            with contextlib.suppress(OSError):  # its buffer is full, so it is readable
                end.send(b"!")

    def is_ours(self, sock: socket.socket) -> bool:
        """Whether the descriptor of ``sock`` is no stranger's."""
        file = self.sockets.get(sock)
        return file is not None and is_file(sock.fileno(), file)

    def exclusively(self, step: Callable[[], T]) -> T:
        """Calls ``step`` with the mutex, while no other thread uses a connection."""
        me = Waiter(self.generation)
        try:
            self._lead_exclusively(me)
            result = self.locked(step)
            self.round(me, 0.0)
            self.wait(me)
            return result
        finally:
            self.locked(self.leave, me)

    def _lead_exclusively(self, me: Waiter) -> None:
        self.locked(self.exclusive.__setitem__, me, None)
        while not self.locked(self._take_exclusive, me):
            self._sleep(me.prepare_sleep(), LONGEST_WAIT)

    def _take_exclusive(self, me: Waiter) -> bool:
        taken = self._take_leadership(me)
        if not taken:
            self.kick()
        return taken

    def lead_once(self) -> bool:
        """Leads one round without waiting, unless another thread leads. Returns whether it did."""
        me = Waiter(self.generation)
        try:
            led = self.locked(self._take_leadership, me)
            if led:
                self.round(me, 0.0)
                self.wait(me)
            return led
        finally:
            self.locked(self.leave, me)

    def flush(self) -> None:
        """Sends the output that is pending, and receives what is there; never waits."""
        if not self.lead_once() and self.output_pending and not self.expects_replies:
            self.locked(self.kick)

    def maintain(self) -> None:
        """As ``flush``, and resends one request to each master that answered with a transient error."""
        self.locked(self._retry)
        self.flush()

    def _retry(self) -> None:
        now = monotonic()
        for channel in self.channels:
            if channel.connection is not None and channel.resend.must_retry(now):
                channel.resend_all(now, 1)
                self.output_pending = True

    def drain(self, deadline: float) -> bool:
        """Leads until no master but the lagging ones owes a reply.

        Returns whether that is so at the deadline.
        """
        me = Waiter(self.generation)
        try:
            self._lead_exclusively(me)
            drained = self._drain(me, deadline)
            self.wait(me)
            return drained
        finally:
            self.locked(self.leave, me)

    def _drain(self, me: Waiter, deadline: float) -> bool:
        # Not in the `try` of `drain`: CPython 3.13 and 3.14 do not protect the end of a loop's turn.
        while not (drained := self.locked(self._is_drained)) and (left := deadline - monotonic()) > 0:
            self.round(me, min(left, LONGEST_WAIT))
            if len(self.exclusive) > 1:
                break
        return drained

    def _is_drained(self) -> bool:
        return all(channel.is_idle() for channel in self.channels)

    def expire_tickets(self) -> None:
        """Decides the tickets whose time is over."""
        now = monotonic()
        if now >= self.loop.deadline:
            self.loop.deadline = min([ticket.expire(now) for ticket in self.tickets], default=inf)

    # --- a round of the leader ---------------------------------------------------------------------

    def round(self, me: Waiter, longest: float) -> None:
        """Sends, polls for at most ``longest`` seconds, receives, and counts what came."""
        moved = self._move(me, self.locked(self._begin_round), longest)
        if moved is not None:
            self.locked(self._end_round, *moved)

    def _round_step(self, me: Waiter, longest: float) -> Step:
        """Begins a round. Returns the rest, for which the thread needs no mutex."""
        return partial(self._move, me, self._begin_round(), longest)

    def _move(self, me: Waiter, connections: list[Connection], longest: float) -> Moved | None:
        """Sends, polls and receives, without the mutex. Returns None in a child of fork."""
        try:
            return self._move_bytes(me, connections, longest)
        except BaseException:
            self.torn = True
            raise

    def _move_bytes(self, me: Waiter, connections: list[Connection], longest: float) -> Moved | None:
        # Loops are not in the `try` of `_move`: CPython 3.13 and 3.14 do not protect the end of a turn.
        timeout = min(longest, EXPECT_WITHIN) if self.expects_replies else longest
        for connection in connections:
            if connection.sending:
                self._send(connection)
            if connection.failure:
                timeout = 0.0
        poll = self.poller.poll
        if timeout <= 0:
            events = poll(0)
        elif timeout <= EXPECT_WITHIN:
            events = self.safe_points.wait_briefly(poll, timeout * 1000)
        else:
            events = self.safe_points.wait(poll, timeout * 1000)
        if me.generation != self.generation:
            return None  # the descriptors belong to other connections now
        kicked, late = False, timeout > EXPECT_WITHIN  # the poll may have been long
        for fd, event in events:
            readable = self.by_fd.get(fd)
            if late and readable is not None and not self.is_ours(readable.sock):
                readable.failure = NOT_OURS
                continue
            if readable is None:
                kicked = True
            elif event != select.POLLOUT:
                readable.receive()  # also after a failed send: the report of a flush may be there
        return connections, bool(events), kicked

    def _send(self, connection: Connection) -> None:
        blocked = connection.blocked
        connection.send()
        if connection.blocked is not blocked:
            self.poller.modify(connection.fd, _events(connection))

    def _begin_round(self) -> list[Connection]:
        """Takes the output of all threads."""
        if monotonic() - self.last_poll > IDLE:
            self.check_descriptors()
        connections = list(self.by_fd.values())
        if self.output_pending:
            self.output_pending = False
            for connection in connections:
                if connection.has_output():
                    connection.begin_flush()
                    if not connection.lagging_since:
                        self.expects_replies = True
        return connections

    def _end_round(self, connections: list[Connection], events: bool, kicked: bool) -> None:
        """Counts replies, and notices connections that broke or lag."""
        now = monotonic()
        if kicked:
            self._drain_kick()
        owed = False
        for connection in connections:
            if connection.channel.connection is not connection:
                continue  # a signal handler ended it
            replied = connection.received and connection.process_input(now, self.last_poll)
            if connection.flushed and not connection.lagging_since:
                if not replied:
                    connection.flag_lagging(now)
                owed = owed or not connection.lagging_since
            if connection.failure:
                self.break_connection(connection, connection.failure)
                continue
            if connection.has_output():
                self.output_pending = True
            if self.loop.fd is not None:
                self._watch_output(connection)
        self.expects_replies = self.expects_replies and events and owed
        self.last_poll = now

    def _drain_kick(self) -> None:
        if self.kick_pair is not None and self.is_ours(self.kick_pair[0]):
            with contextlib.suppress(OSError):
                self.kick_pair[0].recv(64)
        self.kicked = False

    def _watch_output(self, connection: Connection) -> None:
        """The event loop watches for room to write while output is left."""
        wanted = connection.blocked
        if self.loop.fd is not None and connection.polls_output is not wanted:
            connection.polls_output = wanted
            self.loop.fd.set_output(connection.fd, wanted)

    # --- connections, with the mutex ---------------------------------------------------------------

    def check_descriptors(self) -> None:
        """Drops the descriptors that are a stranger's by now, see ``engine/descriptors.py``."""
        for connection in list(self.by_fd.values()):
            if not self.is_ours(connection.sock):
                self.break_connection(connection, NOT_OURS)
        freed = self.kick_pair is None or self.kick_pair[0].fileno() < 0  # with the engine
        if not freed and not all(map(self.is_ours, self.kick_pair or ())):
            for end in self.close_kick():
                close_own(end, self.sockets.pop(end))
            self.open_kick()

    def add_connection(self, connection: Connection) -> None:
        connection.channel.connection = connection
        self.by_fd[connection.fd] = connection
        self.poller.register(connection.fd, _events(connection))
        if self.loop.fd is not None:
            self.loop.fd.add(connection.fd)

    def break_connection(self, connection: Connection, why: str) -> None:
        connection.channel.broken = why
        self.breaks += 1
        self.end_connection(connection, why)

    def end_connection(self, connection: Connection, why: str) -> None:
        self.by_fd.pop(connection.fd, None)
        with contextlib.suppress(KeyError):
            self.poller.unregister(connection.fd)
        if self.loop.fd is not None:
            self.loop.fd.remove(connection.fd)
        connection.channel.fail(why)

    def watch_all(self) -> None:
        """The event loop watches all connections through one descriptor from now on."""
        if self.loop.fd is not None:
            return
        self.loop.fd = fd = LoopFd()
        for connection in self.by_fd.values():
            fd.add(connection.fd)
            connection.polls_output = connection.blocked
            fd.set_output(connection.fd, connection.blocked)
        if self.loop.decided:
            self.loop.notify()

    def open_kick(self) -> None:
        """Opens the sockets by which a thread ends the poll of another one."""
        self.kick_pair = socket.socketpair()
        for end in self.kick_pair:
            end.setblocking(False)
            self.sockets[end] = file_of(end.fileno())
        self.poller = self._new_poller()

    def close_kick(self) -> Sequence[socket.socket]:
        """The sockets of the kick, for the caller to close."""
        pair, self.kick_pair = self.kick_pair or (), None
        self.poller = self._new_poller()
        self.kicked = False
        return pair

    def _new_poller(self) -> select.poll:
        poller = select.poll()
        if self.kick_pair is not None and self.kick_pair[0].fileno() >= 0:  # closed: the engine was freed
            poller.register(self.kick_pair[0], select.POLLIN)
        for fd, connection in self.by_fd.items():
            poller.register(fd, _events(connection))
        return poller


def _events(connection: Connection) -> int:
    return select.POLLIN | select.POLLOUT if connection.blocked else select.POLLIN
