"""The bodies of ``with`` of one object: which lease each may release."""

from __future__ import annotations

from typing import Any

from redlock_fast.locks.bodies import end_one_of

FIRST: Any = object()
SECOND: Any = object()


def test_a_body_leaves_the_lease_of_another_one() -> None:
    bodies = [(1, FIRST), (2, SECOND)]
    assert end_one_of(bodies, 1, SECOND)
    assert bodies == [(2, SECOND)]


def test_a_body_ends_its_own_lease_beside_one_that_outlived_its_lease() -> None:
    bodies = [(1, FIRST), (2, SECOND)]
    assert not end_one_of(bodies, 2, SECOND)
    assert bodies == [(1, FIRST)]


def test_a_lease_of_no_body_is_left_to_the_body_that_ends() -> None:
    """As one that ``on_lost`` acquired."""
    assert not end_one_of([(1, FIRST), (2, FIRST)], 1, SECOND)


def test_another_thread_ends_the_last_body() -> None:
    bodies = [(1, FIRST), (2, SECOND)]
    assert not end_one_of(bodies, 3, SECOND)
    assert bodies == [(1, FIRST)]


def test_nothing_is_held() -> None:
    assert not end_one_of([(1, FIRST), (2, None)], 1, None)
