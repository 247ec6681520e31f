"""Waiters: requests that were submitted together, and the thread or event loop that waits for them."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING

from ..contract import NOT_SENT, Batch, BatchVotes, Request, Votes

if TYPE_CHECKING:
    from .hub import Hub
    from .loop_side import LoopSide
    from .request import PendingRequest


#: A wait that ends so much later (seconds) than it should was not looked at: see ``Waiter.expire``.
LATE = 0.001


class Waiter:
    """Requests, and the thread that waits for their decision. The I/O thread changes the fields.

    ``limit``: when the wait ends. ``idle_timeout``: if it is not 0, the wait also ends that long after
    ``last_reply``. ``longest``: how long the wait takes without a reply. ``late``: the wait ended late
    once, and was extended. ``undecided``, ``subscribed``: number of undecided requests, and of undecided
    subscriptions. ``hub``: None until the requests are submitted. ``woken``: a lock that the thread acquires
    to sleep; its release wakes the thread.
    """

    __slots__ = (
        "hub",
        "idle_timeout",
        "last_reply",
        "late",
        "limit",
        "longest",
        "requests",
        "subscribed",
        "undecided",
        "woken",
    )

    def __init__(self) -> None:
        self.requests: list[PendingRequest] = []
        self.undecided: int = 0
        self.subscribed: int = 0
        self.limit: float = inf
        self.longest: float = 0.0
        self.last_reply: float = 0.0
        self.idle_timeout: float = 0.0
        self.late: bool = False
        self.hub: Hub | None = None
        self.woken: threading.Lock = new_signal()

    def begin(self, now: float, timeout: float, idle_timeout: float) -> None:
        """Sets when the wait ends."""
        self.limit = now + max(0.0, timeout)
        self.last_reply = now
        self.idle_timeout = idle_timeout
        self.longest = self.deadline() - now

    def deadline(self) -> float:
        """When the time of a request ends that is no subscription."""
        return min(self.limit, self.last_reply + self.idle_timeout) if self.idle_timeout else self.limit

    def expire(self, now: float) -> float:
        """Decides the requests whose time is over.

        Returns when the time of the next one ends, inf if none is left.
        """
        deadline = self.deadline()
        if deadline <= now - LATE and not self.late and self._lacks_quorum():
            deadline = self._go_on(now, now - deadline)
        if deadline > now and not self.subscribed:
            return deadline if self.undecided else inf
        soonest = inf
        for request in self.requests:
            if not request.decided:
                subscription = request.subscription
                end = deadline if subscription is None else min(self.limit, subscription.deadline)
                if end <= now:
                    request.give_up_held()
                    request.decide()
                else:
                    soonest = min(soonest, end)
        return soonest

    def _lacks_quorum(self) -> bool:
        """Whether an undecided request has no quorum. Those that have one wait for further replies only."""
        return any(
            not (request.decided or request.subscription or request.has_quorum()) for request in self.requests
        )

    def _go_on(self, now: float, late: float) -> float:
        """Sets a later deadline, and returns it.

        A wait ends ``late`` if the process was stopped or throttled, or if the event loop was blocked.
        Requests may not have been sent then, or replies not read. So the wait goes on once, for as long as it
        was late, and at most for as long as it could take at first.
        """
        self.late = True
        deadline = now + min(late, self.longest)
        self.limit = max(self.limit, deadline)
        self.last_reply = deadline - self.idle_timeout
        return deadline

    def on_deadline_moved(self, deadline: float) -> None:
        """A subscription ends earlier than the hub knows."""
        if self.hub is not None:
            self.hub.deadline = min(self.hub.deadline, deadline)

    def notify(self) -> None:
        """All requests are decided: wakes the thread."""
        if self.hub is not None:
            self.hub.waiting.pop(self, None)
        with contextlib.suppress(RuntimeError):  # it is released already
            self.woken.release()


def new_signal() -> threading.Lock:
    """A lock that is taken. A thread that acquires it sleeps until another one releases it."""
    signal = threading.Lock()
    signal.acquire()
    return signal


class Ticket(Waiter):
    """Requests that an event loop submitted. Their decision goes to the loop's queue."""

    __slots__ = ("loop", "submitted")

    def __init__(self, submitted: Sequence[Request] | Batch, loop: LoopSide) -> None:
        super().__init__()
        self.submitted: Sequence[Request] | Batch = submitted
        self.loop: weakref.ref[LoopSide] = weakref.ref(loop)  # its queue refers to the ticket

    def end(self) -> float:
        """When the time of its next request ends, inf if all are decided."""
        undecided = [request for request in self.requests if not request.decided]
        deadlines = [
            self.deadline() if (one := request.subscription) is None else min(self.limit, one.deadline)
            for request in undecided
        ]
        return min(deadlines, default=inf)

    def notify(self) -> None:
        super().notify()
        if (loop := self.loop()) is not None:
            loop.decided.append(self)

    def on_deadline_moved(self, deadline: float) -> None:
        super().on_deadline_moved(deadline)
        if (loop := self.loop()) is not None:
            loop.notify()


def answers(submitted: Sequence[Request] | Batch, requests: list[PendingRequest]) -> list[Votes] | BatchVotes:
    """The votes, in the form that fits what was submitted."""
    votes = [request.votes() for request in requests]
    if not isinstance(submitted, Batch):
        return votes
    quorum = [request.has_quorum() for request in requests]
    return BatchVotes(
        [
            one.granted if has_quorum or request.quorums is None else 0
            for one, request, has_quorum in zip(votes, requests, quorum, strict=True)
        ],
        [one.sent for one in votes],
        {
            number: one
            for number, (one, has_quorum) in enumerate(zip(votes, quorum, strict=True))
            if not has_quorum or (one.details and not NOT_SENT.issuperset(one.details.values()))
        },
    )
