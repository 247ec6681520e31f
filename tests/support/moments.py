"""Every moment of a call at which Python may run a signal handler."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

Inside = Callable[[str], bool]

#: A function whose end is no moment: Python 3.15 reports that of ``with``, and runs no signal handler there.
NO_MOMENT = "__enter__" if sys.version_info >= (3, 15) else ""


def at_moment(
    number: int, action: Callable[[], object], handler: Callable[[], object], inside: Inside
) -> bool:
    """Does ``action``, and ``handler`` at its moment ``number``. Returns whether it has that many.

    A moment is the begin of a function, and the end of each call that such a function makes into C.
    ``inside``: whether the functions of a file count.
    """
    left, handled = number, False

    def profile(frame: FrameType, event: str, function: Any) -> None:
        nonlocal left, handled
        moment = event == "call" or (event == "c_return" and function.__name__ != NO_MOMENT)
        if not handled and moment and inside(frame.f_code.co_filename):
            if left == 0:
                handled = True
                sys.setprofile(None)
                handler()
            left -= 1

    sys.setprofile(profile)
    try:
        action()
    except KeyboardInterrupt:
        pass
    finally:
        sys.setprofile(None)
    return handled


def moments(
    action: Callable[[], object],
    handler: Callable[[], object],
    after: Callable[[], object],
    inside: Inside,
    step: int = 1,
) -> int:
    """Does ``handler`` at each moment of ``action``, and ``after`` after each. Returns their number.

    ``step``: 1 for each moment, 3 for each third one.
    """
    number = 0
    while at_moment(number, action, handler, inside):
        after()
        number += step
    return number
