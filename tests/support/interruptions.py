"""What a signal handler raises, raised at a chosen moment: without signals, so that none is left out."""

from __future__ import annotations

import contextlib
import dis
import functools
import gc
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import redlock_fast
from redlock_fast.errors import LockLost

PACKAGE = Path(redlock_fast.__file__).parent
ENGINE = PACKAGE / "engine"
RESUME = dis.opmap["RESUME"]


class AnotherLockLost(LockLost, KeyboardInterrupt):
    """As the LockLost of another lock; ``interrupted`` expects a KeyboardInterrupt."""


def lose_another_lock() -> None:
    """For ``handler``: a signal handler that checks another lock, which is lost."""
    raise AnotherLockLost("another lock is not held")


def interrupted(
    action: Callable[[], object],
    number: int,
    *,
    spared: tuple[str, ...] = (),
    inside: tuple[str, ...] = ("",),
    handler: Callable[[], object] = lambda: None,
) -> str | None:
    """Do this, with a KeyboardInterrupt in its moment ``number``, from 0. None: it has not so many.

    Returns which moment that was: "call", "return" or "c_return", and in which function.

    Moments are those at which Python looks for signals: where a function begins and where a generator goes
    on, and after a call of a function in C. And after one of a function in Python, at which Python looks
    only where a tool replaces its evaluation of frames. The package's own count, but not those of its engine
    in Python: engines have tests of their own. ``spared``: files (below the package) whose functions may
    have done all by when they return, so that what comes then is for their callers. ``inside``: folders
    (below the package); only the moments of these count. ``handler``: what is done before it raises.
    """
    left = number
    which = None

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal left, which
        if is_interruptible(frame, event, argument, spared, inside):
            if left == 0:
                which = f"{event} {frame.f_code.co_name}"
                sys.setprofile(None)
                handler()
                raise KeyboardInterrupt  # which ends the profiling
            left -= 1

    before, collects = sys.getprofile(), gc.isenabled()
    gc.disable()  # Python drops an exception that is raised in a finalizer, which may be of earlier garbage
    sys.setprofile(profile)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            action()
    finally:
        sys.setprofile(before)
        if collects:
            gc.enable()
    return which


def is_interruptible(
    frame: FrameType, event: str, argument: Any, spared: tuple[str, ...], inside: tuple[str, ...]
) -> bool:
    code = frame.f_code
    file = counted(code.co_filename)
    if not file or not file.startswith(inside):
        return False
    if event == "call":
        return not inside_yield_from(frame)
    if event == "return":
        return not (code.co_flags & inspect.CO_GENERATOR or file in spared)
    # ``__enter__`` is a call from Python 3.14 on, and only 3.14 looks for signals after it.
    return event == "c_return" and (sys.version_info < (3, 15) or argument.__name__ != "__enter__")


@functools.cache
def counted(name: str) -> str:
    """The file below the package; "" for those whose moments are not counted."""
    path = Path(name)
    if PACKAGE not in path.parents or ENGINE in path.parents:
        return ""
    return path.relative_to(PACKAGE).as_posix()


def inside_yield_from(frame: FrameType) -> bool:
    """Whether it goes on there, on its way to the generator inside: no signal is looked for."""
    opcode, argument = frame.f_code.co_code[frame.f_lasti : frame.f_lasti + 2]
    return opcode == RESUME and argument & 3 >= 2
