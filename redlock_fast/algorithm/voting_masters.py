"""Which masters cast a vote at the moment."""

from __future__ import annotations

from collections.abc import Sequence

from ..engine.contract import FAULT


class VotingMasters:
    """Which masters' yes counts now, as a mask: a guarded master is not asked, and not counted.

    ``all_push``: whether every connected master tells when a key changes.
    """

    __slots__ = ("all_push", "mask")

    def __init__(self, masters: int) -> None:
        self.mask = (1 << masters) - 1
        self.all_push = True

    def filter(self, values: Sequence[int]) -> tuple[int, ...]:
        """Votes that were asked for before the mask changed: none of those that may not vote any more."""
        return tuple(value if self.mask >> master & 1 else FAULT for master, value in enumerate(values))
