"""Leases of one client: what keeps its masters alive, and what a fork and the end of a lease do to them."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from redlock_fast.masters.client_state import ClientState, clients_with_leases


class Masters:
    """Refers to its client state, as the real masters do."""

    def __init__(self) -> None:
        self.client_state = ClientState(weakref.ref(self))


class Lease:
    """A lease that a set takes."""

    def __init__(self, deadline: float = 10.0) -> None:
        self.deadline = deadline


@pytest.fixture(autouse=True)
def by_reference_counts() -> Iterator[None]:
    """No cycle may delay the end of masters."""
    gc.disable()
    yield
    gc.enable()


def test_masters_without_leases_are_freed_at_once() -> None:
    masters = Masters()
    gone = weakref.ref(masters)
    masters.client_state.remove_lease(Lease())
    del masters
    assert gone() is None


def test_a_lease_keeps_its_masters_until_it_is_removed() -> None:
    masters, first, second = Masters(), Lease(), Lease()
    state, gone = masters.client_state, weakref.ref(masters)
    state.add_lease(first)
    state.add_leases([second])
    del masters
    state.remove_leases([first])
    assert clients_with_leases[state] is gone() is not None
    state.remove_lease(second)
    assert gone() is None
    assert state not in clients_with_leases


def test_a_batch_without_leases_keeps_nothing() -> None:
    masters = Masters()
    masters.client_state.add_leases([])
    assert masters.client_state not in clients_with_leases


def test_ended_leases_are_removed() -> None:
    masters, ended, held = Masters(), Lease(10.0), Lease(12.0)
    state = masters.client_state
    state.add_leases([ended, held])
    state.remove_ended_leases(11.0)
    assert state.held == {held}
    clients_with_leases.pop(state)  # as by remove_lease in another thread, during add_lease
    state.remove_ended_leases(11.0)
    assert clients_with_leases[state] is masters
    state.remove_ended_leases(13.0)
    assert state not in clients_with_leases
    assert not state.held


def test_the_observer_receives_each_grant() -> None:
    masters, leases, seen = Masters(), [Lease(), Lease(), Lease()], []
    state = masters.client_state
    state.observer = SimpleNamespace(granted=seen.append)
    state.add_lease(leases[0])
    state.add_leases(leases[1:])
    state.remove_leases(leases)
    assert seen == leases


def test_a_child_of_fork_has_no_leases() -> None:
    masters = Masters()
    state = masters.client_state
    state.ready = state.closed = True
    state.counts.acquired = 3
    state.add_lease(Lease())
    mutex = state.mutex
    state.after_fork_in_child()
    assert state not in clients_with_leases
    assert (state.generation(), state.ready, state.held, state.closed) == (1, False, set(), True)
    assert state.mutex is not mutex
    assert state.counts.acquired == 3
