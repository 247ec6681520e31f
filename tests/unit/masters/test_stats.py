"""What a client counts is a value: it can be compared, copied, and sent to another process."""

from __future__ import annotations

import copy
import pickle
from dataclasses import asdict, fields, replace

from redlock_fast import Stats


def different() -> Stats:
    """Another number in each field."""
    return Stats(*range(1, len(fields(Stats)) + 1))


def test_stats_are_a_value() -> None:
    stats = different()
    assert asdict(stats) == {field.name: n for n, field in enumerate(fields(Stats), 1)}
    assert stats != Stats()
    assert replace(stats, lost=0) != stats
    assert "acquired=1" in repr(stats)


def test_copies_are_equal_and_their_own() -> None:
    stats = different()
    for other in (stats.copy(), copy.copy(stats), pickle.loads(pickle.dumps(stats))):
        assert other == stats
        other.acquired += 1
        assert (stats.acquired, other.acquired) == (1, 2)
