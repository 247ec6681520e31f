"""What must always hold (docs/internals/architecture.md), checked against what the masters really did.

The witness sees everything, in true time: what masters executed, and what each client believes by its own
clock. It never decides anything.

S1 two holders at once. S2 another owner's key was removed or overwritten. S3 a token was used twice.
S4 a success without a quorum, or after the deadline. S5 a request that could succeed was executed twice.
C a master executed what proof/conformance.py does not allow, of locks that are one key.
V a master that was counted in a confirmed round does not keep the token until that round's deadline.
F fencing tokens out of order or given out twice. L1 a free lock was not acquired with a majority healthy,
or an operation outlived its time. L2 a key of ours was left behind. L4 a client
remembers what is over. E something was raised that should not be.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from proof.conformance import NotAllowed, Step, replay
from redlock_fast.algorithm.lease import Lease

from .requests import Place
from .votes import CountedVotes
from .world import World

#: For sums of floating-point numbers, in seconds.
HAIR = 1e-6


@dataclass(slots=True, eq=False)
class Hold:
    """What a client believes: that it holds all ``places`` until ``end`` (true time).

    ``shared``: other holds of this kind may be there at the same time.
    """

    actor: str
    places: tuple[Place, ...]
    end: float
    shared: bool = False

    def __str__(self) -> str:
        return b" and ".join(key for key, _ in self.places).decode()


class Witness:
    """Collects ``violations``: which rule, and how."""

    def __init__(self, world: World, masters: int) -> None:
        self.world = world
        self.quorum = masters // 2 + 1
        self.violations: list[tuple[str, str]] = []
        self.votes = CountedVotes(world, masters, self.violated)
        self.holds: dict[bytes, list[Hold]] = defaultdict(list)
        self.fences: dict[bytes, list[tuple[int, Hold]]] = defaultdict(list)
        #: By token: the client that drew it.
        self.drawn: dict[bytes, str] = {}
        #: By place: the masters that granted it, and when each of them last prolonged it.
        self.granted: dict[Place, set[int]] = defaultdict(set)
        self.extended: dict[Place, dict[int, float]] = defaultdict(dict)
        self.executed: set[tuple[int, Place]] = set()
        #: Keys that no request has undone yet; and those that no request can undo.
        self.standing: set[tuple[int, Place]] = set()
        self.excused: set[tuple[int, Place]] = set()
        #: What masters executed, where that is recorded.
        self.history: list[Step] | None = None

    def violated(self, rule: str, how: str) -> None:
        self.violations.append((rule, how))
        self.world.note("VIOLATION", f"{rule}: {how}")

    # --- what masters do ---

    def asked(self, master: int, place: Place, granted: bool, orphaned: bool) -> None:
        """A master executed an acquire."""
        if (master, place) in self.executed:
            self.violated("S5", f"master {master} executed the acquire of {place!r} twice")
        self.executed.add((master, place))
        if granted:
            self.granted[place].add(master)
            self.stands(master, place, orphaned)

    def stands(self, master: int, place: Place, orphaned: bool = False) -> None:
        """A master has the key. ``orphaned``: its connection is lost; the release may have come before it."""
        self.standing.add((master, place))
        if orphaned:
            self.excused.add((master, place))

    def released(self, master: int, place: Place, owner: bytes | None) -> None:
        """A master executed a release of ``place`` and deleted the key of ``owner``."""
        self.standing.discard((master, place))
        self.world.counts["releases that found nothing" if owner is None else "keys deleted"] += 1
        if owner not in (None, place[1]):
            self.removed(master, place, owner)

    def removed(self, master: int, place: Place, owner: bytes | None) -> None:
        self.violated("S2", f"{place[1]!r} removed {place[0]!r} of {owner!r} on master {master}")

    def prolonged(self, master: int, place: Place) -> None:
        self.extended[place][master] = self.world.now
        self.stands(master, place)

    def lost_memory(self, master: int) -> None:
        self.standing = {one for one in self.standing if one[0] != master}
        self.votes.forgot(master)

    # --- what clients do ---

    def draws(self, actor: str, token: bytes) -> None:
        """A client is about to acquire with this token."""
        if token in self.drawn:
            self.violated("S3", f"{actor} uses {token!r}, which {self.drawn[token]} used")
        self.drawn[token] = actor

    def excuse(self, master: int, places: Sequence[Place]) -> None:
        """Their release cannot reach the master any more: the lease has to end by itself."""
        self.excused.update((master, place) for place in places)

    def holds_now(self, hold: Hold, lease: Lease, left: float) -> Hold:
        """A client has this lock by its own state: ``left`` seconds by its own clock."""
        world, actor = self.world, hold.actor
        world.counts["holds"] += 1
        world.note(actor, f"HOLDS {hold} by {hold.places[0][1].decode()} until {hold.end * 1000:.3f} ms")
        if left <= 0:
            self.violated("S4", f"{actor} was granted {hold} after its deadline")
        for place in hold.places:
            if len(self.granted[place]) < self.quorum:
                self.violated("S4", f"{actor} was granted {place[0]!r} by {len(self.granted[place])} masters")
            self.votes.confirmed(place)
            self.holds[place[0]].append(hold)
        self._alone(hold)
        fencing: int | None = getattr(lease, "fencing", None)
        if fencing is not None:
            self._fenced(hold, fencing)
        return hold

    def _alone(self, hold: Hold) -> None:
        now = self.world.now
        for key, _ in hold.places:
            others = self.holds[key] = [one for one in self.holds[key] if one.end > now]
            for other in others:
                if other is not hold and not (other.shared and hold.shared):
                    self.violated("S1", f"{hold.actor} and {other.actor} hold {key!r}")

    def _fenced(self, hold: Hold, fencing: int) -> None:
        """Earlier holders have a smaller one; those that may overlap have another one."""
        earlier = self.fences[hold.places[0][0]]
        self.world.counts["fencing tokens"] += 1
        for number, other in earlier:
            if number == fencing:
                self.violated("F", f"{hold.actor} and {other.actor} both have {fencing} for {hold}")
            elif number > fencing:
                self.violated("F", f"{hold.actor} has {fencing}, after {number} of {other.actor}")
        earlier.append((fencing, hold))

    def prolongs(self, hold: Hold, asked_at: float, end: float) -> None:
        """A client extended its lease until ``end``, later than before: it had asked for that."""
        now, counts = self.world.now, self.world.counts
        if hold.end < now - HAIR:
            self.violated("S4", f"{hold.actor} extended {hold} after its deadline")
        if end > hold.end:
            counts["extended"] += 1
            for place in hold.places:
                masters = [at for at in self.extended[place].values() if at >= asked_at]
                if len(masters) < self.quorum:
                    self.violated("S4", f"{hold.actor} extended {place[0]!r} on {len(masters)} masters")
                self.votes.confirmed(place)
        self.world.note(hold.actor, f"EXTENDS {hold} until {end * 1000:.3f} ms")
        hold.end = end
        self._alone(hold)

    def gives_up(self, hold: Hold) -> None:
        """From here on the client does not believe that it holds."""
        if hold.end <= self.world.now:
            self.world.counts["holds that ran out"] += 1
        hold.end = min(hold.end, self.world.now)
        for place in hold.places:
            self.votes.given_up(place)
        self.world.note(hold.actor, f"gives up {hold}")

    def took(self, actor: str, what: str, seconds: float, allowed: float) -> None:
        """How long an operation took, by its caller's clock."""
        if seconds > allowed + HAIR:
            self.violated("L1", f"{actor}: {what} took {seconds:.6f} s of {allowed:.6f} s")

    def end(self, dead: set[str]) -> None:
        """Everything was delivered and no client holds anything: what still stands was left behind."""
        try:
            self.world.counts["steps of the model"] += replay(self.history or ())
        except NotAllowed as error:
            self.violated("C", str(error))
        for master, place in self.standing:
            if (master, place) in self.excused or self.drawn.get(place[1]) in dead:
                self.world.counts["keys left to expire"] += 1
            else:
                self.violated("L2", f"{place!r} of {self.drawn.get(place[1])} was left on master {master}")
