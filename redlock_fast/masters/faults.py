"""Which votes say that a master failed, so that its connection is looked at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ..algorithm.local_queue import QueueEntry
from ..engine.contract import NOT_ASKED, SKIP_REASONS, Engine
from ..engine.messages import BatchVotes, Votes


class HasMasterStates(Protocol):
    """Masters, and where they sit."""

    @property
    def states(self) -> Sequence[Any]: ...


class MasterSet(HasMasterStates, Protocol):
    """What a driver needs of the masters."""

    engine: Engine

    def wait_for_quorum(self, timeout: float) -> bool: ...

    def note_faults(self, votes: Votes) -> None: ...

    def wake_soon(self) -> None: ...

    def pause(self, seconds: float) -> None: ...

    def reconnect(self, seconds: float, disconnected: Sequence[int]) -> None: ...

    def wait_for_turn(self, entry: QueueEntry, seconds: float) -> None: ...


def has_faults(answers: list[Votes] | BatchVotes, masters: HasMasterStates) -> bool:
    """Whether a master failed, so that somebody has to look at it.

    Those that were only left out are counted in here: while a master is stopped that is each time.
    """
    found = False
    for votes in answers if type(answers) is list else answers.votes.values():  # type: ignore[union-attr]
        if votes.faulty:
            for master, detail in votes.details.items():
                if detail in SKIP_REASONS:
                    masters.states[master].skipped[detail] += 1
                elif detail != NOT_ASKED:
                    found = True
    return found


def note_faults(answers: list[Votes] | BatchVotes, masters: MasterSet) -> None:
    """What is ``has_faults``."""
    for votes in answers if type(answers) is list else answers.votes.values():  # type: ignore[union-attr]
        if votes.faulty:
            masters.note_faults(votes)
