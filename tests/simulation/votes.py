"""Rule V, for each vote and not only for each lock (PROTOCOLS: the rule of the vote).

A master that was counted in a confirmed round, of an acquire or of an extension, keeps the token until
that round's deadline, unless it forgot (a restart without its data, a flush) or the client gave the lock up.
Two holders at once need a lost vote and a second coincidence; a lost vote alone is much more frequent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from redlock_fast.engine.pure.request import PendingRequest

from .requests import VOTES, Place, places
from .world import World

if TYPE_CHECKING:
    from .server import Server

#: For sums of floating-point numbers, in seconds.
HAIR = 1e-6


class CountedVotes:
    """What masters owe to leases. ``violated`` is called with rule and text."""

    def __init__(self, world: World, masters: int, violated: Callable[[str, str], None]) -> None:
        self.world = world
        self.violated = violated
        self.servers: list[Server] = []
        #: By master: the places that it must keep, and until when (true time).
        self.owed: list[dict[Place, float]] = [{} for _ in range(masters)]
        #: By master: when it last forgot all.
        self.forgot_at = [-1.0] * masters
        #: By place: the start of the last answered round, its deadline, and the masters that granted it.
        self.rounds: dict[Place, tuple[float, float, list[int]]] = {}

    # --- what masters do ---

    def forgot(self, master: int) -> None:
        self.forgot_at[master] = self.world.now
        self.owed[master].clear()

    def look(self, server: Server) -> None:
        """Whether the master still has what it must keep: to be called after each change."""
        owed, now = self.owed[server.number], self.world.now
        for place, until in list(owed.items()):
            if until <= now:
                del owed[place]
            elif (lasts := server.lasts(*place)) < until - HAIR:
                del owed[place]
                key, token = place
                self.violated(
                    "V",
                    f"{server} keeps {key!r} of {token!r} until {lasts * 1000:.3f} ms, "
                    f"and was counted until {until * 1000:.3f} ms",
                )

    # --- what clients do ---

    def answered(
        self, ops: Sequence[PendingRequest], began: float, deadline: Callable[[PendingRequest], float]
    ) -> None:
        """The votes of these requests are counted now. ``began``, ``deadline``: of a round (true time)."""
        for op in ops:
            if op.need and op.request.verb in VOTES:
                masters = [master for master, value in enumerate(op.values) if value > 0]
                for place in places(op.request):
                    self.rounds[place] = began, deadline(op), masters

    def confirmed(self, place: Place) -> None:
        """The lease is valid until the deadline of the last round, by the votes of that round.

        A master that forgot since the round began owes nothing: a refill may have given it the key with an
        earlier end.
        """
        began, until, masters = self.rounds[place]
        for master in masters:
            if self.forgot_at[master] <= began:
                owed = self.owed[master]
                owed[place] = max(until, owed.get(place, 0.0))
                self.look(self.servers[master])

    def given_up(self, place: Place) -> None:
        for owed in self.owed:
            owed.pop(place, None)
