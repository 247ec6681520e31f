"""Messages on stderr, without secrets; what becomes of closed streams, and of stdout that takes no more."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sys
import textwrap
from typing import TypeGuard

from ..wire.text import without_logins

#: A full disk, a quota, the largest size of a file; a broken disk, or a terminal that is gone.
WRITE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def print_error(text: str) -> None:
    """Print a line to stderr. A closed stderr is ignored, because the caller has to go on."""
    with contextlib.suppress(OSError, ValueError):
        # One write: print() writes the end of the line apart, and a line of the log may come between.
        sys.stderr.write(f"{fitted(f'redlock-fast: {without_logins(text)}')}\n")
        sys.stderr.flush()


def fitted(line: str) -> str:
    """The line, broken between words where stderr is a terminal that is too narrow for it."""
    if not sys.stderr.isatty():
        return line
    width = shutil.get_terminal_size().columns
    return textwrap.fill(line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def open_closed_streams() -> None:
    """Let stdin, stdout and stderr exist where the caller closed them; what is written there goes nowhere.

    Else a connection to a master may get one of these descriptors, and print() fails without a file.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # each gets the lowest descriptor that is free: its own
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def is_write_error(error: Exception) -> TypeGuard[OSError]:
    """Whether a file or a terminal took no output. No socket has these errors."""
    return isinstance(error, OSError) and error.errno in WRITE_ERRORS and error.filename is None


def discard_stdout() -> None:
    """Let what is written to stdout from now on, or is not flushed yet, go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
