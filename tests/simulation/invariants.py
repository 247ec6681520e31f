"""What must always hold (docs/architecture.md), checked against what the masters really did.

The witness sees everything, in true time: what masters executed, and what each client believes by its own
clock. It never decides anything.

S1 two holders at once. S2 another owner's key was removed or overwritten. S3 a token was used twice.
S4 a success without a quorum, or after the deadline. S5 a request that could succeed was executed twice.
F fencing tokens out of order or given out twice. L1 a free lock was not acquired with a majority healthy,
or an operation outlived its time. L2 a key of ours was left behind. L4 a client
remembers what is over. E something was raised that should not be.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from redlock_fast._lease import Lease

from .world import World

#: For sums of floating-point numbers, in seconds.
HAIR = 1e-6


@dataclass(slots=True, eq=False)
class Hold:
    """What a client believes: that it holds ``key`` until ``end`` (true time)."""

    who: str
    key: bytes
    token: bytes
    end: float


class Witness:
    """Collects ``violations``: which rule, and how."""

    def __init__(self, world: World, masters: int) -> None:
        self.world = world
        self.quorum = masters // 2 + 1
        self.violations: list[tuple[str, str]] = []
        self.holds: dict[bytes, list[Hold]] = defaultdict(list)
        self.fences: dict[bytes, list[tuple[int, Hold]]] = defaultdict(list)
        #: By token: who drew it; the masters that granted it, and when they last prolonged it.
        self.drawn: dict[bytes, str] = {}
        self.granted: dict[bytes, set[int]] = defaultdict(set)
        self.extended: dict[bytes, dict[int, float]] = defaultdict(dict)
        self.executed: set[tuple[int, bytes]] = set()
        #: Keys that nobody has undone yet, with the token; and those that could not be.
        self.standing: dict[tuple[int, bytes], bool] = {}
        self.excused: set[tuple[int, bytes]] = set()

    def violated(self, rule: str, how: str) -> None:
        self.violations.append((rule, how))
        self.world.note("VIOLATION", f"{rule}: {how}")

    # --- what masters do ---

    def asked(self, master: int, token: bytes, granted: bool, orphaned: bool) -> None:
        """A master executed an acquire."""
        if (master, token) in self.executed:
            self.violated("S5", f"master {master} executed the acquire of {token!r} twice")
        self.executed.add((master, token))
        if granted:
            self.granted[token].add(master)
            self.standing[master, token] = True
            if orphaned:  # its connection is lost: the release came before it, on another
                self.excused.add((master, token))

    def refilled(self, master: int, token: bytes, orphaned: bool) -> None:
        """A master that had lost the key has it again."""
        self.standing[master, token] = True
        if orphaned:
            self.excused.add((master, token))

    def released(self, master: int, key: bytes, token: bytes, owner: bytes | None) -> None:
        """A master executed a release with ``token`` and deleted the key of ``owner``."""
        self.standing.pop((master, token), None)
        self.world.counts["releases that found nothing" if owner is None else "keys deleted"] += 1
        if owner not in (None, token):
            self.removed(master, key, token, owner)

    def removed(self, master: int, key: bytes, token: bytes, owner: bytes | None) -> None:
        self.violated("S2", f"{token!r} removed {key!r} of {owner!r} on master {master}")

    def prolonged(self, master: int, token: bytes) -> None:
        self.extended[token][master] = self.world.now
        self.standing[master, token] = True

    def lost_memory(self, master: int) -> None:
        self.standing = {place: True for place in self.standing if place[0] != master}

    # --- what clients do ---

    def draws(self, who: str, token: bytes) -> None:
        """A client is about to acquire with this token."""
        if token in self.drawn:
            self.violated("S3", f"{who} uses {token!r}, which {self.drawn[token]} used")
        self.drawn[token] = who

    def excuse(self, master: int, token: bytes) -> None:
        """Its release cannot reach the master any more: the lease has to end by itself."""
        self.excused.add((master, token))

    def holds_now(self, who: str, key: bytes, lease: Lease, end: float, left: float) -> Hold:
        """A client was told that it holds ``key``: until ``end``, ``left`` seconds by its own clock."""
        world, hold = self.world, Hold(who, key, lease.token, end)
        world.counts["holds"] += 1
        world.note(who, f"HOLDS {key.decode()} by {lease.token.decode()} until {end * 1000:.3f} ms")
        if left <= 0:
            self.violated("S4", f"{who} was granted {key!r} after its deadline")
        if len(self.granted[lease.token]) < self.quorum:
            self.violated("S4", f"{who} was granted {key!r} by {len(self.granted[lease.token])} masters")
        self._alone(hold)
        self.holds[key].append(hold)
        fencing: int | None = getattr(lease, "fencing", None)
        if fencing is not None:
            self._fenced(hold, fencing)
        return hold

    def _alone(self, hold: Hold) -> None:
        now = self.world.now
        others = self.holds[hold.key] = [one for one in self.holds[hold.key] if one.end > now]
        for other in others:
            if other is not hold:
                self.violated("S1", f"{hold.who} and {other.who} hold {hold.key!r}")

    def _fenced(self, hold: Hold, fencing: int) -> None:
        """Those who held before have a smaller one; those who may overlap have another one."""
        earlier = self.fences[hold.key]
        self.world.counts["fencing tokens"] += 1
        for number, other in earlier:
            if number == fencing:
                self.violated("F", f"{hold.who} and {other.who} both have {fencing} for {hold.key!r}")
            elif number > fencing:
                self.violated("F", f"{hold.who} has {fencing}, after {number} of {other.who}")
        earlier.append((fencing, hold))

    def prolongs(self, hold: Hold, asked_at: float, old_end: float, end: float, asked: bool) -> None:
        """A client was told that it holds until ``end``; it had asked at ``asked_at``."""
        now, counts = self.world.now, self.world.counts
        if old_end < now - HAIR:
            self.violated("S4", f"{hold.who} extended {hold.key!r} after its deadline")
        if asked:
            counts["extended"] += 1
            masters = [at for at in self.extended[hold.token].values() if at >= asked_at]
            if len(masters) < self.quorum:
                self.violated("S4", f"{hold.who} extended {hold.key!r} on {len(masters)} masters")
        self.world.note(hold.who, f"EXTENDS {hold.key.decode()} until {end * 1000:.3f} ms")
        hold.end = end
        self._alone(hold)

    def gives_up(self, hold: Hold) -> None:
        """From here on the client does not believe that it holds."""
        if hold.end <= self.world.now:
            self.world.counts["holds that ran out"] += 1
        hold.end = min(hold.end, self.world.now)
        self.world.note(hold.who, f"gives up {hold.key.decode()}")

    def took(self, who: str, what: str, seconds: float, allowed: float) -> None:
        """How long an operation took, by its caller's clock."""
        if seconds > allowed + HAIR:
            self.violated("L1", f"{who}: {what} took {seconds:.6f} s of {allowed:.6f} s")

    def end(self, dead: set[str]) -> None:
        """Everything was delivered and everybody gave up: what still stands was left behind."""
        for master, token in self.standing:
            if (master, token) in self.excused or self.drawn.get(token) in dead:
                self.world.counts["keys left to expire"] += 1
            else:
                self.violated("L2", f"{token!r} of {self.drawn.get(token)} was left on master {master}")
