"""Masters and their votes as letters: g grants, r refuses, f fails, - is silent."""

from __future__ import annotations

from support.fleet import SOON, Fleet, Stopwatch, acquire
from support.scripted import Answer, failing, granting, refusing, silent

from redlock_fast.engine.contract import FAULT, NO_REPLY, Quorums, Votes, Wait

ANSWERS: dict[str, Answer] = {"g": granting, "r": refusing, "f": failing, "-": silent}


def kinds(values: tuple[int, ...]) -> str:
    """The votes as letters."""
    return "".join("-" if v == NO_REPLY else "f" if v == FAULT else "g" if v > 0 else "r" for v in values)


def votes_at_timeout(f: Fleet, masters: str, need: int | Quorums, wait: Wait) -> Votes:
    """The votes of a request that only its timeout ends. A busy machine needs a longer one for all votes."""
    for timeout in (0.1, 1.0, 8.0):
        with Stopwatch() as watch:
            votes = f.ask(acquire(b"k", f.all), need, timeout, wait)
        assert timeout <= watch.seconds < timeout + SOON
        if kinds(votes.values) == masters:
            break
    return votes
