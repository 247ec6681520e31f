"""The places in queues on the masters that acquires of a client keep, and how they are given back at its end.

Only those keep some whose claim is ``lasting``. Between two rounds an acquire rests, perhaps deep in a watch
that nobody can end: so what gives its place back is known here, and whoever closes the client sends it. In a
round it is busy, but soon done; then it finds out, and takes back by itself what that round left behind.
"""

from __future__ import annotations

import threading

from ..engine.contract import Request
from ..errors import ClientClosed


class Places:
    """``who``: an acquire that did not get its lease in the first round."""

    def __init__(self) -> None:
        self._change = threading.Condition()  # reentrant: a signal handler may acquire, too
        self._closed = False
        self._undo: dict[object, list[Request] | None] = {}  # None: it is busy

    def abandon(self) -> None:
        """In a child of fork: nobody waits here."""
        self._change = threading.Condition()
        self._undo = {}

    def busy(self, who: object) -> None:
        """A round ends here, or is about to begin. ClientClosed: it must not."""
        self._note(who, None)

    def rest(self, who: object, undo: list[Request]) -> None:
        """No round until ``busy``. ClientClosed: there will be none."""
        self._note(who, undo)

    def _note(self, who: object, undo: list[Request] | None) -> None:
        with self._change:
            if self._closed:
                raise ClientClosed("this client was closed; make a new one")
            self._undo[who] = undo

    def leave(self, who: object) -> None:
        """It has ended, and taken back what there was."""
        with self._change:
            self._undo.pop(who, None)
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
