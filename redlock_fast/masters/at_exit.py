"""At the end of the interpreter: what it still holds is released."""

from __future__ import annotations

import atexit
import contextlib
from typing import Any

from ..algorithm.batch import undo_leases
from .held_leases import clients_with_leases


def release_held() -> None:
    """Release every lock of this process. A client that held some is closed: a second at most."""
    masters: Any
    for masters in list(clients_with_leases):
        held: list[Any] = list(masters.held)
        if held and masters.release_at_exit and not masters.closed:
            effect: Any
            masters.ending = True  # what is gone from now on is not lost
            with contextlib.suppress(Exception):  # nobody is left to be told
                for effect in undo_leases(held):
                    masters.engine.exchange(effect.requests, 0, 0.0)
                masters.close()


atexit.register(release_held)
