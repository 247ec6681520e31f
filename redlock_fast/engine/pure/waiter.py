"""Waiters: requests that were submitted together, and the thread or event loop that waits for them."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Sequence
from math import inf
from typing import TYPE_CHECKING

from ..contract import NOT_SENT, Batch, BatchVotes, Request, Votes

if TYPE_CHECKING:
    from .loop_side import LoopSide
    from .request import PendingRequest


#: A wait that ends so much later (seconds) than it should was not looked at: see ``Waiter.expire``.
LATE = 0.001


class Waiter:
    """Requests, and the thread that waits for their decision. The hub's mutex guards all fields but ``kick``.

    ``limit``: when the wait ends. ``idle_timeout``: if it is not 0, the wait also ends that long after
    ``last_reply``. ``longest``: how long the wait takes without a reply. ``late``: the wait ended late
    once, and was extended. ``undecided``, ``subscribed``: number of undecided requests, and of undecided
    subscriptions. ``wake``: a lock that the thread acquires to sleep; its release wakes the thread.
    ``kick``: while the thread polls without leadership, what ends its poll. ``seen_epoch``:
    the epoch of leadership that the thread saw last. ``outer``: the leader on the same thread that a
    signal handler interrupted. ``generation``: of the hub, at submission.
    """

    __slots__ = (
        "generation",
        "idle_timeout",
        "kick",
        "last_reply",
        "late",
        "limit",
        "longest",
        "outer",
        "requests",
        "seen_epoch",
        "subscribed",
        "thread",
        "undecided",
        "wake",
    )

    def __init__(self, generation: int = 0) -> None:
        self.requests: list[PendingRequest] = []
        self.undecided: int = 0
        self.subscribed: int = 0
        self.generation: int = generation
        self.limit: float = inf
        self.longest: float = 0.0
        self.last_reply: float = 0.0
        self.idle_timeout: float = 0.0
        self.late: bool = False
        self.thread: int = threading.get_ident()
        self.wake: threading.Lock | None = None
        self.kick: Callable[[], None] | None = None
        self.seen_epoch: int = -1
        self.outer: Waiter | None = None

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
        """A subscription ends earlier than the thread knows."""
        self.notify()

    def notify(self) -> None:
        """Wakes the thread, wherever it waits."""
        if self.wake is not None:
            with contextlib.suppress(RuntimeError):  # it is released already
                self.wake.release()
        kick = self.kick  # once: the thread clears it without the mutex when its poll ends
        if kick is not None:
            kick()

    def prepare_sleep(self) -> threading.Lock:
        """The lock that the thread acquires to sleep until ``notify``."""
        if self.wake is None:
            self.wake = threading.Lock()
            self.wake.acquire()
        return self.wake


class Ticket(Waiter):
    """Requests that an event loop submitted. Their decision goes to the loop's queue."""

    __slots__ = ("context", "loop", "submitted")

    def __init__(self, submitted: Sequence[Request] | Batch, context: object, loop: LoopSide) -> None:
        super().__init__()
        self.submitted: Sequence[Request] | Batch = submitted
        self.context: object = context
        self.loop: weakref.ref[LoopSide] = weakref.ref(loop)  # its queue refers to the ticket

    def notify(self) -> None:
        if (loop := self.loop()) is not None:
            loop.add_decided(self)

    def on_deadline_moved(self, deadline: float) -> None:
        if (loop := self.loop()) is not None:
            loop.move_deadline(deadline)


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
