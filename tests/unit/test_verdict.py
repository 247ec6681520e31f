"""Which votes somebody has to look at."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest

from redlock_fast.engine.contract import FAULT, NOT_ASKED
from redlock_fast.engine.messages import Tally, Votes
from redlock_fast.masters.faults import to_be_noted


class Masters:
    """Nine, and how often each was left out."""

    def __init__(self) -> None:
        self.seats = [SimpleNamespace(skipped=Counter()) for _ in range(9)]

    def skipped(self) -> dict[int, dict[str, int]]:
        return {number: dict(seat.skipped) for number, seat in enumerate(self.seats) if seat.skipped}


def votes(*details: str | bytes) -> Votes:
    """Three grants, and one fault for each of these."""
    values = (1, 1, 1, *[FAULT] * len(details))
    return Votes(values, 0b111, 3, 0, len(details), dict(enumerate(details, 3)))


@pytest.mark.parametrize("detail", [b"-OOM no\r\n", "broken", "buffer full"])
def test_a_master_that_failed(detail: str | bytes) -> None:
    masters = Masters()
    assert to_be_noted([votes(detail)], masters)
    assert to_be_noted([votes(), votes(NOT_ASKED, detail)], masters)
    assert masters.skipped() == {}


def test_a_master_that_was_not_wanted() -> None:
    """A release goes only where the lock may be: with a stopped master that would be each of them."""
    masters = Masters()
    assert not to_be_noted([votes(NOT_ASKED), votes(NOT_ASKED, NOT_ASKED), votes()], masters)
    assert masters.skipped() == {}


def test_a_master_that_was_left_out_is_counted() -> None:
    masters = Masters()
    assert not to_be_noted([votes("lagging"), votes(NOT_ASKED, "not connected", "lagging")], masters)
    assert to_be_noted([votes("lagging", "broken")], masters)
    assert masters.skipped() == {3: {"lagging": 2}, 4: {"not connected": 1}, 5: {"lagging": 1}}


def test_of_a_batch_what_is_told() -> None:
    masters = Masters()
    assert not to_be_noted(Tally([3, 0], [7, 7], {1: votes("lagging")}), masters)
    assert to_be_noted(Tally([3, 0], [7, 7], {1: votes("broken")}), masters)
    assert not to_be_noted(Tally([3, 3], [7, 7], {}), masters)
    assert masters.skipped() == {3: {"lagging": 1}}
