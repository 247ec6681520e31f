"""The contract of an engine, and the choice between the two.

An engine keeps one ordered connection per master, carries requests over them and
counts votes. It knows nothing of locks. Rules that both engines keep and that
``tests/contract`` checks:

1. A master's failure is a vote, never an exception.
2. A request is decided at the first of: what ``wait`` says; every reply that is owed; the end of
   ``timeout``; and, where ``stall`` is set, so many seconds without a reply to any of those that
   were handed over together. ``need=0`` is decided when it was handed to the connections: nobody
   waits for its replies.
3. Commands of one connection are executed in the order of submission.
4. A reply goes to the request that it answers. Replies that come after the decision are dropped.
5. A reply that cannot be parsed, that no request is owed, or that its request cannot have
   (``Command.reply``) breaks its connection: a stream that is out of step would count for others.
6. A connection that breaks makes every reply that it owes a FAULT, at once. It is not used again;
   its socket is closed by ``detach``.
7. A request with ``resend_for`` must arrive: it goes to lagging masters too; where the connection is
   gone or breaks before the reply, it is sent again on the next one, for ``resend_for`` seconds. So it is,
   unless its command has a ``rollback_verb``, where the master answers with an error of
   ``TRANSIENT_ERRORS``: one of those at a time, by ``tend``, not more often than every ``RETRY_AFTER``;
   all others behind it as soon as a request with ``resend_for`` has been done there.
   All others are sent at most once.
8. A lagging master is sent nothing else while ``need`` healthy masters remain.
9. Every buffer and queue has a bound; beyond it the vote is FAULT. So has a reply (``wire.resp.MAX_REPLY``)
   and a push (``MAX_PUSH``), as a whole, and in its depth; and the work for it is linear in its bytes,
   however few of them come at a time.
10. Threads and an event loop use the same connections: ``exchange`` blocks, ``submit`` never does.
    What ``submit`` hands over goes out with the next ``flush``, ``on_ready`` or exchange, and is
    told once, by ``on_ready``, in the order of decision. ``fileno`` is readable as long as
    ``on_ready`` has something to do, whoever made the decision, and where ``next_timeout`` has become
    earlier.
11. The vote of a command that watches (``Command.watch``) stays open until something changes. Its
    reply is a PTTL: -2 grants, for nothing is there; -1, and n >= 0, leave the vote open, the latter
    until it expires n + 1 ms after it was asked for, which is never too late, however late the reply
    was read; all else is a FAULT. A push ``invalidate`` that comes over the
    master's connection, from the moment of submission on, grants (with 1) what it names; one with
    null names everything. An open vote is SILENT, and no reply is owed for it.
    A request that watches is decided, whatever ``wait`` and ``stall`` say, by ``need`` grants; by so
    many faults that these can no longer come; or when its time is over: at the end of ``timeout``, or
    before that when the ``need`` masters that are first to have granted, or expired, have done so.
    Every ``attach`` ends the time of all that watch, so that they ask again, on the new connection too.
    Threads that only watch never make others wait for the lead.
12. A push ``invalidate`` with null (FLUSHALL, FLUSHDB, a full resynchronization) breaks the connection
    that it comes over, with FLUSHED as the reason; so does a reply of NOT_MASTER_ERRORS, after its vote. What
    the master is has to be found out before its next vote counts.
13. Pushes and attributes are work that no caller asked for: a connection that brings more of them than
    ``UNSOLICITED`` and what the commands that watch have earned breaks. A push that announces more than is
    left breaks it at once, before its items are read.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, Protocol, overload

from ..wire.commands import Dialect
from .messages import Batch as Batch
from .messages import BatchVotes as BatchVotes
from .messages import Request as Request
from .messages import Votes as Votes

#: Votes that are not numbers from a master: no reply yet; and failed, not sent, or an error reply.
NO_REPLY = -(1 << 63)
FAULT = NO_REPLY + 1
#: Details of faults that say nothing new about a master: the request was not for it; or it was left out.
NOT_ASKED = "not asked"
SKIP_REASONS = frozenset({"lagging", "not connected"})
NOT_SENT = SKIP_REASONS | {NOT_ASKED}
#: It owes too many replies, or has not taken what was to be sent.
BACKLOG = frozenset({"too many replies owed", "buffer full"})

#: Why a connection ended where the master pushed that no key is what it was.
FLUSHED = "its keys were flushed"

#: What the reason begins with where the master broke the protocol.
PROTOCOL_ERROR = "protocol error"

#: Bounds, per master.
MAX_OWED = 65_536
MAX_BUFFER = 16 << 20
MAX_REPLAY = 10_000
#: Bytes of a reply that is kept as the reason for a fault; of a longer one only its size.
MAX_DETAIL = 1024
#: Bytes of pushes and attributes that a connection may bring, whatever was sent; the least that one of them
#: counts as; and what each byte of a command that watches adds. A master pushes the keys that it was sent.
UNSOLICITED, UNSOLICITED_LEAST, UNSOLICITED_PER_BYTE = 16 << 10, 128, 16

#: The errors that say that it may be no master any more, or have other data.
NOT_MASTER_ERRORS = frozenset((b"LOADING", b"MASTERDOWN", b"READONLY"))
#: The errors that say that a master can do it later: it does nothing or writes nothing for now.
TRANSIENT_ERRORS = NOT_MASTER_ERRORS | {b"BUSY", b"MISCONF", b"NOREPLICAS", b"OOM", b"TRYAGAIN"}
#: Seconds, at least, between two looks whether it can.
RETRY_AFTER = 0.1

#: A master lags when its oldest owed reply is older than this (seconds) and than LAG_ROUND_TRIPS, until
#: it answers: pushes and pieces of a reply are no answer.
LAG_AFTER = 0.05
LAG_ROUND_TRIPS = 10

#: More masters than this make no lock safer; masks of masters are 64-bit in C.
MAX_MASTERS = 63


class Wait(IntEnum):
    """What decides a request.

    EARLY: ``need`` grants, or so many refusals and faults that these can no longer come: enough to
    know that it failed. CERTAIN: ``need`` grants, or so many refusals alone: a master that fails has
    not said no. ALL: only every reply.
    """

    EARLY = 0
    CERTAIN = 1
    ALL = 2


class ConnectionState(NamedTuple):
    """The state of one master's connection.

    ``attached``: in use. ``broken``: why it is not, where it broke by itself, else "".
    ``pending``: replies due. ``lag``: how long (seconds) the master has been lagging, 0.0 if it is not.
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
        max_replay: int = MAX_REPLAY,
        lag_after: float = LAG_AFTER,
    ) -> None: ...

    def attach(self, master: int, sock: socket.socket, dialect: Dialect) -> None:
        """This connected, authenticated socket serves ``master`` from now on; the engine owns it.

        Requests that are kept for the master go out first. A connection before it must have been
        detached, a broken one too.
        """

    def detach(self, master: int) -> socket.socket | None:
        """End the master's connection, if it has one (broken or not).

        Behind every request that has failed, that is owed a reply and that has a ``rollback_verb``, goes that
        verb, with the same arguments: a master that executes it late must not keep a lock that is not
        held. A request that was granted, or that is not decided, gets no undo: the master may execute it
        after the next connection has had a vote counted, and would take that vote back. The socket comes
        back half-closed, for the caller to close when the master has read everything
        (end of stream): closed earlier it may be reset, and what was written last be lost.
        """

    @overload
    def exchange(
        self, requests: Sequence[Request], need: int, timeout: float, wait: int = ..., stall: float = ...
    ) -> list[Votes]: ...

    @overload
    def exchange(
        self, requests: Batch, need: int, timeout: float, wait: int = ..., stall: float = ...
    ) -> BatchVotes: ...

    def exchange(
        self,
        requests: Sequence[Request] | Batch,
        need: int,
        timeout: float,
        wait: int = Wait.EARLY,
        stall: float = 0.0,
    ) -> list[Votes] | BatchVotes:
        """Send, wait up to ``timeout`` seconds for the decision of each request; the votes in order.

        ``wait``: a :class:`Wait`. ``stall``: see rule 2; 0.0 means none. May raise what a signal
        handler raises (KeyboardInterrupt): the requests may have been sent then.
        """

    # --- for an event loop: nothing here waits; one thread calls it all ---

    def fileno(self) -> int:
        """What the loop watches for reading; there from the first call until ``unwatch``."""

    def close_loop_fd(self) -> None:
        """No loop watches any more: closes ``fileno``, forgets every ticket."""

    def submit(
        self,
        requests: Sequence[Request] | Batch,
        need: int,
        timeout: float,
        wait: int,
        stall: float,
        context: object,
    ) -> object:
        """As ``exchange``, without waiting: ``on_ready`` will tell ``context``. Returns a ticket.

        With ``need=0`` nobody is told, and the ticket is None.
        """

    def cancel(self, ticket: object) -> None:
        """Whoever waited for this does so no more, and will not be told. The requests stay sent."""

    def flush(self) -> None:
        """Send what was submitted."""

    def on_ready(self) -> list[tuple[object, Any]]:
        """Send, read, decide: pairs of ``context`` and what ``exchange`` would have returned.

        To be called when ``fileno`` is readable, and at ``next_timeout``.
        """

    def next_timeout(self) -> float | None:
        """In how many seconds the time of what was submitted may end, if nothing comes; None: never."""

    def maintain(self) -> None:
        """Read what is there, send what is left, try again what a master could not do, notice broken and
        lagging masters; never waits.
        """

    def drain(self, timeout: float) -> bool:
        """Wait until no master but the lagging owes a reply; False if ``timeout`` came first."""

    def connection_state(self, master: int) -> ConnectionState:
        """The state of one connection."""

    def close(self, on_socket: Callable[[socket.socket], object] = socket.socket.close) -> None:
        """End all connections, as ``detach`` does; every request under way gets its faults at once.

        Every request that is owed a reply and that has a ``rollback_verb`` is undone: no vote is
        counted from here on. What had too few grants by then is undone on the masters that granted it,
        too. ``on_socket`` is called with each socket that ``detach`` would have given back.
        """

    def after_fork_in_child(self) -> None:
        """In a child of fork: close this process' copies of the sockets, silently; forget all requests."""
