"""The contract of an engine, and the bounds that both engines keep.

An engine keeps one ordered connection per master, carries requests over them and counts votes. It knows
nothing of locks. Both engines keep these rules; ``tests/contract`` checks them:

1. The failure of a master is a vote, never an exception.
2. A request is decided at the first of these: what ``wait`` says; the last reply that is pending; the end of
   ``timeout``; if ``stall`` is set, that many seconds without a reply to any request of the same call. A
   reply to a request that has a quorum and waits for ALL does not count: a slow master must not hold a call.
   With ``need=0``, or if it is not ``awaited``, a request is decided when the connections have it: no caller
   waits for its replies.
   The engine may notice late that the time of a request has ended, because the process did not run, or the
   event loop was blocked. If the request has no quorum, the engine extends its time once: by as much as it
   was late, and at most by ``timeout`` or ``stall``.
   ``need`` says what a quorum is: a number of grants of any masters, or :class:`Quorums`, a number of grants
   of each list of masters. Of Quorums, a master in both lists counts in both, a vote of a master in no list
   counts for nothing, and a master that the engine does not have never grants.
3. A master executes the commands of one connection in the order of submission.
4. A reply goes to the request that it answers. A reply that comes after the decision is dropped.
5. A reply breaks its connection if it cannot be parsed, if no request is pending, or if its request cannot
   have it (``Command.reply``): a stream that is out of step would count for other requests.
6. When a connection breaks, every pending reply becomes a FAULT at once. The connection is not used again;
   ``detach`` closes its socket.
7. A request with ``resend_for`` must arrive. It goes to lagging masters too. If its connection is gone, or
   breaks before the reply, it is sent again on the next connection, for ``resend_for`` seconds. The same
   holds after an error of ``TRANSIENT_ERRORS``, unless its command has a ``rollback_verb``: ``maintain``
   resends one of these requests at most every ``RETRY_AFTER``; all of them follow as soon as the master has
   executed a request with ``resend_for``. Any other request is sent at most once.
8. A lagging master gets no request while healthy masters remain that can be a quorum, of each list.
9. Every buffer and queue has a bound; beyond it the vote is FAULT. A reply has a bound
   (``wire.resp.MAX_REPLY``), and so has a push (``MAX_PUSH``), in bytes and in depth. The work for a reply is
   linear in its bytes, however few of them come at a time. The work of TLS in a round has a bound, and so
   have the bytes of TLS without data (``engine.tls``).
10. Threads and an event loop share the connections: ``exchange`` blocks, ``submit`` never does. What
    ``submit`` adds goes out with the next ``flush``, ``on_ready`` or exchange. ``on_ready`` returns it once,
    in the order of decision. ``fileno`` is readable while ``on_ready`` has work, whichever thread made the
    decision, and after ``next_timeout`` has become earlier.
11. The vote of a subscription (``Command.watch``) stays open until something changes. Its reply is a PTTL: -2
    grants, because the key does not exist; -1 and n >= 0 leave the vote open, the latter until the key
    expires, n + 1 ms after the request was sent. That is never too late, however late the reply was read. Any
    other reply is a FAULT. From the submission on, a push ``invalidate`` on the master's connection grants
    (with 1) what it names; a push with null names every key. An open vote is NO_REPLY, and no reply is
    pending for it.
    A subscription is decided, whatever ``wait`` and ``stall`` say, by a quorum of grants; by so many faults
    that no quorum can come any more; or by time: at the end of ``timeout``, or earlier, at the first moment
    at which the masters that have granted or expired are a quorum. Every ``attach`` ends all subscriptions,
    so that their callers ask again, on the new connection too. A thread that waits for subscriptions only
    never keeps leadership.
12. A push ``invalidate`` with null (FLUSHALL, FLUSHDB, a full resynchronization) breaks its connection, with
    FLUSHED as the reason. So does a reply of NOT_MASTER_ERRORS, after its vote. The master must be probed
    again before its next vote counts.
13. Pushes and attributes are unsolicited work. A connection may bring ``UNSOLICITED`` bytes of them, and
    ``UNSOLICITED_PER_BYTE`` for each byte of a subscription's command; more breaks it. A push that announces
    more than is left breaks it at once, before its items are read.
14. A signal handler may use the engine that it interrupted, and may wait for another thread that uses it. It
    cannot use the native engine that it interrupted in a TLS socket: its requests are not sent there, and
    every vote is a FAULT. A request with ``resend_for`` is sent when the interrupted call continues. So is a
    ``close``. If a handler raises there, the connection that was in use may break.
15. A command with a ``confirm_verb`` (WAIT) grants when replicas have what it wrote. The engine appends that
    verb to each flush with such requests, unless its reply is pending: a master executes no later command of
    the connection meanwhile. Its reply counts every grant that came before it. If at least
    ``Command.replicas`` acknowledged, a grant is the vote that it was; otherwise it is a FAULT with an error
    reply: NOREPLICAS, or that of the verb. The verb's leading reply must be a positive number, that of a
    write. Refusals and faults count at once. If the time of a request ends before, without a quorum, its
    grants are such FAULTs, too.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, Protocol, overload

from ..wire.commands import Dialect
from .messages import FAULT as FAULT
from .messages import MAX_MASTERS as MAX_MASTERS
from .messages import NO_REPLY as NO_REPLY
from .messages import Batch as Batch
from .messages import BatchVotes as BatchVotes
from .messages import Quorums as Quorums
from .messages import Request as Request
from .messages import Votes as Votes

#: Details of faults that say nothing about a master: the request was not for it, or the master was skipped.
NOT_ASKED = "not asked"
SKIP_REASONS = frozenset({"lagging", "not connected"})
NOT_SENT = SKIP_REASONS | {NOT_ASKED}
#: The master owes too many replies, or has not taken its output.
BACKLOG = frozenset({"too many replies owed", "buffer full"})

#: Why a connection ended after the master pushed that all its keys are gone.
FLUSHED = "its keys were flushed"

#: The begin of the reason if the master broke the protocol.
PROTOCOL_ERROR = "protocol error"

#: Bounds, per master.
MAX_OWED = 65_536
MAX_BUFFER = 16 << 20
MAX_RESEND = 10_000
#: The longest reply (bytes) that is stored as the reason of a fault. Of a longer one only its size is.
MAX_DETAIL = 1024
#: Bytes of pushes and attributes that a connection may bring in any case; the least that one of them counts
#: as; and what each byte of a subscription's command adds, because a master pushes the names that it was
#: sent.
UNSOLICITED, UNSOLICITED_LEAST, UNSOLICITED_PER_BYTE = 16 << 10, 128, 16

#: Errors after which the server may be no master any more, or may have other data. GUARDED: by its marker,
#: which this client may expect under a name that the master no longer has.
NOT_MASTER_ERRORS = frozenset((b"GUARDED", b"LOADING", b"MASTERDOWN", b"READONLY"))
#: Errors after which a master may execute the same command later: it executes or writes nothing for now.
TRANSIENT_ERRORS = NOT_MASTER_ERRORS | {b"BUSY", b"MISCONF", b"NOREPLICAS", b"OOM", b"TRYAGAIN"}
#: Seconds between two such attempts, at least.
RETRY_AFTER = 0.1

#: A master lags when its oldest pending reply is older than this (seconds) and than LAG_ROUND_TRIPS round
#: trips. It lags until it replies: a push, or a part of a reply, is no reply.
LAG_AFTER = 0.05
LAG_ROUND_TRIPS = 10
#: The same for the reply of a verb that waits for replicas (seconds). An idle server looks whether a WAIT has
#: ended as often as its ``hz`` says: ten times a second by default, and once at least.
LAG_AFTER_WAIT = 2.0


class Wait(IntEnum):
    """What decides a request.

    EARLY: a quorum of grants, or so many refusals and faults that some list can have no quorum any more.
    CERTAIN: a quorum of grants, or so many refusals alone: a master that failed has not refused. ALL: every
    reply.
    """

    EARLY = 0
    CERTAIN = 1
    ALL = 2


class ConnectionState(NamedTuple):
    """The state of one master's connection.

    ``attached``: in use. ``broken``: why the connection broke, "" if it did not.
    ``pending``: replies that are due. ``lag``: how long (seconds) the master has lagged, 0.0 if it does not.
    ``round_trip``: smoothed, in seconds, 0.0 if unknown. ``late_replies``: replies that came after the
    decision. ``resent``: requests sent again, see rule 7. ``resend_dropped``: requests with
    ``resend_for`` that did not fit into the resend queue. ``pushes``: RESP3 pushes
    received. ``scanned``: how many bytes were looked at to find the ends of replies that are not fixed: at
    most twice those that came.
    """

    attached: bool
    broken: str
    pending: int
    lag: float
    round_trip: float
    late_replies: int
    resent: int
    resend_dropped: int
    pushes: int
    scanned: int


class Engine(Protocol):
    """One ordered connection per master, shared by all threads.

    ``on_break`` is called, from any thread, after a connection broke: it must be quick and not raise.
    """

    def __init__(
        self,
        masters: int,
        on_break: Callable[[], None],
        *,
        max_owed: int = MAX_OWED,
        max_buffer: int = MAX_BUFFER,
        max_resend: int = MAX_RESEND,
        lag_after: float = LAG_AFTER,
    ) -> None: ...

    def attach(self, master: int, sock: socket.socket, dialect: Dialect) -> None:
        """Serve ``master`` by this connected, authenticated socket. The engine owns it from now on.

        The master's resend queue goes out first. Raises ValueError unless the connection before was detached;
        a broken connection must be detached, too.
        """

    def detach(self, master: int) -> socket.socket | None:
        """End the connection of a master, broken or not. Returns its socket, None if there is no connection.

        Each failed request with a pending reply and a ``rollback_verb`` is followed by that verb, with the
        same arguments: a master that executes the request late must not keep a lock that is not held. A
        request that was granted, or that is undecided, gets no rollback: the master may execute the rollback
        after a vote on the next connection was counted, and would take that vote back. The socket is half-
        closed. The caller closes it at the end of the stream, when the master has read everything: an earlier
        close may reset the connection and lose what was written last.
        """

    @overload
    def exchange(
        self,
        requests: Sequence[Request],
        need: int | Quorums,
        timeout: float,
        wait: int = ...,
        stall: float = ...,
    ) -> list[Votes]: ...

    @overload
    def exchange(
        self, requests: Batch, need: int | Quorums, timeout: float, wait: int = ..., stall: float = ...
    ) -> BatchVotes: ...

    def exchange(
        self,
        requests: Sequence[Request] | Batch,
        need: int | Quorums,
        timeout: float,
        wait: int = Wait.EARLY,
        stall: float = 0.0,
    ) -> list[Votes] | BatchVotes:
        """Send requests and wait up to ``timeout`` seconds for their decisions. Returns their votes in order.

        ``need``: what a quorum is, and ``stall``: seconds, 0.0 means none; see rule 2. ``wait``: a
        :class:`Wait`. Raises what a signal handler raises (KeyboardInterrupt): the requests may have been
        sent then.
        """

    # --- for an event loop: no call waits; one thread makes all of them ---

    def fileno(self) -> int:
        """The descriptor that the loop watches for reading. The first call opens it."""

    def close_loop_fd(self) -> None:
        """Close the descriptor and forget every ticket: no loop watches any more."""

    def submit(
        self,
        requests: Sequence[Request] | Batch,
        need: int | Quorums,
        timeout: float,
        wait: int,
        stall: float,
        context: object,
    ) -> object:
        """Submit without waiting. ``on_ready`` returns the votes with ``context``. Returns a ticket.

        With ``need=0`` ``on_ready`` returns nothing, and the ticket is None.
        """

    def cancel(self, ticket: object) -> None:
        """Forget a ticket: ``on_ready`` does not return it. Its requests stay sent."""

    def flush(self) -> None:
        """Send what was submitted."""

    def on_ready(self) -> list[tuple[object, Any]]:
        """Send, receive and decide. Returns pairs of ``context`` and what ``exchange`` would have returned.

        The loop calls it when ``fileno`` is readable, and at ``next_timeout``.
        """

    def next_timeout(self) -> float | None:
        """Seconds until a ticket may time out; None: no ticket will."""

    def maintain(self) -> None:
        """Receive what is there, send what is left, and retry after transient errors. Never waits.

        Notices broken and lagging masters.
        """

    def drain(self, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds until only lagging masters owe replies.

        Returns whether that is so.
        """

    def grow(self, masters: int) -> None:
        """Have at least so many masters from now on; the new ones are not connected.

        Requests under way keep their number of votes. With so many masters or more, nothing changes. Raises
        ValueError for more than MAX_MASTERS.
        """

    def connection_state(self, master: int) -> ConnectionState:
        """The state of one connection."""

    def close(self, on_socket: Callable[[socket.socket], object] = socket.socket.close) -> None:
        """End all connections, as ``detach`` does. Every undecided request gets its faults at once.

        No vote is counted from here on, so an undecided request with too few grants is rolled back as a
        failed one, and also on the masters that granted it. A request that was granted is not: another
        process may hold its lock by the token.
        ``on_socket`` is called with each socket that ``detach`` would have returned.
        """

    def after_fork_in_child(self) -> None:
        """In a child of fork: close the copies of the sockets without a shutdown, and forget all requests."""
