"""Auto-extended locks whose renewal a test drives by its clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from support.waiting import DEADLINE, eventually

from redlock_fast import FastRedlock, Lock

MakeClient = Callable[..., FastRedlock]
Kept = Callable[..., tuple[FastRedlock, Lock]]

TTL = 60.0
#: A little more than a third of it.
THIRD = 21.0


class LossRecorder:
    """``on_lost`` that remembers."""

    def __init__(self) -> None:
        self.losses: list[tuple[Lock, str]] = []

    def __call__(self, lock: Lock, reason: str) -> None:
        self.losses.append((lock, reason))

    def reasons(self) -> list[str]:
        return [reason for _, reason in self.losses]


def held(c: FastRedlock, key: str = "kept", **options: Any) -> Lock:
    lock = c.lock(key, auto_extend=True, **options)
    assert lock.acquire(timeout=DEADLINE)
    return lock


def renewed(c: FastRedlock, count: int) -> None:
    eventually(lambda: c.stats().renewed >= count, f"{count} extensions by renewal")
