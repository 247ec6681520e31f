"""What ``python -X dev`` tells of: a lock object that is collected while it holds its lock."""

from __future__ import annotations

import sys
import warnings
from typing import Any

from ..algorithm.lease import KEEP_AT_EXIT

#: Without it, lock objects have no finalizer: it would cost each of them time.
DEV_MODE: bool = sys.flags.dev_mode


def warn_of_held(lock: Any) -> None:
    """The finalizer of a lock: warn if it is held. With ``release_at_exit=False`` it is meant to stay."""
    lease = getattr(lock, "_lease", None)
    if lease is not None and lease.at_exit != KEEP_AT_EXIT and lock.locked():
        warnings.warn(
            f"{lock!r} was dropped and not released: it stays locked until its lease ends",
            ResourceWarning,
            source=lock,
            stacklevel=2,
        )
