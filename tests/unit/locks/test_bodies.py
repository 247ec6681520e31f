"""The bodies of ``with`` of one object: which one ends."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from redlock_fast.locks.bodies import Body, cancel_bodies, has_lease, number_of, remove_ended

FIRST: Any = object()
SECOND: Any = object()


class Task:
    def __init__(self) -> None:
        self.reasons: list[str] = []

    def cancel(self, reason: str) -> None:
        self.reasons.append(reason)


@pytest.mark.parametrize(
    ("owner", "number"),
    [(1, 2), (2, 1), (3, None)],
    ids=["the last of its owner", "not the last of all", "of no owner here"],
)
def test_which_body_ends(owner: int, number: int | None) -> None:
    assert number_of([1, 2, 1], owner, destroyed=False) == number


def test_which_body_ends_where_its_coroutine_is_closed() -> None:
    here, there, gone = Task(), Task(), Task()
    owners = [weakref.ref(there), weakref.ref(gone), weakref.ref(here)]
    del gone
    gc.collect()
    assert number_of(owners, weakref.ref(here), destroyed=True) == 1, "that of the task that is gone"
    assert number_of(owners[::2], weakref.ref(here), destroyed=True) == 1, "that of the task itself"
    assert number_of(owners[:1], weakref.ref(here), destroyed=True) == 0, "of a generator of another task"


def test_a_body_that_ends_is_removed() -> None:
    first, second, third = [1, FIRST, None], [2, SECOND, None], [3, FIRST, None]
    bodies: list[Body] = [first, second, third]
    assert remove_ended(bodies, 2, destroyed=False) is second
    assert not has_lease(bodies, SECOND, None)
    assert remove_ended(bodies, 4, destroyed=False) is first, "entered by another owner"
    assert bodies == [third]
    assert has_lease(bodies, FIRST, None)
    assert not has_lease(bodies, FIRST, 3), "of this owner itself"


def test_a_loss_cancels_the_bodies_of_its_lease() -> None:
    one, other = Task(), Task()
    bodies: list[Body] = [[1, FIRST, one], [2, SECOND, other], [3, FIRST, None]]
    cancel_bodies(bodies, FIRST, "gone")
    assert (one.reasons, other.reasons) == (["gone"], [])
    cancel_bodies(bodies[:2], object(), "late")  # type: ignore[arg-type]  # a lease that a body acquired
    assert (one.reasons, other.reasons) == (["gone"], ["late"])
    cancel_bodies(None, FIRST, "gone")
    assert one.reasons == ["gone"]
