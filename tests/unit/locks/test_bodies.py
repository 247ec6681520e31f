"""The bodies of ``with`` of one object: which one ends."""

from __future__ import annotations

import gc
import weakref

import pytest

from redlock_fast.algorithm.lease import Lease
from redlock_fast.locks.bodies import Body, cancel_bodies, has_lease, number_of, remove_ended

FIRST, SECOND, THIRD = (Lease(b"k", b"token", 1, 10.0, 10.0, 10.0) for _ in range(3))


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
    first, second, third = Body(1, FIRST), Body(2, SECOND), Body(3, FIRST)
    bodies = [first, second, third]
    assert remove_ended(bodies, 2, destroyed=False) is second
    assert not has_lease(bodies, SECOND, None)
    assert remove_ended(bodies, 4, destroyed=False) is first, "entered by another owner"
    assert bodies == [third]
    assert has_lease(bodies, FIRST, None)
    assert not has_lease(bodies, FIRST, 3), "of this owner itself"


def test_a_loss_cancels_the_bodies_of_its_lease() -> None:
    one, other = Task(), Task()
    bodies = [Body(1, FIRST, one), Body(2, SECOND, other), Body(3, FIRST)]
    cancel_bodies(bodies, FIRST, "gone")
    assert (one.reasons, other.reasons) == (["gone"], [])
    cancel_bodies(bodies[:2], THIRD, "late")  # of a lease that was acquired in a body
    assert (one.reasons, other.reasons) == (["gone"], ["late"])
    cancel_bodies(None, FIRST, "gone")
    assert one.reasons == ["gone"]
