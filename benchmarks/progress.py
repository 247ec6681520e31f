"""A progress line on stderr, if stderr is a terminal."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

WIDTH = 24


class Progress:
    """``total`` and the steps are expected seconds; the time left is scaled by the elapsed time."""

    def __init__(self, total: float) -> None:
        self._total = max(total, 0.001)
        self._done = 0.0
        self._start = time.monotonic()
        self._shown = sys.stderr.isatty()

    def step(self, seconds: float, text: str) -> None:
        """Begin ``text``, which takes about that many seconds."""
        self.show(text)
        self._done += seconds

    def show(self, text: str) -> None:
        if self._shown:
            print(f"\r{self.line(text, time.monotonic() - self._start):<100.100}", end="", file=sys.stderr)
            sys.stderr.flush()

    def line(self, text: str, elapsed: float) -> str:
        share = min(self._done / self._total, 1.0)
        filled = round(share * WIDTH)
        left = elapsed / share - elapsed if share > 0.02 else self._total - elapsed
        minutes, seconds = divmod(int(max(left, 0)), 60)
        bar = "█" * filled + "░" * (WIDTH - filled)
        return f"{bar} {share:4.0%}  {minutes}:{seconds:02} left  {text}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            print(f"\r{'':<100}\r", end="", file=sys.stderr, flush=True)
