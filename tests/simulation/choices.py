"""Whatever is left to chance in a run, as whole numbers that are drawn one after the other.

A run is nothing but its choices: the same list replays it. 0 is always the most harmless choice, so that
a list with more zeros is a simpler run.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

#: Given n, a number from 0 to n - 1.
Source = Callable[[int], int]


class Choices:
    """Draws from a source and remembers what was drawn."""

    __slots__ = ("source", "taken")

    def __init__(self, source: Source) -> None:
        self.source = source
        self.taken: list[int] = []

    def draw(self, below: int) -> int:
        """A number from 0 to ``below`` - 1."""
        value = self.source(below)
        self.taken.append(value)
        return value

    def to_replay(self) -> str:
        """What :func:`recorded` reads: the choices without the zeros at the end."""
        taken = self.taken[:]
        while taken and not taken[-1]:
            taken.pop()
        return ",".join(map(str, taken)) or "0"


def seeded(seed: int, first: Iterable[int] = ()) -> Choices:
    """Choices that ``seed`` decides, after those that are given as ``first``."""
    chance = random.Random(seed).random
    given = list(first)[::-1]
    return Choices(lambda below: given.pop() % below if given else int(chance() * below))


def recorded(choices: str | Iterable[int]) -> Choices:
    """Choices as they were, and zeros behind them."""
    numbers = map(int, choices.split(",")) if isinstance(choices, str) else choices
    left = list(numbers)[::-1]
    return Choices(lambda below: left.pop() % below if left else 0)


def shrunk(taken: list[int], fails: Callable[[list[int]], bool], tries: int = 2000) -> list[int]:
    """A list with as many zeros and as small numbers as ``tries`` runs find, that still ``fails``."""
    size = len(taken)
    while size:
        for start in range(0, len(taken), size):
            part = taken[start : start + size]
            for smaller in ([0] * len(part), [value // 2 for value in part]):
                if smaller == part or tries <= 0:
                    continue
                tries -= 1
                candidate = taken[:start] + smaller + taken[start + size :]
                if fails(candidate):
                    taken = candidate
                    break
        size //= 2
    return taken
