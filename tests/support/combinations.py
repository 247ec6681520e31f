"""Which combinations of engine, kind of server and kind of client a test runs in."""

from __future__ import annotations

import math
import os
import zlib
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

#: Fixtures with a parameter that most behaviours do not depend on.
AXES = ("engine_name", "masters", "plain", "make_loop")
#: Every combination.
FULL = "REDLOCK_FAST_TEST_FULL" in os.environ


def spare(items: list[Any]) -> Iterator[Any]:
    """The items to leave out: of each test so many stay that each value of each axis occurs.

    The name of the test and its other parameters decide which ones. So every two values meet in many tests.
    A test that names its combinations itself keeps them all.
    """
    tests: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
    for item in items:
        if hasattr(item, "callspec"):
            tests[_without_axes(item)].append(item)
    for group in tests.values():
        values = [_values(group, name) for name in AXES]
        axes = [axis for axis, found in enumerate(values) if len(found) > 1]
        if len(axes) < 2 or len(group) != math.prod(len(values[axis]) for axis in axes):
            continue
        longest = max(axes, key=lambda axis: len(values[axis]))
        turn = zlib.crc32(group[0].nodeid.encode())
        for item in group:
            places = [values[axis].index(_value(item, name)) for axis, name in enumerate(AXES)]
            if any(
                places[axis] != (places[longest] + (turn >> axis)) % len(values[axis])
                for axis in axes
                if axis != longest
            ):
                yield item


def _without_axes(item: Any) -> tuple[Any, ...]:
    others = {name: id(item.callspec.params[name]) for name in item.callspec.params if name not in AXES}
    return (item.nodeid.partition("[")[0], *sorted(others.items()))


def _values(group: list[Any], name: str) -> list[str]:
    """The different values of this parameter, in order."""
    return list(dict.fromkeys(_value(item, name) for item in group))


def _value(item: Any, name: str) -> str:
    return repr(item.callspec.params.get(name))
