"""The places that acquires of a client have in queues on the masters.

Only kinds with ``keeps_place`` have them. An acquire that waits between rounds cannot be interrupted, so the
requests that remove its place are stored here for ``close``. An acquire in a round ends soon: its next call
raises ClientClosed, and it removes its place itself. For ``close`` the grant of a fenced lock is such a place
while its counters are raised (see ``algorithm/fencing.py``).
"""

from __future__ import annotations

from ..engine.condition import Condition
from ..engine.contract import Request
from ..errors import CLOSED, ClientClosed


class ServerQueueEntries:
    """The places of one client. ``acquire``: an object that identifies an acquire after its first round."""

    def __init__(self) -> None:
        self._change = Condition()
        self._closed = False
        self._undo: dict[object, list[Request] | None] = {}  # None: in a round

    def after_fork_in_child(self) -> None:
        """Forget all places in a child of fork: they belong to the parent."""
        self._change = Condition()
        self._undo = {}

    def begin_round(self, acquire: object) -> None:
        """Note that ``acquire`` begins or has just ended a round. Raises ClientClosed: no further round."""
        self._note(acquire, None)

    def end_round(self, acquire: object, undo: list[Request]) -> None:
        """Store ``undo`` until ``begin_round``. Raises ClientClosed: no further round."""
        self._note(acquire, undo)

    def _note(self, acquire: object, undo: list[Request] | None) -> None:
        with self._change.mutex:
            if self._closed:
                raise ClientClosed(CLOSED)
            self._undo[acquire] = undo

    def remove(self, acquire: object) -> None:
        """Forget ``acquire``: it has ended and removed its place."""
        with self._change.mutex:
            self._undo.pop(acquire, None)
            self._change.notify_all()

    def clear(self) -> list[Request]:
        """Forget all acquires: they can never leave. Returns the requests that remove their places."""
        with self._change.mutex:
            acquires, self._undo = self._undo, {}
            return [request for undo in acquires.values() for request in undo or ()]

    def close(self) -> list[Request]:
        """Forbid further rounds. Returns the requests that remove the places of waiting acquires."""
        with self._change.mutex:
            self._closed = True
            return [request for undo in self._undo.values() for request in undo or ()]

    def wait_for_rounds(self, timeout: float) -> bool:
        """Wait until no acquire is in a round. Returns False after ``timeout`` seconds."""
        return self._change.wait_for(lambda: None not in self._undo.values(), timeout)
