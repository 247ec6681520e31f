"""The places in queues on the masters that acquires of a client keep, and how they are given back at its end.

Only those keep some whose claim is ``lasting``. Between two rounds an acquire rests, perhaps deep in a watch
that nobody can end: so what gives its place back is known here, and whoever closes the client sends it. In a
round it is busy, but soon done; then it finds out, and takes back by itself what that round left behind.
"""

from __future__ import annotations

import threading

from ..engine.contract import Request
from ..errors import ClientClosed


class ServerQueueEntries:
    """``acquire``: an acquire that did not get its lease in the first round."""

    def __init__(self) -> None:
        self._change = threading.Condition()  # reentrant: a signal handler may acquire, too
        self._closed = False
        self._undo: dict[object, list[Request] | None] = {}  # None: it is busy

    def after_fork_in_child(self) -> None:
        """In a child of fork: nobody waits here."""
        self._change = threading.Condition()
        self._undo = {}

    def begin_round(self, acquire: object) -> None:
        """A round ends here, or is about to begin. ClientClosed: it must not."""
        self._note(acquire, None)

    def end_round(self, acquire: object, undo: list[Request]) -> None:
        """No round until ``begin_round``. ClientClosed: there will be none."""
        self._note(acquire, undo)

    def _note(self, acquire: object, undo: list[Request] | None) -> None:
        with self._change:
            if self._closed:
                raise ClientClosed("this client was closed; make a new one")
            self._undo[acquire] = undo

    def remove(self, acquire: object) -> None:
        """It has ended, and taken back what there was."""
        with self._change:
            self._undo.pop(acquire, None)
            self._change.notify_all()

    def close(self) -> list[Request]:
        """No more rounds. What gives back the places of those that rest."""
        with self._change:
            self._closed = True
            return [request for undo in self._undo.values() for request in undo or ()]

    def wait_for_rounds(self, timeout: float) -> bool:
        """Until nobody is busy; False if ``timeout`` (seconds) came first."""
        with self._change:
            return self._change.wait_for(lambda: None not in self._undo.values(), timeout)
