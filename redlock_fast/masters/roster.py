"""The roster: all masters of one client by their numbers, those of its lists and those that leave."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from ..algorithm.master_lists import MasterLists, mask_of
from ..algorithm.policy import VotingMasters
from ..engine.contract import MAX_MASTERS
from ..errors import ConfigError
from .address import Target, numbered
from .former_lists import FormerLists
from .master import Master
from .monitor import do_nothing


class Roster:
    """The masters of one client. The place of a master in ``masters`` is its number for the engine.

    ``voters``: the lists that the client counts by. ``former``: what the lists before have left behind.
    """

    def __init__(self, masters: list[Master], voters: VotingMasters, former: FormerLists) -> None:
        self.masters = masters
        self.voters = voters
        self.former = former
        #: Returns the change of the lists that is under way. One that was dropped before its end has ended.
        self.change: Callable[[], object] = do_nothing

    def copy_after_fork(self) -> Roster:
        """The roster of a child of fork, with what is known of each master."""
        now = time.monotonic()
        copies = [master.copy_after_fork(now) for master in self.masters]
        for number, copy in enumerate(copies):  # a change that is under way goes on in the parent only
            if not self.voters.lists.all >> number & 1:
                copy.left_at = copy.left_at or now
        return Roster(copies, self.voters, self.former)

    def names(self) -> list[str]:
        return [master.target.name for master in self.masters]

    def own(self, lists: MasterLists | None = None) -> dict[int, Master]:
        """The masters of the client's lists, or of ``lists``, by number."""
        mask = self.voters.lists.all if lists is None else lists.all
        return {number: master for number, master in enumerate(self.masters) if mask >> number & 1}

    def all_tried(self, lists: MasterLists | None = None) -> bool:
        """Whether each master of the client's lists, or of ``lists``, is connected, or could not be."""
        return all(one.link.attached or one.link.failures for one in self.own(lists).values())

    def mask(self, chosen: Callable[[Master], object]) -> int:
        """The mask of the masters for which ``chosen`` is true."""
        return mask_of(number for number, master in enumerate(self.masters) if chosen(master))

    def connected(self) -> int:
        """The mask of the masters that are connected. Not those whose records allow no vote, or not yet."""
        return self.mask(lambda one: one.link.attached and not one.record.no_vote)

    def has_quorum(self) -> bool:
        """Whether a quorum of each list is connected."""
        return self.voters.lists.is_quorum(self.connected())

    # --- a change of the masters: see change.py, which holds the mutex ---

    def number(self, lists: Sequence[Sequence[Target]], make_room: Callable[[int], None]) -> list[int]:
        """The bit mask of each of ``lists``. Masters that are new get a number, and are connected.

        ``make_room``: is told how many masters there will be.
        """
        known = [None if one.gone and not one.link.connecting else one.target for one in self.masters]
        targets, masks = numbered(known, lists)
        if len(targets) > MAX_MASTERS:
            raise ConfigError(
                f"reconfigure: this client would have {len(targets)} masters, and {MAX_MASTERS} at most are "
                "possible: former masters leave when their locks are released, so try later"
            )
        # Before the masters: an interrupt between the two leaves numbers of the engine that are not used.
        make_room(len(targets))
        self.voters.mask |= mask_of(range(len(known), len(targets)))
        wanted = {one.address: one for masters in lists for one in masters}
        self.former.remember(self.masters)
        for number, target in enumerate(targets):
            if target is None or target.address not in wanted:
                continue
            if number < len(self.masters) and known[number] is not None:
                self.masters[number].target = wanted[target.address]  # perhaps with another password
                self.masters[number].left_at = 0.0
            else:
                self.masters[number : number + 1] = [self.former.master_of(target)]
        return masks

    def replace_lists(self, lists: MasterLists) -> None:
        """Count by ``lists`` from now on. The masters that are in none of them leave."""
        now = time.monotonic()
        if lists is not self.voters.lists:
            self.former.end(self.voters.lists, now)
        self.voters.lists = lists
        for number, master in enumerate(self.masters):
            if lists.all >> number & 1:
                master.left_at, master.gone = 0.0, False
            elif not master.left_at:
                master.left_at = now
