"""What the command says, without secrets."""

from __future__ import annotations

import contextlib
import sys

from ..wire.text import without_logins


def print_error(text: str) -> None:
    """One line on stderr; where that is closed, nothing: there is more important work to do."""
    with contextlib.suppress(OSError, ValueError):
        print(f"redlock-fast: {without_logins(text)}", file=sys.stderr, flush=True)
