"""The bodies of ``with`` of one object: which lease each may release."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from redlock_fast.locks.bodies import begin_body, end_body


def test_a_body_has_its_own_lease() -> None:
    lock: Any = SimpleNamespace(_lease=object())
    begin_body(lock, 1)
    lock._lease = object()
    begin_body(lock, 2)
    assert end_body(lock, 1), "the lease is that of 2"
    assert not end_body(lock, 2)
    assert lock._bodies == []


def test_a_lease_of_no_body_is_left_to_the_body_that_ends() -> None:
    """As one that ``on_lost`` acquired."""
    lock: Any = SimpleNamespace(_lease=object())
    begin_body(lock, 1)
    lock._lease = object()
    assert not end_body(lock, 1)


def test_another_thread_ends_the_body() -> None:
    lock: Any = SimpleNamespace(_lease=object())
    begin_body(lock, 1)
    assert not end_body(lock, 2)
    assert lock._bodies == []


def test_what_no_body_began() -> None:
    assert not end_body(SimpleNamespace(_lease=object()), 1)
