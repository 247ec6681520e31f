"""Grants that count when replicas have them: rule 15 of the contract, the command WAIT.

The twin of src/replicas.c. A server executes no later command of a connection before it has answered WAIT. So
one WAIT follows all requests of a flush, and one at most is pending: a request that is submitted meanwhile
waits for the end of two at most.
"""

from __future__ import annotations

from ..contract import FAULT, Request
from .request import PendingRequest
from .template import Template

#: The fault of a grant for which there is no room.
NOT_HELD = b"-NOREPLICAS too many grants wait for replicas\r\n"


class ReplicaWait:
    """The grants of one connection that replicas have not confirmed yet.

    ``grants``: requests with their votes. ``verb``: the verb that confirms the requests that were submitted
    since its last use; None if there are none. ``pending``: whether the reply to that verb is pending.
    """

    __slots__ = ("grants", "pending", "verb")

    def __init__(self) -> None:
        self.grants: list[tuple[PendingRequest, int]] = []
        self.verb: int | None = None
        self.pending: bool = False

    def note(self, request: PendingRequest, template: Template) -> None:
        """Notes that a request was submitted. Without a need its grants count for nothing."""
        if template.confirm_verb is not None and request.need:
            self.verb = template.confirm_verb

    def hold(self, request: PendingRequest, master: int, vote: int) -> None:
        """Holds a grant until it is confirmed."""
        self.grants.append((request, vote))
        request.held |= 1 << master

    def due(self) -> bool:
        """Whether WAIT must be sent with the next flush."""
        return self.verb is not None and not self.pending

    def begin(self, master: int) -> PendingRequest:
        """The request of WAIT, which is due. No caller waits for it."""
        assert self.verb is not None
        request = PendingRequest(Request(self.verb, (), 1 << master), master + 1, 0, 0, None, 0.0)
        self.verb, self.pending = None, True
        return request

    def end(
        self, needed: int, value: int, detail: str | bytes
    ) -> list[tuple[PendingRequest, int, str | bytes]]:
        """The reply to WAIT came. Returns each grant that was held: request, vote, detail of a fault."""
        if not detail and value < needed:
            detail = b"-NOREPLICAS %d of %d replicas acknowledged the grant in time\r\n" % (value, needed)
        ended = [(request, FAULT if detail else vote, detail) for request, vote in self.grants]
        self.grants, self.pending = [], False
        return ended
