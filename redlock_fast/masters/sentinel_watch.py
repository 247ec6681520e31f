"""The Sentinel watch: sees that the Sentinels of a master name another one, and lets go of the former.

A server that was demoted, or that is cut off from its Sentinels, may keep its connections for a long time.
"""

from __future__ import annotations

import math
import time

from ..engine.threads import start_thread
from ..telemetry import log_error
from .connect import ATTEMPT_TIMEOUTS
from .connections import Connections
from .master import Master
from .probe import ConnectError
from .sentinel import Unknown
from .settings import ConnectorSettings


class SentinelWatch:
    """Asks the Sentinels of each connected master now and then."""

    def __init__(self, settings: ConnectorSettings, connections: Connections) -> None:
        self._timeout = settings.connect_timeout
        self._interval = settings.guard.max_ttl / 4  # seconds between two queries
        self._connections = connections
        self._next: dict[int, float] = {}  # when the Sentinels of each master are asked again

    def put_off(self, number: int) -> None:
        """Ask the Sentinels of a master in one interval: they have named it just now, or gave no answer."""
        self._next[number] = time.monotonic() + self._interval

    def look(self, number: int, now: float) -> None:
        """Ask the Sentinels of a connected master in a thread, if it has any and it is time for that."""
        master, due = self._connections.roster.masters[number], self._next.get(number, 0.0)
        if due <= now and master.target.ask_sentinels:
            self._next[number] = math.inf
            try:
                start_thread("sentinel", self._query, number, master)
            except Exception:  # no thread, or no memory, is available: the next look tries again
                self._next[number] = due
                raise

    def _query(self, number: int, master: Master) -> None:
        """Disconnect a master when its Sentinels name another one. It stays if none of them answers."""
        connections, monitor = self._connections, self._connections.monitor
        ask, timeout, asked_on = master.target.ask_sentinels, self._timeout, master.link.connections
        assert ask
        try:
            named = master.target.calls.run(
                lambda: ask(timeout), ATTEMPT_TIMEOUTS * timeout, lambda late: None
            )
            with monitor.mutex:
                same = master.link.attached and master.link.connections == asked_on and not monitor.ended()
                if same and master.server.where != named.where:
                    connections.give_up(
                        number, f"the Sentinels name another master: {named.host}:{named.port}"
                    )
                    monitor.wake()
        except (Unknown, ConnectError):
            pass
        except Exception:  # memory is short
            log_error("connector-error")
        finally:
            self.put_off(number)
