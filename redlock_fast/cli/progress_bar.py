"""A progress bar on stderr."""

from __future__ import annotations

import sys


class ProgressBar:
    """A bar on stderr, because stdout has the result. Without a terminal it prints nothing."""

    WIDTH = 24

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._live = sys.stderr.isatty()
        self._next = 0.0

    def show(self, elapsed: float, text: str) -> None:
        if not self._live or elapsed < self._next:
            return
        self._next = elapsed + 0.1
        share = min(1.0, elapsed / self._seconds)
        bar = "#" * round(share * self.WIDTH)
        line = f"[{bar:<{self.WIDTH}}] {share:4.0%}  {text}"
        print(f"\r{line:<78}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._live:
            print("\r" + " " * 78, end="\r", file=sys.stderr, flush=True)
