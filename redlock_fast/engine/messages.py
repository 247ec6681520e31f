"""Requests to an engine, the quorums that decide them, and the votes that it returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

#: Votes that are not numbers from a master: no reply yet; and failed, not sent, or an error reply.
NO_REPLY = -(1 << 63)
FAULT = NO_REPLY + 1
#: More masters make no lock safer, and masks of masters have 64 bits in C.
MAX_MASTERS = 63
#: A request is decided by so many lists at most: those of a change from one set of masters to the next.
MAX_LISTS = 2


class Request:
    """A verb with its arguments, for the masters of the bit mask ``masters``.

    ``resend_for``: seconds for which the request is worth resending (rule 7 of the contract); 0 means never.
    ``awaited``: False if no caller waits for the replies, also where others of its exchange are awaited.
    """

    __slots__ = ("args", "awaited", "masters", "resend_for", "verb")

    def __init__(self, verb: int, args: tuple[bytes, ...], masters: int, resend_for: float = 0.0) -> None:
        self.verb: int = verb
        self.args: tuple[bytes, ...] = args
        self.masters: int = masters
        self.resend_for: float = resend_for
        self.awaited: bool = True


class Batch:
    """Many requests of one verb, as columns. Each request is decided by itself.

    ``args``: the arguments of the verb; each is ``bytes`` for all requests, or a list with one for each.
    ``masters`` and ``resend_for``: as of a :class:`Request`, one for all, or a list with one for each.
    ``count``: number of requests.
    """

    __slots__ = ("args", "count", "masters", "resend_for", "verb")

    def __init__(
        self,
        verb: int,
        args: tuple[bytes | list[bytes], ...],
        count: int,
        masters: int | list[int],
        resend_for: float | list[float] = 0.0,
    ) -> None:
        self.verb: int = verb
        self.args: tuple[bytes | list[bytes], ...] = args
        self.count: int = count
        self.masters: int | list[int] = masters
        self.resend_for: float | list[float] = resend_for

    def requests(self) -> list[Request]:
        """The batch as single requests. Raises ValueError or TypeError if a column does not fit."""
        if self.count < 0:
            raise ValueError(f"a batch of {self.count}")

        def column(values: Any, *kinds: type) -> Any:
            if type(values) is not list:
                values = [values] * self.count
            if len(values) != self.count:
                raise ValueError(f"a column of {len(values)} in a batch of {self.count}")
            if not all(isinstance(value, kinds) for value in values):
                raise TypeError(f"a column of a batch has entries that are not {kinds[-1].__name__}")
            return values

        args = zip(*[column(arg, bytes) for arg in self.args], strict=True)
        masters, resend_for = column(self.masters, int), column(self.resend_for, int, float)
        return [Request(self.verb, *row) for row in zip(args, masters, resend_for, strict=True)]


@dataclass(frozen=True, slots=True)
class Quorums:
    """The quorums of one list of masters, or of two: a request needs all of them.

    ``lists``: for each list, the bit mask of its masters and how many of them must grant. A master that is in
    both lists counts in both. Raises ValueError if a list can never, or always, have its quorum.
    """

    lists: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.lists) <= MAX_LISTS:
            raise ValueError(f"1 to {MAX_LISTS} lists of masters, not {len(self.lists)}")
        for mask, need in self.lists:
            if not 0 < mask < 1 << MAX_MASTERS:
                raise ValueError(f"1 to {MAX_MASTERS} masters, not the mask {mask:#x}")
            if not 1 <= need <= mask.bit_count():
                raise ValueError(f"a quorum of {need} in a list of {mask.bit_count()} masters")

    def within(self, masters: int) -> bool:
        """Whether the masters of this bit mask are a quorum of each list."""
        return all((masters & mask).bit_count() >= need for mask, need in self.lists)

    def granted(self, values: Sequence[int]) -> bool:
        """Whether each list has its quorum. ``values``: a vote per master, as of :class:`Votes`."""
        return self.within(sum([1 << master for master, value in enumerate(values) if value > 0]))

    def impossible(self, values: Sequence[int], faults: bool) -> bool:
        """Whether some list can have no quorum any more: by its refusals, and its faults if ``faults``."""
        least = FAULT if faults else FAULT + 1
        return not self.within(
            ~sum([1 << master for master, value in enumerate(values) if least <= value <= 0])
        )


class Votes:
    """The votes of the masters for one request.

    ``values``: one number per master: > 0 grants, 0 or less refuses, FAULT, NO_REPLY.
    ``sent``: bit mask of the masters that were asked.
    ``granted``, ``refused``, ``faulty``: number of each, of all masters.
    ``details``: for masters with FAULT, the reason: text, or the reply as bytes in RESP if it is no longer
    than MAX_DETAIL.
    """

    __slots__ = ("details", "faulty", "granted", "refused", "sent", "values")

    def __init__(
        self,
        values: tuple[int, ...],
        sent: int,
        granted: int,
        refused: int,
        faulty: int,
        details: dict[int, str | bytes],
    ) -> None:
        self.values: tuple[int, ...] = values
        self.sent: int = sent
        self.granted: int = granted
        self.refused: int = refused
        self.faulty: int = faulty
        self.details: dict[int, str | bytes] = details


class BatchVotes:
    """The votes of the masters for a :class:`Batch`.

    ``granted``, ``sent``: as in :class:`Votes`, a list each with one entry for each request. If the batch was
    decided by :class:`Quorums`, ``granted`` is 0 for each request that has not the quorums.
    ``votes``: by number of the request, the votes of each request that has no quorum, or that got a fault
    from a master that was asked.
    """

    __slots__ = ("granted", "sent", "votes")

    def __init__(self, granted: list[int], sent: list[int], votes: dict[int, Votes]) -> None:
        self.granted: list[int] = granted
        self.sent: list[int] = sent
        self.votes: dict[int, Votes] = votes
