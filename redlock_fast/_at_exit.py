"""At the end of the interpreter: what it still holds is released."""

from __future__ import annotations

import atexit
import contextlib
from typing import Any

from ._batches import undo_leases
from ._drive import drive
from ._ledger import holders


def release_held() -> None:
    """Release every lock of this process. A client that held some is closed: a second at most."""
    masters: Any
    for masters in list(holders):
        held: list[Any] = list(masters.held)
        if held and masters.release_at_exit and not masters.closed:
            masters.ending = True  # what is gone from now on is not lost
            with contextlib.suppress(Exception):  # nobody is left to be told
                drive(undo_leases(held), masters)
                masters.close()


atexit.register(release_held)
