"""What goes to an engine, and what comes back. Plain values: all that is decided is decided elsewhere."""

from __future__ import annotations

from typing import Any


class Request:
    """``verb`` with its arguments for the masters of the bit mask ``masters``.

    ``resend_for``: for how many seconds the request is worth sending again (see rule 7); 0 means never.
    """

    __slots__ = ("args", "masters", "resend_for", "verb")

    def __init__(self, verb: int, args: tuple[bytes, ...], masters: int, resend_for: float = 0.0) -> None:
        self.verb = verb
        self.args = args
        self.masters = masters
        self.resend_for = resend_for


class Batch:
    """Many requests of one verb, as columns: each is decided by itself.

    ``args``: the verb's arguments, each one ``bytes`` for all requests or a list with one for each.
    ``masters`` and ``resend_for``: as of a :class:`Request`, one for all or a list with one for each.
    ``count``: how many requests.
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
        self.verb = verb
        self.args = args
        self.count = count
        self.masters = masters
        self.resend_for = resend_for

    def requests(self) -> list[Request]:
        """The same as single requests. ValueError or TypeError where a column does not fit."""

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


class Votes:
    """What the masters said to one request.

    ``values``: one int per master: > 0 granted, 0 (or less) refused, FAULT, SILENT.
    ``sent``: bit mask of the masters that the request was handed to.
    ``granted``, ``refused``, ``faulty``: how many of each.
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
        self.values = values
        self.sent = sent
        self.granted = granted
        self.refused = refused
        self.faulty = faulty
        self.details = details


class BatchVotes:
    """What the masters said to a :class:`Batch`.

    ``granted``, ``sent``: as in :class:`Votes`, a list each with one entry for each request.
    ``votes``: by number of the request, the votes of those that got less than ``need`` grants, and of
    those with a master that failed while it was asked.
    """

    __slots__ = ("granted", "sent", "votes")

    def __init__(self, granted: list[int], sent: list[int], votes: dict[int, Votes]) -> None:
        self.granted = granted
        self.sent = sent
        self.votes = votes
