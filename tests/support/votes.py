"""The votes that an engine would return."""

from __future__ import annotations

from redlock_fast.engine.contract import FAULT, Votes


def votes(*values: int, sent: int | None = None) -> Votes:
    """These votes, with their counts. ``sent``: the masters that were asked; None: all."""
    return Votes(
        values,
        (1 << len(values)) - 1 if sent is None else sent,
        granted=sum(value > 0 for value in values),
        refused=sum(FAULT < value <= 0 for value in values),
        faulty=values.count(FAULT),
        details={n: "failed" for n, value in enumerate(values) if value == FAULT},
    )
