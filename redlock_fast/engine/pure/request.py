"""One request: its votes so far, and its decision. The twin of src/request.c.

Only the I/O thread changes its fields. The votes of a decided request do not change any more, and its caller
reads them then.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from ..contract import FAULT, NO_REPLY, Quorums, Request, Votes, Wait

if TYPE_CHECKING:
    from .subscriptions import Subscriptions
    from .waiter import Waiter

#: As plain integers, which compare faster.
EARLY, ALL = int(Wait.EARLY), int(Wait.ALL)

#: The fault of a grant that replicas have not acknowledged when the time of its request ends.
NOT_ACKNOWLEDGED = b"-NOREPLICAS replicas have not acknowledged the grant in time\r\n"


class PendingRequest:
    """A request that was submitted, and the votes of its masters.

    ``pending``: number of masters that owe a reply. ``sent``: mask of the masters that were asked. ``held``:
    mask of those whose grant waits for replicas. ``resend_until``: when the request stops being worth
    resending. ``waiter``: None if no caller waits for the request. ``subscription``: None unless the votes
    stay open until a push changes them.
    ``quorums``: None if any ``need`` masters are a quorum. Otherwise ``need`` is the largest need of a list,
    so that fewer grants are never a quorum, and no more than ``most_against`` votes never prevent one.
    """

    __slots__ = (
        "decided",
        "details",
        "faulty",
        "granted",
        "held",
        "most_against",
        "need",
        "pending",
        "quorums",
        "refused",
        "request",
        "resend_until",
        "sent",
        "subscription",
        "values",
        "wait",
        "waiter",
    )

    def __init__(
        self,
        request: Request,
        masters: int,
        need: int | Quorums,
        wait: int,
        waiter: Waiter | None,
        resend_until: float,
    ) -> None:
        self.request: Request = request
        self.values: list[int] = [NO_REPLY] * masters
        self.details: dict[int, str | bytes] = {}
        self.granted: int = 0
        self.refused: int = 0
        self.faulty: int = 0
        self.need: int
        self.most_against: int
        self.quorums: Quorums | None
        if isinstance(need, Quorums):
            self.quorums = need
            self.need = max([of_list for _, of_list in need.lists])
            mine = (1 << masters) - 1  # a master of a list that the engine does not have never grants
            self.most_against = min([(mask & mine).bit_count() - of_list for mask, of_list in need.lists])
        else:
            self.quorums = None
            self.need = need
            self.most_against = masters - need
        self.wait: int = wait
        self.pending: int = 0
        self.sent: int = 0
        self.held: int = 0
        self.subscription: Subscription | None = None
        self.waiter: Waiter | None = waiter
        self.resend_until: float = resend_until
        self.decided: bool = waiter is None

    def forget(self) -> None:
        """Decides the request in a child of fork as if it had not been sent: the parent sent it."""
        masters = range(len(self.values))
        self.values = [FAULT for _ in masters]
        self.details = dict.fromkeys(masters, "not connected")
        self.granted = self.refused = self.pending = self.sent = 0
        self.faulty = len(masters)
        self.subscription = None
        self.decided = True

    def has_voted(self, master: int) -> bool:
        return self.values[master] != NO_REPLY

    def count(self, master: int, value: int, detail: str | bytes = b"") -> None:
        """Counts a vote. Only the first vote of a master counts, and no vote after the decision."""
        if self.decided or self.values[master] != NO_REPLY:
            return
        self.values[master] = value
        if value == FAULT:
            self.details[master] = detail
            self.faulty += 1
        elif value > 0:
            self.granted += 1
        else:
            self.refused += 1

    def on_reply(self, master: int, now: float) -> None:
        """A reply came that was pending. Its vote is not counted yet."""
        self.pending -= self.values[master] == NO_REPLY
        if self.waiter is not None and not (self.wait == ALL and self.has_quorum()):
            self.waiter.last_reply = now

    def count_pttl(self, master: int, value: int, reply: bytes, asked: float) -> None:
        """Counts the reply to a subscription that was sent at ``asked``. See rule 11 of the contract."""
        if not reply.startswith(b":") or value < -2:
            self.count(master, FAULT, reply)
        elif value == -2:
            self.count(master, 1)
        elif value >= 0 and self.subscription is not None:
            self.subscription.expires[master] = asked + (value + 1) / 1000

    def is_quorum(self, masters: int) -> bool:
        """Whether the masters of this bit mask are a quorum."""
        return masters.bit_count() >= self.need if self.quorums is None else self.quorums.within(masters)

    def has_quorum(self) -> bool:
        """Whether the masters that granted are a quorum."""
        return self.granted >= self.need and (self.quorums is None or self.quorums.granted(self.values))

    def cannot_have_quorum(self, faults: bool) -> bool:
        """Whether the refusals prevent a quorum; the refusals and the faults if ``faults``."""
        against = self.refused + self.faulty if faults else self.refused
        if against <= self.most_against or self.quorums is None:
            return against > self.most_against
        least = FAULT if faults else FAULT + 1
        may_grant = [1 << master for master, value in enumerate(self.values) if not least <= value <= 0]
        return not self.quorums.within(sum(may_grant))

    def is_determined(self) -> bool:
        """Whether later votes cannot change the result."""
        if self.subscription is not None:
            return self.has_quorum() or self.cannot_have_quorum(True)
        if not self.need or not self.pending:
            return True
        return self.wait != ALL and (self.has_quorum() or self.cannot_have_quorum(self.wait == EARLY))

    def settle(self) -> None:
        """Decides the request if it is determined. Otherwise a subscription may end sooner."""
        if self.decided:
            return
        if self.is_determined():
            self.decide()
        elif (
            self.subscription is not None
            and self.subscription.move_deadline(self)
            and self.waiter is not None
        ):
            self.waiter.on_deadline_moved(self.subscription.deadline)

    def decide(self) -> None:
        """Decides the request with the votes that it has. Its last decision wakes the waiter."""
        if self.decided:
            return
        self.decided = True
        if self.subscription is not None:
            self.subscription.registry.remove(self)
        if (waiter := self.waiter) is not None:
            waiter.undecided -= 1
            waiter.subscribed -= self.subscription is not None
            if not waiter.undecided:
                waiter.notify()

    def give_up_held(self) -> None:
        """The time of the request ends. Grants that wait for replicas become faults, if it has no quorum."""
        if self.held and not self.decided and not self.has_quorum():
            for master in range(len(self.values)):
                if self.held >> master & 1:
                    self.count(master, FAULT, NOT_ACKNOWLEDGED)

    def has_failed(self, closing: bool = False) -> bool:
        """Whether it has no quorum and gets no more grants: it is decided, or the engine is ``closing``."""
        return (closing or self.decided) and not self.has_quorum()

    def votes(self) -> Votes:
        return Votes(tuple(self.values), self.sent, self.granted, self.refused, self.faulty, self.details)


class Subscription:
    """The part of a request that only a subscription has.

    ``masters``: mask of the masters that watch. ``expires``: when the watched key of each master will have
    expired. ``deadline``: when the subscription ends, if that is before the end of its waiter.
    """

    __slots__ = ("deadline", "expires", "masters", "registry", "watch")

    def __init__(self, watch: int, masters: int, registry: Subscriptions) -> None:
        self.watch: int = watch
        self.masters: int = 0
        self.expires: list[float] = [inf] * masters
        self.deadline: float = inf
        self.registry: Subscriptions = registry

    def move_deadline(self, request: PendingRequest) -> bool:
        """Sets the deadline: when the masters that have granted or expired are a quorum.

        Returns whether it is earlier.
        """
        before, self.deadline, ended = self.deadline, inf, 0
        for end, master in sorted(
            (0.0 if value > 0 else inf if value == FAULT else end, master)
            for master, (value, end) in enumerate(zip(request.values, self.expires, strict=True))
        ):
            ended |= 1 << master
            if request.is_quorum(ended):
                self.deadline = end
                break
        return self.deadline < before
