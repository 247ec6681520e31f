"""A master: keys with tokens that expire by its own clock, counters, the marker of the restart guard."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any

from proof.conformance import ACQUIRE, FENCE, FORGOT, RELEASE, Step, steps_of
from redlock_fast.masters.probe import Server as Introduction
from redlock_fast.wire.commands import Verb

from .invariants import Witness
from .world import World

if TYPE_CHECKING:
    from .network import Connection

#: Where masters' clocks begin, as seconds since 1970 do; and for how long they have been running then.
EPOCH = 1_000_000.0
UPTIME = 1000.0


class Members(dict[bytes, int]):
    """A sorted set: scores by member. ``until``: when all of it ends, in milliseconds of its master."""

    until = inf


class Server:
    """One master. ``rate``, ``offset``: of its clock. The ``witness`` records what it does.

    ``durable``: it never forgets (appendfsync always), unless its disk is another one. ``push``: it pushes
    when a tracked key changes. ``skew``: of its clock from the beginning, in seconds.
    """

    def __init__(
        self,
        world: World,
        witness: Witness,
        number: int,
        rate: float,
        durable: bool,
        push: bool = False,
        skew: float = 0.0,
    ) -> None:
        self.world = world
        self.witness = witness
        self.number = number
        self.rate = rate
        self.offset = self.skew = skew
        self.durable = durable
        self.push = push
        self.up = True
        self.stopped_until = 0.0
        #: Since when its clock has been left alone.
        self.calm_since = 0.0
        self.starts = 0
        #: How often this process removed all keys, as it counts itself.
        self.flushes = 0
        #: It obeys another master: it refuses to write. And how often its data was replaced so.
        self.replica = False
        self.histories = 0
        self.started = self.time() - UPTIME
        self.keys: dict[bytes, tuple[bytes, int]] = {}
        self.sets: dict[bytes, Members] = {}
        #: Keys that do not exist any more: the time since when.
        self.gone: dict[bytes, float] = {}
        #: By key, the connections that get a push when it changes, once.
        self.tracking: dict[bytes, dict[Connection, None]] = {}
        #: On which one the command came that it is executing.
        self.caller: Connection | None = None
        self.counters: dict[bytes, int] = {}
        #: The process, and since when a client has known it; see RestartMarker.
        self.marker: tuple[str, int] | None = (self.run_id, 0)
        self.connections: list[Connection] = []
        witness.votes.servers.append(self)
        #: To be called when it is up again.
        self.on_start: list[Callable[[], None]] = []

    def __str__(self) -> str:
        return f"master {self.number}"

    @property
    def run_id(self) -> str:
        return f"run-{self.number}-{self.starts}"

    def introduction(self, **more: Any) -> Introduction:
        """What it says of itself to a client. Its uptime may be a second too much."""
        uptime = int(self.time()) - int(self.started)
        persistence = "aof always" if self.durable else "no aof"
        return Introduction(
            run_id=self.run_id, uptime=uptime, persistence=persistence, flushes=self.flushes, **more
        )

    def identity(self) -> dict[str, Any]:
        """More that it says of itself, once clients look at it."""
        replid = f"{self.run_id}/{self.histories}"
        return {"replid": replid, "role": "master", "promoted": self.histories > 0, "witness": self.push}

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

    def _ended(self, milliseconds: float) -> float:
        """When the clock, as it goes now, read that."""
        return (milliseconds / 1000 - EPOCH - self.offset) / self.rate

    def lasts(self, key: bytes, token: bytes) -> float:
        """Until when (true time) ``key`` is that token's, as its clock goes now."""
        for name in (key, b"{%b}:w" % key):
            if self.owner(name) == token:
                return self._ended(self.keys[name][1])
        readers = self.members(b"{%b}:r" % key)
        return self._ended(min(readers[token], readers.until)) if token in readers else -inf

    def set_clock(self, offset: float) -> None:
        """To ``offset`` seconds from where it was in the beginning."""
        self.offset = self.skew + offset
        self.calm_since = self.world.now
        self.witness.votes.look(self)

    def left(self, key: bytes) -> int:
        """What PTTL says."""
        return -2 if self.owner(key) is None else self.keys[key][1] - self.milliseconds()

    def free_since(self, key: bytes) -> float:
        return inf if self.owner(key) is not None else self.gone.get(key, 0.0)

    def put(self, key: bytes, token: bytes, ttl: bytes) -> None:
        self.keys[key] = token, self.milliseconds() + int(ttl)
        self._changed(key)

    def prolong(self, key: bytes, ttl: bytes) -> None:
        """Its token keeps it for so long from now, or longer if it had it for longer."""
        token, until = self.keys[key]
        self.keys[key] = token, self.later(until, self.milliseconds() + int(ttl))
        self._changed(key)

    @staticmethod
    def later(until: int, asked: int) -> int:
        """The new end of what is extended: never an earlier one."""
        return max(until, asked)

    def remove(self, key: bytes) -> None:
        del self.keys[key]
        self.gone[key] = self.world.now
        self._changed(key)

    # --- its sorted sets ---

    def members(self, key: bytes) -> Members:
        """What is in it; nothing where there is none."""
        found = self.sets.get(key)
        if found is not None and (not found or found.until <= self.milliseconds()):
            del self.sets[key]
            found = None
        return Members() if found is None else found

    def add(self, key: bytes, member: bytes, score: int) -> None:
        found = self.sets[key] = self.members(key)
        found[member] = score
        self._changed(key)

    def drop(self, key: bytes, member: bytes) -> None:
        if self.members(key).pop(member, None) is not None:
            self._changed(key)

    def purge(self, key: bytes) -> None:
        """Without what has ended by now."""
        now = self.milliseconds()
        for member in [one for one, ends in self.members(key).items() if ends <= now]:
            self.drop(key, member)

    def prolong_member(self, key: bytes, member: bytes, ttl: bytes) -> None:
        """Or add it."""
        self.add(key, member, self.later(self.members(key).get(member, 0), self.milliseconds() + int(ttl)))
        self.outlive(key, ttl)

    def outlive(self, key: bytes, ttl: bytes) -> None:
        """The whole set lasts for so long, or longer."""
        found, until = self.sets[key], self.milliseconds() + int(ttl)
        if found.until == inf or found.until < until:
            found.until = until

    # --- pushes of changes; never of a key that has expired: real masters may be very late with that ---

    def track(self, key: bytes) -> None:
        """For the connection whose command is executed, where this master can push."""
        if self.push and self.caller is not None:
            self.tracking.setdefault(key, {})[self.caller] = None

    def _changed(self, key: bytes) -> None:
        for connection in self.tracking.pop(key, ()):
            connection.push(key)

    # --- what it did, for the model of a master ---

    def executed(self, verb: int, args: tuple[bytes, ...], vote: int | None) -> None:
        """``vote``: None for an error."""
        if self.witness.history is not None:
            self.witness.history += steps_of(self.number, self.milliseconds(), Verb(verb).name, args, vote)

    def _step(self, verb: str, *more: Any) -> None:
        if self.witness.history is not None:
            self.witness.history.append(Step(self.number, self.milliseconds(), verb, *more))

    def _has_other_data(self) -> None:
        """As if it had executed what it has."""
        now = self.milliseconds()
        for counter, number in self.counters.items():
            key = counter[1:].partition(b"}")[0]
            token, until = self.keys.get(key, (b"", now))
            self._step(FENCE, key, token, until - now, number, counter)
            if not token:
                self._step(RELEASE, key, token)
        for key, (token, until) in self.keys.items():
            if b"{%b}:f" % key not in self.counters:
                self._step(ACQUIRE, key, token, until - now, 1)

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
        self.flushes = 0
        self.replica = False
        self.histories = 0
        self.started = self.time()
        waiting, self.on_start = self.on_start, []
        for connect in waiting:
            connect()

    def snapshot(self) -> tuple[Any, ...]:
        """What is on its disk, or what a replica gets."""
        sets = {}
        for key, members in self.sets.items():
            sets[key] = Members(members)
            sets[key].until = members.until
        return dict(self.keys), sets, dict(self.counters), self.marker

    def restore(self, data: tuple[Any, ...]) -> None:
        """In place of what it has."""
        self.forget()
        self.keys, self.sets, self.counters, self.marker = data
        self._has_other_data()

    def demote(self, master: Server | None) -> None:
        """It becomes a replica of another master, or of an empty one, with a full sync."""
        self.world.note(self, f"becomes a replica of {master or 'an empty master'}")
        self.replica = True
        if master is None:
            self.forget()
        else:
            self.restore(master.snapshot())

    def promote(self) -> None:
        self.world.note(self, "is a master again")
        self.replica = False
        self.histories += 1
        waiting, self.on_start = self.on_start, []
        for connect in waiting:
            connect()

    def flush(self) -> None:
        """A command removes all keys. A client that lost the push of it sees the count when it connects."""
        self.flushes += 1
        self.forget()

    def forget(self) -> None:
        """Lose all that was in memory. Each connection gets a push."""
        self._step(FORGOT)
        self.gone |= dict.fromkeys(self.keys, self.world.now)
        self.keys.clear()
        self.sets.clear()
        self.tracking.clear()
        for connection in self.connections if self.push else ():
            connection.push(None)
        self.counters.clear()
        self.marker = None
        self.witness.lost_memory(self.number)
