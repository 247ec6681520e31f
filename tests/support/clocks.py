"""A lease clock that a test can put forward, and that else goes on as time does."""

from __future__ import annotations

from redlock_fast.algorithm.policy import lease_clock


class Jumping:
    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return lease_clock() + self.ahead

    def jump(self, seconds: float) -> None:
        self.ahead += seconds
