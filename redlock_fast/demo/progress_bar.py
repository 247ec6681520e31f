"""A progress bar on stderr."""

from __future__ import annotations

import sys


class ProgressBar:
    """A bar on a terminal, otherwise a line each second. It uses stderr, because stdout has the result."""

    WIDTH = 24

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._live = sys.stderr.isatty()
        self._next = 0.0

    def show(self, elapsed: float, text: str) -> None:
        if elapsed < self._next:
            return
        self._next = elapsed + (0.1 if self._live else 1.0)
        share = min(1.0, elapsed / self._seconds)
        bar = "#" * round(share * self.WIDTH)
        line = f"[{bar:<{self.WIDTH}}] {share:4.0%}  {text}"
        text = f"\r{line:<78}" if self._live else f"{line}\n"
        print(text, end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._live:
            print("\r" + " " * 78, end="\r", file=sys.stderr, flush=True)
