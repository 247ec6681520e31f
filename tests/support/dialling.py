"""The threads that connect to masters: they outlive ``close()`` for as long as a master takes."""

from __future__ import annotations

import threading

from support.waiting import DEADLINE, eventually


def dialling() -> bool:
    return any(one.name == "redlock-fast-connect" for one in threading.enumerate())


def none_dials() -> None:
    """Before masters with TLS end.

    Python does not close a TLS socket whose connection is reset before the handshake, and the warning of it
    would fail whichever test runs then.
    """
    eventually(lambda: not dialling(), "the threads that connect end", deadline=2 * DEADLINE)
