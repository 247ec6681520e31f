"""Which masters cast a vote at the moment."""

from __future__ import annotations

from collections.abc import Sequence

from ..engine.contract import FAULT


class Electorate:
    """Which masters' yes counts now, as a mask: a guarded master is not asked, and not counted.

    ``pushing``: whether every connected master tells when a key changes.
    """

    __slots__ = ("mask", "pushing")

    def __init__(self, masters: int) -> None:
        self.mask = (1 << masters) - 1
        self.pushing = True

    def heard(self, values: Sequence[int]) -> tuple[int, ...]:
        """Votes that were asked for before the mask changed: none of those that may not vote any more."""
        return tuple(value if self.mask >> master & 1 else FAULT for master, value in enumerate(values))
