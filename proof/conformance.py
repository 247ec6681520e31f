"""Trace conformance: replay what each master executed through the model of a plain-lock master.

A history is a list of ``Step``; ``replay`` raises ``NotAllowed`` at the first one that the next-state
relation of the model does not have. Recording is one line where a master executes a request of a plain lock:
``history += steps_of(master, milliseconds, Verb(verb).name, args, vote)``, by the master's own clock, in the
order of execution. A master that loses its data adds ``Step(master, milliseconds, FORGOT)``; one that comes
back with other data adds an ACQUIRE, granted, for each key after that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

#: SET NX of an acquire or a refill; compare-and-delete; compare-and-extend; EXISTS; PTTL; SET NX and count;
#: compare-and-raise a counter. And no command: the master lost everything (a restart, a flush, a full sync).
ACQUIRE, RELEASE, EXTEND, EXISTS, PTTL, FENCE, RAISE_FENCE, FORGOT = (
    "acquire", "release", "extend", "exists", "pttl", "fence", "lift", "forgot",
)  # fmt: skip


@dataclass(frozen=True)
class Step:
    """One command that a master executed.

    Attributes:
        master: Its number.
        time: Milliseconds, by the master's own clock.
        verb: One of the above.
        key, token: Of the lock; empty where the verb has none.
        number: The ttl in milliseconds; of RAISE_FENCE the fencing token.
        reply: The vote: above 0 granted, 0 refused; of PTTL the reply. Of RAISE_FENCE, below 0: the counter,
            which is not raised. None: an error, which changes nothing.
        counter: The key of the counter, of FENCE and RAISE_FENCE.
    """

    master: int
    time: int
    verb: str
    key: bytes = b""
    token: bytes = b""
    number: int = 0
    reply: int | None = None
    counter: bytes = b""


#: Requests by the names of their verbs in redlock_fast.wire.commands, with the places of their arguments.
_VERBS = {
    "ACQUIRE": ACQUIRE, "REFILL": ACQUIRE, "RELEASE": RELEASE, "EXTEND": EXTEND, "EXISTS": EXISTS,
    "WATCH": PTTL, "FENCE": FENCE, "RAISE_FENCE": RAISE_FENCE,
}  # fmt: skip


def steps_of(master: int, time: int, verb: str, args: Sequence[bytes], vote: int | None) -> list[Step]:
    """The step of one request; none for a request of another kind of lock.

    ``args``: key, token, ttl or number, counter, as far as the verb has them. ``vote``: None for an error.
    """
    if verb not in _VERBS:
        return []
    token = args[1] if len(args) > 1 else b""
    number = int(args[2]) if len(args) > 2 else 0
    counter = args[3] if len(args) > 3 else b""
    return [Step(master, time, _VERBS[verb], args[0], token, number, vote, counter)]


class NotAllowed(AssertionError):
    """A step that the model does not have: the number in the history, the step, and what the model has."""


@dataclass
class Master:
    """The model of one master: keys with token and end, and counters of fencing tokens.

    ``slack``: for so many milliseconds around its end a key may be there or not.
    """

    slack: int = 1
    keys: dict[bytes, tuple[bytes, int]] = field(default_factory=dict)
    counters: dict[bytes, int] = field(default_factory=dict)

    def owners(self, key: bytes, now: int) -> set[bytes | None]:
        """The tokens that the key may have now; None: it is missing."""
        if key not in self.keys:
            return {None}
        token, end = self.keys[key]
        possible: set[bytes | None] = set()
        if now <= end + self.slack:
            possible.add(token)
        if now >= end - self.slack:
            possible.add(None)
        return possible

    def step(self, step: Step) -> str | None:
        """Take the step. Returns why the model does not have it, or None."""
        if step.verb == FORGOT:
            self.keys.clear()
            self.counters.clear()
            return None
        if step.reply is None:
            return None
        owners = self.owners(step.key, step.time)
        if step.verb in (ACQUIRE, FENCE):
            return self._acquire(step, owners)
        if step.verb in (RELEASE, EXTEND, RAISE_FENCE):
            return self._own(step, owners)
        if step.verb == EXISTS:
            there = owners - {None}
            return None if (there if step.reply else None in owners) else f"the key is {_words(owners)}"
        return self._pttl(step, owners)

    def _acquire(self, step: Step, owners: set[bytes | None]) -> str | None:
        if not step.reply:
            return None if owners - {None} else "refused, though the key is missing"
        if None not in owners:
            return f"granted, though the key is {_words(owners)}"
        self.keys[step.key] = (step.token, step.time + step.number)
        if step.verb == FENCE:
            last = self.counters.get(step.counter, 0)
            if step.reply <= last:
                return f"counted {step.reply} after {last}"
            self.counters[step.counter] = step.reply
        return None

    def _own(self, step: Step, owners: set[bytes | None]) -> str | None:
        """Commands that compare the token."""
        last = self.counters.get(step.counter, 0)
        if not step.reply:
            uncounted = step.verb == RAISE_FENCE and not last  # a refill wrote the key, and no counter
            wrong = owners == {step.token} and not uncounted
            return "refused, though the key has this token" if wrong else None
        if step.token not in owners:
            return f"done, though the key is {_words(owners)}"
        if step.reply is not None and step.reply < 0:  # a counter that is not raised
            return None if last == -step.reply else f"it says {-step.reply}, though the counter is {last}"
        if step.verb == RELEASE:
            del self.keys[step.key]
        elif step.verb == EXTEND:  # it never shortens
            self.keys[step.key] = (step.token, max(self.keys[step.key][1], step.time + step.number))
        elif last >= step.number:
            return f"the counter is raised to {step.number}, though it is {last}"
        else:
            self.counters[step.counter] = step.number
        return None

    def _pttl(self, step: Step, owners: set[bytes | None]) -> str | None:
        assert step.reply is not None
        if step.reply < 0:
            return None if None in owners else f"missing, though the key is {_words(owners)}"
        if owners == {None}:
            return "time is left, though the key is missing"
        left = self.keys[step.key][1] - step.time
        return None if abs(left - step.reply) <= self.slack else f"{step.reply} ms left instead of {left}"


def replay(history: Iterable[Step], slack: int = 1) -> int:
    """Replay a history of all masters; returns how many steps it has. Raises NotAllowed."""
    masters: dict[int, Master] = {}
    count = 0
    for count, step in enumerate(history, 1):
        reason = masters.setdefault(step.master, Master(slack)).step(step)
        if reason is not None:
            raise NotAllowed(f"step {count}, {step}: {reason}")
    return count


def _words(owners: set[bytes | None]) -> str:
    return " or ".join(sorted("missing" if owner is None else repr(owner) for owner in owners))
