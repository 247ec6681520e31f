"""Which votes somebody has to look at."""

from __future__ import annotations

import pytest

from redlock_fast._engine import FAULT, NOT_ASKED
from redlock_fast._messages import Tally, Votes
from redlock_fast._verdict import any_faulty


def votes(*details: str | bytes) -> Votes:
    """Three grants, and one fault for each of these."""
    values = (1, 1, 1, *[FAULT] * len(details))
    return Votes(values, 0b111, 3, 0, len(details), dict(enumerate(details, 3)))


@pytest.mark.parametrize("detail", ["lagging", "not connected", b"-OOM no\r\n", "broken"])
def test_a_master_that_failed_is_looked_at(detail: str | bytes) -> None:
    assert any_faulty([votes(detail)])
    assert any_faulty([votes(), votes(NOT_ASKED, detail)])


def test_a_master_that_was_not_wanted_is_not() -> None:
    """A release goes only where the lock may be: with a stopped master that would be each of them."""
    assert not any_faulty([votes(NOT_ASKED), votes(NOT_ASKED, NOT_ASKED), votes()])


def test_of_a_batch_what_is_told_is_looked_at() -> None:
    assert any_faulty(Tally([3, 0], [7, 7], {1: votes("lagging")}))
    assert not any_faulty(Tally([3, 3], [7, 7], {}))
