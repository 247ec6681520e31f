"""Which votes say that a master failed, so that its connection is looked at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ..algorithm.local_queue import Place
from ..engine.contract import LEFT_OUT, NOT_ASKED, Engine
from ..engine.messages import Tally, Votes


class Seated(Protocol):
    """Masters, and where they sit."""

    @property
    def seats(self) -> Sequence[Any]: ...


class Fleet(Seated, Protocol):
    """What a driver needs of the masters."""

    engine: Engine

    def wait_for_quorum(self, timeout: float) -> bool: ...

    def note_faults(self, votes: Votes) -> None: ...

    def attend(self) -> None: ...

    def pause(self, seconds: float) -> None: ...

    def reconnect(self, seconds: float, gone: Sequence[int]) -> None: ...

    def wait_for_turn(self, place: Place, seconds: float) -> None: ...


def to_be_noted(answers: list[Votes] | Tally, masters: Seated) -> bool:
    """Whether a master failed, so that somebody has to look at it.

    Those that were only left out are counted in here: while a master is stopped that is each time.
    """
    noted = False
    for votes in answers if type(answers) is list else answers.votes.values():  # type: ignore[union-attr]
        if votes.faulty:
            for master, detail in votes.details.items():
                if detail in LEFT_OUT:
                    masters.seats[master].skipped[detail] += 1
                elif detail != NOT_ASKED:
                    noted = True
    return noted


def note_faults(answers: list[Votes] | Tally, fleet: Fleet) -> None:
    """What is ``to_be_noted``."""
    for votes in answers if type(answers) is list else answers.votes.values():  # type: ignore[union-attr]
        if votes.faulty:
            fleet.note_faults(votes)
