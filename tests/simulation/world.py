"""Virtual time: what happens when, what chance decides, what was seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Any

from .choices import Choices

STEPS = 256


def scale(low: float, high: float) -> list[float]:
    """Durations from ``low`` to ``high``, closer together where they are short."""
    return [low * (high / low) ** (step / (STEPS - 1)) for step in range(STEPS)]


#: How long a message takes on its way (seconds): a quiet network, a busy one, a bad one.
WEATHERS = scale(0.0001, 0.001), scale(0.0001, 0.02), scale(0.0002, 0.12)
#: How long a disturbance lasts.
DISTURBANCES = scale(0.002, 0.8)


class World:
    """Events in the order of their time; those of one time in the order in which they were set."""

    def __init__(self, choices: Choices, tracing: bool = False) -> None:
        self.now = 0.0
        self.draw = choices.draw
        self.delays = WEATHERS[0]
        self.counts: Counter[str] = Counter()
        self.trace: list[tuple[float, str, str]] | None = [] if tracing else None
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = count()
        #: Called when an exchange begins.
        self.on_exchange: Callable[[], None] = lambda: None

    def at(self, when: float, do: Callable[..., None], *args: Any) -> None:
        heappush(self._events, (when, next(self._order), do, args))

    def after(self, seconds: float, do: Callable[..., None], *args: Any) -> None:
        heappush(self._events, (self.now + seconds, next(self._order), do, args))

    def run(self, done: Callable[[], bool]) -> None:
        """Let time pass until it is ``done``, or nothing is left to happen."""
        events = self._events
        while events and not done():
            self.now, _, do, args = heappop(events)
            do(*args)

    def wait(self, seconds: float) -> None:
        """Let so much time pass."""
        until = self.now + seconds
        self.at(until, lambda: None)
        self.run(lambda: self._events[0][0] > until)
        self.now = until

    # --- chance ---

    def delay(self) -> float:
        """How long a message takes."""
        return self.delays[self.draw(STEPS)]

    def disturbance(self) -> float:
        """How long something is out of order."""
        return DISTURBANCES[self.draw(STEPS)]

    def chance(self) -> float:
        """A number in [0, 1)."""
        return self.draw(1024) / 1024

    # --- what was seen ---

    def note(self, actor: object, what: str) -> None:
        if self.trace is not None:
            self.trace.append((self.now, str(actor), what))

    def story(self) -> str:
        """The trace as text: time in milliseconds, actor, event."""
        lines = [f"{when * 1000:10.3f} ms  {actor:<10} {what}" for when, actor, what in self.trace or ()]
        return "\n".join(lines)
