"""What the earlier lists of a client leave behind: their attempts, and the masters that left.

The mutex of the connector guards it. In a child of fork the new connector goes on with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..algorithm.master_lists import MasterLists
from .address import Target
from .master import Master

#: How many masters that left all lists are remembered, for when they come back.
MAX_LEFT = 1000


class FormerLists:
    """The lists that ended, and the masters that left.

    ``max_ttl``: seconds, the longest lease of all clients.
    """

    def __init__(self, max_ttl: float) -> None:
        self._max_ttl = max_ttl
        #: When each of the lists ended: attempts by it may be under way.
        self._ended: list[tuple[float, MasterLists]] = []
        #: Each master that left all lists, as it was last: another master may have its number.
        self._left: dict[tuple[Any, ...], Master] = {}

    def end(self, lists: MasterLists, now: float) -> None:
        """Other lists replace ``lists``."""
        oldest = now - self._max_ttl  # no lease of an earlier attempt is left
        self._ended = [one for one in self._ended if one[0] > oldest] + [(now, lists)]

    def forbid(self, master: int) -> None:
        """No vote of a new connection counts for former lists: nothing compares its record with them.

        An attempt by them that began before the change may be held up, and ask a master that forbids them.
        """
        for _, lists in self._ended:
            lists.unlisted |= 1 << master

    def remember(self, masters: Iterable[Master]) -> None:
        """Remember the masters that left all lists."""
        gone = [*self._left.values(), *(master for master in masters if master.gone)]
        latest = sorted(gone, key=lambda master: master.guard.lost_at)[-MAX_LEFT:]
        self._left = {master.target.address: master for master in latest}

    def master_of(self, target: Target) -> Master:
        """A master that is new in the lists. The restart guard knows one that comes back."""
        before = self._left.get(target.address)
        return Master(target, guard=before.guard.copy()) if before else Master(target)
