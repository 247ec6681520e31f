"""Whether a process that watches a lock knows in time that it is free."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from redlock_fast.algorithm.master_lists import mask_of

if TYPE_CHECKING:
    from .engine import Call


def free_for(call: Call) -> float:
    """For how long (seconds) a watch has gone on while the lock was free on a quorum of masters.

    Only masters without a fault in that time count: connected, running, heard, with a vote, and not passed
    over from the beginning because they lagged. Nor does time in which the client itself did not run.
    """
    engine, op = call.engine, call.requests[-1]
    process, now, key = engine.process, engine.world.now, op.request.args[0]
    since = {}
    for number, (server, connection) in enumerate(zip(engine.servers, engine.connections, strict=True)):
        if connection is None or connection.cut or not call.voters >> number & 1:
            continue
        if op.details.get(number) != "lagging":
            calm = max(server.calm_since, server.stopped_until, connection.calm_since)
            heard = max(connection.not_before, connection.silent_until)
            since[number] = max(call.began, process.wakes, calm, heard, server.free_since(key))
    lists = process.core.policy.voters.lists
    last = lists.rank(since) if lists.is_quorum(mask_of(since)) else None
    return -inf if last is None else now - last
