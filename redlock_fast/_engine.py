"""The contract of an engine, and the choice between the two.

An engine keeps one ordered connection per master, carries requests over them and
counts votes. It knows nothing of locks. Rules that both engines keep and that
``tests/contract`` checks:

1. A master's failure is a vote, never an exception.
2. A request is decided at the first of: what ``wait`` says; every reply that is owed; the end of
   ``timeout``. ``need=0`` is decided when it was handed to the connections: nobody waits for
   its replies.
3. Commands of one connection are executed in the order of submission.
4. A reply goes to the request that it answers. Replies that come after the decision are dropped.
5. A reply that cannot be parsed, or that nobody is owed, breaks its connection.
6. A connection that breaks makes every reply that it owes a FAULT, at once. It is not used again;
   its socket is closed by ``detach``.
7. A request with ``keep`` must arrive: it goes to lagging masters too; where the connection is
   gone or breaks before the reply, it is sent again on the next one, for ``keep`` seconds.
   All others are sent at most once.
8. A lagging master is sent nothing else while ``need`` healthy masters remain.
9. Every buffer and queue has a bound; beyond it the vote is FAULT.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol

from ._commands import Dialect
from .errors import ConfigError

#: Votes that are not numbers from a master: no reply yet; and failed, not sent, or an error reply.
SILENT = -(1 << 63)
FAULT = SILENT + 1

#: Bounds, per master.
MAX_OWED = 65_536
MAX_BUFFER = 16 << 20
MAX_REPLAY = 10_000

#: A master lags when its oldest owed reply is older than this (seconds) and than LAG_ROUND_TRIPS.
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


class Request:
    """``verb`` with its arguments for the masters of the bit mask ``masters``.

    ``keep``: for how many seconds the request is worth sending again (see rule 7); 0 means never.
    """

    __slots__ = ("args", "keep", "masters", "verb")

    def __init__(
        self, verb: int, args: tuple[bytes, ...], masters: int, keep: float = 0.0
    ) -> None:
        self.verb = verb
        self.args = args
        self.masters = masters
        self.keep = keep


class Votes:
    """What the masters said to one request.

    ``values``: one int per master: > 0 granted, 0 (or less) refused, FAULT, SILENT.
    ``sent``: bit mask of the masters that the request was handed to.
    ``granted``, ``refused``, ``faulty``: how many of each.
    ``details``: for masters with FAULT, the reason: text, or the reply as bytes in RESP.
    """

    __slots__ = ("details", "faulty", "granted", "refused", "sent", "values")

    def __init__(
        self,
        values: tuple[int, ...],
        sent: int,
        granted: int,
        refused: int,
        faulty: int,
        details: dict[int, str | bytes],
    ) -> None:
        self.values = values
        self.sent = sent
        self.granted = granted
        self.refused = refused
        self.faulty = faulty
        self.details = details


class Link(NamedTuple):
    """The state of one master's connection.

    ``attached``: in use. ``broken``: why it is not, where it broke by itself, else "".
    ``owed``: replies due. ``lag``: how long (seconds) the master has been lagging, 0.0 if it is not.
    ``round_trip``: smoothed, in seconds, 0.0 if unknown. ``late``: replies that came after the
    decision. ``replayed``: requests sent again on a new connection. ``dropped``: requests with
    ``keep`` that could not be kept. ``pushes``: RESP3 pushes received.
    """

    attached: bool
    broken: str
    owed: int
    lag: float
    round_trip: float
    late: int
    replayed: int
    dropped: int
    pushes: int


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
    ) -> None: ...

    def attach(self, master: int, sock: socket.socket, dialect: Dialect) -> None:
        """This connected, authenticated socket serves ``master`` from now on; the engine owns it.

        Requests that are kept for the master go out first. A connection before it must have been
        detached, a broken one too.
        """

    def detach(self, master: int, of: int, undo: int) -> socket.socket | None:
        """End the master's connection, if it has one (broken or not).

        Behind every request with the verb ``of`` that is owed a reply goes the verb ``undo`` with
        the same arguments: a master that executes it late must not keep what nobody waits for. The
        socket comes back half-closed, for the caller to close when the master has read everything
        (end of stream): closed earlier it may be reset, and what was written last be lost.
        """

    def exchange(
        self, requests: Sequence[Request], need: int, timeout: float, wait: int = Wait.EARLY
    ) -> list[Votes]:
        """Send, wait up to ``timeout`` seconds for the decision of each request; the votes in order.

        ``wait``: a :class:`Wait`. May raise what a signal
        handler raises (KeyboardInterrupt): the requests may have been sent then.
        """

    def tend(self) -> None:
        """Read what is there, send what is left, notice broken and lagging masters; never waits."""

    def drain(self, timeout: float) -> bool:
        """Wait until no master but the lagging owes a reply; False if ``timeout`` came first."""

    def link(self, master: int) -> Link:
        """The state of one connection."""

    def close(self) -> None:
        """Close all connections; every request that is under way gets its faults at once."""

    def abandon(self) -> None:
        """In a child of fork: close this process' copies of the sockets, silently; forget all requests."""


def load(engine: str = "auto") -> type[Engine]:
    """The engine class for "native", "python" or "auto" (native where it was built).

    "auto" lets REDLOCK_FAST_ENGINE decide where that is set. An engine that was built and
    does not load is an error, never a silent fallback.
    """
    name = os.environ.get("REDLOCK_FAST_ENGINE", "auto") if engine == "auto" else engine
    if name not in ("auto", "native", "python"):
        raise ConfigError(f"engine must be 'auto', 'native' or 'python', not {name!r}")
    if name != "python":
        try:
            from ._native import NativeEngine
        except ModuleNotFoundError as error:
            if error.name != f"{__package__}._native":
                raise
            if name == "native":
                raise ConfigError(
                    "engine 'native' is not built here: reinstall with a C compiler and "
                    "REDLOCK_FAST_BUILD_NATIVE=yes, or use engine='python'"
                ) from None
        else:
            return NativeEngine
    from ._pure import PureEngine

    return PureEngine
