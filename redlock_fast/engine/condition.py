"""A condition variable that signal handlers may interrupt anywhere."""

from __future__ import annotations

import threading
from collections.abc import Callable

from .mutex import new_mutex

#: In the text of the RuntimeError with which an RLock refuses a release.
NOT_OWNED = "release un-acquired lock"


class Condition:
    """A condition variable whose mutex is free after a signal handler raised at any moment of a wait.

    ``mutex``: a thread takes it by itself, ``with condition.mutex``. A handler that raises in
    ``threading.Condition.__enter__``, which is Python code, would leave it locked.
    """

    def __init__(self, mutex: threading.RLock | None = None) -> None:
        # Reentrant: a signal handler may take it, too.
        self.mutex: threading.RLock = mutex or new_mutex()
        self._condition = threading.Condition(self.mutex)

    def notify_all(self) -> None:
        """Wake all threads that wait. The caller holds the mutex."""
        self._condition.notify_all()

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until ``predicate`` is true. Returns its last value, at the latest after ``timeout`` seconds.

        A ``timeout`` beyond ``threading.TIMEOUT_MAX``, some 292 years, ends then.

        Raises what a signal handler raises, also if its thread holds the mutex no longer at that moment.
        """
        if timeout is not None:
            timeout = min(timeout, threading.TIMEOUT_MAX)
        try:
            with self.mutex:
                return self._condition.wait_for(predicate, timeout)
        except RuntimeError as error:
            if error.__context__ is None or NOT_OWNED not in str(error):
                raise
            # The handler raised while Condition.wait had released the mutex, which ``with`` cannot release.
            raise error.__context__ from None
