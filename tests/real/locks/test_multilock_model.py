"""Sets of resources against a model: two clients, replies that are lost, a dead master."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule
from support.models import failed
from support.unreliable import ALIVE, TTL, UNHEARD, Unheard, UnreliableModel, bounded, check
from support.waiting import DEADLINE

from redlock_fast import Lock, LockAlreadyHeld, LockLost, QuorumUnavailable
from redlock_fast.embedded import Masters

#: By client, the resources of each lock; the last is a plain one.
SETS = [(0, "ab"), (0, "bc"), (1, "ca"), (1, "abcd"), (0, "d"), (1, "b")]
LOCKS = st.integers(0, len(SETS) - 1)


class Model(UnreliableModel):
    """``held``: which locks. ``touched``: what was deleted on one master while it was held."""

    def __init__(self) -> None:
        super().__init__()
        self.names = [[f"{letter}:{self.number}" for letter in letters] for _, letters in SETS]
        self.locks: list[Lock] = [
            self.unreliable.clients[client].multilock(names, TTL, max_extensions=None)
            for (client, _), names in zip(SETS[:-1], self.names, strict=False)
        ]
        self.locks.append(
            self.unreliable.clients[SETS[-1][0]].lock(self.names[-1][0], TTL, max_extensions=None)
        )
        self.held: set[int] = set()
        self.touched: set[str] = set()

    def _taken(self) -> set[str]:
        return {name for lock in self.held for name in self.names[lock]}

    @rule(which=LOCKS, recheck=UNHEARD)
    def acquire(self, which: int, recheck: Unheard) -> None:
        lock = self.locks[which]
        with self.unreliable.recheck(recheck):
            if which in self.held:
                with pytest.raises(LockAlreadyHeld):
                    lock.acquire(blocking=False)
            elif self._taken() & set(self.names[which]):
                with contextlib.suppress(QuorumUnavailable):
                    assert not lock.acquire(blocking=False), "two hold one resource"
            else:
                assert lock.acquire(timeout=DEADLINE), "something was left behind"
                self.held.add(which)
                self.touched -= set(self.names[which])

    @rule(which=LOCKS, recheck=UNHEARD)
    def release(self, which: int, recheck: Unheard) -> None:
        with self.unreliable.recheck(recheck):
            assert self.locks[which].release() == (which in self.held)
        self.held.discard(which)

    @rule(which=LOCKS, recheck=UNHEARD)
    def extend(self, which: int, recheck: Unheard) -> None:
        with self.unreliable.recheck(recheck):
            try:
                assert self.locks[which].extend() > 0.0
                assert which in self.held
            except QuorumUnavailable as error:
                failed(error, recheck is not None or self.touched & set(self.names[which]))
            except LockLost:
                assert which not in self.held

    @rule(master=st.integers(0, ALIVE - 1), letter=st.sampled_from("abcd"))
    def delete_on_one(self, master: int, letter: str) -> None:
        """Not the same master for each resource: no master may have the whole set then."""
        name = f"{letter}:{self.number}"
        if name in self._taken() - self.touched:
            self.unreliable.steps += 1
            self.unreliable.delete(name, master)
            self.touched.add(name)

    @rule(letter=st.sampled_from("abcd"))
    def lose(self, letter: str) -> None:
        name = f"{letter}:{self.number}"
        for which in [which for which in self.held if name in self.names[which]]:
            self.unreliable.steps += 1
            self.unreliable.settled()
            self.unreliable.delete(name, *range(ALIVE))
            with pytest.raises((LockLost, QuorumUnavailable)):
                self.locks[which].extend()
            self.locks[which].release()
            self.held.discard(which)

    @invariant()
    def as_the_model_says(self) -> None:
        for which, lock in enumerate(self.locks):
            assert lock.locked() == (which in self.held), self.names[which]

    def teardown(self) -> None:
        for which in self.held:
            assert self.locks[which].release()
        self.unreliable.gone(*{name for names in self.names for name in names})


@bounded
@pytest.mark.usefixtures("all_masters")
def test_as_the_model_says(valkey: Masters, engine_name: str) -> None:
    check(Model, valkey, engine_name)
