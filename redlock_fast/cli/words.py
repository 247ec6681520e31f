"""What the command says, without secrets and without what a terminal would obey."""

from __future__ import annotations

import contextlib
import re
import sys


def say(text: str) -> None:
    """One line on stderr; where that is closed, nothing: there is more important work to do."""
    with contextlib.suppress(OSError, ValueError):
        print(f"redlock-fast: {redacted(text)}", file=sys.stderr, flush=True)


def redacted(text: str) -> str:
    """Without the user and the password of any URL."""
    return re.sub(r"://[^\s/,]*@", "://***@", text)


def printable(name: bytes) -> str:
    """A key that anybody may have written: what is no visible character is escaped."""
    text = name.decode(errors="backslashreplace")
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
