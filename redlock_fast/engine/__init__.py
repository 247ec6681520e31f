"""Carries requests to the masters and counts votes: one contract, two implementations.

Knows nothing of locks.
"""

from __future__ import annotations

import os
from typing import Literal, get_args

from ..errors import ConfigError
from .contract import Engine
from .greenlets import check_patches, patched_by

VARIABLE = "REDLOCK_FAST_ENGINE"

EngineName = Literal["auto", "native", "python"]
"""An engine by name; "auto": native where it was built."""


def load(engine: str = "auto") -> type[Engine]:
    """The engine class for "native", "python" or "auto".

    "auto" lets REDLOCK_FAST_ENGINE decide where that is set. Otherwise it is "python" beside greenlets, and
    elsewhere native where that was built. An engine that was built and does not load is an error, never a
    silent fallback. Raises ConfigError.
    """
    name, setting = engine, "engine"
    if engine == "auto":
        name, setting = os.environ.get(VARIABLE, "auto"), VARIABLE
    if name not in get_args(EngineName):
        raise ConfigError(f"{setting} must be 'auto', 'native' or 'python', not {name!r}")
    library = patched_by()
    if library:
        if name == "native":
            raise ConfigError(
                f"{setting} must not be 'native' beside {library}: a greenlet that waits in the native "
                "engine stops all greenlets of its thread, and renewal with them; use 'auto' or 'python'"
            )
        check_patches()
        name = "python"
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
