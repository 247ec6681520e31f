"""Which combinations of engine, kind of server and kind of client a test runs in."""

from __future__ import annotations

import math
import zlib
from collections import defaultdict
from typing import Any

#: Fixtures whose parameters most behaviours do not depend on. The two kinds of client differ most.
ENGINE, SERVER, LOOP, *CLIENTS = AXES = ("engine_name", "masters", "make_loop", "plain", "client_mode")


#: Fixtures that start a redis-server, and the parameters that choose it.
STARTS_REDIS = frozenset({"redis7", "redis_server", "tls_server"})
CHOOSES_REDIS = ("redis7", "redis")


def starts_redis(item: Any) -> bool:
    """Whether the test starts a redis-server."""
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    chosen = any(isinstance(value, str) and value in CHOOSES_REDIS for value in parameters)
    return chosen or not STARTS_REDIS.isdisjoint(item.fixturenames)


def spare(test: str, cases: list[dict[str, Any]], combinations: int = 1) -> set[int]:
    """The places of the cases of a test to leave out. ``cases``: their parameters. ``combinations``: how many
    of each set of other parameters are kept, 1 or 2.

    With 2, a test without other parameters keeps two combinations, so that each engine, each server, and
    clients for threads and for asyncio occur. Of a test with other parameters each set of them keeps one
    combination; of clients for threads and for asyncio, one each. The combinations take turns, so that every
    two values meet in many tests. A test that names its combinations itself keeps them all.
    """
    groups: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for place, case in enumerate(cases):
        groups[tuple(id(case[name]) for name in sorted(case) if name not in AXES)].append(place)
    turn = zlib.crc32(test.encode())
    left_out: set[int] = set()
    for number, group in enumerate(groups.values()):
        values = {name: list(dict.fromkeys(_value(cases[place], name) for place in group)) for name in AXES}
        if len(group) == math.prod(map(len, values.values())):
            wanted = _wanted(values, number, len(groups), turn)[:combinations]
            left_out.update(at for at in group if [_value(cases[at], name) for name in AXES] not in wanted)
    return left_out


def _wanted(values: dict[str, list[str]], number: int, cases: int, turn: int) -> list[list[str]]:
    """The combinations for the case of this number."""

    def combination(place: int, client: int) -> list[str]:
        server = place // 2 if cases >= 4 else place
        places = {ENGINE: place + turn, SERVER: server + (turn >> 1), LOOP: place}
        places |= dict.fromkeys(CLIENTS, client)
        return [values[name][places[name] % len(values[name])] for name in AXES]

    place = number + (turn >> 2) % 4
    clients = max(len(values[name]) for name in CLIENTS)
    if cases > 1 and clients == 1:
        return [combination(place, 0)]
    wanted = [combination(place, 0), combination(place + 1, 1 + place % max(1, clients - 1))]
    return wanted[:: 1 if (turn >> 4) % 2 else -1]


def _value(case: dict[str, Any], name: str) -> str:
    return repr(case.get(name))
