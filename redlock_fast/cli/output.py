"""Messages on stderr, without secrets."""

from __future__ import annotations

import contextlib
import sys

from ..wire.text import without_logins


def print_error(text: str) -> None:
    """Print a line to stderr. A closed stderr is ignored, because the caller has to go on."""
    with contextlib.suppress(OSError, ValueError):
        print(f"redlock-fast: {without_logins(text)}", file=sys.stderr, flush=True)
