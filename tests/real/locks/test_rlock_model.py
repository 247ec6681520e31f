"""Reentrant locks against a model: owners in two clients, replies that are lost, a dead master."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule
from support.models import failed
from support.unreliable import ALIVE, TTL, UNHEARD, Unheard, UnreliableModel, bounded, check
from support.waiting import DEADLINE

from redlock_fast import LockLost, QuorumUnavailable, RLock
from redlock_fast.embedded import Masters

#: The calling thread, a named owner in the same client, and one in another client.
OWNERS = st.sampled_from(["thread", "named", "other"])


class Model(UnreliableModel):
    """``depth`` of each owner; ``lost``: the owners that have levels to leave of a lost lock."""

    def __init__(self) -> None:
        super().__init__()
        self.key = f"r:{self.number}"
        here, there = (client.rlock(self.key, TTL, max_extensions=None) for client in self.unreliable.clients)
        self.locks: dict[str, RLock] = {"thread": here, "named": here.owned_by("n"), "other": there}
        self.depth = dict.fromkeys(self.locks, 0)
        self.lost: set[str] = set()
        self.touched = False  # the key was deleted on one master

    @property
    def holder(self) -> str | None:
        return next((owner for owner, depth in self.depth.items() if depth and owner not in self.lost), None)

    @rule(owner=OWNERS, recheck=UNHEARD, ttl=st.sampled_from([None, None, 30.0, 59.0]))
    def enter(self, owner: str, recheck: Unheard, ttl: float | None) -> None:
        lock, holder = self.locks[owner], self.holder
        with self.unreliable.recheck(recheck):
            if owner in self.lost:
                with pytest.raises(LockLost):
                    lock.acquire(blocking=False, ttl=ttl)
            elif owner == holder:
                self._again(owner, ttl, recheck)
            elif holder is None:
                assert lock.acquire(timeout=DEADLINE)
                self.depth[owner], self.touched = 1, False
            else:
                self._refused(lock)

    def _again(self, owner: str, ttl: float | None, recheck: Unheard) -> None:
        try:
            assert self.locks[owner].acquire(blocking=False, ttl=ttl)
            self.depth[owner] += 1
        except QuorumUnavailable as error:
            assert ttl is not None
            failed(error, self.touched or recheck is not None)

    def _refused(self, lock: RLock) -> None:
        with contextlib.suppress(QuorumUnavailable):
            assert not lock.acquire(blocking=False), "two owners hold it"

    @rule(owner=OWNERS, recheck=UNHEARD)
    def leave(self, owner: str, recheck: Unheard) -> None:
        lock = self.locks[owner]
        with self.unreliable.recheck(recheck):
            if self.depth[owner]:
                assert lock.release() == (owner not in self.lost)
                self.depth[owner] -= 1
                if not self.depth[owner]:
                    self.lost.discard(owner)
            else:
                with pytest.raises(RuntimeError, match="has not acquired"):
                    lock.release()

    @rule(owner=OWNERS, recheck=UNHEARD)
    def extend(self, owner: str, recheck: Unheard) -> None:
        with self.unreliable.recheck(recheck):
            try:
                assert self.locks[owner].extend() > 0.0
                assert owner == self.holder
            except QuorumUnavailable as error:
                failed(error, self.touched or recheck is not None)
            except LockLost:
                assert owner != self.holder

    @rule(master=st.integers(0, ALIVE - 1))
    def delete_on_one(self, master: int) -> None:
        """A quorum may have less than one to spare: then it is held, though it cannot be extended."""
        if self.holder and not self.touched:
            self.unreliable.steps += 1
            self.unreliable.delete(self.key, master)
            self.touched = True

    @rule()
    def lose(self) -> None:
        holder = self.holder
        if not holder:
            return
        self.unreliable.steps += 1
        self.unreliable.settled()
        self.unreliable.delete(self.key, *range(ALIVE))
        with pytest.raises((LockLost, QuorumUnavailable)):
            self.locks[holder].extend()
        if self.locks[holder].locked():  # one that was passed over at the grant was not asked
            while self.depth[holder]:
                self.locks[holder].release()
                self.depth[holder] -= 1
        else:
            self.lost.add(holder)

    @invariant()
    def as_the_model_says(self) -> None:
        for owner, lock in self.locks.items():
            assert lock.depth == self.depth[owner]
            assert lock.locked() == (owner == self.holder), owner

    def teardown(self) -> None:
        for owner, lock in self.locks.items():
            while lock.depth:
                assert lock.release() == (owner not in self.lost)
        self.unreliable.gone(self.key)


@bounded
@pytest.mark.usefixtures("all_masters")
def test_as_the_model_says(valkey: Masters, engine_name: str) -> None:
    check(Model, valkey, engine_name)
