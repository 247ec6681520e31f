"""Whether a lock that was refused is held: votes that are split among several clients show no holder.

In a round with split votes each client has the token of a minority. All are refused, and no client holds the
lock. A caller that may give up only because another client has the lock looks at the tokens: a token that
a quorum of masters has was granted to one client.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from ..engine.contract import Request, Wait
from .effects import Effect, Exchange, Sleep
from .lock_kind import OWNER
from .master_lists import mask_of
from .policy import Policy
from .procedures import reported_tokens
from .quorum import window

#: Seconds after which a caller stops to try again although no client holds the lock.
SPLIT_TIMEOUT = 10.0


class Refusals:
    """The refused attempts of one caller to get the lock ``key``, a plain or a fenced one.

    Make it before the first attempt, and run ``is_held`` after each.
    """

    def __init__(self, policy: Policy, key: bytes) -> None:
        self._policy = policy
        self._key = key
        self._began = self._asked = policy.clock()
        self._count = 0
        self._lasting: set[tuple[int, bytes]] | None = None  # the tokens that masters had at each look

    def is_held(self, refused: Exception) -> Generator[Effect, Any, bool]:
        """Whether another client holds the lock. False: try again; a pause has passed.

        True also for a token that a minority has had for ``SPLIT_TIMEOUT``: no attempt lasts as long, so it
        belongs to a holder that has lost masters, or to a client that died. Raises ``refused`` if all tokens
        have changed in that time, so no client held the lock.
        """
        policy, lists = self._policy, self._policy.voters.lists
        start = policy.clock()
        request = Request(OWNER, (self._key,), policy.voters.asked())
        votes = (yield Exchange([request], lists.need, policy.node_timeout, Wait.ALL))[0]
        tokens = {(n, token) for n, token in reported_tokens(votes).items() if token}
        now = policy.clock()
        # Until former lists are settled, a holder may have a quorum of one of them only.
        if now < lists.settled_at or any(
            lists.is_quorum(mask_of(n for n, other in tokens if other == token)) for _, token in tokens
        ):
            return True
        self._lasting = tokens if self._lasting is None else self._lasting & tokens
        if now - self._began >= max(SPLIT_TIMEOUT, 4 * policy.node_timeout):
            if self._lasting:
                return True
            raise refused
        self._count += 1
        # The attempt may have waited for connections, the look for a master that hangs.
        round_time = min(start - self._asked, now - start)
        low = max(policy.retry.min_delay, round_time)
        yield Sleep(low + window(round_time, self._count, policy.retry.min_delay) * policy.chance())
        self._asked = policy.clock()
        return False
