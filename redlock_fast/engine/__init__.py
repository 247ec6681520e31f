"""Carries requests to the masters and counts votes: one contract, two implementations.

Knows nothing of locks.
"""

from __future__ import annotations

import os

from ..errors import ConfigError
from .contract import Engine


def load(engine: str = "auto") -> type[Engine]:
    """The engine class for "native", "python" or "auto" (native where it was built).

    "auto" lets REDLOCK_FAST_ENGINE decide where that is set. An engine that was built and
    does not load is an error, never a silent fallback.
    """
    name = os.environ.get("REDLOCK_FAST_ENGINE", "auto") if engine == "auto" else engine
    if name not in ("auto", "native", "python"):
        raise ConfigError(f"engine must be 'auto', 'native' or 'python', not {name!r}")
    if name != "python":
        try:
            from ._native import NativeEngine
        except ModuleNotFoundError as error:
            if error.name != f"{__package__}._native":
                raise
            if name == "native":
                raise ConfigError(
                    "engine 'native' is not built here: reinstall with a C compiler and "
                    "REDLOCK_FAST_BUILD_NATIVE=yes, or use engine='python'"
                ) from None
        else:
            return NativeEngine
    from .pure.engine import PureEngine

    return PureEngine
