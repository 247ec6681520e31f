"""The masters that must agree: a quorum of one list, or a quorum of each of two lists.

While the set of masters changes, a client needs a quorum of the old list and a quorum of the new one. This
module is the only one that knows lists. A client of one list compares numbers, as the engine does.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from ..engine.messages import FAULT, MAX_MASTERS, NO_REPLY, Quorums, Votes
from .quorum import quorum

#: The names of the lists: the arguments of a client that have them.
NAMES = ("masters", "joint_with")


class MasterLists:
    """One list of masters, or two. A change of the masters replaces it.

    ``masters``: how many masters the engine has. ``lists``: for each list the bit mask of its masters and the
    size of its quorum. ``all``: the mask of the masters of any list. ``need``: what an engine takes, a number
    if all its masters are one list. ``counted``: how many grants ``BatchVotes`` has for a quorum. ``least``:
    the smallest number of masters that are a quorum of each list.

    After a change, leases that were granted by former lists go on. ``settled_at``: when the last of them has
    ended or was extended by the present lists, by the lease clock. ``partly``: the masters that are not in
    all of the former and present lists, so that such a lease may not have asked them.

    ``shards``: the masters are the shards of a Cluster. Each request asks one of them, which decides alone.
    ``elsewhere``: the masters that may get a key that another one was asked for. Of a Cluster all, also those
    that come later, because a key moves with its slot.

    Only ``unlisted`` changes: the masters whose records forbid these lists, or that may have a rival. They
    extend no lease. It stays after a change of the lists, so an attempt that began by these lists does not
    count their votes.
    """

    __slots__ = (
        "_most_against",
        "_most_refusals",
        "_need",
        "_quorums",
        "all",
        "counted",
        "elsewhere",
        "least",
        "lists",
        "masters",
        "need",
        "partly",
        "settled_at",
        "shards",
        "unlisted",
    )

    def __init__(
        self,
        masters: int,
        *masks: int,
        partly: int = 0,
        settled_at: float = -math.inf,
        shards: bool = False,
    ) -> None:
        everyone = (1 << masters) - 1
        masks = masks or (everyone,)
        self.masters: int = masters
        self.shards: bool = shards
        self.elsewhere: int = (1 << MAX_MASTERS) - 1 if shards else 0
        self.lists: tuple[tuple[int, int], ...] = tuple(
            (mask, 1 if shards else quorum(mask.bit_count())) for mask in masks
        )
        self.all: int = 0
        common = everyone
        for mask in masks:
            self.all |= mask
            common &= mask
        needs = [need for _, need in self.lists]
        self.least: int = sum(needs) - (min(*needs, common.bit_count()) if len(needs) > 1 else 0)
        self._need: int = needs[0] if shards or masks == (everyone,) else 0  # 0: votes are counted by list
        self._most_against: int = masters - self._need  # more votes against prevent a quorum
        self._most_refusals: int = 0 if shards else self._most_against
        self._quorums = Quorums(self.lists)
        self.need: int | Quorums = self._need or self._quorums
        self.counted: int = self._need or 1
        self.partly: int = partly & self.all
        self.settled_at: float = settled_at
        self.unlisted: int = 0

    def extending(self) -> int:
        """The masters that may extend a lease: all but those whose records forbid these lists.

        A master under a restart guard may: it has a token only if its holder has put it there.
        """
        return self.all & ~self.unlisted

    def granted(self, votes: Votes) -> bool:
        """Whether a quorum of each list granted."""
        if self._need:
            return votes.granted >= self._need
        return self._quorums.granted(votes.values)

    def refused(self, votes: Votes) -> bool:
        """Whether so many masters refused that some list has no quorum."""
        if self._need:
            return votes.refused > self._most_refusals
        return self._quorums.impossible(votes.values, False)

    def failed(self, votes: Votes) -> bool:
        """Whether so many masters failed that some list can have no quorum, whatever the others reply."""
        if self._need and len(votes.values) == self.masters:
            return votes.faulty > self._most_against
        faults = [FAULT if value == FAULT else NO_REPLY for value in votes.values]
        return self._quorums.impossible(faults, True)

    def hopeless(self, votes: Votes) -> bool:
        """Whether so many masters refused or failed that some list can have no quorum."""
        if self._need and len(votes.values) == self.masters:  # otherwise the engine has more masters by now
            return votes.refused + votes.faulty > self._most_against
        return self._quorums.impossible(votes.values, True)

    def to_put(self, sent: int, now: float) -> int:
        """The masters that get the token of a lease before its extension. ``sent``: those that it asked."""
        return (self.all & ~sent) | self.partly if now < self.settled_at else 0

    def is_quorum(self, mask: int) -> bool:
        """Whether the masters of ``mask`` are a quorum of each list."""
        return not self.lacking(mask)

    def lacking(self, mask: int) -> list[int]:
        """The lists, by their position, of which the masters of ``mask`` are no quorum."""
        return [at for at, (own, need) in enumerate(self.lists) if (own & mask).bit_count() < need]

    def in_every_quorum(self, mask: int) -> bool:
        """Whether each quorum of each list has one of the masters of ``mask``."""
        if self.shards:
            return mask != 0
        return all((own & ~mask).bit_count() < need for own, need in self.lists)

    def rank(self, numbers: Mapping[int, float]) -> float | None:
        """The smallest number that a quorum of each list does not exceed. ``numbers``: by master.

        Of a list with too few numbers for a quorum, the largest counts. None: there are no numbers.
        """
        found = []
        for own, need in self.lists:
            of_list = sorted(number for master, number in numbers.items() if own >> master & 1)
            found += of_list[min(need, len(of_list)) - 1 :][:1]
        return max(found, default=None)

    def without(self, mask: int) -> int | Quorums:
        """What an engine takes for the rest of a quorum, when the masters of ``mask`` are a part of it.

        They stay in the lists: a master that is not asked has not refused. So refusals alone do not decide
        before all masters that were asked have replied.
        """
        if self._need:
            return max(0, self._need - mask.bit_count())
        left = [(own, need - (own & mask).bit_count()) for own, need in self.lists]
        missing = tuple((own, need) for own, need in left if need > 0)
        return Quorums(missing) if missing else 0

    def names_of(self, master: int) -> tuple[str, ...]:
        """The names of the lists that have ``master``."""
        return tuple(NAMES[at] for at, (own, _) in enumerate(self.lists) if own >> master & 1)

    def failing(self, votes: Votes) -> list[int]:
        """The lists, by their position, that have no quorum because of masters that failed or were silent."""
        faulty = mask_of(n for n, value in enumerate(votes.values) if value == FAULT)
        failed = [at for at, (own, need) in enumerate(self.lists) if (own & ~faulty).bit_count() < need]
        return failed or self.unanswered(votes)

    def unanswered(self, votes: Votes) -> list[int]:
        """The lists, by their position, of which no quorum has answered."""
        return self.lacking(mask_of(n for n, value in enumerate(votes.values) if value > FAULT))

    def text(self, at: Iterable[int]) -> str:
        """The quorums of the lists ``at`` these positions, or of all lists, for an error."""
        if self.shards:
            return "the primary of its slot"
        each = [f"{need} of {own.bit_count()} masters" for own, need in self.lists]
        if len(each) > 1:
            each = [f"{text} of the list {name}" for text, name in zip(each, NAMES, strict=True)]
        return " and of ".join([each[number] for number in at] or each)


def mask_of(masters: Iterable[int]) -> int:
    """The bit mask of ``masters``, which are numbers."""
    return sum(1 << master for master in masters)
