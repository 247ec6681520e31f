"""A live view on the terminal: frames one after another, until q, Ctrl-C or a signal ends it."""

from __future__ import annotations

import errno
import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

from ..errors import ConfigError
from .exit_codes import SIGNALLED
from .output import discard_stdout
from .signals import Signals, Stopped
from .tables import Table, rich_tables

#: Seconds between two looks at the keys and at the size of the terminal.
TICK = 0.1

F = TypeVar("F")


def watch(
    read: Callable[[], F], tables: Callable[[F], Sequence[Table]], interval: float, *, instead: str
) -> int:
    """Draw what ``read`` returns each ``interval`` seconds. Returns the exit code.

    ``instead``: what the error advises where no terminal can be drawn on.

    The terminal is as before at the end, also after an exception. Raises ConfigError without a terminal that
    can be drawn on, and without rich.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigError(f"a live view needs a terminal; {instead}")
    try:
        from rich.console import Console, Group
        from rich.live import Live
    except ImportError:
        raise ConfigError("a live view needs rich: pip install 'redlock-fast[cli]'") from None
    console = Console(highlight=False)
    if console.is_dumb_terminal:
        raise ConfigError(f"a live view cannot draw with TERM={os.environ['TERM']}; {instead}")
    try:
        with (
            Signals(unstoppable=True),
            _keys() as pressed,
            Live(console=console, screen=True, auto_refresh=False) as live,
        ):
            while True:
                seen, due, size = read(), time.monotonic() + interval, None
                while (left := due - time.monotonic()) > 0 or size is None:
                    if size != console.size:
                        size = console.size
                        live.update(Group(*rich_tables(tables(seen), size.width)), refresh=True)
                    if pressed(max(0.0, min(left, TICK))) == b"q":
                        return 0
    except Stopped as stopped:
        return SIGNALLED + stopped.number
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        discard_stdout()
        return SIGNALLED + signal.SIGHUP  # the terminal is gone


@contextmanager
def _keys() -> Iterator[Callable[[float], bytes]]:
    """A function that waits so many seconds for a key, and returns it, or nothing."""
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)

    def pressed(seconds: float) -> bytes:
        ready, _, _ = select.select([terminal], [], [], seconds)
        key = os.read(terminal, 1) if ready else b""
        if ready and not key:
            raise OSError(errno.EIO, "the terminal is gone")
        return key

    tty.setcbreak(terminal)
    try:
        yield pressed
    finally:
        with suppress(termios.error):  # of a terminal that is gone
            termios.tcsetattr(terminal, termios.TCSAFLUSH, before)
