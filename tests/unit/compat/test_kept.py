"""Locks that are kept while they are held."""

from __future__ import annotations

from redlock_fast.compat._kept import LEAST, Kept


def test_locks_that_have_ended_do_not_pile_up() -> None:
    held = {0, 1}
    kept: Kept[int] = Kept(held.__contains__)
    for number in range(20 * LEAST):
        kept.add(number)
    assert sorted(kept.held()) == [0, 1]
    assert len(kept._all) <= 2 * LEAST
    kept.discard(1)
    assert kept.held() == [0]
    kept.clear()
    assert kept.held() == []


def test_many_held_locks_are_looked_at_seldom() -> None:
    asked: list[int] = []
    kept: Kept[int] = Kept(lambda lock: not asked.append(lock))  # type: ignore[func-returns-value]
    for number in range(20 * LEAST):
        kept.add(number)
    assert len(asked) <= 2 * 20 * LEAST
    assert len(kept.held()) == 20 * LEAST
