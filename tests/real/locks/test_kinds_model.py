"""Locks of several kinds against a model of each: random steps, one master dead, replies lost at random.

``make soak`` takes REDLOCK_FAST_SOAK_STEPS times as many.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from support.inside import core_of
from support.models import UnreliableDay, failed
from support.thorough import amount
from support.waiting import DEADLINE, eventually

from redlock_fast import LockLost, QuorumUnavailable
from redlock_fast.embedded import Masters
from redlock_fast.locks.rwlock import Writer

STEPS = amount(200, 300, twice=300) * int(os.environ.get("REDLOCK_FAST_SOAK_STEPS", "1"))
EACH = 50

#: Which masters lose their replies in a step: mostly none; one does not matter; two are too many.
deafness = st.integers(0, 99).flatmap(
    lambda n: (
        st.just(())
        if n < 93
        else st.integers(0, 3).map(lambda m: (m,))
        if n < 98
        else st.sampled_from([(0, 1), (0, 2), (1, 3), (2, 3)])
    )
)
caller = st.integers(0, 1)
which = st.integers(0, 1000)


class Model(RuleBasedStateMachine):
    """What all kinds share. ``held``: granted, and not released; ``ended``: of it, what masters forgot."""

    day: UnreliableDay
    steps = 0

    def __init__(self) -> None:
        super().__init__()
        self.name = next(self.day.names)
        self.held: list[Any] = []
        self.ended: set[Any] = set()

    @property
    def alive(self) -> list[Any]:
        return [lock for lock in self.held if lock not in self.ended]

    def free(self, lock: Any) -> bool:
        """Whether the model would grant it."""
        raise NotImplementedError

    def forget(self, lock: Any) -> None:
        """On all masters, its lease ends."""
        raise NotImplementedError

    def has(self, node: Any, lock: Any) -> bool:
        """Whether this master has the lock."""
        raise NotImplementedError

    def can_fail(self, lock: Any, deaf: tuple[int, ...]) -> bool:
        """Whether an extension may get no quorum. A master that had not executed yet what another client gave
        back has refused the lock: then those that granted it are just enough.
        """
        return len(deaf) > 1 or (bool(deaf) and not all(self.has(node, lock) for node in self.day.nodes))

    def attempt(self, lock: Any, deaf: tuple[int, ...], timeout: float) -> None:
        """Granted exactly where the model grants it; where replies are missing, never more than that."""
        type(self).steps += 1
        free = self.free(lock)
        with self.day.losing(deaf):
            try:
                granted = lock.acquire(timeout=timeout) if timeout else lock.acquire(blocking=False)
            except QuorumUnavailable as error:
                failed(error, len(deaf) > 1 or timeout)  # or the masters had no time to answer
                granted = False
        assert granted == lock.locked()
        assert free or not granted, "granted, though others hold it"
        if free and not granted and len(deaf) < 2:
            # What another client gives back may not have come to the masters yet.
            granted = lock.acquire(timeout=DEADLINE)
            assert granted, "refused, though no client holds it"
        if granted:
            self.held.append(lock)

    @precondition(lambda self: self.held)
    @rule(which=which, deaf=deafness)
    def extend(self, which: int, deaf: tuple[int, ...]) -> None:
        type(self).steps += 1
        lock = self.held[which % len(self.held)]
        with self.day.losing(deaf):
            try:
                lock.extend()
                assert lock not in self.ended, "extended, though it had ended"
            except LockLost:
                assert lock in self.ended
            except QuorumUnavailable as error:
                failed(error, self.can_fail(lock, deaf))
        if not lock.locked():
            assert lock in self.ended

    @precondition(lambda self: self.held)
    @rule(which=which, deaf=deafness, many=st.booleans())
    def release(self, which: int, deaf: tuple[int, ...], many: bool) -> None:
        type(self).steps += 1
        lock = self.held.pop(which % len(self.held))
        client = next(one for one in self.day.clients if core_of(one) is lock._core)
        with self.day.losing(deaf):
            released = client.release_many([lock])[0] if many else lock.release()
        if len(deaf) < 2:
            assert released == (lock not in self.ended)
        assert not lock.locked()
        self.ended.discard(lock)

    @precondition(lambda self: self.alive)
    @rule(which=which)
    def end(self, which: int) -> None:
        """As when its holder was paused for too long."""
        type(self).steps += 1
        lock = self.alive[which % len(self.alive)]
        self.day.heal()
        self.forget(lock)
        self.ended.add(lock)

    def teardown(self) -> None:
        for lock in self.held:
            lock.release()
        eventually(lambda: not any(self.day.keys(self.name)), "nothing is left")


class ReadWriteModel(Model):
    def free(self, lock: Any) -> bool:
        writes = type(lock._lock_kind) is Writer
        return not self.alive if writes else not any(self.writing(one) for one in self.alive)

    def writing(self, lock: Any) -> bool:
        return type(lock._lease.lock_kind) is Writer

    def forget(self, lock: Any) -> None:
        mine = lock._lease.token + lock._lease.lock_kind.suffix
        for node in self.day.nodes:
            if node.get(f"{{{self.name}}}:w") == mine:
                node.delete(f"{{{self.name}}}:w")
            if node.zscore(f"{{{self.name}}}:r", mine):
                node.zadd(f"{{{self.name}}}:r", {mine: 1})

    def has(self, node: Any, lock: Any) -> bool:
        mine = lock._lease.token + lock._lease.lock_kind.suffix
        return node.get(f"{{{self.name}}}:w") == mine or node.zscore(f"{{{self.name}}}:r", mine) is not None

    @rule(caller=caller, deaf=deafness, timeout=st.sampled_from([0.0, 0.02]))
    def read(self, caller: int, deaf: tuple[int, ...], timeout: float) -> None:
        self.attempt(self.day.clients[caller].rwlock(self.name).read(), deaf, timeout)

    @rule(caller=caller, deaf=deafness, timeout=st.sampled_from([0.0, 0.02]))
    def write(self, caller: int, deaf: tuple[int, ...], timeout: float) -> None:
        self.attempt(self.day.clients[caller].rwlock(self.name).write(), deaf, timeout)

    @precondition(lambda self: any(self.writing(lock) for lock in self.alive))
    @rule(deaf=deafness)
    def downgrade(self, deaf: tuple[int, ...]) -> None:
        type(self).steps += 1
        lock = next(lock for lock in self.alive if self.writing(lock))
        with self.day.losing(deaf):
            try:
                assert lock.downgrade() > 0
            except QuorumUnavailable as error:
                failed(error, self.can_fail(lock, deaf))
        assert not self.writing(lock)
        assert lock.locked()

    @invariant()
    def excluded(self) -> None:
        writers = sum(self.writing(lock) for lock in self.alive)
        assert writers == 0 or len(self.alive) == 1
        assert all(lock.locked() for lock in self.alive)


class SemaphoreModel(Model):
    permits = 3

    def free(self, lock: Any) -> bool:
        return len(self.alive) < self.permits

    def forget(self, lock: Any) -> None:
        for node in self.day.nodes:
            if self.has(node, lock):
                node.delete(lock._lease.lock_kind.key)

    def has(self, node: Any, lock: Any) -> bool:
        return bool(node.get(lock._lease.lock_kind.key) == lock._lease.token)

    @rule(caller=caller, deaf=deafness, timeout=st.sampled_from([0.0, 0.02]))
    def enter(self, caller: int, deaf: tuple[int, ...], timeout: float) -> None:
        self.attempt(self.day.clients[caller].semaphore(self.name, self.permits), deaf, timeout)

    @invariant()
    def counted(self) -> None:
        assert len(self.alive) <= self.permits
        assert len({lock._lease.lock_kind.key for lock in self.alive}) == len(self.alive), (
            "one holder for a slot"
        )
        assert all(lock.locked() for lock in self.alive)


@pytest.fixture
def day(masters: Masters, engine_name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[UnreliableDay]:
    for bound in ("MIN_BACKOFF", "MAX_BACKOFF"):
        monkeypatch.setattr(f"redlock_fast.masters.link.{bound}", 0.02)
    one = UnreliableDay(masters, engine_name)
    yield one
    one.close()


@pytest.mark.timeout(120 + STEPS // 10)
@pytest.mark.parametrize("model", [ReadWriteModel, SemaphoreModel])
def test_against_the_model(day: UnreliableDay, model: type[Model]) -> None:
    class OnThisDay(model):  # type: ignore[misc, valid-type]
        pass

    OnThisDay.day = day
    runs = 0
    while OnThisDay.steps < STEPS * 0.9:  # some examples end early
        runs += 1
        assert runs <= 3, "the examples have steps"
        run_state_machine_as_test(
            OnThisDay,
            settings=settings(
                max_examples=-(-STEPS // EACH),
                stateful_step_count=EACH,
                deadline=None,
                database=None,
                phases=[Phase.generate],  # real masters fail in another way each time: nothing to shrink
                suppress_health_check=list(HealthCheck),
            ),
        )
    assert day.lost > STEPS / 100, "replies were lost"
