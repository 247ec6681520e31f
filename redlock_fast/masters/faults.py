"""Votes that say that a master failed: found, counted, logged, and as text.

Compiled where it can be, with the types of ``masters/faults.pxd``.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..algorithm.fencing import AHEAD
from ..algorithm.redlock import RESTARTED, UNLISTED
from ..engine.contract import BACKLOG, NOT_ASKED, NOT_SENT, PROTOCOL_ERROR, SKIP_REASONS
from ..engine.messages import BatchVotes, Votes
from ..wire.resp import error_code, without_arguments
from ..wire.text import clean

if TYPE_CHECKING:
    from .masters import Masters

#: The error replies that are causes by themselves; a server may say anything.
ERRORS = frozenset(
    (
        *("ASK", "BUSY", "CLUSTERDOWN", "CROSSSLOT", "ERR", "EXECABORT", "LOADING", "MASTERDOWN", "MISCONF"),
        *("MOVED", "NOAUTH", "NOPERM", "NOREPLICAS", "NOSCRIPT", "OOM", "READONLY", "TRYAGAIN", "UNKILLABLE"),
        *("WRONGPASS", "WRONGTYPE"),
    )
)
#: The causes of faults that no master has reported.
CAUSES: dict[str, str] = {
    RESTARTED: "restart",
    UNLISTED: "another list",
    AHEAD: "fencing counter",
    **dict.fromkeys(BACKLOG, "backlog"),
}


class Tally:
    """What the votes of one master came to.

    ``causes``: votes that were failures, by cause. ``skipped``: requests that were not sent to it, by reason.
    ``error``: the last fault, as text.
    """

    __slots__ = ("causes", "error", "skipped")

    def __init__(self) -> None:
        self.causes: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        self.error: str = ""

    @property
    def faults(self) -> int:
        """How many votes were failures."""
        return sum(list(self.causes.values()))  # a copy, because other threads add causes


def has_faults(answers: list[Votes] | BatchVotes, masters: Masters) -> bool:
    """Whether a master failed in an exchange. If so, call ``note_faults``.

    A master that was only skipped is counted here: while it is stopped, every exchange skips it.
    """
    found = False
    for votes in answers if type(answers) is list else answers.votes.values():  # type: ignore[union-attr]
        if votes.faulty:
            for master, detail in votes.details.items():
                if detail in SKIP_REASONS:
                    masters.connector.roster.masters[master].tally.skipped[detail] += 1
                elif detail != NOT_ASKED and not _is_text(detail):
                    found = True
    return found


def note_faults(answers: list[Votes] | BatchVotes, masters: Masters) -> None:
    """Count the faults of an exchange, and log each master's at most once in LOG_INTERVAL."""
    if masters.client_state.closed:  # close() has ended the exchange: no master failed
        return
    for votes in answers if type(answers) is list else answers.votes.values():  # type: ignore[union-attr]
        for master, detail in votes.details.items():
            if detail not in NOT_SENT and not _is_text(detail):
                note_fault(master, detail, masters)


def note_fault(master: int, detail: str | bytes, masters: Masters) -> None:
    """Count a fault of one master, and log it at most once in LOG_INTERVAL."""
    one = masters.connector.roster.masters[master]
    one.tally.causes[fault_cause(detail)] += 1
    one.tally.error = fault_text(detail)
    masters.client_state.events.warn("master-fault", one.target.name, one.tally.error)


def fault_reporter(masters: Masters) -> Callable[[int, str], None]:
    """The ``report`` of the client's policy. It does not keep ``masters`` alive."""
    of_client = weakref.ref(masters)

    def report(master: int, why: str) -> None:
        alive = of_client()
        if alive is not None:
            note_fault(master, why, alive)

    return report


def _is_text(detail: str | bytes) -> bool:
    """Whether it is a bulk string: the reply to ``Verb.OWNER``. To another verb it breaks a connection."""
    return type(detail) is bytes and detail.startswith(b"$")


def fault_text(detail: str | bytes) -> str:
    """A fault as text for people: the text of an error reply, or what another reply was."""
    if isinstance(detail, str):
        return detail
    if detail[:1] == b"-":
        return clean(without_arguments(detail[1:-2].decode(errors="backslashreplace")))
    return clean(f"unexpected reply {detail!r}")


def fault_cause(detail: str | bytes) -> str:
    """A fault as a label for counting: the code of an error reply, or the kind of fault."""
    if isinstance(detail, bytes):
        code = error_code(detail).decode(errors="replace")
        return "unexpected reply" if detail[:1] != b"-" else code if code in ERRORS else "other error"
    for cause in ("unexpected reply", PROTOCOL_ERROR):
        if detail.startswith(cause):
            return cause
    return CAUSES.get(detail, "connection")
