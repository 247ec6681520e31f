"""Between the rounds of an acquire: what came of them so far, whether another is worth it, and when.

With ``push`` the masters say when the lock may be free (RESP3 client tracking), and the lease of the
holder says when it ends at the latest; of all callers of one client only the first of the line asks.
Without it, or where masters fail, the pauses are random.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import replace
from functools import cached_property
from typing import Any

from ..engine.contract import BACKLOG, NOT_ASKED, SILENT, Votes
from .effects import Effect, Pause, Reconnect, Turn, Watch, send_surely
from .lease import Refusal
from .local_queue import Place
from .lock_kind import Claim
from .policy import Rules
from .quorum import Stagger, impossible

#: Seconds until those that wait for a push look anyhow.
REARM = 1.0
#: The same where a master cannot push: at first, and at most.
LOOK, LONGEST_LOOK = 0.05, 0.25
#: Seconds that an acquire waits for connections, which may only try once: masters may be back in a moment.
BLIP = 0.1
#: Why a master that is connected was not asked.
CONNECTED = frozenset({NOT_ASKED, "lagging"}) | BACKLOG


class Tries:
    """The rounds of one acquire. ``give_up_at``: on the lease clock; ``rounds``: how many at most.

    ``token``: that of the next attempt, or of one that is under way. ``sent``: the masters that may have it.
    """

    # As long as nothing else is known. Of the class: most acquires end with their first round.
    sent = 0
    failed = 0
    outage: float | None = None
    began: float | None = None  # the first round
    took = 0.0  # the last round
    spare = math.inf  # seconds until the last round must begin
    place: Place | None = None
    _refusal: Refusal | None = None

    def __init__(
        self,
        rules: Rules,
        claim: Claim,
        give_up_at: float | None,
        rounds: int | None,
        ttl: float = 0.0,
        token: bytes = b"",
    ) -> None:
        self.rules = rules
        self.claim = claim
        self.give_up_at = give_up_at
        self.rounds = rounds
        self.ttl = ttl
        self.token = token

    # --- whether ---

    @property
    def refusal(self) -> Refusal:
        """Why there is no lease. Before the first attempt: other callers of this client wait for it, too."""
        return self._refusal or Refusal(Votes((SILENT,) * self.rules.masters, 0, 0, 0, 0, {}), False, 0)

    def others_first(self) -> bool:
        """Whether other callers of this client wait already. An acquire with ``rounds`` does not queue."""
        return self.rounds is None and self.claim.line in self.rules.line.waiting

    def over(self, votes: Votes, start: float) -> bool:
        """After a round that began at ``start`` and got no lease: whether it was the last."""
        rules, now = self.rules, self.rules.clock()
        if self.claim.lasting:
            rules.places.busy(self)
        self.took = now - start
        self.began = start if self.began is None else self.began
        self._note(votes, start)
        hopeful = self.claim.hopeful and not self.refusal.unavailable
        last = self.rounds is not None and self.failed >= self.rounds and not hopeful
        blip = now - self.began < min(BLIP, rules.node_timeout)
        if last and not (blip and self.gone(votes)):
            return True
        if self.give_up_at is not None:
            # The last round is to end with the time, not to begin then.
            left = self.give_up_at - now
            self.spare = left - min(rules.node_timeout, max(4 * self.took, left / 10))
            return self.spare <= 0
        if not self.refusal.unavailable:
            self.outage = None
            return False
        self.outage = start if self.outage is None else self.outage
        return now - self.outage > rules.patience

    def gone(self, votes: Votes) -> list[int]:
        """The masters that were not connected, where a quorum was missing. Others may be silent, or fail."""
        if not unavailable(self.rules, votes):
            return []
        return [n for n, why in votes.details.items() if type(why) is str and why not in CONNECTED]

    def _note(self, votes: Votes, start: float) -> None:
        self.failed += 1
        bad = unavailable(self.rules, votes)
        cut_short = self.give_up_at is not None and start + self.rules.node_timeout > self.give_up_at
        waited = self.failed > 1 or self.place is not None
        if waited and bad and cut_short:  # masters that had no time to answer are not down
            self._refusal = replace(self.refusal, rounds=self.failed)
        else:
            self._refusal = Refusal(votes, bad, self.failed)

    # --- when ---

    def wait(self, votes: Votes) -> Generator[Effect, list[Votes], bool]:
        """Until the next round. False: the time has gone by in the line."""
        if not self.claim.lasting:
            return (yield from self._wait(votes))
        self.rules.places.rest(self, self.claim.undo(self.token, self.sent, self.ttl))
        again = yield from self._wait(votes)
        self.rules.places.busy(self)
        return again

    def _wait(self, votes: Votes) -> Generator[Effect, list[Votes], bool]:
        rules = self.rules
        if self.claim.hopeful and not self.refusal.unavailable:
            yield Pause(min(self.spare, self._stagger(votes)))
            return True
        usual = rules.retry.delay(self.failed, self.took, rules.chance())
        pause = min(self.spare, self.claim.delay(usual, told=False))
        watch = self.claim.watch(rules.electorate.mask) if rules.push else None
        if watch is None or self.refusal.unavailable:
            gone = self.gone(votes)
            yield Reconnect(pause, gone) if gone else Pause(pause)
            return True
        until = rules.clock() + (pause if self.rounds is not None else self.spare)
        if not (yield from self.queue(until)):
            return self.rounds is not None
        longest = max(0.0, min(until - rules.clock(), self._rearm()))
        seen = (yield Watch([watch], rules.need, longest))[0]
        if impossible(rules.masters, rules.need, 0, seen.faulty):
            yield Pause(max(0.0, min(pause, until - rules.clock())))
        else:
            stagger = self.claim.delay(self._stagger(votes), told=True)
            yield Pause(max(0.0, min(stagger, until - rules.clock())))
        return True

    @cached_property
    def stagger(self) -> Stagger:
        return Stagger()

    def _stagger(self, votes: Votes) -> float:
        return self.stagger.delay(not self.rules.hopeless(votes), self.took, self.rules.chance())

    def _rearm(self) -> float:
        if self.rules.electorate.pushing:
            return REARM
        longest = min(LONGEST_LOOK, LOOK * 2.0 ** min(self.failed - 1, 30))
        return longest * (0.5 + self.rules.chance() / 2)

    def queue(self, until: float = math.inf) -> Generator[Effect, list[Votes], bool]:
        """Wait to be the first of this client, until the time is up; whether it is."""
        key = self.claim.line
        if key is None:
            return True
        if self.place is None:
            self.place = self.rules.line.enter(key)
        if self.give_up_at is not None:
            until = min(until, self.give_up_at)
        if not self.place.first:
            yield Turn(self.place, max(0.0, until - self.rules.clock()))
        return self.place.first

    # --- what is left behind ---

    def retreat(self) -> Generator[Effect, Any, None]:
        """Take back what a round was granted; another round follows."""
        masters, claim = self.sent, self.claim
        if not claim.lasting:
            self.sent = 0
        yield from send_surely(claim.retreat(self.token, masters, self.ttl))
        if claim.anew or not claim.lasting:
            self.token = self.rules.token()

    def undo(self) -> Generator[Effect, Any, None]:
        """Take everything back from the masters that may have it, without waiting for their replies."""
        masters, self.sent = self.sent, 0
        if masters:
            yield from send_surely(self.claim.undo(self.token, masters, self.ttl))

    def leave(self) -> None:
        """Whatever came of it."""
        if self.claim.lasting:
            self.rules.places.leave(self)
        if self.place is not None:
            self.place.leave()


def unavailable(rules: Rules, votes: Votes) -> bool:
    """Whether it was the masters: too many failed, were silent to the end, or granted too late."""
    if impossible(rules.masters, rules.need, votes.refused, votes.faulty):
        return impossible(rules.masters, rules.need, 0, votes.faulty)
    return True
