"""A master: keys with tokens that expire by its own clock, counters, the marker of the restart guard."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING

from redlock_fast._interview import Server as Introduction

from .invariants import Witness
from .world import World

if TYPE_CHECKING:
    from .network import Connection

#: Where masters' clocks begin, as seconds since 1970 do; and for how long they have been running then.
EPOCH = 1_000_000.0
UPTIME = 1000.0


class Server:
    """One master. ``rate``, ``offset``: of its clock. What it does is told to the ``witness``.

    ``durable``: it never forgets (appendfsync always). ``push``: it tells when a tracked key changes.
    """

    def __init__(
        self, world: World, witness: Witness, number: int, rate: float, durable: bool, push: bool = False
    ) -> None:
        self.world = world
        self.witness = witness
        self.number = number
        self.rate = rate
        self.offset = 0.0
        self.durable = durable
        self.push = push
        self.up = True
        self.stopped_until = 0.0
        #: Since when its clock has been left alone.
        self.calm_since = 0.0
        self.starts = 0
        self.started = self.time() - UPTIME
        self.keys: dict[bytes, tuple[bytes, int]] = {}
        #: Since when keys that are not there have been gone.
        self.gone: dict[bytes, float] = {}
        #: By key, the connections that are told when it changes, once.
        self.tracking: dict[bytes, dict[Connection, None]] = {}
        #: On which one the command came that it is executing.
        self.caller: Connection | None = None
        self.counters: dict[bytes, int] = {}
        #: The run id that it was written under, until when there is no vote, whether all survives.
        self.marker: tuple[str, int, bool] | None = (self.run_id, 0, durable)
        self.connections: list[Connection] = []
        #: To be called when it is up again.
        self.on_start: list[Callable[[], None]] = []

    def __str__(self) -> str:
        return f"master {self.number}"

    @property
    def run_id(self) -> str:
        return f"run-{self.number}-{self.starts}"

    def introduction(self) -> Introduction:
        """What it says of itself to a client. Its uptime may be a second too much."""
        uptime = int(self.time()) - int(self.started)
        persistence = "aof always" if self.durable else "no aof"
        return Introduction(run_id=self.run_id, uptime=uptime, persistence=persistence)

    # --- its clock and its keys ---

    def time(self) -> float:
        return EPOCH + self.world.now * self.rate + self.offset

    def milliseconds(self) -> int:
        return int(self.time() * 1000)

    def owner(self, key: bytes) -> bytes | None:
        """The token that is there. A key may end up to a millisecond early, as clocks tick."""
        entry = self.keys.get(key)
        if entry is None:
            return None
        if entry[1] <= self.milliseconds():
            self.gone[key] = self._ended(entry[1])
            del self.keys[key]
            return None
        return entry[0]

    def _ended(self, milliseconds: int) -> float:
        """When the clock, as it goes now, read that."""
        return (milliseconds / 1000 - EPOCH - self.offset) / self.rate

    def set_clock(self, offset: float) -> None:
        self.offset = offset
        self.calm_since = self.world.now

    def left(self, key: bytes) -> int:
        """What PTTL says."""
        return -2 if self.owner(key) is None else self.keys[key][1] - self.milliseconds()

    def free_since(self, key: bytes) -> float:
        return inf if self.owner(key) is not None else self.gone.get(key, 0.0)

    def put(self, key: bytes, token: bytes, ttl: bytes) -> None:
        self.keys[key] = token, self.milliseconds() + int(ttl)
        self._changed(key)

    def remove(self, key: bytes) -> None:
        del self.keys[key]
        self.gone[key] = self.world.now
        self._changed(key)

    # --- who is told of changes; never of a key that has ended: real masters may be very late with that ---

    def track(self, key: bytes, connection: Connection) -> None:
        self.tracking.setdefault(key, {})[connection] = None

    def _changed(self, key: bytes) -> None:
        for connection in self.tracking.pop(key, ()):
            connection.push(key)

    # --- what may happen to it ---

    def crash(self, forgetting: bool) -> None:
        """The process ends: what it has not executed yet is lost, replies on their way are not."""
        self.world.note(self, "crashes" + " and forgets everything" * forgetting)
        self.up = False
        self.stopped_until = 0.0
        self.tracking.clear()
        for connection in self.connections[:]:
            connection.reset(0, replies_too=False)
        if forgetting:
            self.forget()

    def start(self) -> None:
        self.world.note(self, "starts")
        self.up = True
        self.starts += 1
        self.started = self.time()
        waiting, self.on_start = self.on_start, []
        for dial in waiting:
            dial()

    def forget(self) -> None:
        """What it had in memory. Of that it tells everybody."""
        self.gone |= dict.fromkeys(self.keys, self.world.now)
        self.keys.clear()
        self.tracking.clear()
        for connection in self.connections if self.push else ():
            connection.push(None)
        self.counters.clear()
        self.marker = None
        self.witness.lost_memory(self.number)
