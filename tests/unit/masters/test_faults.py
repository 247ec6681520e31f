"""Which votes are passed to the fault handling."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from redlock_fast.engine.contract import FAULT, NOT_ASKED
from redlock_fast.engine.messages import BatchVotes, Votes
from redlock_fast.masters.faults import Tally, has_faults


class Masters:
    """Nine, and how often each was left out."""

    def __init__(self) -> None:
        self.masters = [SimpleNamespace(tally=Tally()) for _ in range(9)]
        self.connector = self.roster = self

    def skipped(self) -> dict[int, dict[str, int]]:
        return {
            number: dict(master_state.tally.skipped)
            for number, master_state in enumerate(self.masters)
            if master_state.tally.skipped
        }


def votes(*details: str | bytes) -> Votes:
    """Three grants, and one fault for each of these."""
    values = (1, 1, 1, *[FAULT] * len(details))
    return Votes(values, 0b111, 3, 0, len(details), dict(enumerate(details, 3)))


@pytest.mark.parametrize("detail", [b"-OOM no\r\n", "broken", "buffer full"])
def test_a_master_that_failed(detail: str | bytes) -> None:
    masters = Masters()
    assert has_faults([votes(detail)], masters)
    assert has_faults([votes(), votes(NOT_ASKED, detail)], masters)
    assert masters.skipped() == {}


def test_a_master_that_was_not_wanted() -> None:
    """A release goes only where the lock may be: with a stopped master that would be each of them."""
    masters = Masters()
    assert not has_faults([votes(NOT_ASKED), votes(NOT_ASKED, NOT_ASKED), votes()], masters)
    assert masters.skipped() == {}


def test_a_master_that_was_left_out_is_counted() -> None:
    masters = Masters()
    assert not has_faults([votes("lagging"), votes(NOT_ASKED, "not connected", "lagging")], masters)
    assert has_faults([votes("lagging", "broken")], masters)
    assert masters.skipped() == {3: {"lagging": 2}, 4: {"not connected": 1}, 5: {"lagging": 1}}


def test_of_a_batch_what_is_reported() -> None:
    masters = Masters()
    assert not has_faults(BatchVotes([3, 0], [7, 7], {1: votes("lagging")}), masters)
    assert has_faults(BatchVotes([3, 0], [7, 7], {1: votes("broken")}), masters)
    assert not has_faults(BatchVotes([3, 3], [7, 7], {}), masters)
    assert masters.skipped() == {3: {"lagging": 1}}
